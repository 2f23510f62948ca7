"""Intervals in which a condition has held, as far as observed."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history.holdings import Holding


INTERVALS_KEPT = 128
"""How many past intervals of one condition of one subject are kept."""
_NEWEST_KEPT = INTERVALS_KEPT // 4
"""How many of them are kept however short they are."""
_ROW = 4
"""Values of a past interval."""


class Condition(Struct, frozen=True):
    """A condition that can hold for a GPU."""

    # Whether it holds now; ``None`` if unknown. Takes the GPU and its holdings, which are ``None``
    # without a current process list. Or the bit of a clock event reason: the condition holds while
    # the reason is active.
    holds: Callable[[Gpu, Holding | None], bool | None] | int
    # Seconds for which it may be absent without ending, for conditions that change many times a
    # second.
    hysteresis: float = 0.0
    # Fields that ``holds`` uses if the GPU has them. While one is missing, it is unknown whether
    # the condition does not hold: see ``History.is_missing``.
    optional: tuple[str, ...] = ()
    # Fields that ``holds`` takes for 0 on a GPU without them. While one is missing, the condition
    # is unknown.
    assumed: tuple[str, ...] = ()

    def of(self, gpu: Gpu, holding: Holding | None) -> bool | None:
        """Whether it holds for this GPU."""
        if isinstance(self.holds, int):
            return is_active(self.holds, gpu.clock_event_reasons)
        return self.holds(gpu, holding)


class ServerCondition(Struct, frozen=True):
    """A condition that can hold for a process of an inference server that reports its requests."""

    # Whether it holds now; ``None`` if unknown.
    holds: Callable[[GpuProcess], bool | None]


def is_active(reason: int, reasons: int | None) -> bool | None:
    """Whether a clock event reason is active; ``None`` is unknown."""
    return None if reasons is None else bool(reasons & reason)


@final
class Interval(Struct, frozen=True):
    """A time during which a condition held."""

    since: float  # When it was first observed to hold.
    last: float  # When it was last observed to hold.
    # False if it already held at the first sample, or the first after a gap: then it may have begun
    # before ``since``.
    start_observed: bool
    samples: int  # Number of samples in which it was observed to hold.

    @property
    def seconds(self) -> float:
        """How long it has certainly held."""
        return self.last - self.since

    def by(self, time: float) -> Interval:
        """The part of it observed by a time; assumes evenly spaced samples."""
        if time >= self.last:
            return self
        share = max(0.0, time - self.since) / self.seconds
        return Interval(
            self.since, time, self.start_observed, 1 + round((self.samples - 1) * share)
        )


class PastIntervals:
    """The past intervals of a condition: the newest, and the longest of the older ones.

    A condition that changes with every sample has thousands of intervals an hour. A row holds the
    start of the interval, the last time at which the condition held, since when its absence is
    known without a gap, and the number of samples, which is negative if the start was not observed.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("d")

    def add(self, since: float, last: float, absent_since: float, samples: int) -> None:
        """Keep an interval that is newer than all before."""
        self._rows.extend((since, last, absent_since, samples))
        if len(self._rows) > _ROW * INTERVALS_KEPT:
            self._drop_short()

    def at(self, time: float) -> tuple[Interval, float] | None:
        """The newest interval that had begun by a time, and since when its absence is known."""
        index = _ROW * bisect_right(self._rows[::_ROW], time) - _ROW
        if index < 0:
            return None
        since, last, absent_since, samples = self._rows[index : index + _ROW]
        return Interval(since, last, samples > 0, int(abs(samples))), absent_since

    def held_between(self, begin: float, end: float) -> float:
        """Seconds of a time that are in these intervals."""
        rows = self._rows
        first = _ROW * bisect_right(rows[1::_ROW], begin)
        parts = zip(rows[first::_ROW], rows[first + 1 :: _ROW], strict=True)
        return sum([max(0.0, min(last, end) - max(since, begin)) for since, last in parts])

    def shift(self, seconds: float) -> None:
        """Move all times into the past."""
        for index in range(len(self._rows)):
            if index % _ROW < _ROW - 1:
                self._rows[index] -= seconds

    def _drop_short(self) -> None:
        rows = self._rows
        older = range(0, len(rows) - _ROW * _NEWEST_KEPT, _ROW)
        longest = sorted(older, key=lambda index: rows[index + 1] - rows[index])[len(older) // 2 :]
        kept = array("d")
        for index in (*sorted(longest), *range(older.stop, len(rows), _ROW)):
            kept.extend(rows[index : index + _ROW])
        self._rows = kept


class ConditionTracker:
    """Tracks a condition over time, for one subject.

    Attributes:
        since: When it began to hold; ``None`` once it has ended.
        last: When it was last observed to hold.
        denied: When it was last observed not to hold.
        start_observed: See ``Interval``.
        samples: See ``Interval``.
        known_since: Since when it has been known without a gap, if there was one.
        unknown_at: When it was last unknown.
        past: The past intervals; ``None`` while there are none.
    """

    __slots__ = (
        "denied",
        "known_since",
        "last",
        "past",
        "samples",
        "since",
        "start_observed",
        "unknown_at",
    )

    def __init__(self) -> None:
        self.since: float | None = None
        self.last = -math.inf
        self.denied = -math.inf
        self.known_since = -math.inf
        self.unknown_at = -math.inf
        self.start_observed = False
        self.samples = 0
        self.past: PastIntervals | None = None

    def see(
        self, holds: bool | None, time: float, patience: float, hysteresis: float = 0.0
    ) -> None:
        """Record whether it holds; ``None`` is unknown."""
        known_at = max(self.last, self.denied)
        if holds is not None and -math.inf < known_at < time - patience:
            self.known_since = time
        if holds and (self.since is None or time - self.last > max(patience, hysteresis)):
            self._end()
            self.since = time
            # While values are unknown, an absence may be one of those that do not end it.
            is_certain = time - max(self.known_since, self.unknown_at) >= hysteresis
            self.start_observed = is_certain and time - self.denied <= patience
            self.samples = 0
        self.see_again(holds, time, 1, hysteresis)

    def see_again(self, holds: bool | None, time: float, times: int, hysteresis: float) -> None:
        """Record the same answer that many more times, the last one at ``time``."""
        if holds:
            self.last = time
            self.samples += times
        elif holds is False:
            self.denied = time
            if self.since is not None and time - self._absent_since >= hysteresis:
                self._end()
        else:
            self.unknown_at = time

    def at(self, time: float) -> Interval | None:
        """The newest interval that had begun by a time, cut at that time."""
        since, last = self.since, self.last
        if since is None or since > time:
            found = None if self.past is None else self.past.at(time)
            return None if found is None else found[0].by(time)
        interval = Interval(since, last, self.start_observed, self.samples)
        return interval if time >= last else interval.by(time)

    @property
    def never_held(self) -> bool:
        """Whether it has held at no time that is kept."""
        return self.since is None and self.past is None

    def had_ended(self, time: float, hysteresis: float) -> bool:
        """Whether that interval had ended by a time at which the condition did not hold."""
        if self.since is not None and self.since <= time:
            return time - self._absent_since >= hysteresis
        found = None if self.past is None else self.past.at(time)
        return found is None or time - found[1] >= hysteresis

    @property
    def _absent_since(self) -> float:
        """Since when it has not held, as far as that is known without a gap."""
        return max(self.last, self.unknown_at)

    def held_between(self, begin: float, end: float) -> float:
        """Seconds of a time in which it held, at least."""
        total = 0.0 if self.past is None else self.past.held_between(begin, end)
        if self.since is not None:
            total += max(0.0, min(self.last, end) - max(self.since, begin))
        return total

    def _end(self) -> None:
        """Move the current interval, if any, to the past ones."""
        if self.since is not None:
            if self.past is None:
                self.past = PastIntervals()
            samples = self.samples if self.start_observed else -self.samples
            self.past.add(self.since, self.last, self._absent_since, samples)
            self.since = None

    def shift(self, seconds: float) -> None:
        """Move all times into the past."""
        if self.past is not None:
            self.past.shift(seconds)
        self.last -= seconds
        self.denied -= seconds
        self.known_since -= seconds
        self.unknown_at -= seconds
        if self.since is not None:
            self.since -= seconds
