"""What matters of a host in a fleet: free GPUs, memory, users, and the worst state in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import RULES, Finding, FindingKind, Severity, conditions, gpu_state, not_free
from gpumon.findings.groups import UserUse, users
from gpumon.fleet.fleet import HostState, HostStatus, Owner
from gpumon.model.arithmetic import known_sum
from gpumon.model.snapshot import GpuStatus
from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.recording.history import STATE_GPU_DEPTH, History

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Gpu, Snapshot


class GpuSummary(Struct, frozen=True):
    """One GPU of a host.

    Attributes:
        index: Its index.
        free: Whether nobody uses it, by the rule of ``availability.why_not_free``.
        memory: Share of its memory in use, 0 to 1; ``None`` if it is unknown.
        load: Share of time in which a kernel runs, 0 to 1; ``None`` if it is unknown.
        state: Its state.
    """

    index: int
    free: bool
    memory: float | None
    load: float | None
    state: Finding


class HostSummary(Struct, frozen=True):
    """A host at one moment. Values that are not current are ``None``, except ``gpus``.

    Attributes:
        state: The host and its newest snapshot.
        place: Its position in the fleet, from 0.
        gpus: Its GPUs in the newest snapshot.
        free: Number of free GPUs.
        most_free: Bytes of free memory on the GPU that has most.
        memory_used: Bytes in use on all GPUs; ``None`` if that of any is unknown.
        memory_total: Bytes of all GPUs; ``None`` if that of any is unknown.
        users: The users in the newest snapshot, or as metrics tell them; most memory first.
        worst: The worst GPU, if its state needs attention.
        history: What was seen of the host; tells the idle time of its processes.
    """

    state: HostState
    place: int
    gpus: tuple[GpuSummary, ...] = ()
    free: int | None = None
    most_free: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    users: tuple[UserUse | Owner, ...] = ()
    worst: GpuSummary | None = None
    history: History | None = None

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

    def __init__(self, place: int, thresholds: Thresholds = DEFAULTS) -> None:
        self._place = place
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
            return HostSummary(state, self._place)
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._history.add(snapshot)
        gpus = tuple([self._gpu(gpu) for gpu in snapshot.gpus])
        worst = max(filter(self._is_notable, gpus), key=_severity, default=None)
        summary = HostSummary(
            state,
            self._place,
            gpus,
            users=state.owners or tuple(users(snapshot, self._history)),
            worst=worst,
            history=self._history,
        )
        return _with_values(summary, snapshot) if summary.is_live else summary

    def _is_notable(self, gpu: GpuSummary) -> bool:
        """Whether a state is worth knowing from afar."""
        state = gpu.state
        if state.kind is FindingKind.IDLE and state.since is not None:
            return self._history.now - state.since >= self._thresholds.idle_after
        return state.severity >= Severity.NOTE and not RULES[state.kind].is_normal_use

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
    """Sums over the hosts whose values are current.

    Attributes:
        hosts: Number of all hosts.
        live: Number of hosts with current values.
        gpus: Number of their GPUs.
        free: Number of free GPUs.
        memory_used: Bytes in use, where known.
        memory_total: Bytes, where known.
        complete: Whether nothing is missing in the sums.
    """

    hosts: int
    live: int
    gpus: int
    free: int
    memory_used: int
    memory_total: int
    complete: bool


def totals(summaries: Iterable[HostSummary]) -> FleetTotals:
    """The sums over a fleet."""
    hosts = live = gpus = free = used = total = 0
    complete = True
    for one in summaries:
        hosts += 1
        complete = complete and None not in (one.memory_used, one.memory_total)
        if not one.is_live or one.state.snapshot is None:
            continue
        live += 1
        gpus += len(one.gpus)
        free += one.free or 0
        used += sum(gpu.memory_used or 0 for gpu in one.state.snapshot.gpus)
        total += sum(gpu.memory_total or 0 for gpu in one.state.snapshot.gpus)
    return FleetTotals(hosts, live, gpus, free, used, total, complete)
