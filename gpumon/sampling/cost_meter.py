"""Measures what this program itself costs."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.snapshot import OwnCost

if TYPE_CHECKING:
    from collections.abc import Callable

_COST_SECONDS = 1.0
"""Seconds between two measurements."""
_COST_WINDOW = 5.0
_TICKS_KEPT = 31


class CostMeter:
    """What this program costs, measured once a second over the last five seconds.

    Args:
        cpu_seconds: Seconds of CPU this process has used, all threads together.
    """

    def __init__(self, cpu_seconds: Callable[[], float] = time.process_time) -> None:
        self.missed_ticks = 0
        self._cpu_seconds = cpu_seconds
        self._marks: deque[tuple[float, float, float]] = deque()
        self._ticks: deque[float] = deque(maxlen=_TICKS_KEPT)
        self._cost = OwnCost()

    def add_tick(self, seconds: float) -> None:
        """Record the duration of a tick, including its listeners."""
        self._ticks.append(seconds)

    def measure(self, now: float, driver_seconds: float) -> OwnCost:
        """The current cost.

        Args:
            now: Seconds on the monotonic clock.
            driver_seconds: Seconds spent in driver calls so far.
        """
        marks = self._marks
        if marks and now < marks[-1][0] + _COST_SECONDS:
            if self._cost.missed_ticks != self.missed_ticks:
                self._cost = replace(self._cost, missed_ticks=self.missed_ticks)
            return self._cost
        cpu_seconds = self._cpu_seconds()
        marks.append((now, cpu_seconds, driver_seconds))
        while len(marks) > 2 and marks[1][0] <= now - _COST_WINDOW:
            marks.popleft()
        cpu_percent = driver_share = None
        if len(marks) > 1:
            then, cpu_then, driver_then = marks[0]
            cpu_percent = (cpu_seconds - cpu_then) / (now - then) * 100
            # A reopened source counts from 0 again.
            if driver_seconds >= driver_then:
                driver_share = (driver_seconds - driver_then) / (now - then)
        tick = sorted(self._ticks)[len(self._ticks) // 2] if self._ticks else None
        self._cost = OwnCost(cpu_percent, driver_share, tick, self.missed_ticks)
        return self._cost
