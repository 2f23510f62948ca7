"""Since when something has held, as far as was seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history.holdings import Holding


class Condition(Struct, frozen=True):
    """Something that may hold for a card for some time.

    Attributes:
        holds: Whether it does, now; ``None`` when that is unknown. Takes the card and what is held
            of it, ``None`` where no present process list is known. Or a clock event reason, as the
            bit that it is: it holds while that is active.
        linger: Seconds for which it may be away without having ended: for what comes and goes many
            times a second.
    """

    holds: Callable[[Gpu, Holding | None], bool | None] | int
    linger: float = 0.0

    def of(self, gpu: Gpu, holding: Holding | None) -> bool | None:
        """Whether it holds for this card."""
        if isinstance(self.holds, int):
            return is_active(self.holds, gpu.clock_event_reasons)
        return self.holds(gpu, holding)


def is_active(reason: int, reasons: int | None) -> bool | None:
    """Whether a clock event reason is among those that are active; ``None`` is unknown."""
    return None if reasons is None else bool(reasons & reason)


class Interval(Struct, frozen=True):
    """A time during which a condition held.

    Attributes:
        since: When it was first seen to hold.
        last: When it was last seen to.
        begin_seen: False when it held already at the first look, or at the first after a gap: then
            it may be older than ``since``.
        samples: In how many samples it was seen to hold.
    """

    since: float
    last: float
    begin_seen: bool
    samples: int

    @property
    def seconds(self) -> float:
        """How long it has held for certain."""
        return self.last - self.since


class ConditionTracker:
    """A condition over time, for one subject.

    Attributes:
        since: When it began to hold; ``None`` once it has ended.
        last: When it was last seen to hold.
        denied: When it was last seen not to.
        begin_seen: See ``Interval``.
        samples: Likewise.
    """

    __slots__ = ("begin_seen", "denied", "last", "samples", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self.last = -math.inf
        self.denied = -math.inf
        self.begin_seen = False
        self.samples = 0

    def see(self, holds: bool | None, time: float, patience: float, linger: float = 0.0) -> None:
        """Take whether it holds, ``None`` for unknown."""
        if holds and (self.since is None or time - self.last > patience):
            self.since = time
            self.begin_seen = time - self.denied <= patience
            self.samples = 0
        self.see_again(holds, time, 1, linger)

    def see_again(self, holds: bool | None, time: float, times: int, linger: float) -> None:
        """Take the same answer so many more times, the last one at ``time``."""
        if holds:
            self.last = time
            self.samples += times
        elif holds is False:
            self.denied = time
            if self.since is not None and time - self.last >= linger:
                self.since = None

    def spell(self, not_before: float) -> Interval | None:
        """The spell it is in, unless its last sample is older."""
        if self.since is None or self.last < not_before:
            return None
        return Interval(self.since, self.last, self.begin_seen, self.samples)

    def shift(self, seconds: float) -> None:
        """Move everything into the past."""
        self.last -= seconds
        self.denied -= seconds
        if self.since is not None:
            self.since -= seconds
