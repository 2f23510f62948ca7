"""Adds up the samples of logs, for each GPU or host, and for each user, process or job on it.

A sample counts until the next one of its GPU, at most ``reading.PATIENCE`` usual intervals.
Durations come from each log's monotonic clock if it has one, so a clock that was set does no harm.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.findings.speed import BusyEmpty, Starved
from gpumon.model.arithmetic import known_sum
from gpumon.model.makers import is_same_name
from gpumon.recording.csv.part import LIST_FRESH
from gpumon.recording.csv.rows import LIST_SECONDS
from gpumon.report.between import ecc_errors, holds_memory
from gpumon.report.energy import EnergyMeter
from gpumon.report.lists import GpuProcessList, SubjectShare, WrittenList, by_gpu, prepares
from gpumon.report.owners import BY_PROCESSES, Subjects, identity
from gpumon.report.pacing import seconds_between
from gpumon.report.sums import Energy, Period, Sums, WastedTime, slows

if TYPE_CHECKING:
    from gpumon.report.reading import GpuSample, ListedUse, MergedSample
    from gpumon.report.window import TimeWindow

EARLIER_NAMES = 4
"""Earlier names of a GPU that are listed."""
_LOST = frozenset(("lost", "reset required"))
_FRESH = 5.0
"""Values up to this many seconds old are current, also if the sampling interval is shorter."""
_SAME_XID = 1.0
"""Seconds by which two logs may differ on the time of one error."""


class GpuTotals(Struct):
    """A GPU and its sums.

    Attributes:
        index: Its index, as last seen.
        uuid: Its UUID.
        pci_bus_id: Its bus id, as the log has it.
        serial: Its serial number, which only nvidia-smi's logs have.
        name: The product's name.
        new_name: A name that only the newest sample has. It may be damaged, so two samples in a
            row must have it.
        earlier_names: The names that were under the same index or bus id before, at most one more
            than ``EARLIER_NAMES``.
        memory_total: Bytes.
        sums: Of the GPU.
        alone: Energy used without a process on it.
        sample: Its newest sample, which counts from ``since`` on for at most ``reach`` seconds.
        since: Start time of that sample, in the host's time.
        reach: Maximum seconds for which it counts.
        meter: Follows its energy counter.
        list: Its current process list; ``None`` if unknown.
        written: The lists that it is made of, by the number of their log, oldest first. There are
            several only if none is complete, as in logs of one user's processes.
        loaded_until: When its load was last high, in the host's time; ``None`` if it never was.
        waited: The time since then in which it may have waited for data, by process list.
        period: What was counted under that list, and is not in any sums yet.
        xids: When each XID was last reported; ``None`` if unknown.
    """

    index: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    name: str | None = None
    new_name: str | None = None
    earlier_names: tuple[str, ...] = ()
    memory_total: float | None = None
    sums: Sums = field(default_factory=Sums)
    alone: Energy = field(default_factory=Energy)
    sample: GpuSample | None = None
    since: float = 0.0
    reach: float = 0.0
    meter: EnergyMeter = field(default_factory=EnergyMeter)
    list: GpuProcessList | None = None
    written: dict[int, WrittenList] = field(default_factory=dict)
    loaded_until: float | None = None
    waited: deque[tuple[GpuProcessList, WastedTime]] = field(default_factory=deque)
    period: Period = field(default_factory=Period)
    xids: dict[int, float | None] = field(default_factory=dict)

    def join(self, later: GpuTotals) -> None:
        """Add what was counted of it later, after ``HostTotals.close``."""
        self.index, self.uuid = later.index, later.uuid
        self.pci_bus_id, self.serial = later.pci_bus_id, later.serial
        for name in (*later.earlier_names, later.name):
            if name is not None:
                self._rename(name)
        self.memory_total = later.memory_total or self.memory_total
        self.sums.join(later.sums)
        self.alone.add(later.alone)
        self.xids |= later.xids

    @property
    def hardware_id(self) -> str | None:
        """What identifies it besides its index; ``None`` if the log has none of these."""
        return self.uuid or self.pci_bus_id or self.serial

    def see_name(self, name: str | None) -> None:
        """Take the name of the next sample, if it is known and the sample before has it too."""
        known = self.name
        if name is None:
            return
        if name == known:
            self.new_name = None
        elif known is None or known == self.new_name:
            self.name = self.new_name = name
        elif name == self.new_name or is_same_name(name, known):
            self._rename(name)
        else:
            self.new_name = name

    def _rename(self, name: str) -> None:
        known, names = self.name, self.earlier_names
        if known is not None and not is_same_name(name, known) and len(names) <= EARLIER_NAMES:
            self.earlier_names = (*(one for one in names if one != known), known)
        self.name, self.new_name = name, None

    def is_fresh(self, sample: GpuSample) -> bool:
        """Whether a sample has current values; a hung GPU repeats its last values."""
        age = sample.age
        return age is None or age <= _FRESH or age <= self.reach


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
                self._see_xid(gpu, sample)
            if gpu.sample is not None:
                interval = gpu.sample.time, gpu.since, gpu.reach
                # It is mostly the same for all GPUs.
                if interval != counted:
                    counted = interval
                    reached = min(self._now - gpu.since, gpu.reach)
                    seconds = self._window.part(gpu.sample.time, reached)
                if seconds:
                    self._see_ends(gpu.sums, gpu.sample.time, reached)
                self._finish(gpu, gpu.sample, sample, seconds)
            self._begin(gpu, sample, reach)
            stands = sample.processes and not moment.is_last and self._is_recent(gpu.list)
            if lists is not None or not stands:
                written = None if lists is None else lists.get(key, [])
                self._replace_list(gpu, sample, written, moment)
        if lists is not None and self._are_groups:
            self._find_left_out()
        self._newest = moment

    def _find_left_out(self) -> None:
        """Mark the GPUs that subjects do not use while they work on most of their others."""
        first: dict[int, SubjectShare] = {}
        several: dict[int, list[SubjectShare]] = {}
        for gpu in self.gpus.values():
            if gpu.list is None:
                continue
            for share in gpu.list.shares:
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
            if gpu.sample is not None and self._window.holds(gpu.sample.time):
                self._count_gpu(gpu, gpu.sample, 0.0, is_fresh=gpu.is_fresh(gpu.sample))
                gpu.sums.faults.ended_lost = gpu.sample.status in _LOST
            gpu.meter.end()
            _correct_energy(gpu)
            _end_period(gpu, gpu.list)
        self._newest = self._holders = None

    def join(self, later: HostTotals) -> None:
        """Add what was counted later. Not for subjects: their keys may depend on the past."""
        for key, gpu in later.gpus.items():
            if (known := self.gpus.setdefault(key, gpu)) is not gpu:
                known.join(gpu)
        if self.whole is not None and later.whole is not None:
            self.whole.join(later.whole)

    def _begin(self, gpu: GpuTotals, sample: GpuSample, reach: float) -> None:
        gpu.index, gpu.uuid = sample.index, sample.uuid
        gpu.pci_bus_id, gpu.serial = sample.pci_bus_id, sample.serial
        gpu.see_name(sample.name)
        gpu.memory_total = sample.memory_total or gpu.memory_total
        if self._window.holds(sample.time):
            gpu.sums.see(sample.time)
        gpu.sample, gpu.since, gpu.reach = sample, self._now, reach

    def _see_ends(self, sums: Sums, time: float, seconds: float) -> None:
        """Record the ends of the time range, if they are in the seconds after a sample."""
        for end in (self._window.first, self._window.last):
            if time < end < time + seconds:
                sums.see(end)

    def _finish(self, gpu: GpuTotals, sample: GpuSample, after: GpuSample, seconds: float) -> None:
        """Count so many seconds of the GPU's last sample, now that the next one is known."""
        window, passed = self._window, self._now - gpu.since
        if passed > gpu.reach:
            gap = sample.time + gpu.reach
            gpu.sums.missing += window.part(gap, passed - gpu.reach)
            gpu.sums.gaps += window.counts(gap)
        errors = ecc_errors(sample, after) if window.counts(after.time) else None
        if errors is not None:
            gpu.sums.faults.add_ecc(errors)
            for share in () if gpu.list is None else gpu.list.shares:
                share.sums.faults.add_ecc(errors)
        energy = gpu.meter.used(sample, after, self._now, passed, seconds, gpu.list)
        if gpu.meter.released:
            _correct_energy(gpu)
        if not seconds and not window.holds(sample.time):
            if gpu.is_fresh(sample) and sample.utilization_gpu is not None:
                # It may have waited in the window, or begin to wait there.
                self._count_waiting(gpu, sample.utilization_gpu, 0.0, 0.0)
            return
        is_fresh = gpu.is_fresh(sample)
        idle = gpu.sums.idle
        self._count_gpu(gpu, sample, seconds, is_fresh=is_fresh)
        if gpu.sums.idle > idle:
            gpu.sums.wasted.idle_joules += energy.joules
        period = gpu.period
        period.seconds += seconds
        period.energy.add(energy)
        if is_fresh and sample.clock_event_reasons is not None:
            period.slowed.add(sample.clock_event_reasons, seconds, sample.clock_events_known)
            if slows(sample.clock_event_reasons):
                period.wasted.slowed_joules += energy.joules
        if is_fresh and sample.sm_active is not None and sample.utilization_gpu is not None:
            period.wasted.empty.known += seconds
            if sample.utilization_gpu >= BusyEmpty.busy and sample.sm_active <= BusyEmpty.most_sm:
                period.wasted.empty.seconds += seconds
                period.wasted.empty.joules += energy.joules
        if is_fresh and sample.utilization_gpu is not None:
            self._count_waiting(gpu, sample.utilization_gpu, seconds, energy.joules)
        if sample.status is not None:
            period.answered += seconds
            if sample.elapsed is not None:
                # Only gpumon's own logs, which have this clock, have XIDs.
                period.watched += seconds
            if sample.status in _LOST:
                period.lost += seconds
        if gpu.list is not None and not gpu.list.processes:
            gpu.alone.add(energy)

    def _count_waiting(
        self, gpu: GpuTotals, utilization: float, seconds: float, joules: float
    ) -> None:
        """Count the time between two spells of load in which a process may prepare the data.

        It is counted once the load has returned, within the time of ``findings.starved``.
        """
        wasted = gpu.period.wasted
        preparing = None if gpu.list is None else gpu.list.preparing
        if preparing is not None:
            wasted.starved.known += seconds
        if utilization >= Starved.high:
            if gpu.loaded_until is not None and gpu.since - gpu.loaded_until <= Starved.turn:
                for listed, waited in gpu.waited:
                    gpu.sums.wasted.starved.join(waited, 1.0)
                    for share in listed.shares:
                        share.sums.wasted.starved.join(waited, share.part)
            gpu.loaded_until = self._now
            gpu.waited.clear()
        elif preparing and gpu.list is not None and utilization <= Starved.low:
            if not gpu.waited or gpu.waited[-1][0] is not gpu.list:
                gpu.waited.append((gpu.list, WastedTime()))
            waited = gpu.waited[-1][1]
            waited.seconds += seconds
            waited.joules += joules

    @staticmethod
    def _count_gpu(gpu: GpuTotals, sample: GpuSample, seconds: float, *, is_fresh: bool) -> None:
        sums = gpu.sums
        computing = None if gpu.list is None else gpu.list.computing
        if sample.status in _LOST:
            # The list of such a GPU is empty, whatever runs on it.
            computing = None
        if sample.processes and (gpu.list is None or not gpu.list.is_complete):
            sums.unlisted += seconds
        if computing is not None:
            sums.listed += seconds
            if computing:
                sums.computing += seconds
        if not is_fresh:
            return
        if sample.memory_used is not None:
            sums.memory.add(sample.memory_used, seconds)
        if sample.utilization_gpu is None:
            return
        sums.utilization.add(sample.utilization_gpu, seconds)
        if sample.utilization_gpu > 0:
            sums.busy += seconds
            sums.idle_known += seconds
            return
        held = holds_memory(sample) if computing is None else computing
        if held is not None:
            sums.idle_known += seconds
            if held:
                sums.idle += seconds

    def _see_xid(self, gpu: GpuTotals, sample: GpuSample) -> None:
        number, at = sample.xid, sample.xid_at
        if number is None:
            return
        seen, before = number in gpu.xids, gpu.xids.get(number)
        gpu.xids[number] = at
        if seen and (at is None or before is None or abs(at - before) < _SAME_XID):
            return
        # An error that is reported at the start of a log may be old.
        if gpu.sample is None or (at is not None and at < self._began):
            return
        is_between = at is not None and gpu.sample.time <= at <= sample.time
        if not self._window.counts(at if at is not None and is_between else sample.time):
            return
        gpu.sums.faults.xids[number] += 1
        for share in [] if gpu.list is None else gpu.list.shares:
            share.sums.faults.xids[number] += 1

    def _replace_list(
        self,
        gpu: GpuTotals,
        sample: GpuSample,
        written: list[ListedUse] | None,
        moment: MergedSample,
    ) -> None:
        """Make the list of this sample the current one; ``None`` if no lists were written."""
        count = sample.processes
        standing = gpu.list
        if count is None:
            gpu.list = None
        elif count == 0:
            gpu.written.clear()
            if standing is None or standing.processes:
                gpu.list = GpuProcessList(
                    self._now, 0, is_complete=True, computing=False, preparing=False, shares=[]
                )
        else:
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
            if written is not None or old or standing is None or not standing.processes:
                gpu.list = self._read_list(gpu.written, count) if gpu.written else None
        if gpu.list is not standing:
            self._holders = None
            if self.subjects is not None:
                _end_period(gpu, standing)

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
            for share in [] if gpu.list is None else gpu.list.shares:
                found.setdefault(id(share.sums), (share.sums, []))[1].append((gpu, share.memory))
        return list(found.values())


