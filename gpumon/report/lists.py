"""A GPU's list of processes in a log, and the shares of subjects in the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.speed import Starved
from gpumon.model.process_states import UNINTERRUPTIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.report.owners import Subject
    from gpumon.report.samples import ListedUse
    from gpumon.report.sums import Sums


class ListUse(Struct):
    """What a GPU used while a list was current: of this each list is shared out anew."""

    seconds: float = 0.0  # how long that was
    joules: float = 0.0  # all energy
    slowed: float = 0.0  # joules while it was slowed down, see ``Slowed``
    empty: float = 0.0  # joules while it was busy but empty


class SubjectShare(Struct):
    """A subject's share of a GPU, from one list."""

    subject: Subject
    rows: list[ListedUse]  # its rows of the list
    sums: Sums
    memory: float | None  # bytes of its processes there; ``None`` if any is unknown
    sm: float | None  # percent of its processes there; ``None`` where that of any is unknown
    computing: bool  # whether any of them computes
    part: float  # its share of the GPU's energy, 0 to 1
    # whether it does nothing there, but works on most of its other GPUs; ``None`` if that is
    # unknown, and for a subject on a single GPU
    left_out: bool | None = None

    def count(self, use: ListUse) -> None:
        """Add to the sums of the subject what depends on its share."""
        sums, seconds, joules = self.sums, use.seconds, use.joules * self.part
        sums.energy.joules += joules
        if use.slowed:
            sums.slowed.joules += use.slowed * self.part
        if use.empty:
            sums.empty.joules += use.empty * self.part
        sums.computing.known += seconds
        if self.computing:
            sums.computing.seconds += seconds
        if seconds:
            self.subject.see(self.rows)
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
        elif self.computing:
            sums.idle.seconds += seconds
            sums.idle.joules += joules


class WrittenList(Struct, frozen=True):
    """A list of one log for one GPU."""

    at: float  # when it was written, in the host's time
    rows: list[ListedUse]  # its rows


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
        found.setdefault(one.gpu, []).append(one)
    return found


def prepares(listed: Iterable[ListedUse]) -> bool | None:
    """Whether a computing process may be preparing its data, see ``GpuProcessList.preparing``."""
    computing = [one for one in listed if one.type != "G"]
    if any(one.state == UNINTERRUPTIBLE for one in computing):
        return True
    used = [one.cpu_percent for one in computing if one.cpu_percent is not None]
    if not used:
        return None if computing else False
    return Starved.core <= max(used) <= Starved.most_core
