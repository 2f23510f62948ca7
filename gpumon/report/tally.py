"""Adds up the samples of logs, for each GPU or host, and for each user, process or job on it.

A sample counts until the next one of its GPU, at most ``samples.PATIENCE`` usual intervals.
Durations come from each log's monotonic clock if it has one, so a clock that was set does no harm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.model.arithmetic import known_sum
from gpumon.recording.csv.part import LIST_FRESH
from gpumon.recording.csv.rows import LIST_SECONDS
from gpumon.report.gpu_totals import GpuTotals
from gpumon.report.lists import (
    GpuProcessList,
    SameProcesses,
    SubjectOnGpu,
    SubjectShare,
    WrittenList,
    by_gpu,
    counted,
    prepares,
)
from gpumon.report.owners import BY_PROCESSES, Subjects
from gpumon.report.pacing import seconds_between
from gpumon.report.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpumon.model.processes import ProcessId
    from gpumon.model.serving import ServerLoad
    from gpumon.report.chosen_job import ChosenJob
    from gpumon.report.samples import ListedUse, MergedSample, SteadyUse
    from gpumon.report.window import TimeWindow


_Held = list[tuple[GpuTotals, float | None]]
"""GPUs, and the bytes that are held on each."""


class _Holder:
    """What a subject holds now: ``memory`` on all ``gpus``, unknown if it is unknown on any.

    ``loads`` are those of its inference servers.
    """

    __slots__ = ("gpus", "loads", "memory", "sums")

    def __init__(self, sums: Sums, gpus: _Held, loads: Collection[ServerLoad] = ()) -> None:
        self.sums, self.gpus, self.loads = sums, gpus, loads
        self.memory = known_sum([size for _, size in gpus])


class HostTotals:
    """The sums of one host in a time range, by one of ``report.figures.BY``."""

    def __init__(
        self, by: str, window: TimeWindow, whole: TimeWindow, job: ChosenJob | None = None
    ) -> None:
        self.gpus: dict[str, GpuTotals] = {}
        # Those of each user, process or job, if that is what is counted.
        self.sums: dict[str, Sums] = {}
        self.subjects = Subjects(by, job) if by in BY_PROCESSES else None
        # A user may have several jobs, and each uses its own GPUs.
        self._are_groups = by in ("process", "job")
        self._by_job = by == "job"
        # Presence and memory of the host as a whole.
        self.whole = Sums() if by == "host" else None
        self._began = math.inf
        self._window = window
        # What is present at an end of the time range was seen then; a part of it has no such ends.
        self._ends = [time for time in (whole.first, whole.last) if math.isfinite(time)]
        self._now = self._reach = 0.0
        self._current_until: dict[int, float] = {}
        self._newest: MergedSample | None = None
        self._holders: list[_Holder] | None = None

    def add(self, moment: MergedSample) -> None:
        """Add the next sample of this host."""
        if self._newest is not None:
            passed = seconds_between(self._newest, moment)
            self._count_presence(passed)
            self._now += passed
        now, window = self._now, self._window
        self._began = min(self._began, moment.began)
        self._current_until[moment.log] = now + (0.0 if moment.is_last else moment.reach)
        reach = moment.reach
        if moment.is_last:
            # The samples of logs that go on still count.
            reach = max(reach, max(self._current_until.values()) - now)
        self._reach = reach
        lists = by_gpu(moment.listed) if moment.listed else None
        if self.subjects is not None and self._by_job:
            for key, sample in moment.gpus.items():
                state, known = sample.state, self.gpus.get(key)
                is_same = known is not None and known.sample and known.sample.state is state
                if state.allocated_jobs is not None and not is_same:
                    self.subjects.learn(state.allocated)
        if self.subjects is not None and lists is not None:
            self.subjects.find([use.process for use in moment.listed])
        seconds = reached = 0.0
        is_seen = False
        counted = seen = None
        for key, sample in moment.gpus.items():
            gpu = self.gpus.get(key)
            if gpu is None:
                gpu = self.gpus[key] = GpuTotals()
            before, state, time = gpu.sample, sample.state, sample.time
            if state.xid is not None:
                gpu.see_xid(sample, self._began, window)
            if before is not None:
                interval = before.time, gpu.since, gpu.reach
                # It is mostly the same for all GPUs.
                if interval != counted:
                    counted = interval
                    reached = min(now - gpu.since, gpu.reach)
                    seconds = window.part(before.time, reached)
                if seconds and self._ends:
                    self._see_ends(gpu.sums, before.time, reached)
                gpu.finish(before, sample, now, seconds, window)
            if time != seen:
                seen, is_seen = time, window.holds(time)
            if is_seen:
                gpu.sums.see(time)
            gpu.begin(sample, now, reach)
            if lists is None and not moment.is_last and state.processes:
                listed = gpu.listed
                if listed is not None and listed.processes and now - listed.at <= LIST_SECONDS:
                    # A list of some processes stays valid without a new one.
                    continue
            written = None if lists is None else lists.get(key, [])
            listed = self._find_list(gpu, state.processes, written, moment)
            if listed is not gpu.listed:
                self._holders = None
                gpu.replace_list(listed)
        if lists is not None and self._are_groups:
            self._find_left_out()
        self._newest = moment

    def _find_left_out(self) -> None:
        """Mark the GPUs that subjects do not use while they work on most of their others."""
        first: dict[int, SubjectShare] = {}
        several: dict[int, list[SubjectShare]] = {}
        for gpu in self.gpus.values():
            for share in gpu.shares:
                if share.on_gpu.computing:
                    key = id(share.on_gpu.sums)
                    known = first.setdefault(key, share)
                    if known is not share:
                        several.setdefault(key, [known]).append(share)
        for shares in several.values():
            loads = [share.sm for share in shares]
            if None in loads:
                continue
            # Most of the other GPUs of a share without load.
            is_left_out = 2 * sum([1 for load in loads if load]) > len(loads) - 1
            for share in shares:
                share.left_out = is_left_out and not share.sm

    def _is_old(self, log: int, written: WrittenList, moment: MergedSample) -> bool:
        """Whether a list no longer stands: its log has a later sample without one, or a gap.

        A log of one user's processes has no list when that user has none.
        """
        if self._now - written.at <= LIST_FRESH:
            return False
        return log == moment.log or self._now > self._current_until[log]

    def close(self) -> None:
        """Finish: the last samples count for no time, but their memory may be a peak."""
        self._count_presence(0.0)
        for gpu in self.gpus.values():
            gpu.close(self._window)
            self._share_allocated(gpu)
        self._newest = self._holders = None

    def _share_allocated(self, gpu: GpuTotals) -> None:
        """Add the time in which a GPU was allocated to the subjects that had it."""
        for allocated, time in gpu.allocated_to.items():
            subjects = (
                [] if self.subjects is None else self.subjects.allocated(allocated, gpu.index)
            )
            for subject in subjects:
                self.sums.setdefault(subject.key, Sums()).join(time)
        gpu.allocated_to.clear()

    def join(self, later: HostTotals) -> None:
        """Add what was counted later; not for a chosen job."""
        for key, gpu in later.gpus.items():
            if (known := self.gpus.setdefault(key, gpu)) is not gpu:
                known.join(gpu)
        if self.whole is not None and later.whole is not None:
            self.whole.join(later.whole)
        if self.subjects is not None and later.subjects is not None:
            self.subjects.join(later.subjects)
            for key, sums in later.sums.items():
                if (before := self.sums.setdefault(key, sums)) is not sums:
                    before.join(sums)

    def _see_ends(self, sums: Sums, time: float, seconds: float) -> None:
        """Record the ends of the time range, if they are in the seconds after a sample."""
        for end in self._ends:
            if time < end < time + seconds:
                sums.see(end)

    def _find_list(
        self,
        gpu: GpuTotals,
        count: int | None,
        written: list[ListedUse] | None,
        moment: MergedSample,
    ) -> GpuProcessList | None:
        """The current list of a GPU; ``None`` if its processes are not known.

        Args:
            gpu: The GPU.
            count: How many processes it has by its sample.
            written: Those that are listed at this sample; ``None`` if no lists were written.
            moment: The sample.
        """
        standing = gpu.listed
        if count is None:
            return None
        if count == 0:
            gpu.written.clear()
            if standing is not None and not standing.processes:
                return standing
            return GpuProcessList(
                self._now, 0, is_complete=True, computing=False, preparing=False, shares=[]
            )
        if written is not None:
            gpu.written.pop(moment.log, None)
            if gpu.written and len({use.process.identity for use in written}) >= count:
                gpu.written.clear()
            gpu.written[moment.log] = WrittenList(self._now, written)
        old = [log for log, one in gpu.written.items() if self._is_old(log, one, moment)]
        if moment.is_last and len(gpu.written) > 1:
            # It lists some of the processes, and says nothing of the time after it.
            old.append(moment.log)
        for log in old:
            gpu.written.pop(log, None)
        if written is None and not old and standing is not None and standing.processes:
            return standing
        return self._read_list(gpu, count) if gpu.written else None

    def _read_list(self, gpu: GpuTotals, count: int) -> GpuProcessList:
        oldest = next(iter(gpu.written.values()))
        listed = oldest.rows
        if len(gpu.written) > 1:
            # A process that several logs list is as the newest one has it.
            uses = {use.process.use: use for each in gpu.written.values() for use in each.rows}
            listed = [*uses.values()]
        layout = self._layout(gpu, [use.process for use in listed])
        is_complete = layout.count >= count
        computing: bool | None = layout.computing
        if not computing and not is_complete:
            computing = None
        preparing = prepares(listed)
        if not preparing and not is_complete:
            preparing = None
        return GpuProcessList(
            at=oldest.at,
            processes=max(count, layout.count),
            is_complete=is_complete,
            computing=computing,
            preparing=preparing,
            shares=layout.shares(listed, count),
        )

    def _layout(self, gpu: GpuTotals, processes: list[SteadyUse]) -> SameProcesses:
        """Whose processes a list has; most lists have those of the list before."""
        subjects, known = self.subjects, gpu.layout
        groupings = 0 if subjects is None else subjects.groupings
        if known is not None and known.groupings == groupings and known.processes == processes:
            return known
        found = [] if subjects is None else self._on_gpu(subjects, processes)
        gpu.layout = SameProcesses(processes, groupings, found, *counted(processes))
        return gpu.layout

    def _on_gpu(self, subjects: Subjects, processes: list[SteadyUse]) -> list[SubjectOnGpu]:
        by_subject: dict[str, list[int]] = {}
        for place, process in enumerate(processes):
            by_subject.setdefault(subjects.of(process).key, []).append(place)
        found = []
        for key, places in by_subject.items():
            own = [processes[place] for place in places]
            sums = self.sums.setdefault(key, Sums())
            serving = [place for place in places if processes[place].server_id is not None]
            found.append(
                SubjectOnGpu(subjects.known[key], sums, places, own, *counted(own), serving)
            )
        return found

    def _count_presence(self, passed: float) -> None:
        """Add seconds to the subjects that are present, or to the host, on any number of GPUs."""
        moment, now, window = self._newest, self._now, self._window
        if moment is None or (self.subjects is None and self.whole is None):
            return
        if self.whole is not None:
            self._holders = [_Holder(self.whole, self._held_by_all())]
        elif self._holders is None:
            self._holders = self._find_holders()
        time, seen = moment.time, window.holds(moment.time)
        # In most logs each sample has all GPUs.
        is_even = len(moment.gpus) == len(self.gpus)
        left = max(0.0, now + self._reach - now)
        seconds = window.part(time, min(passed, left))
        for holder in self._holders:
            sums, memory = holder.sums, holder.memory
            if not is_even:
                left, memory = self._held_until(holder.gpus)
                if left < 0:
                    continue
                seconds = window.part(time, min(passed, left))
            if not (seen or seconds or self.whole):
                continue
            if seen:
                sums.see(time)
            if seconds and self._ends:
                self._see_ends(sums, time, min(passed, left))
            sums.present += seconds
            if self.whole is not None and passed > left:
                gap = time + left
                sums.missing += window.part(gap, passed - left)
                sums.gaps += window.counts(gap)
            if memory is not None and (seen or seconds):
                sums.memory.add(memory, seconds)
            for load in holder.loads:
                sums.serve(load, seconds)

    def _held_until(self, held: _Held) -> tuple[float, float | None]:
        """For how many seconds there are values of any of the GPUs, and the memory held on them.

        The seconds are negative if there are none.
        """
        left = -1.0
        memory: float | None = 0.0
        for gpu, size in held:
            # A GPU without values for long has no certain processes.
            if self._now - gpu.since > gpu.reach:
                continue
            left = max(left, 0.0, gpu.since + gpu.reach - self._now)
            memory = None if memory is None or size is None else memory + size
        return left, memory

    def _held_by_all(self) -> _Held:
        """The memory in use on each GPU."""
        return [
            (gpu, gpu.sample.memory_used if gpu.is_fresh(gpu.sample) else None)
            for gpu in self.gpus.values()
            if gpu.sample is not None
        ]

    def _find_holders(self) -> list[_Holder]:
        found: dict[int, tuple[Sums, _Held, dict[ProcessId, ServerLoad]]] = {}
        for gpu in self.gpus.values():
            for share in gpu.shares:
                sums = share.on_gpu.sums
                _, held, loads = found.setdefault(id(sums), (sums, [], {}))
                held.append((gpu, share.memory))
                loads |= share.loads
        return [_Holder(sums, held, loads.values()) for sums, held, loads in found.values()]


class UsageTotals:
    """The sums of all hosts in a time range, or in a part of it that is counted alone."""

    def __init__(
        self,
        by: str,
        window: TimeWindow,
        whole: TimeWindow | None = None,
        job: ChosenJob | None = None,
    ) -> None:
        self.by = by
        self.job = job
        self.whole = whole or window
        self.window = window
        self.hosts: dict[str | None, HostTotals] = {}

    def add(self, moment: MergedSample) -> None:
        """Add the next sample."""
        host = self.hosts.get(moment.host)
        if host is None:
            host = self.hosts[moment.host] = HostTotals(self.by, self.window, self.whole, self.job)
        host.add(moment)

    def join(self, later: UsageTotals) -> None:
        """Add what was counted in a later part of the time; see ``HostTotals.join``."""
        for name, host in later.hosts.items():
            if (known := self.hosts.setdefault(name, host)) is not host:
                known.join(host)

    def close(self) -> None:
        """Finish."""
        for host in self.hosts.values():
            host.close()
