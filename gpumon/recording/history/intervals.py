"""Since when something has held, as far as was seen."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history.holdings import Holding


INTERVALS_KEPT = 128
"""How many past intervals of one condition of one subject are kept."""
_NEWEST_KEPT = INTERVALS_KEPT // 4
"""How many of them are kept however short they are."""


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

    def by(self, time: float) -> Interval:
        """What had been seen of it by a time; the samples are taken for evenly spaced."""
        if time >= self.last:
            return self
        share = max(0.0, time - self.since) / self.seconds
        return Interval(self.since, time, self.begin_seen, 1 + round((self.samples - 1) * share))


class PastIntervals:
    """The intervals of a condition that are over: the newest, and the longest of the older ones.

    A condition that comes and goes with every sample has thousands an hour. A row holds when the
    interval began, when the condition was last seen to hold, and in how many samples it did, which
    is negative where the beginning was not seen.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("d")

    def add(self, since: float, last: float, samples: int) -> None:
        """Keep one that is newer than all before."""
        self._rows.extend((since, last, samples))
        if len(self._rows) > 3 * INTERVALS_KEPT:
            self._drop_short()

    def at(self, time: float) -> Interval | None:
        """The newest that had begun by a time."""
        place = 3 * bisect_right(self._rows[::3], time) - 3
        if place < 0:
            return None
        since, last, samples = self._rows[place : place + 3]
        return Interval(since, last, samples > 0, int(abs(samples)))

    def shift(self, seconds: float) -> None:
        """Move everything into the past."""
        for place in range(len(self._rows)):
            if place % 3 < 2:
                self._rows[place] -= seconds

    def _drop_short(self) -> None:
        rows = self._rows
        older = range(0, len(rows) - 3 * _NEWEST_KEPT, 3)
        longest = sorted(older, key=lambda place: rows[place + 1] - rows[place])[len(older) // 2 :]
        kept = array("d")
        for place in (*sorted(longest), *range(older.stop, len(rows), 3)):
            kept.extend(rows[place : place + 3])
        self._rows = kept


class ConditionTracker:
    """A condition over time, for one subject.

    Attributes:
        since: When it began to hold; ``None`` once it has ended.
        last: When it was last seen to hold.
        denied: When it was last seen not to.
        begin_seen: See ``Interval``.
        samples: Likewise.
        past: The intervals that are over; ``None`` while there is none.
    """

    __slots__ = ("begin_seen", "denied", "last", "past", "samples", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self.last = -math.inf
        self.denied = -math.inf
        self.begin_seen = False
        self.samples = 0
        self.past: PastIntervals | None = None

    def see(self, holds: bool | None, time: float, patience: float, linger: float = 0.0) -> None:
        """Take whether it holds, ``None`` for unknown."""
        if holds and (self.since is None or time - self.last > patience):
            self._end()
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
                self._end()

    def spell(self, not_before: float) -> Interval | None:
        """The spell it is in, unless its last sample is older."""
        if self.since is None or self.last < not_before:
            return None
        return Interval(self.since, self.last, self.begin_seen, self.samples)

    def at(self, time: float) -> Interval | None:
        """The newest interval that had begun by a time, as far as it had come by then."""
        found = self.spell(-math.inf)
        if found is None or found.since > time:
            found = None if self.past is None else self.past.at(time)
        return None if found is None else found.by(time)

    def _end(self) -> None:
        """Keep the interval it was in, if any, among those that are over."""
        if self.since is not None:
            if self.past is None:
                self.past = PastIntervals()
            samples = self.samples if self.begin_seen else -self.samples
            self.past.add(self.since, self.last, samples)
            self.since = None

    def shift(self, seconds: float) -> None:
        """Move everything into the past."""
        if self.past is not None:
            self.past.shift(seconds)
        self.last -= seconds
        self.denied -= seconds
        if self.since is not None:
            self.since -= seconds
