"""What became of the processes that somebody ended, and of the memory they had."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gpumon.host import Refusal, Standing, Target  # noqa: TC001 - msgspec resolves them
from gpumon.model import Suspect  # noqa: TC001 - msgspec resolves annotations at run time

PATIENCE = 5.0
"""Seconds a signal is given before SIGKILL is offered."""

TOLERANCE = 64 * 2**20
"""Bytes that may be missing before it is asked who holds them. What libraries take as they go is
of this size (cuBLAS: a workspace of 32 MiB on Hopper), so others' memory moves by it unseen: their
list is read at another moment than the card."""


class Outcome(str, Enum):
    """What became of one process."""

    WAITING = "waiting"
    """The signal was sent and it has not ended yet."""
    ENDED = "ended"
    GONE = "already gone"
    """It had ended before the signal was sent."""
    REFUSED = "refused"
    """No signal was sent; ``Fate.refusal`` says why."""


class Fate(Struct, frozen=True):
    """What became of one process.

    Attributes:
        target: Which.
        outcome: What became of it.
        late: Whether it was found only while the others were being ended: a child forked meanwhile.
        signal: The last signal it was sent.
        refusal: Why none was sent.
        sentence: For a person, where there is more to say than the outcome: whose it is, what it
            waits for, who has to take notice of its end.
        standing: How it stands while it has not ended.
        seconds: From the first signal to its end.
    """

    target: Target
    outcome: Outcome
    late: bool = False
    signal: int | None = None
    refusal: Refusal | None = None
    sentence: str = ""
    standing: Standing | None = None
    seconds: float | None = None


class Return(Struct, frozen=True):
    """The memory of one card since the first signal.

    Attributes:
        gpu_uuid: The card.
        gpu_index: Its index.
        expected: Bytes that the processes to be ended had there; ``None`` where unknown.
        before: Bytes in use when the first signal was sent.
        now: Bytes in use now; ``None`` while the card does not tell.
        others: Bytes that all other processes on that card took meanwhile, by the driver's list;
            less than 0 where they gave back; ``None`` where unknown.
        remaining: Who holds the card's device file without being listed there, kin of the ended
            first; looked for once too little has come back. Monitors, and the children of
            processes that go on, are left out.
        settled: Whether ``now`` is not expected to change by what was ended: seen twice alike,
            complete, or waited for long enough. A card that is short is looked at further.
        listed: Numbers of those that have ended and that the driver still lists on the card.
    """

    gpu_uuid: str
    gpu_index: int
    expected: int | None
    before: int
    now: int | None
    others: int | None = None
    remaining: tuple[Suspect, ...] = ()
    settled: bool = False
    listed: tuple[int, ...] = ()

    @property
    def returned(self) -> int | None:
        """Bytes that came back, whatever others did; less than 0 if they took more unseen."""
        return None if self.now is None else self.before - self.now + (self.others or 0)

    @property
    def missing(self) -> int | None:
        """Bytes that should have come back and did not."""
        if self.expected is None or self.returned is None:
            return None
        return min(self.expected, max(0, self.expected - self.returned))

    @property
    def open(self) -> bool:
        """Whether a newer snapshot may change what is said of it."""
        return not self.settled or self.short or self.now is None

    @property
    def short(self) -> bool:
        """Whether so much is missing that somebody must hold it."""
        return self.missing is not None and self.missing > TOLERANCE


class Report(Struct, frozen=True):
    """How a case stands.

    Attributes:
        signal: The last signal that was sent; 0 before the first.
        seconds: Since that was sent.
        fates: What became of each process, in the order of sending.
        returns: The cards concerned, by index.
        offers_kill: Whether some still live ``PATIENCE`` seconds after the last signal.
        done: Whether there is nothing left to wait for.
        unlogged: Why the log of signals lacks some that were sent; empty when it does not.
    """

    signal: int
    seconds: float
    fates: tuple[Fate, ...]
    returns: tuple[Return, ...] = ()
    offers_kill: bool = False
    done: bool = False
    unlogged: str = ""
