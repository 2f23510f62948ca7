"""Adds up a job's use of its GPUs, sample by sample, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.model.arithmetic import known_sum
from gpumon.model.snapshot import GpuStatus
from gpumon.report.sums import Distribution, Energy, Slowed, WeightedMean
from gpumon.scheduling.eligibility import Candidate  # noqa: TC001 - msgspec resolves them

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot

LAST_SECONDS = 5.0
"""Seconds before the exit in which full memory may be its cause."""
_LIST_SECONDS = 5.0
"""Maximum age of a process list in seconds; an older one is ignored."""
SLACK_BYTES = 64 * 2**20
"""Bytes by which a GPU's memory use varies by itself."""
_MOST_SECONDS = 5.0
"""Maximum seconds for which a sample's values count until the next one."""


class Fill(Struct, frozen=True):
    """How full a GPU was at one moment, in bytes; ``None`` is unknown.

    Attributes:
        time: The time.
        free: Free memory.
        total: Total memory.
        job: Memory of the job.
        others: Other processes.
    """

    time: float
    free: int | None
    total: int | None
    job: int | None
    others: tuple[GpuProcess, ...] = ()


class JobGpuUsage(Struct):
    """The use of one GPU while the job ran.

    Attributes:
        candidate: The GPU or MIG device.
        memory: Memory of the job's processes.
        sm: SM utilisation of the job's processes in percent.
        energy: Energy of the whole GPU.
        slowed: Throttling of the whole GPU.
        fills: Memory in the last few seconds, oldest first.
        sm_now: The same utilisation at the last sample.
        strangers: Processes that were there before the job.
        used_before: Used bytes before the job.
        used: Whether a process of the job was observed on it.
        doubtful: Whether the job may have used it unobserved.
    """

    candidate: Candidate
    memory: WeightedMean = field(default_factory=WeightedMean)
    sm: Distribution = field(default_factory=Distribution)
    energy: Energy = field(default_factory=Energy)
    slowed: Slowed = field(default_factory=Slowed)
    fills: deque[Fill] = field(default_factory=deque)
    sm_now: int | None = None
    strangers: frozenset[ProcessId] = frozenset()
    used_before: int | None = None
    used: bool = False
    doubtful: bool = False

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
        self.energy.add(_energy(before, seen.gpu, passed, seconds))
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
        on_it = [one for one in snapshot.processes if seen.use_of(one) is not None]
        uses = [use for one in members if (use := seen.use_of(one)) is not None]
        # While a call hangs, the last list is repeated. For invisible processes it is unknown
        # whether they belong to the job, and also for new ones while the job itself is not seen:
        # the processes of a container are not children of its client.
        doubtful = (
            "processes" in seen.gpu.unknown
            or seen.gpu.status is not GpuStatus.OK
            or listed_at < snapshot.time - _LIST_SECONDS
            or any(not one.visible for one in on_it)
        )
        if not uses:
            came = [one for one in on_it if one.type != "G" and one.id not in self.strangers]
            doubtful = doubtful or bool(came) or self._grew(seen)
        self.used = self.used or bool(uses)
        self.doubtful = self.doubtful or doubtful
        listed = listed_at >= began and not doubtful
        job = known_sum(use.memory_used for use in uses) if listed else None
        self.sm_now = known_sum(use.sm for use in uses) if listed else None
        if job is not None:
            self.memory.add(job, 0.0)
        others = tuple(one for one in on_it if one not in members)
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

    Args:
        candidates: The job's GPUs.
        members: The job's processes.
        before: The GPUs just before it started.

    Attributes:
        gpus: The results so far.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        members: Callable[[Sequence[GpuProcess]], tuple[GpuProcess, ...]],
        before: Snapshot,
    ) -> None:
        self.gpus = tuple(_start_usage(one.seen_in(before) or one, before) for one in candidates)
        self._members = members
        self._before = before
        self._began = time.time()

    def add(self, snapshot: Snapshot, *, over: bool = False) -> tuple[GpuProcess, ...]:
        """Add the next sample.

        Args:
            snapshot: The sample.
            over: Whether the job has exited: the sample then only closes the time before it.

        Returns:
            The job's processes in it.
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
    there = (one.id for one in before.processes if candidate.use_of(one) is not None)
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
