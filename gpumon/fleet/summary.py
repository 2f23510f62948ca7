"""What matters of each host of a fleet: free GPUs, memory, users, and the worst state in words.

A thread of its own judges the hosts, so that no key waits for it.
"""

from __future__ import annotations

from operator import is_not
from threading import Event, Thread
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import RULES, Finding, FindingKind, Severity, conditions, gpu_state, not_free
from gpumon.findings.groups import UserUse, allocated_jobs, users
from gpumon.fleet.fleet import HostState, HostStatus, Owner
from gpumon.model.arithmetic import known_sum
from gpumon.model.snapshot import GpuStatus
from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.recording.history import STATE_GPU_DEPTH, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.fleet.fleet import Fleet
    from gpumon.model.snapshot import Gpu, Snapshot

_REST = 0.2
"""Seconds between two rounds, each of which is drawn: some host always has changed."""
_STOP_PATIENCE = 1.0


class GpuSummary(Struct, frozen=True):
    """One GPU of a host."""

    index: int
    free: bool  # whether nobody uses it, by the rule of ``availability.why_not_free``
    memory: float | None  # share of its memory in use, 0 to 1; ``None`` if unknown
    load: float | None  # share of time in which a kernel runs, 0 to 1; ``None`` if unknown
    state: Finding


class HostSummary(Struct, frozen=True):
    """A host at one moment. Values that are not current are ``None``, except ``gpus``."""

    state: HostState  # the host and its newest snapshot
    index: int  # its position in the fleet, from 0
    gpus: tuple[GpuSummary, ...] = ()  # in the newest snapshot
    free: int | None = None  # number of free GPUs
    most_free: int | None = None  # bytes of free memory on the GPU that has most
    memory_used: int | None = None  # bytes on all GPUs; ``None`` if that of any is unknown
    memory_total: int | None = None  # the same
    users: tuple[
        UserUse | Owner, ...
    ] = ()  # of the newest snapshot, or of metrics; most memory first
    worst: GpuSummary | None = None  # the worst GPU, if its state needs attention
    history: History | None = None  # of the host; has the idle time of its processes

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.state.name

    @property
    def is_live(self) -> bool:
        """Whether its values are current."""
        return self.state.status is HostStatus.LIVE and self.state.snapshot is not None

    @property
    def severity(self) -> Severity:
        """How much attention the host needs: a host without current values needs it like a GPU."""
        if self.state.status is HostStatus.DOWN:
            return Severity.CRITICAL
        if self.state.status is HostStatus.SILENT:
            return Severity.WARNING
        return Severity.QUIET if self.worst is None else self.worst.state.severity


class HostJudge:
    """Judges the states of one host, with a short history of it."""

    def __init__(self, index: int, thresholds: Thresholds = DEFAULTS) -> None:
        self._index = index
        self._thresholds = thresholds
        self._history = History(conditions(thresholds), thresholds, STATE_GPU_DEPTH, charted=False)
        self._snapshot: Snapshot | None = None
        self._made: HostSummary | None = None

    def judge(self, state: HostState) -> HostSummary:
        """The summary of the host's newest state; the same object for the same state."""
        if self._made is None or self._made.state is not state:
            self._made = self._summary(state)
        return self._made

    def _summary(self, state: HostState) -> HostSummary:
        snapshot = state.snapshot
        if snapshot is None:
            return HostSummary(state, self._index)
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._history.add(snapshot)
        gpus = tuple([self._gpu(gpu) for gpu in snapshot.gpus])
        worst = max(filter(self._is_notable, gpus), key=_severity, default=None)
        summary = HostSummary(
            state,
            self._index,
            gpus,
            users=state.owners or self._users(snapshot),
            worst=worst,
            history=self._history,
        )
        return _with_values(summary, snapshot) if summary.is_live else summary

    def _users(self, snapshot: Snapshot) -> tuple[UserUse, ...]:
        allocated = allocated_jobs(snapshot, self._history)
        return tuple(users(snapshot, self._history, allocated))

    def _is_notable(self, gpu: GpuSummary) -> bool:
        """Whether a state is worth knowing from afar."""
        state = gpu.state
        if state.kind is FindingKind.IDLE and state.since is not None:
            return self._history.now - state.since >= self._thresholds.idle_after
        is_normal = RULES[state.kind].is_normal_use and state.severity < Severity.WARNING
        return state.severity >= Severity.NOTE and not is_normal

    def _gpu(self, gpu: Gpu) -> GpuSummary:
        load = gpu.utilization_gpu
        return GpuSummary(
            gpu.index,
            not_free(self._history, gpu) is None,
            gpu.memory_used / gpu.memory_total
            if gpu.memory_used is not None and gpu.memory_total
            else None,
            None if load is None else load / 100,
            gpu_state(self._history, gpu),
        )


