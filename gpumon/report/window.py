"""The time range that a report counts."""

from __future__ import annotations

import math

from msgspec import Struct


class TimeWindow(Struct, frozen=True):
    """The time range that counts, in seconds since the epoch; an open end is infinite."""

    first: float = -math.inf
    last: float = math.inf

    def holds(self, time: float) -> bool:
        """Whether a time is in it."""
        return self.first <= time <= self.last

    def counts(self, time: float) -> bool:
        """Whether an event at this time is in it; at its end it is in the one that follows."""
        return self.first <= time < self.last

    def part(self, time: float, seconds: float) -> float:
        """How many of the seconds after a time are in it."""
        begin = max(self.first, time)
        end = time + seconds
        if end > self.last:
            end = self.last
        return end - begin if end > begin else 0.0
