"""Adds up a job's use of its GPUs, sample by sample, in bounded memory; and says it in words."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.availability import FRESH_SECONDS
from gpumon.model.arithmetic import known_sum
from gpumon.model.snapshot import GpuStatus
from gpumon.report.figures import unit_of
from gpumon.report.sums import Distribution, Energy, Slowed, WeightedMean
from gpumon.scheduling.eligibility import Candidate, gib, process_name
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.scheduling.child import CommandExit

LAST_SECONDS = 5.0
"""Seconds before the exit in which full memory may be its cause."""
SLACK_BYTES = 64 * 2**20
"""Bytes by which a GPU's memory use varies by itself."""
_MOST_SECONDS = 5.0
"""Maximum seconds for which a sample's values count until the next one."""

_UNKNOWN = "unknown"
_FULL_BYTES = 2**30
_FULL_SHARE = 0.02
"""A GPU is full with less free memory than the larger of both."""
_NAMED = 2


class Fill(Struct, frozen=True):
    """How full a GPU was at the time of a sample, in bytes; ``None`` is unknown."""

    time: float
    free: int | None
    total: int | None
    job: int | None  # of the job's processes
    others: tuple[GpuProcess, ...] = ()


class JobGpuUsage(Struct):
    """The use of one GPU while the job ran."""

    candidate: Candidate  # the GPU or MIG device
    memory: WeightedMean = field(default_factory=WeightedMean)  # memory of the job's processes
    sm: Distribution = field(default_factory=Distribution)  # their SM utilisation in percent
    energy: Energy = field(default_factory=Energy)  # energy of the whole GPU
    slowed: Slowed = field(default_factory=Slowed)  # throttling of the whole GPU
    fills: deque[Fill] = field(default_factory=deque)  # the last few seconds, oldest first
    sm_now: int | None = None  # SM utilisation at the last sample
    strangers: frozenset[ProcessId] = frozenset()  # processes that were there before the job
    used_before: int | None = None  # bytes
    used: bool = False  # whether a process of the job was observed on it
    doubtful: bool = False  # whether the job may have used it unobserved

    @property
    def unused(self) -> bool:
        """Whether the job never appeared on it in the process lists."""
        return self.memory.peak == 0 and not self.used and not self.doubtful

    def pass_on(self, snapshot: Snapshot, passed: float) -> None:
        """Count the time since the previous sample with that sample's values."""
        seen = self.candidate.seen_in(snapshot)
        if seen is None:
            return
        # The job may have been on a GPU since its last complete process list.
        self.doubtful = self.doubtful or seen.gpu.status is not GpuStatus.OK
        seconds = min(passed, _MOST_SECONDS)
        before = self.candidate.gpu
        self.energy.join(_energy(before, seen.gpu, passed, seconds))
        self.candidate = seen
        if not self.fills:
            return  # The job's use before its first sample is unknown.
        job = self.fills[-1].job
        if job is not None:
            self.memory.add(job, seconds)
        if self.sm_now is not None:
            self.sm.add(min(100, self.sm_now), seconds)
        if before.clock_event_reasons is not None:
            self.slowed.add(before.clock_event_reasons, seconds)

    def see(self, snapshot: Snapshot, members: Sequence[GpuProcess], began: float) -> None:
        """Record the current state; a process list from before the job is ignored."""
        seen = self.candidate.seen_in(snapshot)
        if seen is None:
            return
        self.candidate = seen
        listed_at = snapshot.processes_at or 0
        on_it = [process for process in snapshot.processes if seen.use_of(process) is not None]
        uses = [use for process in members if (use := seen.use_of(process)) is not None]
        # While a call hangs, the last list is repeated. For invisible processes it is unknown
        # whether they belong to the job, and also for new ones while the job itself is not seen:
        # the processes of a container are not children of its client.
        doubtful = (
            "processes" in seen.gpu.unknown
            or seen.gpu.status is not GpuStatus.OK
            or listed_at < snapshot.time - FRESH_SECONDS
            or any(not process.visible for process in on_it)
        )
        if not uses:
            new = [
                process
                for process in on_it
                if process.type != "G" and process.id not in self.strangers
            ]
            doubtful = doubtful or bool(new) or self._grew(seen)
        self.used = self.used or bool(uses)
        self.doubtful = self.doubtful or doubtful
        listed = listed_at >= began and not doubtful
        job = known_sum(use.memory_used for use in uses) if listed else None
        self.sm_now = known_sum(use.sm for use in uses) if listed else None
        if job is not None:
            self.memory.add(job, 0.0)
        others = tuple(process for process in on_it if process not in members)
        self.fills.append(Fill(snapshot.time, seen.memory_free, seen.memory_total, job, others))
        while self.fills[0].time < snapshot.time - LAST_SECONDS:
            self.fills.popleft()

    def _grew(self, seen: Candidate) -> bool:
        """Whether more memory is used than before the job."""
        before, now = self.used_before, seen.memory_used
        return before is not None and now is not None and now > before + SLACK_BYTES


