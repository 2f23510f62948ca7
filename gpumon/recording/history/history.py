"""The history: answers queries about the snapshots that it has received."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING

from gpumon.model.arithmetic import fitted_line
from gpumon.model.snapshot import ANSWERING
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history.observations import (
    CHARTED,
    GPU_DEPTH,
    HOST_CHARTED,
    OLD_AFTER,
    PROCESS_CHARTED,
    SERVER_CHARTED,
    STATE_GPU_DEPTH,
    Observations,
)
from gpumon.recording.history.records import PATIENCE, USER_CHARTED
from gpumon.recording.history.standing import resume, standing_of
from gpumon.recording.history.viewed import ViewedSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Lock

    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history.holdings import Holding
    from gpumon.recording.history.intervals import (
        Condition,
        ConditionTracker,
        Interval,
        ServerCondition,
    )
    from gpumon.recording.history.records import GpuRecord, TrackedProcess
    from gpumon.recording.history.standing import Standing
    from gpumon.recording.series import Depth, Series

_GPU_FIELD = {field: place for place, field in enumerate(CHARTED)}
_PROCESS_FIELD = {field: place for place, field in enumerate(PROCESS_CHARTED)}
_SERVER_FIELD = {field: place for place, field in enumerate(SERVER_CHARTED)}
_USER_FIELD = {field: place for place, field in enumerate(USER_CHARTED)}
_HOST_FIELD = {field: place for place, field in enumerate(HOST_CHARTED)}
_REACH = 3600.0
"""Seconds before a viewed snapshot for which values over time are to be known."""


class History:
    """Receives snapshots, and answers as of the newest; see the package.

    Attributes:
        thresholds: The thresholds that the rules use.
        lock: Held during updates and queries.
        observed: What it has received, which histories as of earlier times share.
        drawn: Another history up to the same snapshot, made of few samples, for values over time
            that this one does not have: those of exited processes, of days ago, and of the part of
            a log that it has not reached.
    """

    def __init__(
        self,
        conditions: Mapping[str, Condition | ServerCondition],
        thresholds: Thresholds = DEFAULTS,
        gpu_depth: Depth = GPU_DEPTH,
        *,
        charted: bool = True,
        judged: bool = True,
    ) -> None:
        """Start with an empty history.

        Args:
            conditions: The conditions to track for every GPU, and for every process of a server, by
                name; ``findings.conditions()``.
            thresholds: The thresholds.
            gpu_depth: How far back the values of a GPU go.
            charted: Whether processes, users and the host have values over time, and processes that
                exited a past. States need neither.
            judged: Whether conditions are tracked, and holdings and GPU-seconds are known. Values
                over time need none of them.
        """
        observed = Observations(conditions, thresholds, gpu_depth, charted=charted, judged=judged)
        self._answer_from(observed, observed.newest)

    def _answer_from(self, observed: Observations, viewed: ViewedSnapshot) -> None:
        """Set what every answer is from, and as of when."""
        self.observed = observed
        self._viewed = viewed
        self.thresholds = observed.thresholds
        self.lock: Lock = observed.lock
        self.drawn: History | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Add the next snapshot; each one once."""
        self.observed.add(snapshot)

    def shift(self, seconds: float) -> None:
        """Move all times into the past: the clock of the recording has been set back since."""
        self.observed.shift(seconds)

    def standing(self, pace: float) -> Standing:
        """The intervals that have not ended; ``pace`` is the time between samples in seconds."""
        with self.lock:
            return standing_of(self.observed, pace)

    def resume(self, standing: Standing) -> None:
        """Go on with the intervals of another history; call it before the first snapshot."""
        with self.lock:
            resume(self.observed, standing)

    def empty_states(self) -> History:
        """An empty history of the same conditions that keeps no values over time."""
        known = self.observed
        return History(known.named, known.thresholds, STATE_GPU_DEPTH, charted=False)

    def as_of(self, snapshot: Snapshot) -> History:
        """What this history answered when one of its snapshots was the newest."""
        return HistoryView(self, snapshot)

    @property
    def latest(self) -> Snapshot | None:
        """The snapshot as of which it answers; ``None`` before the first."""
        return self._viewed.snapshot

    @property
    def now(self) -> float:
        """The time of that snapshot. All other times refer to the same clock."""
        return self._viewed.time

    @property
    def started(self) -> float | None:
        """The time of the first snapshot: nothing is known before it."""
        return self.observed.started

    def reaches(self, time: float) -> bool:
        """Whether it has received the snapshots up to a time, or to ``PATIENCE`` before it."""
        return self.observed.newest.time >= time - PATIENCE

    def old(self, gpu: Gpu) -> float | None:
        """Seconds since a GPU's values were read, if newer values are overdue.

        ``None`` while they are current: up to two and a half samples and ``OLD_AFTER``.
        """
        if gpu.sampled_at is None:
            return None
        with self.lock:
            record = self.observed.gpus.get(gpu.uuid)
            late = OLD_AFTER if record is None else max(OLD_AFTER, record.series.pace.late)
            age = self.now - gpu.sampled_at
            return age if age > late else None

    def is_missing(self, gpu: Gpu, *fields: str) -> bool:
        """Whether one of these fields is unknown although the GPU reports it at other times.

        Rules do without a field that a GPU never reports.
        """
        return self.observed.is_missing(gpu, *fields)

    def holding(self, gpu: Gpu) -> Holding | None:
        """What the processes hold of a GPU; ``None`` while there is no current list of them."""
        return self.observed.holding(self._viewed, gpu)

    def held(self, uuid: str) -> tuple[bool | None, ...]:
        """Whether each of the conditions holds for a GPU now."""
        viewed = self._viewed
        held = viewed.held.get(uuid)
        if held is None:
            gpu = viewed.gpu(uuid)
            if gpu is None or gpu.status not in ANSWERING:
                return ()
            held = viewed.held[uuid] = self.observed.conditions_of(viewed, gpu)
        return held

    def interval(self, uuid: str, name: str) -> Interval | None:
        """The interval in which a condition holds for a GPU now.

        ``None`` if it does not hold, or if that is unknown now. An unknown state of up to
        ``PATIENCE`` seconds, or two and a half samples if that is longer, does not end an interval;
        a longer one starts a new interval.

        Raises:
            KeyError: There is no such condition.
        """
        place, held = self.observed.place[name], self.held(uuid)
        # A GPU that does not respond keeps its state, for as long as that is plausible.
        holds = held[place] if held else True
        hysteresis = self.observed.conditions[place].hysteresis
        if holds is None or not (holds or hysteresis):
            return None
        found, patience = None, PATIENCE
        with self.lock:
            now, record = self._viewed.time, self.observed.gpus.get(uuid)
            # Most conditions never held, and all are asked for with each frame.
            if not holds and (record is None or record.watches[place].never_held):
                return None
            if record is not None:
                record.settle(place, hysteresis)
                watch, patience = record.watches[place], max(record.patience, hysteresis)
                if holds or not watch.had_ended(now, hysteresis):
                    found = watch.at(now)
        if found is not None and now - found.last <= patience:
            return found
        # The history has dropped the interval, which was short, or has not reached it yet.
        is_new = held and holds and self._viewed.is_measured(uuid, patience)
        return self._viewed.just_begun(now) if is_new else None

    def held_lately(self, uuid: str, name: str, seconds: float) -> tuple[float, float]:
        """For how many of the last seconds a condition held for a GPU, and how many were observed.

        The first is a minimum for a condition that changes often: of the past intervals only the
        newest and the longest are kept.

        Raises:
            KeyError: There is no such condition.
        """
        place = self.observed.place[name]
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
        place, held = self.observed.place[name], self.held(uuid)
        if not held or held[place] is not False:
            return held[place] if held else None
        hysteresis = self.observed.conditions[place].hysteresis
        with self.lock:
            record = self.observed.gpus.get(uuid)
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
        place = self.observed.place[name]
        with self.lock:
            record = self._settled(uuid, place)
            if record is None:
                return False
            watch = record.watches[place]
            return any(0 <= self.now - at < seconds for at in (watch.known_since, watch.unknown_at))

    def _settled(self, uuid: str, place: int) -> GpuRecord | None:
        """The record of a GPU with one of its conditions up to date, under the lock."""
        record = self.observed.gpus.get(uuid)
        if record is not None:
            record.settle(place, self.observed.conditions[place].hysteresis)
        return record

    def nvlink_increases(self, uuid: str, seconds: float) -> list[tuple[float, int]]:
        """The increases of a GPU's NVLink errors in the last seconds, each with its time."""
        with self.lock:
            record = self.observed.gpus.get(uuid)
            seen = [] if record is None else record.nvlink_increases
            return [one for one in seen if self.now - seconds <= one[0] <= self.now]

    def process_idle(self, process: ProcessId) -> Interval | None:
        """The interval in which a process has held GPU memory and done nothing, now.

        ``None`` if it is not idle, if a value is unknown, as SM use is under MIG and with old
        drivers, if it is in no current list, and for a process that only draws: a display server is
        idle most of the time. The driver reports only the last second or so of a process, so
        shorter and rarer work can be missed. An unknown state of up to ``PATIENCE`` seconds does
        not end an interval. Its start was observed if the process was working, or absent, in the
        list before.
        """
        listed = self._viewed.processes().get(process)
        if listed is None or not listed.resting:
            return None
        return self._of_process(process, lambda known: known.rest)

    def server_interval(self, process: ProcessId, name: str) -> Interval | None:
        """The interval in which a condition holds for a process of an inference server now.

        ``None`` if it does not hold, if that is unknown, or if the process is in no current list.

        Raises:
            KeyError: There is no such condition.
        """
        condition = self.observed.of_servers[name]
        listed = self._viewed.processes().get(process)
        if listed is None or not condition.holds(listed):
            return None
        return self._of_process(process, lambda known: known.served.get(name))

    def _of_process(
        self, process: ProcessId, tracker_of: Callable[[TrackedProcess], ConditionTracker | None]
    ) -> Interval | None:
        """The interval of a condition that holds for a process in the viewed list."""
        with self.lock:
            seen, patience = self._viewed.list_seen, max(PATIENCE, self.observed.list_pace.late)
            known = self.observed.process(process, self._viewed)
            tracker = None if known is None else tracker_of(known)
            found = None if tracker is None else tracker.at(seen)
        if self.now - seen > patience:
            return None
        is_recent = found is not None and found.last >= seen - patience
        return found if is_recent else self._viewed.just_begun(seen)

    def listed_lately(self, seconds: float) -> int:
        """The most processes that were there together in the last seconds."""
        start, changes = self.now - seconds, list[tuple[float, bool]]()
        with self.lock:
            for known in self.observed.processes.values():
                if known.first <= self.now and known.last >= start:
                    changes += ((max(start, known.first), False), (known.last, True))
        most = there = 0
        for _, has_exited in sorted(changes):
            there += -1 if has_exited else 1
            most = max(most, there)
        return most

    def gpu_seconds(self, user: str | None) -> float | None:
        """GPU-seconds for which a user's computing processes were observed.

        Two processes on one GPU count once. The time between two lists counts by the older list; if
        the newer one came late, as after a suspend or from a hung driver, the time does not count.
        The user ``None`` stands for the owners of processes that are not visible here. ``None``
        while the history has not reached the viewed snapshot.
        """
        if not self._viewed.is_reached:
            return None
        with self.lock:
            counted = self.observed.gpu_seconds.get(user)
            newest = self.observed.newest.list_seen
            return 0.0 if counted is None else counted.at(self._viewed.list_seen, newest)

    def xids(self, uuid: str) -> dict[int, float | None]:
        """Every XID that was observed on a GPU, with the time of its last occurrence.

        A GPU reports only its last XID, and a hardware XID is followed by those of the programs
        that it ends.
        """
        with self.lock:
            record = self.observed.gpus.get(uuid)
            if record is None:
                return {}
            seen = record.xids_seen
            if not seen or seen[-1][0] <= self.now:
                return dict(record.xids)
            return {number: at for time, number, at in seen if time <= self.now}

    def gpu_series(self, uuid: str) -> ViewedSeries:
        """The values of a GPU over time: the fields of ``CHARTED``.

        Up to two minutes in buckets under a second come from every sample, up to an hour in buckets
        under ten seconds from seconds, the rest from tens of seconds.
        """
        return self._series(lambda seen: _series_of(seen.gpus.get(uuid)), _GPU_FIELD)

    def process_series(self, process: ProcessId) -> ViewedSeries:
        """The values of a process over time: the fields of ``PROCESS_CHARTED``.

        From seconds up to a quarter of an hour, from tens of seconds up to half a day. Peaks of CPU
        and host memory are the highest means.
        """
        return self._series(lambda seen: _series_of(seen.processes.get(process)), _PROCESS_FIELD)

    def server_series(self, process: ProcessId) -> ViewedSeries:
        """What the inference server of a process reported: the fields of ``SERVER_CHARTED``."""
        return self._series(
            lambda seen: _server_series_of(seen.processes.get(process)), _SERVER_FIELD
        )

    def host_series(self) -> ViewedSeries:
        """The values of the machine over time: the fields of ``HOST_CHARTED``, means of seconds."""
        return self._series(lambda seen: seen.host, _HOST_FIELD)

    def user_series(self, user: str | None) -> ViewedSeries:
        """The values of a user over time: the fields of ``USER_CHARTED``, means of seconds."""
        return self._series(lambda seen: seen.users.get(user), _USER_FIELD)

    def _series(
        self, find: Callable[[Observations], Series | None], fields: Mapping[str, int]
    ) -> ViewedSeries:
        with self.lock:
            series = find(self.observed)
            if self.drawn is None or self._is_known(series):
                return ViewedSeries(series, fields, self._viewed, self.lock)
        return ViewedSeries(find(self.drawn.observed), fields, self._viewed, self.drawn.lock)

    def _is_known(self, series: Series | None) -> bool:
        """Whether a series has the values of the last hour before the viewed snapshot."""
        return (
            self._viewed.is_reached
            and series is not None
            and series.first <= self.now
            and series.reaches(self.now - _REACH)
        )


