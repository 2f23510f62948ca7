"""The records that a history keeps of a GPU, a process and the users."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from gpumon.recording.history.intervals import ConditionTracker
from gpumon.recording.series import Depth, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.processes import GpuProcess, Workload
    from gpumon.recording.history.intervals import Condition

REPORTS_KEPT = 500
"""How many reports of XIDs, and increases of the NVLink errors, of a GPU are remembered with when
they were seen."""
PATIENCE = 10.0
"""Seconds for which something may be unknown without ending an interval."""
TURNS_KEPT = 256
"""How many changes of the rate are kept; of the older half every other one goes."""
USER_CHARTED = ("memory_used", "gpus")
"""Values of a user that are kept over time, over all processes."""
USER_DEPTH = Depth(fields=len(USER_CHARTED), peaks=0, seconds=901, tens=8641)
"""A quarter of an hour in seconds, because process lists are read no faster; a day in tens."""
USERS_CHARTED = 64
"""Number of users with values over time: those with the most memory, then those seen last."""


class GpuRecord:
    """The record of one GPU.

    Most conditions hold, or do not, for many samples in a row. So a tracker is updated only when
    its condition changes; until then only the samples are counted.
    """

    __slots__ = (
        "counted",
        "held",
        "nvlink_errors",
        "nvlink_increases",
        "patience",
        "reported",
        "sampled_at",
        "samples",
        "seen_at",
        "series",
        "watches",
        "xids",
        "xids_seen",
    )

    def __init__(self, conditions: int, depth: Depth, time: float) -> None:
        self.series = Series(depth, time)
        self.watches = [ConditionTracker() for _ in range(conditions)]
        # The number of samples, and how many of them each tracker has received.
        self.samples = 0
        self.counted = [0] * conditions
        self.held: tuple[bool | None, ...] = (None,) * conditions
        self.seen_at = -math.inf
        self.sampled_at: float | None = None
        self.patience = PATIENCE
        # Optional fields that the GPU has reported.
        self.reported: set[str] = set()
        self.xids: dict[int, float | None] = {}
        self.xids_seen: list[tuple[float, int, float | None]] = []
        self.nvlink_errors: int | None = None
        self.nvlink_increases: list[tuple[float, int]] = []

    def see(
        self, held: tuple[bool | None, ...], time: float, conditions: Sequence[Condition]
    ) -> None:
        """Record which conditions hold."""
        late = time - self.seen_at > self.patience
        if late or held != self.held:
            for place, holds in enumerate(held):
                if late or holds is not self.held[place]:
                    hysteresis = conditions[place].hysteresis
                    self.settle(place, hysteresis)
                    self.watches[place].see(holds, time, self.patience, hysteresis)
                    self.counted[place] = self.samples + 1
            self.held = held
        self.samples += 1
        self.seen_at = time

    def settle(self, place: int, hysteresis: float) -> None:
        """Pass the counted samples of a condition to its tracker."""
        again = self.samples - self.counted[place]
        if again:
            self.watches[place].see_again(self.held[place], self.seen_at, again, hysteresis)
            self.counted[place] = self.samples

    def see_nvlink(self, errors: int, time: float) -> None:
        """Record the count of NVLink errors; a lower one was counted from zero by a new driver."""
        before = self.nvlink_errors
        self.nvlink_errors = errors
        if before is not None and errors > before:
            self.nvlink_increases.append((time, errors - before))
            del self.nvlink_increases[:-REPORTS_KEPT]


class TrackedProcess:
    """The record of one process.

    Attributes:
        first: Time of the first list with it.
        last: Time of the last list with it.
        place: Where it runs, as in the newest list.
        job: The key of its job; ``None`` while its place is unknown.
        rest: Tracks when it held memory without working.
        served: Tracks the conditions of its server, by name; empty if no server reports anything.
        series: Its values; ``None`` if too many others have more memory.
        server_series: Those that its inference server reports, from the first answer on.
    """

    __slots__ = ("first", "job", "last", "place", "rest", "series", "served", "server_series")

    def __init__(self, time: float) -> None:
        self.first = time
        self.last = time
        self.place: Workload | None = None
        self.job: str | None = None
        self.rest = ConditionTracker()
        self.served: dict[str, ConditionTracker] = {}
        self.series: Series | None = None
        self.server_series: Series | None = None

    @property
    def trackers(self) -> Iterable[ConditionTracker]:
        """All its trackers."""
        return (self.rest, *self.served.values())

    def forget_values(self) -> None:
        """Drop its values over time."""
        self.series = self.server_series = None


class UserSeries:
    """The series of the users, from the process lists."""

    __slots__ = ("_series",)

    def __init__(self) -> None:
        # Users of the newest list are the last.
        self._series: dict[str | None, Series] = {}

    def add(self, processes: Iterable[GpuProcess], time: float) -> None:
        """Add a process list. A user without a process in it has nothing."""
        memory: dict[str | None, int | None] = {}
        gpus: dict[str | None, set[str]] = {}
        for process in processes:
            user, held = process.user, process.memory_used
            sum_ = memory.get(user, 0)
            memory[user] = None if sum_ is None or held is None else sum_ + held
            gpus.setdefault(user, set()).update([use.gpu_uuid for use in process.uses])
        users = sorted(memory, key=lambda user: memory[user] or 0)[-USERS_CHARTED:]
        for user in users:
            series = self._series.pop(user, None)
            self._series[user] = Series(USER_DEPTH, time) if series is None else series
        for user in list(self._series)[:-USERS_CHARTED]:
            del self._series[user]
        for user, series in self._series.items():
            series.add(time, (memory.get(user, 0), len(gpus.get(user, ()))))

    def get(self, user: str | None) -> Series | None:
        """The series of a user."""
        return self._series.get(user)

    def shift(self, seconds: int) -> None:
        """Move all times into the past, by a multiple of ten seconds."""
        for series in self._series.values():
            series.shift(seconds)


class Accrual:
    """A total that grows at a piecewise constant rate, with its value at any earlier time.

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
