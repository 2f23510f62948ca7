"""What a history keeps of the snapshots that it receives."""

from __future__ import annotations

import math
from array import array
from functools import lru_cache, partial
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import structs

from gpumon.availability import FRESH_SECONDS
from gpumon.model.jobs import job_key, launchers_of
from gpumon.model.serving import ServerLoad
from gpumon.model.snapshot import ANSWERING, GPU_METRICS, PASSING
from gpumon.recording.history.holdings import Holding, holdings
from gpumon.recording.history.intervals import (
    Condition,
    ConditionTracker,
    ServerCondition,
    is_active,
)
from gpumon.recording.history.records import (
    PATIENCE,
    REPORTS_KEPT,
    Accrual,
    GpuRecord,
    TrackedProcess,
    UserSeries,
)
from gpumon.recording.history.viewed import ViewedSnapshot
from gpumon.recording.series import RECENT_SAMPLES, Depth, Series, SeriesRate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Host, Snapshot
    from gpumon.model.thresholds import Thresholds

_PEAKED = tuple(metric.field for metric in GPU_METRICS if metric.charted == "peak")
_AVERAGED = tuple(metric.field for metric in GPU_METRICS if metric.charted == "mean")
CHARTED = (*_PEAKED, *_AVERAGED)
"""Fields of a GPU whose values over time are kept."""
HOST_CHARTED = ("cpu_percent", "memory_used", "load")
"""Likewise of the machine; the load is that of the last minute."""
PROCESS_CHARTED = ("memory_used", "sm", "cpu_percent", "rss")
"""Likewise of a process, over all its GPUs."""
SERVER_CHARTED = ("tokens", "waiting")
"""Likewise of what an inference server reports, for each of its processes."""

GPU_DEPTH = Depth(
    fields=len(CHARTED), peaks=len(_PEAKED), seconds=3601, tens=8641, samples=RECENT_SAMPLES
)
"""Of a GPU: two minutes sample by sample, an hour in seconds, a day in tens of seconds."""
LOG_GPU_DEPTH = structs.replace(GPU_DEPTH, seconds=86_401)
"""Of a GPU in a log, of which every moment is as likely to be shown: a day in seconds, 6.3 MB."""
STATE_GPU_DEPTH = Depth(fields=len(CHARTED), peaks=0, seconds=2, tens=2, samples=32)
"""For a history that only judges states, of which a fleet has one a host: 3 kB a GPU."""
HOST_DEPTH = Depth(fields=len(HOST_CHARTED), peaks=0, seconds=901, tens=8641)
"""Of the machine, which is read once a second: a quarter of an hour in seconds, a day in tens."""
PROCESS_DEPTH = Depth(fields=len(PROCESS_CHARTED), peaks=2, seconds=901, tens=4321)
"""Of a process, of which there may be hundreds: a quarter of an hour in seconds, as their lists are
read no faster, and half a day in tens. Peaks of GPU memory and SM use alone."""
SERVER_DEPTH = structs.replace(PROCESS_DEPTH, fields=len(SERVER_CHARTED), peaks=0)
"""The same of what an inference server reports, which most processes have nothing of."""

PROCESSES_CHARTED = 300
"""How many processes get values over time: those with the most GPU memory, where there are more."""
PROCESSES_KEPT = 600
"""Who has them keeps them while no further down than this, so that two that take turns do not begin
anew each time."""
GONE_SECONDS = 600.0
"""How long a process that has ended is remembered."""
GONE_KEPT = 100
"""How many of them at most, so that a machine that starts thousands an hour costs no more."""
GPUS_KEPT = 16
"""How many GPUs are remembered at least, or twice as many as there are: of more the ones that
were away for longest are forgotten."""
XIDS_KEPT = 32
"""How many different XIDs of a GPU are remembered: the newest."""
PAST_KEPT = 1000
"""Of how many processes that ended before that it is still known since when they were there and
rested, for ``History.as_of``."""
LISTS_KEPT = 3600
"""Of how many process lists it is remembered when they came: an hour of one a second."""
STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back."""
OLD_AFTER = 2.0
"""Age in seconds up to which a GPU's values are never called old."""
USERS_KEPT = 300
"""How many users' time on GPUs is remembered, once they have left."""


