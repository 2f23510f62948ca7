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
from gpumon.report.lists import GpuProcessList, SubjectShare, WrittenList, by_gpu, prepares
from gpumon.report.owners import BY_PROCESSES, Subjects, identity
from gpumon.report.pacing import seconds_between
from gpumon.report.sums import Sums

if TYPE_CHECKING:
    from gpumon.report.samples import ListedUse, MergedSample
    from gpumon.report.window import TimeWindow


class HostTotals:
    """The sums of one host.

    Args:
        by: One of ``report.figures.BY``.
        window: The time range that counts.

    Attributes:
        gpus: The GPUs.
        sums: The sums of each subject.
        subjects: The users, processes or jobs; ``None`` if these are not what is counted.
        whole: Presence and memory of the host as a whole, if hosts are counted.
    """

    def __init__(self, by: str, window: TimeWindow) -> None:
        self.gpus: dict[str, GpuTotals] = {}
        self.sums: dict[str, Sums] = {}
        self.subjects = Subjects(by) if by in BY_PROCESSES else None
        # A user may have several jobs, and each uses its own GPUs.
        self._are_groups = by in ("process", "job")
        self.whole = Sums() if by == "host" else None
        self._began = math.inf
        self._window = window
        self._now = 0.0
        self._current_until: dict[int, float] = {}
        self._newest: MergedSample | None = None
        self._holders: list[tuple[Sums, list[tuple[GpuTotals, float | None]]]] | None = None

    def add(self, moment: MergedSample) -> None:
        """Add the next sample of this host."""
        if self._newest is not None:
            passed = seconds_between(self._newest, moment)
            self._count_presence(passed)
            self._now += passed
        self._began = min(self._began, moment.began)
        self._current_until[moment.log] = self._now + (0.0 if moment.is_last else moment.reach)
        reach = moment.reach
        if moment.is_last:
            # The samples of logs that go on still count.
            reach = max(reach, max(self._current_until.values()) - self._now)
        lists = by_gpu(moment.listed) if moment.listed else None
        if self.subjects is not None and lists is not None:
            self.subjects.find(moment.listed)
        seconds = reached = 0.0
        counted = None
        for key, sample in moment.gpus.items():
            gpu = self.gpus.get(key)
            if gpu is None:
                gpu = self.gpus[key] = GpuTotals()
            if sample.xid is not None:
                gpu.see_xid(sample, self._began, self._window)
            if gpu.sample is not None:
                interval = gpu.sample.time, gpu.since, gpu.reach
                # It is mostly the same for all GPUs.
                if interval != counted:
                    counted = interval
                    reached = min(self._now - gpu.since, gpu.reach)
                    seconds = self._window.part(gpu.sample.time, reached)
                if seconds:
                    self._see_ends(gpu.sums, gpu.sample.time, reached)
                gpu.finish(gpu.sample, sample, self._now, seconds, self._window)
            if self._window.holds(sample.time):
                gpu.sums.see(sample.time)
            gpu.begin(sample, self._now, reach)
            stands = sample.processes and not moment.is_last and self._is_recent(gpu.listed)
            if lists is not None or not stands:
                written = None if lists is None else lists.get(key, [])
                listed = self._find_list(gpu, sample.processes, written, moment)
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
                if share.computing:
                    key = id(share.sums)
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

    def _is_recent(self, listed: GpuProcessList | None) -> bool:
        """Whether a list of some processes stays valid without a new one."""
        return listed is not None and listed.processes > 0 and self._now - listed.at <= LIST_SECONDS

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
        self._newest = self._holders = None

    def join(self, later: HostTotals) -> None:
        """Add what was counted later. Not for subjects: their keys may depend on the past."""
        for key, gpu in later.gpus.items():
            if (known := self.gpus.setdefault(key, gpu)) is not gpu:
                known.join(gpu)
        if self.whole is not None and later.whole is not None:
            self.whole.join(later.whole)

    def _see_ends(self, sums: Sums, time: float, seconds: float) -> None:
        """Record the ends of the time range, if they are in the seconds after a sample."""
        for end in (self._window.first, self._window.last):
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
            if len({identity(one) for one in written}) >= count:
                gpu.written.clear()
            gpu.written.pop(moment.log, None)
            gpu.written[moment.log] = WrittenList(self._now, written)
        old = [log for log, one in gpu.written.items() if self._is_old(log, one, moment)]
        if moment.is_last and len(gpu.written) > 1:
            # It lists some of the processes, and says nothing of the time after it.
            old.append(moment.log)
        for log in old:
            gpu.written.pop(log, None)
        if written is None and not old and standing is not None and standing.processes:
            return standing
        return self._read_list(gpu.written, count) if gpu.written else None

    def _read_list(self, written: dict[int, WrittenList], count: int) -> GpuProcessList:
        oldest = next(iter(written.values()))
        listed = oldest.rows
        if len(written) > 1:
            # A process that several logs list is as the newest one has it.
            uses = {one.use: one for each in written.values() for one in each.rows}
            listed = [*uses.values()]
        named = len({identity(one) for one in listed})
        computing: bool | None = any(one.type != "G" for one in listed)
        if not computing and named < count:
            computing = None
        preparing = prepares(listed)
        if not preparing and named < count:
            preparing = None
        shares = [] if self.subjects is None else self._shares(self.subjects, listed, named, count)
        return GpuProcessList(
            oldest.at, max(count, named), named >= count, computing, preparing, shares
        )

    def _shares(
        self, subjects: Subjects, listed: list[ListedUse], named: int, count: int
    ) -> list[SubjectShare]:
        by_subject: dict[str, list[ListedUse]] = {}
        for one in listed:
            by_subject.setdefault(subjects.of(one).key, []).append(one)
        total = sum(one.sm or 0 for one in listed)
        is_known = named >= count and total > 0 and all(one.sm is not None for one in listed)
        shares = []
        for key, members in by_subject.items():
            if key not in self.sums:
                self.sums[key] = Sums()
            sm = known_sum([one.sm for one in members])
            here = len({identity(one) for one in members})
            shares.append(
                SubjectShare(
                    subject=subjects.known[key],
                    rows=members,
                    sums=self.sums[key],
                    memory=known_sum([one.memory_used for one in members]),
                    sm=None if sm is None else min(100.0, sm),
                    computing=any(one.type != "G" for one in members),
                    part=(sm or 0.0) / total if is_known else here / max(count, named),
                )
            )
        return shares

    def _count_presence(self, passed: float) -> None:
        """Add seconds to the subjects that are present, or to the host, on any number of GPUs."""
        moment = self._newest
        if moment is None or (self.subjects is None and self.whole is None):
            return
        if self.whole is not None:
            self._holders = [(self.whole, self._held_by_all())]
        elif self._holders is None:
            self._holders = self._find_holders()
        seen = self._window.holds(moment.time)
        for sums, held in self._holders:
            left = -1.0
            memory: float | None = 0.0
            for gpu, size in held:
                # A GPU without values for long has no certain processes.
                if self._now - gpu.since > gpu.reach:
                    continue
                left = max(left, 0.0, gpu.since + gpu.reach - self._now)
                memory = None if memory is None or size is None else memory + size
            if left < 0:
                continue
            seconds = self._window.part(moment.time, min(passed, left))
            if not (seen or seconds or self.whole):
                continue
            if seen:
                sums.see(moment.time)
            if seconds:
                self._see_ends(sums, moment.time, min(passed, left))
            sums.present += seconds
            if self.whole is not None and passed > left:
                gap = moment.time + left
                sums.missing += self._window.part(gap, passed - left)
                sums.gaps += self._window.counts(gap)
            if memory is not None and (seen or seconds):
                sums.memory.add(memory, seconds)

    def _held_by_all(self) -> list[tuple[GpuTotals, float | None]]:
        """The memory in use on each GPU."""
        return [
            (gpu, gpu.sample.memory_used if gpu.is_fresh(gpu.sample) else None)
            for gpu in self.gpus.values()
            if gpu.sample is not None
        ]

    def _find_holders(self) -> list[tuple[Sums, list[tuple[GpuTotals, float | None]]]]:
        found: dict[int, tuple[Sums, list[tuple[GpuTotals, float | None]]]] = {}
        for gpu in self.gpus.values():
            for share in gpu.shares:
                found.setdefault(id(share.sums), (share.sums, []))[1].append((gpu, share.memory))
        return list(found.values())


class UsageTotals:
    """The sums of all hosts.

    Args:
        by: One of ``report.figures.BY``.
        window: The time range that counts.
    """

    def __init__(self, by: str, window: TimeWindow) -> None:
        self.by = by
        self.window = window
        self.hosts: dict[str | None, HostTotals] = {}

    def add(self, moment: MergedSample) -> None:
        """Add the next sample."""
        host = self.hosts.get(moment.host)
        if host is None:
            host = self.hosts[moment.host] = HostTotals(self.by, self.window)
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