def _series_of(record: GpuRecord | TrackedProcess | None) -> Series | None:
    return None if record is None else record.series


def _server_series_of(record: TrackedProcess | None) -> Series | None:
    return None if record is None else record.server_series


class HistoryView(History):
    """A history as of one of its snapshots. Receives no more.

    The current state comes from the snapshot, its duration from the intervals that the history
    keeps. An interval that the history has dropped was short: it counts as just begun.

    The history of a log that is still being read may not have reached the snapshot. Then an
    interval counts as begun at its time or before, and what cannot be known is unknown.

    Args:
        history: The history, which may receive more snapshots meanwhile.
        snapshot: The snapshot.
    """

    def __init__(self, history: History, snapshot: Snapshot) -> None:
        self._answer_from(history.observed, ViewedSnapshot())
        with self.lock:
            self.observed.views.add(self._viewed)
        self.show(snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Change to another snapshot, which the history also received."""
        viewed, lists_seen = self._viewed, self.observed.lists_seen
        with self.lock:
            viewed.show(snapshot, is_reached=self.reaches(snapshot.time))
            place = bisect_right(lists_seen, viewed.time)
            if place and viewed.is_reached:
                viewed.list_seen = lists_seen[place - 1]

    def lacks_values(self) -> bool:
        """Whether values over time of a subject in the snapshot are no longer kept."""
        seen, shown = self.observed, self._viewed.snapshot
        with self.lock:
            records = [seen.gpus.get(gpu.uuid) for gpu in shown.gpus] if shown else []
            processes = [seen.processes.get(process) for process in self._viewed.processes()]
            series = [_series_of(known) for known in (*records, *processes)]
            return not all(self._is_known(values) for values in (*series, seen.host))


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
        complete: bool = False,
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
            complete: Whether the newest bucket has ended, so that it does not change any more.
        """
        place, series = self._fields[field], self._series
        if series is None:
            return [None] * count
        if now is None:
            now = self._viewed.time
        with self._lock:
            values = series.buckets(place, seconds, count, now, peak)
            if complete:
                return values
            viewed, width = self._viewed, seconds / count
            if int(now) != viewed.second:
                viewed.second = int(now)
                viewed.open.clear()
            # The maximum number in the open slot, which is ten seconds long at most.
            newest = -min(count, 1 + int(10 / width))
            asked = series, place, seconds, count, math.floor(now / width), peak
            values[newest:] = viewed.open.setdefault(asked, values[newest:])
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
