"""``gpumon.history()``: the snapshots of the last days that ``gpumon log --local`` keeps."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.api.errors import GpuError
from gpumon.api.snapshots import Snapshot
from gpumon.recording.archive import find_archive
from gpumon.recording.recording import RecordingError
from gpumon.text.time_parsing import day_and_time

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from gpumon.recording.archive import Archive

_NAME_IT = "The argument folder names another one."


class History:
    """The history of this machine, which may grow meanwhile; ``gpumon.history`` opens it.

    All times are seconds since the epoch, as those of ``time.time()``. Methods raise ``GpuError``
    if it cannot be read any more. May be used on any thread.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @property
    def folder(self) -> str:
        """Where it is kept."""
        return str(self._archive.folder)

    @property
    def first(self) -> float | None:
        """The time of its oldest snapshot; ``None`` if there is none."""
        with _readable():
            return self._archive.first

    @property
    def last(self) -> float | None:
        """The time of its newest snapshot; ``None`` if there is none."""
        with _readable():
            return self._archive.last

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """When nothing was sampled for a minute or more: begin and end of each gap."""
        with _readable():
            # Its files are looked at first.
            return [] if self._archive.first is None else [*self._archive.gaps]

    def at(self, time: float) -> Snapshot | None:
        """The newest snapshot that is not newer than a time; ``None`` before the first one."""
        with _readable():
            first = self._archive.first
            found = None if first is None or time < first else self._archive.at(time)
        return None if found is None else Snapshot.of(found)

    def between(self, first: float = -math.inf, last: float = math.inf) -> Iterator[Snapshot]:
        """All snapshots from a time to another one, oldest first; by default all that there are.

        They are read one after the other, some thousand a second, so that a long time takes no
        more memory than a short one.
        """
        with _readable():
            for snapshot in self._archive.samples(first, last):
                yield Snapshot.of(snapshot)

    def __repr__(self) -> str:
        with _readable():
            first, last = self._archive.first, self._archive.last
        if first is None or last is None:
            return f"<gpumon.History in {self.folder!r}: empty>"
        span = f"{day_and_time(first)} to {day_and_time(last)}"
        return f"<gpumon.History in {self.folder!r}: {span}>"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except RecordingError as error:
        raise GpuError(error.sentence, "Open the history again.") from error


def history(folder: str | os.PathLike[str] | None = None) -> History:
    """The history of this machine that ``gpumon log --local`` keeps.

    Args:
        folder: Its folder; by default that of the configuration, of a service or of this user.

    Raises:
        GpuError: None is kept, it is not to be used, or this user may not read it; the text says
            which.
    """
    from os.path import abspath, expanduser

    from gpumon.config import load
    from gpumon.host.machine import MachineReader

    settings = load().settings.history
    if folder is None and not settings.use:
        raise GpuError("The configuration turns off the history of this machine.", _NAME_IT)
    chosen = settings.folder
    if folder is not None:
        # Unlike that of the configuration it is relative to the working directory.
        chosen = abspath(expanduser(folder))  # noqa: PTH100, PTH111 - Path's raises for an unknown user
    found = find_archive(MachineReader().name, chosen or None)
    if found.archive is None:
        raise GpuError(found.note, _NAME_IT)
    return History(found.archive)
