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


def say(sentence: str) -> None:
    """Write a sentence to standard error, whatever characters it holds."""
    from gpumon.commands.telling import tell
    from gpumon.text import printable

    tell(printable(sentence))
