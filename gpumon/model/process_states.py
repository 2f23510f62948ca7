"""Process states: the letters of ``ps`` and their names."""

from __future__ import annotations

from msgspec import Struct


class ProcessState(Struct, frozen=True):
    """A process state, as the kernel reports it by a letter.

    Attributes:
        letter: As in ``ps``.
        word: Its name, in tables and in the filter.
        about: What it means, for the page of a process.
        halted: Whether the process needs something else to continue it.
    """

    letter: str
    word: str
    about: str
    halted: bool = False

    @property
    def named(self) -> str:
        """The name and the letter."""
        return f"{self.word} ({self.letter})"


UNINTERRUPTIBLE, STOPPED, TRACED, ZOMBIE, ENDED = "D", "T", "t", "Z", "X"
"""``X`` is the letter of ``ps`` for dead processes, which never show there; here it is a process
that has ended while the driver still lists it."""

STATES = {
    one.letter: one
    for one in (
        ProcessState("R", "running", "running"),
        ProcessState("S", "sleeping", "sleeping"),
        ProcessState("I", "sleeping", "sleeping"),
        ProcessState(
            UNINTERRUPTIBLE, "uninterruptible", "waits inside the kernel (D)", halted=True
        ),
        ProcessState(STOPPED, "stopped", "stopped (T)", halted=True),
        ProcessState(TRACED, "traced", "stopped by a debugger (t)", halted=True),
        ProcessState(
            ZOMBIE,
            "zombie",
            "zombie (Z): it has ended, and its parent has not reaped it yet",
            halted=True,
        ),
        ProcessState(
            ENDED, "ended(still listed)", "has ended; the driver still lists it", halted=True
        ),
    )
}
HALTED = {letter: one for letter, one in STATES.items() if one.halted}
