"""The history: answers queries about the snapshots that it has received."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.model.arithmetic import fitted_line
from gpumon.recording.history.observations import (
    CHARTED,
    HOST_CHARTED,
    OLD_AFTER,
    PROCESS_CHARTED,
    Observations,
)
from gpumon.recording.history.records import PATIENCE
from gpumon.recording.history.user_series import USER_CHARTED

if TYPE_CHECKING:
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history.intervals import Interval
    from gpumon.recording.history.records import GpuRecord
    from gpumon.recording.series import Series

_GPU_FIELD = {field: place for place, field in enumerate(CHARTED)}
_PROCESS_FIELD = {field: place for place, field in enumerate(PROCESS_CHARTED)}
_USER_FIELD = {field: place for place, field in enumerate(USER_CHARTED)}
_HOST_FIELD = {field: place for place, field in enumerate(HOST_CHARTED)}


class History(Observations):
    """See the package."""

    def as_of(self, snapshot: Snapshot) -> History:
        """What this history answered when one of its snapshots was the newest."""
        from gpumon.recording.history.as_of import HistoryAsOf

        return HistoryAsOf(self, snapshot)

    def old(self, gpu: Gpu) -> float | None:
        """Seconds since a GPU's values were read, if newer values are overdue.

        ``None`` while they are current: up to two and a half samples and ``OLD_AFTER``.
        """
        if gpu.sampled_at is None:
            return None
        with self.lock:
            record = self._gpus.get(gpu.uuid)
            late = OLD_AFTER if record is None else max(OLD_AFTER, record.series.pace.late)
            age = self.now - gpu.sampled_at
            return age if age > late else None

    def interval(self, uuid: str, name: str) -> Interval | None:
        """The interval in which a condition holds for a GPU now.

        ``None`` if it does not hold, or if that is unknown now. An unknown state of up to
        ``PATIENCE`` seconds, or two and a half samples if that is longer, does not end an interval;
        a longer one starts a new interval.

        Raises:
            KeyError: There is no such condition.
        """
        with self.lock:
            record = self._gpus.get(uuid)
            if record is None:
                return None
            place = self._place[name]
            watch = record.watches[place]
            if watch.since is None or record.held[place] is None:
                return None
            hysteresis = self._conditions[place].hysteresis
            record.settle(place, hysteresis)
            return watch.interval(self.now - max(record.patience, hysteresis))

    def held_lately(self, uuid: str, name: str, seconds: float) -> tuple[float, float]:
        """For how many of the last seconds a condition held for a GPU, and how many were observed.

        The first is a minimum for a condition that changes often: of the past intervals only the
        newest and the longest are kept.

        Raises:
            KeyError: There is no such condition.
        """
        place = self._place[name]
        with self.lock:
            record = self._settled(uuid, place)
            if record is None:
                return 0.0, 0.0
            begin = max(self.now - seconds, record.series.first)
            held = record.watches[place].held_between(begin, self.now)
            return held, max(0.0, self.now - begin)

    def holds(self, uuid: str, name: str) -> bool | None:
        """Whether a condition holds for a GPU now; ``None`` is unknown.

        A condition that may be absent for a while is known not to hold once it has been known for
        so long.

        Raises:
            KeyError: There is no such condition.
        """
        place, held = self._place[name], self.held(uuid)
        if not held or held[place] is not False:
            return held[place] if held else None
        hysteresis = self._conditions[place].hysteresis
        with self.lock:
            record = self._gpus.get(uuid)
            since = math.inf
            if record is not None and hysteresis:
                record.settle(place, hysteresis)
                since = self.now - record.watches[place].unknown_at
        return None if 0 <= since < hysteresis else False

    def had_gap(self, uuid: str, name: str, seconds: float) -> bool:
        """Whether a condition was unknown for a while in the last seconds.

        Raises:
            KeyError: There is no such condition.
        """
        place = self._place[name]
        with self.lock:
            record = self._settled(uuid, place)
            if record is None:
                return False
            watch = record.watches[place]
            return max(watch.known_since, watch.unknown_at) > self.now - seconds

    def _settled(self, uuid: str, place: int) -> GpuRecord | None:
        """The record of a GPU with one of its conditions up to date, under the lock."""
        record = self._gpus.get(uuid)
        if record is not None:
            record.settle(place, self._conditions[place].hysteresis)
        return record

    def nvlink_increases(self, uuid: str, seconds: float) -> list[tuple[float, int]]:
        """The increases of a GPU's NVLink errors in the last seconds, each with its time."""
        with self.lock:
            record = self._gpus.get(uuid)
            seen = [] if record is None else record.nvlink_increases
            return [one for one in seen if self.now - seconds <= one[0] <= self.now]

    def process_idle(self, process: ProcessId) -> Interval | None:
        """The interval in which a process has held GPU memory without SM use, now.

        ``None`` if it is not idle, if either value is unknown, as SM use is under MIG and with old
        drivers, if it is in no current list, and for a process that only draws: a display server is
        idle most of the time. The driver reports only the last second or so of a process, so
        shorter and rarer work can be missed. An unknown state of up to ``PATIENCE`` seconds does
        not end an interval. Its start was observed if the process was working, or absent, in the
        list before.
        """
        with self.lock:
            known = self._processes.get(process)
            if known is None or known.last < self._list_seen or not known.rests:
                return None
            return known.rest.interval(self.now - max(PATIENCE, self._list_pace.late))

    def gpu_seconds(self, user: str | None) -> float | None:
        """GPU-seconds for which a user's computing processes were observed.

        Two processes on one GPU count once. The time between two lists counts by the older list; if
        the newer one came late, as after a suspend or from a hung driver, the time does not count.
        The user ``None`` stands for the owners of processes that are not visible here.
        """
        with self.lock:
            counted = self._gpu_seconds.get(user)
            return 0.0 if counted is None else counted.total

    def samples(self, uuid: str, field: str, since: float) -> int:
        """How many of the newest ``series.RECENT_SAMPLES`` have a value for a field since a time.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        place = _GPU_FIELD[field]
        with self.lock:
            series = self.gpu_series(uuid)
            return 0 if series is None else series.known_since(place, since, self.now)

    def xids(self, uuid: str) -> dict[int, float | None]:
        """Every XID that was observed on a GPU, with the time of its last occurrence.

        A GPU reports only its last XID, and a hardware XID is followed by those of the programs
        that it ends.
        """
        with self.lock:
            record = self._gpus.get(uuid)
            return {} if record is None else dict(record.xids)

    def gpu_buckets(
        self,
        uuid: str,
        field: str,
        seconds: float,
        count: int,
        now: float,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """The last ``seconds`` of a GPU's field as ``count`` values, oldest first, for a chart.

        Each value is the mean, or the peak, of a bucket of ``seconds / count``. Buckets start at
        fixed times, so the row moves by one per bucket and a value does not change while it moves.
        Only the newest bucket, which contains ``now``, still changes, once a second: every query
        within that second gets the same values. ``None`` is a gap.

        Up to two minutes in buckets under a second come from every sample, up to an hour in buckets
        under ten seconds from seconds, the rest from tens of seconds. A bucket shorter than its
        data repeats the value that contains it, and changes as long as that value does.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        place = _GPU_FIELD[field]
        with self.lock:
            return self._buckets(self.gpu_series(uuid), place, seconds, count, now, peak)

    def process_buckets(
        self,
        process: ProcessId,
        field: str,
        seconds: float,
        count: int,
        now: float,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """``gpu_buckets`` for a process and a field of ``PROCESS_CHARTED``.

        From seconds up to a quarter of an hour, from tens of seconds beyond that.
        """
        place = _PROCESS_FIELD[field]
        with self.lock:
            return self._buckets(self.process_series(process), place, seconds, count, now, peak)

    def host_buckets(
        self, field: str, seconds: float, count: int, now: float
    ) -> list[float | None]:
        """``gpu_buckets`` for the machine and a field of ``HOST_CHARTED``: means of seconds.

        Raises:
            KeyError: The field is not in ``HOST_CHARTED``.
        """
        with self.lock:
            return self._buckets(
                self.host_series(), _HOST_FIELD[field], seconds, count, now, peak=False
            )

    def user_buckets(
        self, user: str | None, field: str, seconds: float, count: int, now: float
    ) -> list[float | None]:
        """``gpu_buckets`` for a user and a field of ``USER_CHARTED``: means of seconds.

        Raises:
            KeyError: The field is not in ``USER_CHARTED``.
        """
        with self.lock:
            return self._buckets(
                self.user_series(user), _USER_FIELD[field], seconds, count, now, peak=False
            )

    def gpu_window(self, uuid: str, field: str, seconds: float) -> list[tuple[float, float]]:
        """Time and value of a GPU's field over the last ``seconds``, oldest first.

        Every sample for up to two minutes, means of seconds for up to an hour, of tens of seconds
        for longer. Unknown values are left out: use ``gpu_buckets`` for charts, which shows gaps.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        return self._window(self.gpu_series(uuid), _GPU_FIELD[field], seconds)

    def process_window(
        self, process: ProcessId, field: str, seconds: float
    ) -> list[tuple[float, float]]:
        """``gpu_window`` for a process and a field of ``PROCESS_CHARTED``.

        Means of seconds for up to a quarter of an hour, of tens of seconds for up to half a day.
        """
        return self._window(self.process_series(process), _PROCESS_FIELD[field], seconds)

    def gpu_peak(self, uuid: str, field: str, seconds: float) -> float | None:
        """The highest value of a GPU's field over the last ``seconds``, of all samples."""
        return self._peak(self.gpu_series(uuid), _GPU_FIELD[field], seconds)

    def process_peak(self, process: ProcessId, field: str, seconds: float) -> float | None:
        """``gpu_peak`` for a process and a field of ``PROCESS_CHARTED``.

        For CPU and host memory beyond a quarter of an hour: the highest mean of ten seconds.
        """
        return self._peak(self.process_series(process), _PROCESS_FIELD[field], seconds)

    def process_slope(self, process: ProcessId, field: str, seconds: float) -> float | None:
        """The rise of a process's field per second: the least-squares line of ``process_window``.

        ``None`` with fewer than two points in time.
        """
        points = self.process_window(process, field, seconds)
        if not points or points[0][0] == points[-1][0]:
            return None
        slope, _ = fitted_line(points)
        return slope

    def gpu_series(self, uuid: str) -> Series | None:
        """The series of a GPU; read it under ``lock``, as those below."""
        record = self._gpus.get(uuid)
        return None if record is None else record.series

    def process_series(self, process: ProcessId) -> Series | None:
        """The series of a process."""
        known = self._processes.get(process)
        return None if known is None else known.series

    def host_series(self) -> Series | None:
        """The series of the machine."""
        return self._host

    def user_series(self, user: str | None) -> Series | None:
        """The series of a user."""
        return self._users.get(user)

    def _buckets(
        self,
        series: Series | None,
        place: int,
        seconds: float,
        count: int,
        now: float,
        peak: bool,
    ) -> list[float | None]:
        if series is None:
            return [None] * count
        values = series.buckets(place, seconds, count, now, peak)
        if int(now) != self._second:
            self._second = int(now)
            self._open.clear()
        width = seconds / count
        # The maximum number in the open slot, which is ten seconds long at most.
        newest = -min(count, 1 + int(10 / width))
        asked = series, place, seconds, count, math.floor(now / width), peak
        values[newest:] = self._open.setdefault(asked, values[newest:])
        return values

    def _window(
        self, series: Series | None, place: int, seconds: float, peak: bool = False
    ) -> list[tuple[float, float]]:
        with self.lock:
            return [] if series is None else list(series.window(place, seconds, self.now, peak))

    def _peak(self, series: Series | None, place: int, seconds: float) -> float | None:
        points = self._window(series, place, seconds, peak=True)
        return max((value for _, value in points), default=None)
