"""Where snapshots come from. One door, ``Source``, whatever stands behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model import Snapshot


class SourceError(Exception):
    """A source cannot be opened, for a reason a person can act on.

    Attributes:
        sentence: What is wrong.
        advice: What to do about it.
    """

    def __init__(self, sentence: str, advice: str) -> None:
        super().__init__(f"{sentence} {advice}")
        self.sentence = sentence
        self.advice = advice


class NoSuchCardError(SourceError):
    """Cards were asked for that the machine does not have.

    Args:
        missing: These, as they were named.
        count: How many it has.
        machine: What to call it.
    """

    def __init__(self, missing: Sequence[str], count: int, machine: str = "This machine") -> None:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        super().__init__(
            f"There is no card {', '.join(missing[:_NAMED])}{more}.", cards_there(count, machine)
        )


_NAMED = 4


def cards_there(count: int, machine: str = "This machine") -> str:
    """Which cards a machine has, as a sentence."""
    if count < 2:
        return f"{machine} has {'only card 0' if count else 'no card'}."
    return f"{machine} has cards 0 to {count - 1}."


class Call(Struct, frozen=True, gc=False):
    """A call the source is inside of at this moment.

    Attributes:
        gpu_uuid: The card it asks, or ``None`` when it asks the driver as a whole.
        function: Its name.
        since: When it began, on the monotonic clock.
    """

    gpu_uuid: str | None
    function: str
    since: float


class CallGivenUpError(Exception):
    """The call that this thread hung in came back after ``Source.give_up``.

    Another thread samples the source by now: this one must not touch it again.
    """


class Source(Protocol):
    """Something that can say, again and again, how the cards are.

    ``open``, ``sample`` and ``close`` are called by one thread at a time, and by another one only
    after ``give_up``; ``current_call``, ``driver_seconds`` and ``give_up`` are for any thread.
    """

    def open(self) -> None:
        """Make ready.

        Raises:
            SourceError: When there is nothing to sample.
            CallGivenUpError: This thread was given up; another one opens the source.
        """
        ...

    def sample(self, *, closely: bool = True) -> Snapshot:
        """One snapshot, now. Raises nothing for what a card or a driver does.

        Args:
            closely: Whether somebody keeps all values. Else what moves with every sample but stands
                on a card's page at most may be up to a second old.

        Raises:
            CallGivenUpError: This thread was given up; another one samples the source.
        """
        ...

    def give_up(self, call: Call, /) -> bool:
        """Leave a card alone that does not return from a call, until it does.

        The thread in the call is lost until then. Another one may go on: it calls ``open``, where
        that had not returned, and ``sample``.

        Returns:
            False when there is nothing to give up: the call has returned, or it does not concern a
            single card.
        """
        ...

    def past(self) -> Iterable[Snapshot]:
        """What the source knows of the time before it was opened, oldest first; mostly nothing."""
        ...

    def close(self) -> None:
        """Give everything back. May be called more than once."""
        ...

    @property
    def hostname(self) -> str:
        """Name of the machine that the snapshots are of; known before the first of them."""
        ...

    @property
    def current_call(self) -> Call | None:
        """What ``sample`` is waiting for right now, for whoever watches it not come back."""
        ...

    @property
    def driver_seconds(self) -> float:
        """Seconds spent inside driver calls since it was opened."""
        ...
