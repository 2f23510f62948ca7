"""Error messages of the command line, and their exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.sources.source import SourceError

EXIT_FAILED = 1
EXIT_USAGE = 2


def explain(error: Exception) -> int | None:
    """Say why a command failed; the exit status, or ``None`` for an error that is a bug."""
    if isinstance(error, OSError):
        return None
    from gpumon.config.themes import UnknownThemeError
    from gpumon.fleet.fleet import FleetError
    from gpumon.recording.csv.opening import LogError
    from gpumon.recording.recording import RecordingError
    from gpumon.scheduling.allocation import UncertainAllocationError
    from gpumon.sources.source import SourceError

    if isinstance(error, SourceError):
        return explain_source(error)
    if isinstance(error, (LogError, RecordingError, UncertainAllocationError)):
        return fail(str(error))
    if isinstance(error, FleetError):
        return fail(str(error), EXIT_USAGE)
    return fail(f"{error}.", EXIT_USAGE) if isinstance(error, UnknownThemeError) else None


def explain_source(error: SourceError) -> int:
    """Say why there are no snapshots, and what to do; the exit status."""
    from gpumon.sources.source import NoSuchGpuError

    words = f"{error.sentence} {error.advice}"
    if isinstance(error, NoSuchGpuError):
        return fail(words)
    return fail(f"{words} To look around without a GPU: gpumon --demo")


def fail(sentence: str, status: int = EXIT_FAILED) -> int:
    """Say what went wrong; the exit status."""
    say(sentence)
    return status


def no_standard_output() -> int:
    """Say that standard output is closed; the exit status."""
    return fail("standard output is closed: there is nowhere to write.")


def say(sentence: str) -> None:
    """Write a sentence to standard error; it may contain any characters."""
    from gpumon.text.formatting import printable
    from gpumon.text.status_line import tell

    tell(printable(sentence))
