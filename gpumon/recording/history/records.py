"""The records that a history keeps of a GPU and of a process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.recording.history.intervals import ConditionTracker
from gpumon.recording.series import Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import Workload
    from gpumon.recording.history.intervals import Condition
    from gpumon.recording.series import Depth

REPORTS_KEPT = 500
"""How many reports of XIDs, and increases of the NVLink errors, of a GPU are remembered with when
they were seen."""
PATIENCE = 10.0
"""Seconds for which something may be unknown without ending an interval."""


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
        rests: Whether it is idle in the newest list; ``None`` if unknown.
        series: Its values; ``None`` if too many others have more memory.
    """

    __slots__ = ("first", "job", "last", "place", "rest", "rests", "series")

    def __init__(self, time: float) -> None:
        self.first = time
        self.last = time
        self.place: Workload | None = None
        self.job: str | None = None
        self.rest = ConditionTracker()
        self.rests: bool | None = None
        self.series: Series | None = None
