"""An archive that a user names instead of a log."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.recording.archive.archive import Archive, ArchiveHistory
from gpumon.recording.archive.folder import segments_at, segments_in
from gpumon.recording.archive.segment import read_header
from gpumon.recording.archive.segment_format import SCHEMA_NAME
from gpumon.recording.recording import RecordingError
from gpumon.system.files import beginning
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    import os

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History

DAMAGED = "A part of the history is damaged, and left out."
_BEGINNING = b'{"schema":"%b/' % SCHEMA_NAME.encode()
"""Of each segment."""


class NamedArchive(Archive):
    """An archive that is used like a log."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._states: ArchiveHistory | None = None
        self.damage = ""
        """What is damaged, as far as it was read, as a sentence; empty if nothing is."""

    @property
    def name(self) -> str:
        """Its name in messages: its path."""
        return str(self.folder)

    def read_into(self, history: History) -> None:
        """Make the states known at each moment, as this history judges them; it stays empty."""
        self._states = ArchiveHistory(self, history.empty_states)

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        found = super().at(time)
        self.damage = DAMAGED if self.is_damaged else ""
        return found

    def history_of(self, snapshot: Snapshot) -> History | None:
        """See ``Recording.history_of``."""
        if self._states is None:
            return None
        # The next sample reports that it cannot be read any more.
        with suppress(RecordingError):
            return self._states.of(snapshot)
        return None


def named_archive(path: str | os.PathLike[str]) -> NamedArchive | None:
    """The archive that a path names: its folder, or a segment, which means all of its folder.

    A segment under another name, such as a copy, means itself.

    Args:
        path: The path.

    Returns:
        The archive, which has samples and belongs to the caller; ``None`` if there is none.

    Raises:
        RecordingError: It cannot be read, has no sample, or is of another version.
    """
    given = Path(path)
    try:
        if not segments_at(given) or (given.is_file() and not _is_segment(given)):
            return None
    except PermissionError as error:
        raise RecordingError(
            f"{printable(str(given))} cannot be read: {error.strerror}."
        ) from error
    except (OSError, ValueError):
        # The reader of logs reports it.
        return None
    archive = NamedArchive(_whole(given))
    if archive.first is None:
        # The newest header may say why.
        read_header(segments_at(archive.folder)[-1].path)
        raise RecordingError(f"No sample in {printable(str(given))} can be read.")
    return archive


def _is_segment(path: Path) -> bool:
    return beginning(path, len(_BEGINNING)) == _BEGINNING


def _whole(path: Path) -> Path:
    """The folder of a segment that has the name of one; else the path."""
    with suppress(OSError):
        if path in [file.path for file in segments_in(path.parent)]:
            return path.parent
    return path
