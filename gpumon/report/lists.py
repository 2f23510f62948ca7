"""A GPU's list of processes in a log, and the shares of subjects in the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.speed import Starved
from gpumon.model.process_states import UNINTERRUPTIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.report.owners import Subject
    from gpumon.report.reading import ListedUse
    from gpumon.report.sums import Sums


class SubjectShare(Struct):
    """A subject's share of a GPU, from one list.

    Attributes:
        subject: The subject.
        rows: Its rows of the list.
        sums: The sums of the subject.
        memory: Bytes of its processes there; ``None`` if any is unknown.
        sm: Percent of its processes there; ``None`` where that of any is unknown.
        computing: Whether any of them computes.
        part: Its share of the GPU's energy, 0 to 1.
        left_out: Whether it does nothing there, but works on most of its other GPUs; ``None`` if
            that is unknown, and for a subject on a single GPU.
    """

    subject: Subject
    rows: list[ListedUse]
    sums: Sums
    memory: float | None
    sm: float | None
    computing: bool
    part: float
    left_out: bool | None = None


class WrittenList(Struct, frozen=True):
    """A list of one log for one GPU.

    Attributes:
        at: When it was written, in the host's time.
        rows: Its rows.
    """

    at: float
    rows: list[ListedUse]


class GpuProcessList(Struct):
    """The current process list of a GPU.

    Attributes:
        at: When it was written, in the host's time; of several the oldest.
        processes: Number of processes.
        is_complete: Whether all of them are in the list.
        computing: Whether any of them computes; ``None`` if some are unknown.
        preparing: Whether a computing one may be preparing its data: it is at one full CPU core, or
            waits inside the kernel. ``None`` if that is unknown.
        shares: The share of each subject.
    """

    at: float
    processes: int
    is_complete: bool
    computing: bool | None
    preparing: bool | None
    shares: list[SubjectShare]


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
