"""Opens what a user names as a log: files of rows, or the history of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpumon.recording.archive.named import named_archive
from gpumon.recording.csv.recording import no_such_host, open_log
from gpumon.recording.recording import Recording

if TYPE_CHECKING:
    import os

    from gpumon.recording.history import History


class LogRecording(Recording, Protocol):
    """A log as ``Recording``."""

    @property
    def name(self) -> str:
        """Its name in messages: its path."""
        ...

    @property
    def damage(self) -> str:
        """What is damaged, as a sentence; empty if nothing is, or as long as it is not known."""
        ...

    def read_into(self, history: History) -> None:
        """Make the states known at each moment, as this empty history judges them.

        It may receive every sample.
        """
        ...

    def close(self) -> None:
        """Close its files."""
        ...


def open_recording(path: str | os.PathLike[str], host: str | None = None) -> LogRecording:
    """Open a log of gpumon's or nvidia-smi's, or a history.

    Args:
        path: Any file of it, or the folder of a history.
        host: Which host to read; may be ``None`` if there is one only.

    Raises:
        RecordingError: There is none, it cannot be read, or it does not have the host.
    """
    archive = named_archive(path)
    if archive is None:
        return open_log(path, host)
    if host is not None and host not in archive.hosts:
        raise no_such_host(archive.name, host, archive.hosts)
    return archive
