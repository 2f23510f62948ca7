"""What the command line says when something goes wrong, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.sources import SourceError

EXIT_FAILED = 1
EXIT_USAGE = 2


def explain(error: SourceError) -> int:
    """Say why there are no snapshots, and what to do; the exit status."""
    from gpumon.sources import NoSuchCardError

    words = f"{error.sentence} {error.advice}"
    if isinstance(error, NoSuchCardError):
        return fail(words)
    return fail(f"{words} To look around without a card: gpumon --demo")


def fail(sentence: str, status: int = EXIT_FAILED) -> int:
    """Say what went wrong; the exit status."""
    say(sentence)
    return status


def cannot_write(error: OSError) -> int:
    """Say why standard output takes no more; the exit status."""
    return fail(f"cannot write to standard output: {error.strerror}.")


def say(sentence: str) -> None:
    """Write a sentence to standard error, whatever characters it holds."""
    from gpumon.text.formatting import printable
    from gpumon.text.status_line import tell

    tell(printable(sentence))