_EMPTY = Holding()
_gpu_values = attrgetter(*CHARTED)
_process_values = attrgetter(*PROCESS_CHARTED)
_server_values = attrgetter(*SERVER_CHARTED)
_SILENT = ServerLoad()


class Observations:
    """See ``History``, which answers from them. One thread may add snapshots while others read.

    Attributes:
        started: The time of the first snapshot: nothing is known before it.
        newest: The newest snapshot.
        views: Past ones as of which there are answers. All times refer to the same clock.
        named: All conditions by name, as they were given.
        thresholds: The thresholds that the rules use.
        lock: Held during updates and queries.
        place: The place of each condition in ``conditions``, by name.
        gpu_depth: How far back the values of a GPU go.
        past: Processes that exited longer ago, in the order in which they were dropped.
        of_servers: The conditions of processes of servers, by name.
        lists_seen: When process lists came.
    """

    def __init__(
        self,
        conditions: Mapping[str, Condition | ServerCondition],
        thresholds: Thresholds,
        gpu_depth: Depth,
        *,
        charted: bool,
        judged: bool,
    ) -> None:
        """See ``History``."""
        self.named = conditions
        self.thresholds = thresholds
        self.gpu_depth = gpu_depth
        self._charted, self._judged = charted, judged
        self.started: float | None = None
        # Reasons come last: the same reasons give the same conditions, and they rarely change.
        of_gpus = [(name, one) for name, one in conditions.items() if isinstance(one, Condition)]
        ordered = sorted(of_gpus, key=lambda one: isinstance(one[1].holds, int))
        self.of_servers = {
            name: one for name, one in conditions.items() if isinstance(one, ServerCondition)
        }
        self.conditions = tuple(condition for _, condition in ordered)
        self.place = {name: place for place, (name, _) in enumerate(ordered)}
        self._asked = [one.holds for one in self.conditions if not isinstance(one.holds, int)]
        self._fallible = [
            (place, one) for place, one in enumerate(self.conditions) if one.optional or one.assumed
        ]
        bits = tuple(one.holds for one in self.conditions if isinstance(one.holds, int))
        self._active = lru_cache(maxsize=64)(partial(_active, bits))
        self.gpus: dict[str, GpuRecord] = {}
        self.processes: dict[ProcessId, TrackedProcess] = {}
        self.past: dict[ProcessId, TrackedProcess] = {}
        self.host: Series | None = None
        self._host_seen: Host | None = None
        self._host_seen_at = 0.0
        self._launchers: set[ProcessId] = set()
        self.users = UserSeries()
        self.gpu_seconds: dict[str | None, Accrual] = {}
        self._gpus_of: dict[str | None, int] = {}
        self._listed_at: float | None = None
        self._listed_gpus: frozenset[str] = frozenset()
        self.lists_seen = array("d")
        self.list_pace = SeriesRate()
        self.newest = ViewedSnapshot()
        self.views: WeakSet[ViewedSnapshot] = WeakSet()
        self.lock = Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Add the next snapshot; each one once."""
        with self.lock:
            time = self._tell_time(snapshot.time)
            self._see_processes(snapshot, time)
            for gpu in snapshot.gpus:
                self._see_gpu(gpu, time)
            if len(self.gpus) > max(GPUS_KEPT, 2 * len(snapshot.gpus)):
                self._forget_gpus(snapshot)
            if self._charted:
                self._see_host(snapshot.host, time)
            self.newest.snapshot = snapshot

    def shift(self, seconds: float) -> None:
        """Move all times into the past: the clock of the recording has been set back since."""
        with self.lock:
            self._shift(seconds)

    def is_missing(self, gpu: Gpu, *fields: str) -> bool:
        """Whether one of these fields is unknown although the GPU reports it at other times.

        Rules do without a field that a GPU never reports.
        """
        record = self.gpus.get(gpu.uuid)
        reported = set() if record is None else record.reported
        missing = False
        for field in fields:
            if getattr(gpu, field) is not None:
                reported.add(field)
                continue
            reason = gpu.unknown.get(field)
            missing |= reason in PASSING or (reason is None and field in reported)
        return missing

    def _tell_time(self, time: float) -> float:
        """The time of a new snapshot, kept after those before it."""
        if self.started is None:
            self.started = time
        elif time < self.newest.time - STEP:
            self._shift(self.newest.time - time)
        else:
            time = max(time, self.newest.time)
        self.newest.time = time
        return time

    def _shift(self, seconds: float) -> None:
        """Follow a clock that was set back."""
        # Slots are up to ten seconds long and stay whole, so the past moves by a rounded-up time.
        whole = 10 * math.ceil(seconds / 10)
        for record in self.gpus.values():
            record.series.shift(whole)
            record.seen_at -= seconds
            record.xids_seen = [(seen - seconds, xid, at) for seen, xid, at in record.xids_seen]
            record.nvlink_increases = [
                (seen - seconds, more) for seen, more in record.nvlink_increases
            ]
            for watch in record.watches:
                watch.shift(seconds)
        for known in (*self.processes.values(), *self.past.values()):
            known.first -= seconds
            known.last -= seconds
            for tracker in known.trackers:
                tracker.shift(seconds)
            for series in (known.series, known.server_series):
                if series is not None:
                    series.shift(whole)
        if self.host is not None:
            self.host.shift(whole)
        self.users.shift(whole)
        for counted in self.gpu_seconds.values():
            counted.shift(seconds)
        for place in range(len(self.lists_seen)):
            self.lists_seen[place] -= seconds
        if self.started is not None:
            self.started -= seconds
        for viewed in (self.newest, *self.views):
            viewed.shift(seconds)

    def _see_gpu(self, gpu: Gpu, time: float) -> None:
        record = self.gpus.get(gpu.uuid)
        if record is None:
            record = self.gpus[gpu.uuid] = GpuRecord(len(self.conditions), self.gpu_depth, time)
        if gpu.xid is not None and record.xids.get(gpu.xid, math.nan) != gpu.xid_at:
            record.xids[gpu.xid] = gpu.xid_at
            record.xids_seen.append((time, gpu.xid, gpu.xid_at))
            del record.xids_seen[:-REPORTS_KEPT]
            if len(record.xids) > XIDS_KEPT:
                del record.xids[min(record.xids, key=lambda xid: record.xids[xid] or -math.inf)]
        if gpu.nvlink_errors is not None:
            record.see_nvlink(gpu.nvlink_errors, time)
        if gpu.status not in ANSWERING:
            return
        # While one GPU hangs, the values of the others are repeated.
        if gpu.sampled_at is not None and gpu.sampled_at == record.sampled_at:
            return
        record.sampled_at = gpu.sampled_at
        record.patience = max(PATIENCE, record.series.pace.late)
        record.series.add(time, _gpu_values(gpu))
        if self._judged:
            held = self.newest.held[gpu.uuid] = self.conditions_of(self.newest, gpu)
            record.see(held, time, self.conditions)

    def holding(self, viewed: ViewedSnapshot, gpu: Gpu) -> Holding | None:
        """See ``History.holding``."""
        # A source that cannot list a GPU's processes says so in the same place as for fields.
        if not viewed.lists_known or "processes" in gpu.unknown:
            return None
        held = viewed.holdings
        return (self._holdings_of(viewed) if held is None else held).get(gpu.uuid, _EMPTY)

    def _holdings_of(self, viewed: ViewedSnapshot) -> dict[str, Holding]:
        """What the processes hold of each GPU; the newest list has set it."""
        if viewed.holdings is None:
            there = viewed.processes().values()
            launchers = launchers_of(there)
            with self.lock:
                viewed.holdings = holdings(
                    (one, self._first_seen(one.id, viewed), job_key(one, launchers))
                    for one in there
                )
        return viewed.holdings

    def process(self, process: ProcessId, viewed: ViewedSnapshot) -> TrackedProcess | None:
        """The record of a process that ran then, under the lock."""
        known = self.processes.get(process)
        if known is None or known.first > viewed.time:
            known = self.past.get(process)
        return known

    def _first_seen(self, process: ProcessId, viewed: ViewedSnapshot) -> float:
        known = self.process(process, viewed)
        return viewed.list_seen if known is None else min(known.first, viewed.list_seen)

    def conditions_of(self, viewed: ViewedSnapshot, gpu: Gpu) -> tuple[bool | None, ...]:
        """Whether each of the conditions holds for a GPU by its values."""
        holding = self.holding(viewed, gpu)
        held = [holds(gpu, holding) for holds in self._asked]
        for place, condition in self._fallible:
            is_unsure = self.is_missing(gpu, *condition.assumed)
            if (self.is_missing(gpu, *condition.optional) and not held[place]) or is_unsure:
                held[place] = None
        return (*held, *self._active(gpu.clock_event_reasons))

    def _forget_gpus(self, snapshot: Snapshot) -> None:
        """Drop the GPUs that have been absent for longest."""
        away = self.gpus.keys() - {gpu.uuid for gpu in snapshot.gpus}
        longest = sorted(away, key=lambda uuid: self.gpus[uuid].series.last)
        for uuid in longest[: len(self.gpus) - max(GPUS_KEPT, 2 * len(snapshot.gpus))]:
            del self.gpus[uuid]
            self.newest.held.pop(uuid, None)

    def _see_host(self, host: Host, time: float) -> None:
        if host is not self._host_seen:
            self._host_seen, self._host_seen_at = host, time
        elif time - self._host_seen_at > FRESH_SECONDS:
            # Repeated values, while a GPU hangs or the driver is gone: they were not measured
            # since.
            return
        if self.host is None:
            self.host = Series(HOST_DEPTH, time)
        load = None if host.load is None else host.load[0]
        self.host.add(time, (host.cpu_percent, host.memory_used, load))

    def _see_processes(self, snapshot: Snapshot, time: float) -> None:
        listed_at = snapshot.processes_at
        if listed_at is not None and listed_at != self._listed_at:
            self._listed_at = listed_at
            self._see_list(snapshot, time)
        self.newest.know_lists(snapshot)

    def _see_list(self, snapshot: Snapshot, time: float) -> None:
        """Process a new process list."""
        patience = max(PATIENCE, self.list_pace.late)
        if self._judged:
            self._count_gpus(time)
            self._see_launchers(snapshot)
        self.lists_seen.append(time)
        if len(self.lists_seen) > LISTS_KEPT:
            del self.lists_seen[: LISTS_KEPT // 2]
        there = [(one, self._see_process(one, time, patience)) for one in snapshot.processes]
        self.newest.list_seen = time
        self._listed_gpus = frozenset(
            gpu.uuid
            for gpu in snapshot.gpus
            if gpu.status in ANSWERING and "processes" not in gpu.unknown
        )
        if self._charted:
            self._chart(there, snapshot, time)
        if len(self.processes) > len(there):
            self._forget_gone(time)
        if self._judged:
            self.newest.holdings = holdings(
                (process, known.first, known.job) for process, known in there
            )

    def _see_launchers(self, snapshot: Snapshot) -> None:
        """Note whether a process has become a launcher: that changes its job."""
        launchers = launchers_of(snapshot.processes)
        if launchers != self._launchers:
            self._launchers = launchers
            for known in self.processes.values():
                known.place = None

    def _chart(
        self, there: list[tuple[GpuProcess, TrackedProcess]], snapshot: Snapshot, time: float
    ) -> None:
        """Keep the values of the processes and of their users."""
        for process, known in self._to_chart(there):
            if known.series is None:
                known.series = Series(PROCESS_DEPTH, time)
            known.series.add(time, _process_values(process))
            if process.load is not None and known.server_series is None:
                known.server_series = Series(SERVER_DEPTH, time)
            if known.server_series is not None:
                known.server_series.add(time, _server_values(process.load or _SILENT))
        self.users.add(snapshot.processes, time)

    def _see_process(self, process: GpuProcess, time: float, patience: float) -> TrackedProcess:
        """Record a process of a new list."""
        known = self.processes.get(process.id)
        if known is None:
            known = self.processes[process.id] = TrackedProcess(time)
            if all(use.gpu_uuid in self._listed_gpus for use in process.uses):
                # It was absent before, and an absent process is not idle.
                known.rest.denied = self.newest.list_seen
        known.last = time
        if self._judged:
            self._judge_process(process, known, time, patience)
        return known

    def _judge_process(
        self, process: GpuProcess, known: TrackedProcess, time: float, patience: float
    ) -> None:
        """Record the job and the conditions of a process of a new list."""
        if process.place is not known.place:
            known.place = process.place
            known.job = job_key(process, self._launchers)
        known.rest.see(process.resting, time, patience)
        if process.load is not None or known.served:
            for name, condition in self.of_servers.items():
                tracker = known.served.get(name)
                if tracker is None:
                    tracker = known.served[name] = ConditionTracker()
                tracker.see(condition.holds(process), time, patience)

    def _count_gpus(self, time: float) -> None:
        """Add the time since the previous list to the users of the GPUs in it."""
        seconds = time - self.newest.list_seen
        if seconds == math.inf:
            return
        late = seconds > max(FRESH_SECONDS, self.list_pace.late)
        self.list_pace.see(seconds)
        gpus_of: dict[str | None, int] = {}
        if not late:
            for holding in self._holdings_of(self.newest).values():
                for owner in holding.owners:
                    gpus_of[owner] = gpus_of.get(owner, 0) + 1
        counted = self.gpu_seconds
        if gpus_of != self._gpus_of:
            for owner in gpus_of.keys() | self._gpus_of.keys():
                if owner not in counted:
                    counted[owner] = Accrual()
                if gpus_of.get(owner) != self._gpus_of.get(owner):
                    counted[owner].turn(self.newest.list_seen)
            self._gpus_of = gpus_of
        for owner, gpus in gpus_of.items():
            counted[owner].total += gpus * seconds
        if len(counted) > USERS_KEPT:
            self._forget_users()

    def _forget_users(self) -> None:
        """If too many users have left, drop those with the least GPU time."""
        here = {
            owner for holding in self._holdings_of(self.newest).values() for owner in holding.owners
        }
        left = sorted(self.gpu_seconds.keys() - here, key=lambda user: self.gpu_seconds[user].total)
        for user in left[: len(self.gpu_seconds) - USERS_KEPT]:
            del self.gpu_seconds[user]

    def _to_chart(
        self, there: list[tuple[GpuProcess, TrackedProcess]]
    ) -> Sequence[tuple[GpuProcess, TrackedProcess]]:
        """The processes whose values are kept; drops the values of those that rank too low."""
        if len(there) <= PROCESSES_CHARTED:
            return there
        ranked = sorted(there, key=lambda one: one[0].memory_used or 0, reverse=True)
        for _, known in ranked[PROCESSES_KEPT:]:
            known.forget_values()
        staying = ranked[PROCESSES_CHARTED:PROCESSES_KEPT]
        return ranked[:PROCESSES_CHARTED] + [one for one in staying if one[1].series is not None]

    def _forget_gone(self, time: float) -> None:
        """Drop processes that exited long ago, and the oldest if there are too many."""
        gone = [process for process, known in self.processes.items() if known.last < time]
        gone.sort(key=lambda process: self.processes[process].last, reverse=True)
        for number, process in enumerate(gone):
            if number >= GONE_KEPT or time - self.processes[process].last > GONE_SECONDS:
                known = self.past[process] = self.processes.pop(process)
                known.forget_values()
        while len(self.past) > (PAST_KEPT if self._charted else 0):
            del self.past[next(iter(self.past))]


def _active(bits: Sequence[int], reasons: int | None) -> tuple[bool | None, ...]:
    """Which of these clock event reasons are active."""
    return tuple(is_active(bit, reasons) for bit in bits)
