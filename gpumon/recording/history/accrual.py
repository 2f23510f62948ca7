"""A total that grows at a piecewise constant rate, with its value at any earlier time."""

from __future__ import annotations

from array import array
from bisect import bisect_right

TURNS_KEPT = 256
"""How many changes of the rate are kept; of the older half every other one goes."""


class Accrual:
    """A total, and its value at each change of its rate.

    Attributes:
        total: The current value.
    """

    __slots__ = ("_times", "_totals", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self._times = array("d")
        self._totals = array("d")

    def turn(self, time: float) -> None:
        """Change the rate from a time on."""
        self._times.append(time)
        self._totals.append(self.total)
        if len(self._times) > TURNS_KEPT:
            del self._times[: TURNS_KEPT // 2 : 2], self._totals[: TURNS_KEPT // 2 : 2]

    def at(self, time: float, newest: float) -> float:
        """The value at a time; ``newest`` is the time of the current total."""
        place = bisect_right(self._times, time)
        if place == 0:
            return 0.0
        begin, had = self._times[place - 1], self._totals[place - 1]
        is_newest = place == len(self._times)
        end = newest if is_newest else self._times[place]
        has = self.total if is_newest else self._totals[place]
        if time >= end:
            return has
        return had + (has - had) * (time - begin) / (end - begin)

    def shift(self, seconds: float) -> None:
        """Move all times into the past."""
        self._times = array("d", [time - seconds for time in self._times])
