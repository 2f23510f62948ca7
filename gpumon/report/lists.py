"""A GPU's list of processes in a log, and the shares of subjects in the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.speed import Starved
from gpumon.model.arithmetic import known_sum
from gpumon.model.process_states import UNINTERRUPTIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.processes import ProcessId
    from gpumon.model.serving import ServerLoad
    from gpumon.report.owners import Subject
    from gpumon.report.samples import ListedUse, SteadyUse
    from gpumon.report.sums import Sums


class ListUse(Struct):
    """What a GPU used while a list was current: of this each list is shared out anew."""

    seconds: float = 0.0  # how long that was
    joules: float = 0.0  # all energy
    slowed: float = 0.0  # joules while it was slowed down, see ``Slowed``
    empty: float = 0.0  # joules while it was busy but empty


class SubjectOnGpu(Struct):
    """A subject's processes on a GPU."""

    subject: Subject
    sums: Sums  # of the subject
    places: list[int]  # where the list has its rows
    processes: list[SteadyUse]  # the processes of these rows
    count: int  # number of these processes: each may use several parts of a GPU
    computing: bool  # whether any of them computes
    serving: list[int]  # of the places those of processes of inference servers
    is_seen: bool = False  # whether the subject knows that they were there


class SubjectShare(Struct):
    """A subject's share of a GPU, from one list."""

    on_gpu: SubjectOnGpu
    memory: float | None  # bytes of its processes there; ``None`` if any is unknown
    sm: float | None  # percent of its processes there; ``None`` where that of any is unknown
    part: float  # its share of the GPU's energy, 0 to 1
    loads: dict[ProcessId, ServerLoad]  # of its inference servers, each once
    # whether it does nothing there, but works on most of its other GPUs; ``None`` if that is
    # unknown, and for a subject on a single GPU
    left_out: bool | None = None

    def count(self, use: ListUse) -> None:
        """Add to the sums of the subject what depends on its share."""
        on_gpu, seconds, joules = self.on_gpu, use.seconds, use.joules * self.part
        sums = on_gpu.sums
        sums.energy.joules += joules
        if use.slowed:
            sums.slowed.joules += use.slowed * self.part
        if use.empty:
            sums.empty.joules += use.empty * self.part
        sums.computing.known += seconds
        if on_gpu.computing:
            sums.computing.seconds += seconds
        if seconds and not on_gpu.is_seen:
            on_gpu.is_seen = True
            on_gpu.subject.see(on_gpu.processes)
        if self.sm is None:
            return
        sums.utilization.add(self.sm, seconds)
        if self.left_out is not None:
            sums.left_out.known += seconds
            if self.left_out:
                sums.left_out.seconds += seconds
                sums.left_out.joules += joules
        sums.idle.known += seconds
        if self.sm > 0:
            sums.busy += seconds
        elif on_gpu.computing:
            sums.idle.seconds += seconds
            sums.idle.joules += joules


class WrittenList(Struct, frozen=True):
    """A list of one log for one GPU."""

    at: float  # when it was written, in the host's time
    rows: list[ListedUse]


class SameProcesses(Struct):
    """What lists of one GPU with the same processes have in common."""

    processes: list[SteadyUse]  # the process of each row
    groupings: int  # see ``Subjects``
    subjects: list[SubjectOnGpu]  # the subjects of the processes; none if subjects are not counted
    count: int  # number of processes
    computing: bool  # whether any of them computes

    def shares(self, listed: Sequence[ListedUse], count: int) -> list[SubjectShare]:
        """The share of each subject in a GPU with so many processes, listed or not."""
        utilization = [use.sm for use in listed]
        total = sum([load or 0 for load in utilization])
        is_known = self.count >= count and total > 0 and None not in utilization
        most = max(count, self.count)
        shares = []
        for on_gpu in self.subjects:
            sm = known_sum([utilization[place] for place in on_gpu.places])
            memory = known_sum([listed[place].memory_used for place in on_gpu.places])
            part = (sm or 0.0) / total if is_known else on_gpu.count / most
            loads = {
                server: listed[place].load
                for place in on_gpu.serving
                if (server := listed[place].process.server_id) is not None
            }
            most_sm = None if sm is None else min(100.0, sm)
            shares.append(SubjectShare(on_gpu, memory, most_sm, part, loads))
        return shares


def counted(processes: Iterable[SteadyUse]) -> tuple[int, bool]:
    """How many they are, and whether any of them computes."""
    computing = any(process.type != "G" for process in processes)
    return len({process.identity for process in processes}), computing


class GpuProcessList(Struct):
    """The current process list of a GPU."""

    at: float  # when it was written, in the host's time; of several the oldest
    processes: int  # number of processes
    is_complete: bool  # whether all of them are in the list
    computing: bool | None  # whether any of them computes; ``None`` if some are unknown
    # Whether a computing one may be preparing its data: it is at one full CPU core, or waits inside
    # the kernel. ``None`` if that is unknown.
    preparing: bool | None
    shares: list[SubjectShare]  # the share of each subject


def by_gpu(listed: Iterable[ListedUse]) -> dict[str, list[ListedUse]]:
    """The rows of each GPU, by its key."""
    found: dict[str, list[ListedUse]] = {}
    for one in listed:
        found.setdefault(one.process.gpu, []).append(one)
    return found


def prepares(listed: Iterable[ListedUse]) -> bool | None:
    """Whether a computing process may be preparing its data, see ``GpuProcessList.preparing``."""
    computing = [one for one in listed if one.process.type != "G"]
    if any(one.state == UNINTERRUPTIBLE for one in computing):
        return True
    used = [one.cpu_percent for one in computing if one.cpu_percent is not None]
    if not used:
        return None if computing else False
    return Starved.core <= max(used) <= Starved.most_core
