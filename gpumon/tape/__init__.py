"""What can be played back: the machine as it was at any moment that somebody kept.

One door, ``Tape``, whatever stands behind it: what this gpumon has seen itself, or a log.

Times on a tape are seconds since the epoch and never run backwards: where the clock that was
recorded was set back, everything before is moved back with it, as ``history`` does. A tape gives
snapshots with its own times in them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gpumon.model import ProcessId  # noqa: TC001 - msgspec resolves annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model import Snapshot

NO_SAMPLES = "The log has no samples yet."
"""What is said of a log in which there is a heading at most, by whoever opens it."""


class TapeError(Exception):
    """A tape cannot be read, or is none.

    Attributes:
        sentence: What was expected, what was found and where, for a person.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class MarkKind(str, Enum):
    """What happened."""

    CAME = "came"
    """A process was first listed."""
    WENT = "went"
    """A process was listed no more."""
    ERROR = "error"
    """A card reported an XID, was lost, or asked for a reset."""
    THROTTLED = "throttled"
    """A card began to slow itself down for heat or power brake."""
    FULL = "full"
    """A card's memory became full."""


class Mark(Struct, frozen=True):
    """Something that happened at one moment.

    Attributes:
        time: When it was first seen, on the tape's clock.
        kind: What happened.
        subject: The process, or the UUID of the card.
        sentence: The same for a person, such as ``41233 python of chen came to GPU 5``; not safe to
            print, see ``gpumon.text``.
        cards: UUIDs of the cards it happened on.
    """

    time: float
    kind: MarkKind
    subject: ProcessId | str
    sentence: str
    cards: tuple[str, ...] = ()


class Tape(Protocol):
    """Something that knows how the machine was. May be asked by one thread while another fills it.

    A tape of a running gpumon grows at its end and forgets, or thins, at its beginning.
    """

    @property
    def first(self) -> float | None:
        """When its oldest snapshot was taken; ``None`` while there is none."""
        ...

    @property
    def last(self) -> float | None:
        """When its newest was."""
        ...

    def at(self, time: float) -> Snapshot | None:
        """The newest snapshot that is no newer than a time; the oldest where all are newer.

        ``None`` only where there is none at all. Takes less than 200 ms, mostly much less. The same
        moment asked for again may give the same object.
        """
        ...

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """Snapshots from ``first`` to ``last``, both included, oldest first.

        Thinned evenly over time to about ``most`` where there are more; what warms a history up.
        """
        ...

    def step(self, time: float, samples: int) -> float:
        """The time of the snapshot so many before (negative) or after the one ``at`` that time.

        No further than the ends of the tape.
        """
        ...

    def marks(self, first: float, last: float) -> Sequence[Mark]:
        """What happened from ``first`` to ``last``, both included, oldest first, as far as known.

        Quick: of a long log the marks are found in the background, so later there may be more.
        """
        ...

    @property
    def marks_complete(self) -> bool:
        """Whether all of the tape has been looked through for marks."""
        ...

    def next_mark(self, time: float, *, forward: bool) -> Mark | None:
        """The nearest mark after, or before, a time; ``None`` where no more is known."""
        ...