def _correct_energy(gpu: GpuTotals) -> None:
    """Add the energy of a time when the counter had already stopped."""
    for listed, energy in ((one.listed, one.energy) for one in gpu.meter.released):
        gpu.sums.energy.add(energy)
        if listed is not None and not listed.processes:
            gpu.alone.add(energy)
        for share in () if listed is None else listed.shares:
            share.sums.energy.add(energy, share.part)
    gpu.meter.released = []


def _end_period(gpu: GpuTotals, listed: GpuProcessList | None) -> None:
    """Add what was counted under a list to the sums of the GPU and of the subjects on it."""
    period, gpu.period = gpu.period, Period()
    gpu.sums.add(period)
    gpu.sums.present += period.seconds
    for share in () if listed is None else listed.shares:
        _count_share(share, period)
        if period.seconds:
            share.subject.see(share.rows)


def _count_share(share: SubjectShare, period: Period) -> None:
    sums, seconds = share.sums, period.seconds
    sums.add(period, share.part)
    sums.listed += seconds
    if share.computing:
        sums.computing += seconds
    if share.sm is None:
        return
    sums.utilization.add(share.sm, seconds)
    if share.left_out is not None:
        sums.wasted.left_out.known += seconds
        if share.left_out:
            sums.wasted.left_out.seconds += seconds
            sums.wasted.left_out.joules += period.energy.joules * share.part
    sums.idle_known += seconds
    if share.sm > 0:
        sums.busy += seconds
    elif share.computing:
        sums.idle += seconds
        sums.wasted.idle_joules += period.energy.joules * share.part


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
