"""What commands write: text to standard output, and why they fail to standard error."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from gpumon.config import Settings
    from gpumon.makers.source import SourceError

EXIT_FAILED = 1
EXIT_USAGE = 2


def say(sentence: str) -> None:
    """Write a sentence to standard error; it may contain any characters."""
    from gpumon.text.formatting import printable
    from gpumon.text.status_line import tell

    tell(printable(sentence))


def fail(sentence: str, status: int = EXIT_FAILED) -> int:
    """Say what went wrong; the exit status."""
    say(sentence)
    return status


def no_standard_output() -> int:
    """Say that standard output is closed; the exit status."""
    return fail("standard output is closed: there is nowhere to write.")


def explain(error: Exception) -> int | None:
    """Say why a command failed; the exit status, or ``None`` for an error that is a bug."""
    if isinstance(error, OSError):
        return None
    from gpumon.config.themes import UnknownThemeError
    from gpumon.fleet.fleet import FleetError
    from gpumon.makers.source import SourceError
    from gpumon.recording.csv.opening import LogError
    from gpumon.recording.recording import RecordingError
    from gpumon.scheduling.choose import UncertainAllocationError

    if isinstance(error, SourceError):
        return explain_source(error)
    if isinstance(error, (LogError, RecordingError, UncertainAllocationError)):
        return fail(str(error))
    if isinstance(error, FleetError):
        return fail(str(error), EXIT_USAGE)
    return fail(f"{error}.", EXIT_USAGE) if isinstance(error, UnknownThemeError) else None


def explain_source(error: SourceError) -> int:
    """Say why there are no snapshots, and what to do; the exit status."""
    from gpumon.makers.source import NoSuchGpuError

    sentences = f"{error.sentence} {error.advice}"
    if isinstance(error, NoSuchGpuError):
        return fail(sentences)
    return fail(f"{sentences} To look around without a GPU: gpumon --demo")


def codeset(options: argparse.Namespace) -> str:
    """The encoding of text for a person."""
    from gpumon.text.charset import ASCII, codeset_of, environment

    return ASCII if options.ascii else codeset_of(environment())


def configure_output(options: argparse.Namespace, form: str) -> None:
    """Set up standard output for a format.

    A ``table`` gets characters that the terminal can show; in other formats characters that the
    encoding lacks are replaced. JSON and Prometheus' format are UTF-8 by definition.
    """
    if form == "table":
        from gpumon.text.charset import take_stream

        take_stream(sys.stdout, codeset(options))
    elif isinstance(sys.stdout, io.TextIOWrapper):
        encoding = "utf-8" if form in {"json", "prometheus"} else None
        sys.stdout.reconfigure(encoding=encoding, errors="replace")


def print_text(text: str) -> int:
    """Write a text to standard output; the exit status."""
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def load_settings() -> Settings:
    """Load the configuration, report its mistakes and use its units."""
    from gpumon.config import load
    from gpumon.text.units import use_units

    loaded = load()
    for error in loaded.errors:
        say(error.sentence)
    use_units(loaded.settings.units)
    return loaded.settings
