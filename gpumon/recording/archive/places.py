"""Where the archive of a machine is: that of a service, or of the user.

A service keeps it below ``/var/log/gpumon``, where the group of the folder may read it. A user's
own is in the state folder, by the name of the machine: a home folder may be shared by several.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from gpumon.recording.archive.archive import Archive
from gpumon.recording.archive.folder import segments_in
from gpumon.recording.recording import RecordingError
from gpumon.system.folders import config_folder, state_folder
from gpumon.text.formatting import printable

NAME = "history"
SERVICE_FOLDER = Path("/var/log/gpumon") / NAME
_UNFIT = re.compile(r"[^\w.-]", re.ASCII)
_NAME_CHARACTERS = 64
_ALIKE_SECONDS = 600.0
"""Archives whose newest samples are no further apart are both kept now."""


class ArchivePlace(Struct, frozen=True):
    """A folder for an archive."""

    folder: Path
    is_shared: bool  # Whether it is a service's, which the group of the folder may read.


class FoundArchive(Struct, frozen=True):
    """The archive of this machine."""

    archive: Archive | None = None
    # Why there is none, or why another one cannot be read: a sentence for a person, safe to print.
    note: str = ""


def own_place(host: str, folder: str | None = None) -> ArchivePlace:
    """Where this user keeps the archive of a machine.

    A service of systemd has a folder of its own, ``LogsDirectory=`` of its unit.

    Args:
        host: The name of the machine.
        folder: What the configuration says.
    """
    if folder is not None:
        return ArchivePlace(_configured(folder), is_shared=False)
    given = os.environ.get("LOGS_DIRECTORY", "").partition(":")[0]
    if os.path.isabs(given):  # noqa: PTH117 - a text from the environment
        return ArchivePlace(Path(given) / NAME, is_shared=True)
    if os.geteuid() == 0:
        return ArchivePlace(SERVICE_FOLDER, is_shared=True)
    return ArchivePlace(_user_folder(host), is_shared=False)


def _configured(folder: str) -> Path:
    """The folder that the configuration names, perhaps relative to its own."""
    return Path(config_folder(), os.path.expanduser(folder))  # noqa: PTH111 - Path's raises for an unknown user


def _user_folder(host: str) -> Path:
    name = _UNFIT.sub("_", host)[:_NAME_CHARACTERS]
    # A name of dots would lead out of the folder.
    return Path(state_folder()) / NAME / (name.strip(".") or "_")


def find_archive(host: str, folder: str | None = None) -> FoundArchive:
    """The archive of a machine that this user may read; of two the one that is kept now.

    If both are, the one that goes back further. It is opened, and belongs to the caller.

    Args:
        host: The name of the machine.
        folder: What the configuration says; the only place then.
    """
    places = [SERVICE_FOLDER, _user_folder(host)] if folder is None else [_configured(folder)]
    found: list[tuple[float, float, Archive]] = []
    note = ""
    for place in places:
        try:
            if not segments_in(place):
                continue
            archive = Archive(place)
            first, last = archive.first, archive.last
        except PermissionError:
            note = note or _forbidden(place)
            continue
        except (OSError, RecordingError):
            continue
        if first is None or last is None:
            note = note or f"No sample in {printable(str(place))} can be read."
        else:
            found.append((first, last, archive))
    if not found:
        return FoundArchive(
            note=note or "No history of this machine is kept: see gpumon log --local."
        )
    newest = max(last for _, last, _ in found)
    _, _, best = min(
        (one for one in found if one[1] >= newest - _ALIKE_SECONDS), key=lambda one: one[0]
    )
    for _, _, archive in found:
        if archive is not best:
            archive.close()
    return FoundArchive(best, note)


def _forbidden(place: Path) -> str:
    return (
        f"You may not read the history in {printable(str(place))}: only members of its group may."
    )
