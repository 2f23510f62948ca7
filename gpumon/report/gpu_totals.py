"""Adds up the samples of one GPU, and what the subjects on it have in common with it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.findings.speed import BusyEmpty, Starved
from gpumon.model.makers import is_same_name
from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS
from gpumon.report.energy import EnergyMeter
from gpumon.report.lists import ListUse
from gpumon.report.sums import SharedSums, Sums, TimeSum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.allocation_cells import AllocatedGpu
    from gpumon.report.lists import GpuProcessList, SameProcesses, SubjectShare, WrittenList
    from gpumon.report.samples import GpuSample, SteadyGpu
    from gpumon.report.window import TimeWindow

EARLIER_NAMES = 4
"""Earlier names of a GPU that are listed."""
_LOST = frozenset(("lost", "reset required"))
_FRESH = 5.0
"""Values up to this many seconds old are current, also if the sampling interval is shorter."""
_SAME_XID = 1.0
"""Seconds by which two logs may differ on the time of one error."""


class GpuTotals(Struct):
    """A GPU and its sums."""

    index: int | None = None  # its index, as last seen
    uuid: str | None = None
    pci_bus_id: str | None = None  # its bus id, as the log has it
    serial: str | None = None  # its serial number, which only nvidia-smi's logs have
    name: str | None = None  # the product's name
    # A name that only the newest sample has. It may be damaged, so two samples in a row must have
    # it.
    new_name: str | None = None
    # the names that were under the same index or bus id before, at most one more than
    # ``EARLIER_NAMES``
    earlier_names: tuple[str, ...] = ()
    memory_total: float | None = None  # bytes
    sums: Sums = field(default_factory=Sums)  # of the GPU
    alone: float = 0.0  # joules used without a process on it
    # its newest sample, which counts from ``since`` on for at most ``reach`` seconds
    sample: GpuSample | None = None
    since: float = 0.0  # start time of that sample, in the host's time
    reach: float = 0.0  # maximum seconds for which it counts
    meter: EnergyMeter = field(default_factory=EnergyMeter)  # follows its energy counter
    listed: GpuProcessList | None = None  # its current process list; ``None`` if unknown
    layout: SameProcesses | None = None  # whose processes the newest list has
    # The lists that it is made of, by the number of their log, oldest first. There are several only
    # if none is complete, as in logs of one user's processes.
    written: dict[int, WrittenList] = field(default_factory=dict)
    # when its load was last high, in the host's time; ``None`` if it never was
    loaded_until: float | None = None
    # the time since then in which it may have waited for data, by process list
    waited: deque[tuple[GpuProcessList, TimeSum]] = field(default_factory=deque)
    # what it used under that list, and no subject has yet
    use: ListUse = field(default_factory=ListUse)
    # what its samples have in common since they were last counted: its state, whether the values
    # are current, and whether the log has a monotonic clock
    steady: tuple[SteadyGpu | None, bool, bool] = (None, False, False)
    counted: tuple[float, float] = 0.0, 0.0  # seconds and joules of ``use`` that were counted so
    # when the samples with that in common began, and when the newest of them was
    steady_from: float = 0.0
    steady_until: float = 0.0
    # when and for how long it was allocated, by the jobs
    allocated_to: dict[AllocatedGpu, Sums] = field(default_factory=dict)
    # what was counted with the subjects of that list, and is not in any sums yet
    period: SharedSums = field(default_factory=SharedSums)
    # when each XID was last reported; ``None`` if unknown
    xids: dict[int, float | None] = field(default_factory=dict)

    def join(self, later: GpuTotals) -> None:
        """Add what was counted of it later, after ``close``."""
        self.index, self.uuid = later.index, later.uuid
        self.pci_bus_id, self.serial = later.pci_bus_id, later.serial
        for name in (*later.earlier_names, later.name):
            if name is not None:
                self._rename(name)
        self.memory_total = later.memory_total or self.memory_total
        self.sums.join(later.sums)
        self.alone += later.alone
        self.xids |= later.xids

    @property
    def hardware_id(self) -> str | None:
        """What identifies it besides its index; ``None`` if the log has none of these."""
        return self.uuid or self.pci_bus_id or self.serial

    @property
    def shares(self) -> list[SubjectShare]:
        """The shares of the subjects that are on it."""
        return [] if self.listed is None else self.listed.shares

    def is_fresh(self, sample: GpuSample) -> bool:
        """Whether a sample has current values; a hung GPU repeats its last values."""
        age = sample.age
        return age is None or age <= _FRESH or age <= self.reach

    def begin(self, sample: GpuSample, now: float, reach: float) -> None:
        """Make a sample the newest one."""
        state = sample.state
        if self.sample is None or state is not self.sample.state or state.name != self.name:
            self.index, self.uuid = state.index, state.uuid
            self.pci_bus_id, self.serial = state.pci_bus_id, state.serial
            self._see_name(state.name)
            self.memory_total = state.memory_total or self.memory_total
        elif self.new_name is not None:
            self._see_name(state.name)
        self.sample, self.since, self.reach = sample, now, reach

    def _see_name(self, name: str | None) -> None:
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

    def finish(
        self, sample: GpuSample, after: GpuSample, now: float, seconds: float, window: TimeWindow
    ) -> None:
        """Count so many seconds of the newest sample, now that there is a next one."""
        passed, period, state = now - self.since, self.period, sample.state
        if passed > self.reach:
            gap = sample.time + self.reach
            self.sums.missing += window.part(gap, passed - self.reach)
            self.sums.gaps += window.counts(gap)
        # Without a change there are no more errors, once it is known that they are counted.
        if (after.state is not state or period.ecc is None) and window.counts(after.time):
            errors = state.ecc_errors(after.state)
            if errors is not None:
                # Who was on the GPU in a gap is not known.
                counted = self.sums if errors and passed > self.reach else period
                counted.ecc = errors + (counted.ecc or 0)
        used = self.meter.used(sample, after, now, passed, seconds, self.listed, period.energy)
        if self.meter.released:
            self._correct_energy()
        age = sample.age
        is_fresh = age is None or age <= _FRESH or age <= self.reach
        if not seconds and not window.holds(sample.time):
            if is_fresh and sample.utilization_gpu is not None:
                # It may have waited in the window, or begin to wait there.
                self._count_waiting(sample.utilization_gpu, now, 0.0, 0.0)
            return
        steady = state, is_fresh, sample.elapsed is not None
        if steady != self.steady:
            self._count_state()
            self.steady = steady
            self.steady_from = max(sample.time, window.first)
        self.steady_until = max(sample.time, window.first)
        self.use.seconds += seconds
        self.use.joules += used
        if is_fresh:
            self._count_values(sample, now, seconds, used)

    def _count_state(self) -> None:
        """Count the time in which the GPU's state and list stayed the same."""
        state, is_fresh, is_timed = self.steady
        use, period, sums, listed = self.use, self.period, self.sums, self.listed
        seconds, joules = use.seconds - self.counted[0], use.joules - self.counted[1]
        self.counted = use.seconds, use.joules
        if state is None or not seconds:
            return
        reasons = state.clock_event_reasons
        if is_fresh and reasons is not None:
            period.slowed.add(reasons, seconds, state.clock_events_known)
            if reasons & HARMFUL_CLOCK_EVENTS:
                use.slowed += joules
        if state.status is not None:
            period.lost.known += seconds
            if is_timed:
                # Only gpumon's own logs, which have this clock, have XIDs.
                period.watched += seconds
            if state.status in _LOST:
                period.lost.seconds += seconds
        if state.processes and (listed is None or not listed.is_complete):
            sums.unlisted += seconds
        computing = self._computing(state)
        if computing is not None:
            sums.computing.known += seconds
            if computing:
                sums.computing.seconds += seconds
        sums.count_allocated(state.allocations, computing, seconds, joules)
        if state.allocated_jobs is not None:
            self._count_jobs(state.allocated, computing, seconds, joules)

    def _count_jobs(
        self, allocated: AllocatedGpu, computing: bool | None, seconds: float, joules: float
    ) -> None:
        """Count a time in which it was allocated to these jobs, or may have been."""
        sums = self.allocated_to.get(allocated)
        if sums is None:
            sums = self.allocated_to[allocated] = Sums()
        sums.see(self.steady_from)
        sums.see(self.steady_until)
        sums.count_allocated(allocated.number, computing, seconds, joules)

    def _computing(self, state: SteadyGpu) -> bool | None:
        """Whether a process computes on it; ``None`` if that is unknown."""
        if self.listed is None or state.status in _LOST:
            # The list of a lost GPU is empty, whatever runs on it.
            return None
        return self.listed.computing

    def _count_values(self, sample: GpuSample, now: float, seconds: float, joules: float) -> None:
        """Count what a sample measured."""
        sums, empty = self.sums, self.period.empty
        utilization, size = sample.utilization_gpu, sample.memory_used
        if size is not None:
            sums.memory.add(size, seconds)
        if utilization is None:
            return
        sums.utilization.add(utilization, seconds)
        if sample.sm_active is not None:
            empty.known += seconds
            if utilization >= BusyEmpty.busy and sample.sm_active <= BusyEmpty.most_sm:
                empty.seconds += seconds
                self.use.empty += joules
        if utilization > 0:
            sums.busy += seconds
            sums.idle.known += seconds
        else:
            computing = self._computing(sample.state)
            held = sample.holds_memory if computing is None else computing
            if held is not None:
                sums.idle.known += seconds
                if held:
                    sums.idle.seconds += seconds
                    sums.idle.joules += joules
        self._count_waiting(utilization, now, seconds, joules)

    def _count_waiting(self, utilization: float, now: float, seconds: float, joules: float) -> None:
        """Count the time between two spells of load in which a process may prepare the data.

        It is counted once the load has returned, within the time of ``findings.starved``.
        """
        listed, waited = self.listed, self.waited
        if listed is not None and listed.preparing is not None:
            self.period.starved.known += seconds
        if utilization >= Starved.high:
            if waited:
                if self.loaded_until is not None and self.since - self.loaded_until <= Starved.turn:
                    for before, time in waited:
                        self.sums.starved.join(time)
                        for share in before.shares:
                            share.on_gpu.sums.starved.join(time, share.part)
                waited.clear()
            self.loaded_until = now
        elif utilization <= Starved.low and listed is not None and listed.preparing:
            if not waited or waited[-1][0] is not listed:
                waited.append((listed, TimeSum()))
            waited[-1][1].seconds += seconds
            waited[-1][1].joules += joules

    def see_xid(self, sample: GpuSample, began: float, window: TimeWindow) -> None:
        """Count the XID of the next sample of a log that began then, if it is a new one."""
        number, at = sample.state.xid, sample.state.xid_at
        if number is None:
            return
        seen, before = number in self.xids, self.xids.get(number)
        self.xids[number] = at
        if seen and (at is None or before is None or abs(at - before) < _SAME_XID):
            return
        # An error that is reported at the start of a log may be old.
        if self.sample is None or (at is not None and at < began):
            return
        is_between = at is not None and self.sample.time <= at <= sample.time
        counted_at = at if at is not None and is_between else sample.time
        if not window.counts(counted_at):
            return
        # As above.
        is_in_gap = counted_at - self.sample.time > self.reach
        (self.sums if is_in_gap else self.period).xids[number] += 1

    def replace_list(self, listed: GpuProcessList | None) -> None:
        """Make a list the current one, and share out what was counted under the one before."""
        self._count_state()
        before, self.listed = self.listed, listed
        use, self.use, self.counted = self.use, ListUse(), (0.0, 0.0)
        period = self.period
        period.seconds += use.seconds
        period.energy.joules += use.joules
        period.slowed.joules += use.slowed
        period.empty.joules += use.empty
        shares = [] if before is None else before.shares
        if before is not None and not before.processes:
            self.alone += use.joules
        for share in shares:
            share.count(use)
        if [id(share.on_gpu.sums) for share in shares] != [
            id(share.on_gpu.sums) for share in self.shares
        ]:
            self._end_period(shares)

    def _end_period(self, shares: Sequence[SubjectShare]) -> None:
        """Add what was counted to the sums of the GPU and of the subjects on it."""
        period, self.period = self.period, SharedSums()
        self.sums.join(period)
        self.sums.present += period.seconds
        for share in shares:
            # Its share of the energy was added at each list.
            share.on_gpu.sums.join(period, 0.0)

    def close(self, window: TimeWindow) -> None:
        """Finish: the last sample counts for no time, but its memory may be a peak."""
        if self.sample is not None and window.holds(self.sample.time):
            if self.sample.memory_used is not None and self.is_fresh(self.sample):
                self.sums.memory.add(self.sample.memory_used, 0.0)
            self.sums.ended_lost = self.sample.state.status in _LOST
        self.meter.end()
        self._correct_energy()
        self.replace_list(None)
        self._end_period([])
        self.written.clear()
        self.waited.clear()
        self.layout = None

    def _correct_energy(self) -> None:
        """Add the energy of a time when the counter had already stopped."""
        for listed, energy in self.meter.released:
            self.sums.energy.join(energy)
            if listed is None:
                continue
            if not listed.processes:
                self.alone += energy.joules
            for share in listed.shares:
                share.on_gpu.sums.energy.join(energy, share.part)
        self.meter.released = []
