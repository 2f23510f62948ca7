"""The snapshot as of which a history answers, and values over time up to then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.availability import FRESH_SECONDS
from gpumon.model.arithmetic import fitted_line
from gpumon.model.snapshot import ANSWERING
from gpumon.recording.history.intervals import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from threading import Lock

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history.holdings import Holding
    from gpumon.recording.series import Series


class ViewedSnapshot:
    """A snapshot, its time, and what follows from its own values.

    Attributes:
        snapshot: The snapshot; ``None`` before the first.
        time: Its time, on the clock of the history.
        list_seen: The time of the newest process list up to then.
        lists_known: Whether that list was current.
        is_reached: Whether the history has received the snapshots up to then: one of a log that is
            still being read may not.
        held: Whether each condition held, by the UUID of the GPU.
        holdings: What the processes hold, by the UUID of the GPU; ``None`` until it is known.
    """

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.time = -math.inf
        self.list_seen = -math.inf
        self.lists_known = False
        self.is_reached = True
        self.held: dict[str, tuple[bool | None, ...]] = {}
        self.holdings: dict[str, Holding] | None = {}
        # The processes by ID, with the tuple that they are from.
        self._processes: tuple[Sequence[GpuProcess], dict[ProcessId, GpuProcess]] = ((), {})
        # Values already returned for buckets that are still open, in the second of the last query.
        self._second = 0
        self._open: dict[tuple[object, ...], list[float | None]] = {}

    def show(self, snapshot: Snapshot, *, is_reached: bool) -> None:
        """Change to another snapshot, of which nothing else is known."""
        self.snapshot, self.time, self.is_reached = snapshot, snapshot.time, is_reached
        self.list_seen = min(snapshot.time, snapshot.processes_at or snapshot.time)
        self.held, self.holdings = {}, None
        self.know_lists(snapshot)

    def know_lists(self, snapshot: Snapshot) -> None:
        """Set whether the process list of a snapshot is current."""
        listed_at = snapshot.processes_at
        self.lists_known = listed_at is not None and snapshot.time - listed_at <= FRESH_SECONDS

    def gpu(self, uuid: str) -> Gpu | None:
        """A GPU of the snapshot."""
        gpus = () if self.snapshot is None else self.snapshot.gpus
        return next((gpu for gpu in gpus if gpu.uuid == uuid), None)

    def is_measured(self, uuid: str, patience: float) -> bool:
        """Whether a GPU's values in the snapshot were read just before it."""
        gpu = self.gpu(uuid)
        if gpu is None or gpu.status not in ANSWERING:
            return False
        return gpu.sampled_at is None or self.time - gpu.sampled_at <= patience

    def processes(self) -> dict[ProcessId, GpuProcess]:
        """The processes of the snapshot."""
        listed = () if self.snapshot is None else self.snapshot.processes
        known = self._processes
        if known[0] is not listed:
            # Set at once: several threads may ask.
            known = self._processes = listed, {process.id: process for process in listed}
        return known[1]

    def just_begun(self, time: float) -> Interval:
        """The interval of a condition of which no earlier time is known."""
        return Interval(time, time, start_observed=self.is_reached, samples=1)

    def keep_open(
        self, values: list[float | None], width: float, asked: tuple[object, ...], now: float
    ) -> None:
        """Replace the values of buckets that may still change by those of an earlier query.

        Called under the lock of the history.
        """
        if int(now) != self._second:
            self._second = int(now)
            self._open.clear()
        # The maximum number in the open slot, which is ten seconds long at most.
        newest = -min(len(values), 1 + int(10 / width))
        values[newest:] = self._open.setdefault(asked, values[newest:])

    def shift(self, seconds: float) -> None:
        """Move it into the past."""
        self.time -= seconds
        self.list_seen -= seconds


class ViewedSeries:
    """The values of one subject up to the viewed snapshot.

    Every method raises ``KeyError`` for a field that is not kept of such a subject.
    """

    __slots__ = ("_fields", "_lock", "_series", "_viewed")

    def __init__(
        self,
        series: Series | None,
        fields: Mapping[str, int],
        viewed: ViewedSnapshot,
        lock: Lock,
    ) -> None:
        self._series = series
        self._fields = fields
        self._viewed = viewed
        self._lock = lock

    def buckets(
        self,
        field: str,
        seconds: float,
        count: int,
        now: float | None = None,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """The last ``seconds`` of a field as ``count`` values, oldest first, for a chart.

        Each value is the mean, or the peak, of a bucket of ``seconds / count``. Buckets start at
        fixed times, so the row moves by one per bucket and a value does not change while it moves.
        Only the newest bucket, which contains ``now``, still changes, once a second: every query
        within that second gets the same values. ``None`` is a gap.

        A bucket shorter than its data repeats the value that contains it, and changes as long as
        that value does.

        Args:
            field: The field.
            seconds: The seconds.
            count: How many values.
            now: A time in the newest bucket; that of the viewed snapshot by default.
            peak: Whether to get peaks.
        """
        place, series = self._fields[field], self._series
        if series is None:
            return [None] * count
        if now is None:
            now = self._viewed.time
        with self._lock:
            values = series.buckets(place, seconds, count, now, peak)
            width = seconds / count
            asked = series, place, seconds, count, math.floor(now / width), peak
            self._viewed.keep_open(values, width, asked, now)
        return values

    def window(
        self, field: str, seconds: float, *, peak: bool = False
    ) -> list[tuple[float, float]]:
        """Time and value of a field over the last ``seconds``, oldest first.

        In the finest resolution that is kept for so long. Unknown values are left out: use
        ``buckets`` for charts, which shows gaps.
        """
        place, series = self._fields[field], self._series
        if series is None:
            return []
        with self._lock:
            return list(series.window(place, seconds, self._viewed.time, peak))

    def peak(self, field: str, seconds: float) -> float | None:
        """The highest value of a field over the last ``seconds``, of all samples."""
        return max((value for _, value in self.window(field, seconds, peak=True)), default=None)

    def slope(self, field: str, seconds: float) -> float | None:
        """The rise of a field per second: the least-squares line of ``window``.

        ``None`` with fewer than two points in time.
        """
        points = self.window(field, seconds)
        if not points or points[0][0] == points[-1][0]:
            return None
        slope, _ = fitted_line(points)
        return slope

    def samples(self, field: str, since: float) -> int:
        """How many of the newest ``series.RECENT_SAMPLES`` have a value since a time."""
        place, series = self._fields[field], self._series
        if series is None:
            return 0
        with self._lock:
            return series.known_since(place, since, self._viewed.time)