def _severity(gpu: GpuSummary) -> Severity:
    return gpu.state.severity


def _with_values(summary: HostSummary, snapshot: Snapshot) -> HostSummary:
    """The summary of a live host: of others nobody knows what is free now."""
    sound = [gpu for gpu in snapshot.gpus if gpu.status is GpuStatus.OK]
    known = [gpu.memory_free for gpu in sound if gpu.memory_free is not None]
    return replace(
        summary,
        free=sum(gpu.free for gpu in summary.gpus),
        most_free=max(known, default=None),
        memory_used=known_sum(gpu.memory_used for gpu in snapshot.gpus),
        memory_total=known_sum(gpu.memory_total for gpu in snapshot.gpus),
    )


class FleetTotals(Struct, frozen=True):
    """Sums over the hosts whose values are current."""

    hosts: int  # number of all hosts
    live: int  # number of hosts with current values
    gpus: int  # number of their GPUs
    free: int  # number of free GPUs
    memory_used: int  # bytes in use, where known
    memory_total: int  # bytes, where known
    complete: bool  # whether nothing is missing in the sums


def totals(summaries: Iterable[HostSummary]) -> FleetTotals:
    """The sums over a fleet."""
    hosts = live = gpus = free = used = total = 0
    complete = True
    for host in summaries:
        hosts += 1
        complete = complete and None not in (host.memory_used, host.memory_total)
        if not host.is_live or host.state.snapshot is None:
            continue
        live += 1
        gpus += len(host.gpus)
        free += host.free or 0
        used += sum(gpu.memory_used or 0 for gpu in host.state.snapshot.gpus)
        total += sum(gpu.memory_total or 0 for gpu in host.state.snapshot.gpus)
    return FleetTotals(hosts, live, gpus, free, used, total, complete)


class FleetSummaries:
    """The newest summary of each host of a fleet, which may be started later."""

    def __init__(self, fleet: Fleet, thresholds: Thresholds = DEFAULTS) -> None:
        self.failure: BaseException | None = None  # the bug that has ended the thread
        self._fleet = fleet
        self._thresholds = thresholds
        self._judges: dict[str, HostJudge] = {}
        # In the order of the fleet; the same objects while nothing changes.
        self.latest: tuple[HostSummary, ...] = ()
        self._changed: Callable[[], None] = lambda: None
        self._wake = Event()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="gpumon-fleet-states", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        """Start to judge.

        Args:
            changed: Called on another thread after each round that changed something, and after a
                failure.
        """
        self._changed = changed
        self._unsubscribe = self._fleet.subscribe(self._wake.set)
        self._wake.set()
        self._thread.start()

    def close(self) -> None:
        """Stop; may be called before ``start``."""
        self._unsubscribe()
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_PATIENCE)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._wake.wait()
                self._wake.clear()
                self._judge()
                self._stopped.wait(_REST)
        except Exception as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self.failure = failure
            self._changed()

    def _judge(self) -> None:
        hosts = enumerate(self._fleet.latest().hosts)
        made = tuple([self._judge_of(index, host).judge(host) for index, host in hosts])
        before = self.latest
        if len(made) != len(before) or any(map(is_not, made, before)):
            self.latest = made
            self._changed()

    def _judge_of(self, index: int, host: HostState) -> HostJudge:
        judge = self._judges.get(host.name)
        if judge is None:
            judge = self._judges[host.name] = HostJudge(index, self._thresholds)
        return judge