class JobUsage:
    """A job's use of its GPUs, from the creation of this object.

    Only one thread may call ``add``; read ``gpus`` after the last call.

    ``members`` returns the job's processes among those of a sample; ``before`` is the sample just
    before it started.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        members: Callable[[Sequence[GpuProcess]], tuple[GpuProcess, ...]],
        before: Snapshot,
    ) -> None:
        self.gpus = tuple(
            _start_usage(candidate.seen_in(before) or candidate, before) for candidate in candidates
        )
        self._members = members
        self._before = before
        self._began = time.time()

    def add(self, snapshot: Snapshot, *, over: bool = False) -> tuple[GpuProcess, ...]:
        """Add the next sample; the job's processes in it.

        Once the job is ``over``, a sample only closes the time before it.
        """
        members = self._members(snapshot.processes)
        before, self._before = self._before, snapshot
        passed = max(0.0, snapshot.time - before.time)
        for gpu in self.gpus:
            gpu.pass_on(snapshot, passed)
            if not over:
                gpu.see(snapshot, members, self._began)
        return members


def _start_usage(candidate: Candidate, before: Snapshot) -> JobGpuUsage:
    there = (process.id for process in before.processes if candidate.use_of(process) is not None)
    return JobGpuUsage(candidate, strangers=frozenset(there), used_before=candidate.memory_used)


def _energy(before: Gpu, now: Gpu, passed: float, seconds: float) -> Energy:
    """The energy of a GPU from one sample to the next."""
    if passed <= 0:
        return Energy()
    if before.energy is not None and now.energy is not None and now.energy >= before.energy:
        return Energy(now.energy - before.energy, counted=passed)
    if before.power_draw is not None:
        return Energy(before.power_draw * seconds, integrated=seconds)
    return Energy()


def exit_sentence(
    command: str, command_exit: CommandExit, seconds: float, gpus: Sequence[JobGpuUsage]
) -> str:
    """The first line: what exited, how, after how long, and where it ran."""
    labels = ", ".join(gpu.candidate.label for gpu in gpus)
    return f"{printable(command)} ended after {_length(seconds)} on {labels}: {command_exit.words}"


def gpu_summary(gpu: JobGpuUsage) -> str:
    """The job's use of one GPU."""
    total = gpu.candidate.memory_total
    of_all = f" of {gib(total)}" if total else ""
    peak, mean = gpu.memory.peak, gpu.memory.mean
    memory = "memory unknown"
    if peak is not None and gpu.used:
        memory = f"memory peak {gib(peak)}, mean {_UNKNOWN if mean is None else gib(mean)}{of_all}"
    sm = gpu.sm.mean if gpu.used else None
    use = f"{memory} · SM mean {_UNKNOWN if sm is None else f'{sm:.0f} %'}"
    if gpu.unused:
        use = "not used by the job"
    return f"{gpu.candidate.label}: {use} · {_slowed(gpu)} · {_energy_text(gpu)}"


def unused_warning(gpus: Sequence[JobGpuUsage]) -> str:
    """A warning if the job did not appear on some or all of its GPUs; otherwise empty."""
    unused = [gpu.candidate.label for gpu in gpus if gpu.unused]
    if unused:
        seen = "as far as a sample every second shows"
        why = "; it may have run on the CPU" if len(unused) == len(gpus) else ""
        return f"warning: the job never used {', '.join(unused)}, {seen}{why}"
    unseen = ", ".join(gpu.candidate.label for gpu in gpus if not gpu.used)
    if unseen:
        return f"warning: the job was not seen on {unseen}: whether it used that GPU is unknown"
    return ""


def _slowed(gpu: JobGpuUsage) -> str:
    slowed = gpu.slowed
    if not slowed.known:
        return "throttling unknown"
    reasons = (("heat", slowed.heat), ("power brake", slowed.brake), ("hardware", slowed.hardware))
    parts = [f"{_length(seconds)} by {name}" for name, seconds in reasons if seconds]
    return f"throttled {', '.join(parts)}" if parts else "not throttled"


def _energy_text(gpu: JobGpuUsage) -> str:
    energy = gpu.energy
    if gpu.candidate.mig is not None or not (energy.counted or energy.integrated):
        return "energy unknown"
    unit = unit_of(energy.joules)
    return f"{unit.format(energy.joules)} {unit.name}"


def full_sentence(gpu: JobGpuUsage) -> str | None:
    """That a GPU was full when the job exited, and who held what; ``None`` if it was not full."""
    fills = [fill for fill in gpu.fills if fill.free is not None]
    if not fills:
        return None
    # The newest if several are equally full: lists of processes come later than the memory.
    fullest = min(reversed(fills), key=lambda fill: fill.free or 0)
    if fullest.free is None or fullest.free > _limit(fullest.total):
        return None
    total = "" if fullest.total is None else f" of {gib(fullest.total)[:-4]}"
    return (
        f"{gpu.candidate.label} had {fullest.free / 2**30:.1f}{total} GiB free when it ended; "
        f"{_holders(fullest, gpu.candidate)}."
    )


def _limit(total: int | None) -> float:
    return max(_FULL_BYTES, _FULL_SHARE * (total or 0))


def _holders(fill: Fill, candidate: Candidate) -> str:
    parts = [f"{gib(fill.job)} held by the job itself"]
    sizes = [(candidate.memory_of(process), process) for process in fill.others]
    for size, process in sorted(sizes, key=lambda pair: -(pair[0] or 0))[:_NAMED]:
        parts.append(f"{gib(size)} by {process_name(process)}")
    if len(sizes) > _NAMED:
        parts.append(f"and {counted(len(sizes) - _NAMED, 'other')}")
    return ", ".join(parts)


def _length(seconds: float) -> str:
    """A duration, to a tenth of a second if it is short."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
