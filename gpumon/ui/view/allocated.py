"""What schedulers have given to a job or to a user, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.formatting import UNKNOWN, counted, duration, gpu_list, longest, printable
from gpumon.ui.view.page_layout import Fact, moment_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.findings.groups import AllocatedJob


def with_allocated(gpus: Sequence[int], jobs: Iterable[AllocatedJob]) -> tuple[int, ...]:
    """These GPUs and those of jobs, by index, ascending."""
    return tuple(sorted({*gpus, *(index for job in jobs for index in job.gpus)}))


def gpus_text(jobs: Iterable[AllocatedJob]) -> str:
    """Which GPUs jobs have: ``0-3``, and ``0,1 +2`` with two of which it is not known which."""
    unplaced = [job.allocation.unplaced for job in jobs]
    more = "?" if None in unplaced else sum(count or 0 for count in unplaced)
    parts = (gpu_list(with_allocated((), jobs)), f"+{more}" if more else "")
    return " ".join(filter(None, parts))


def unused_count(jobs: Iterable[AllocatedJob]) -> int | None:
    """The number of GPUs that jobs have and nobody uses; ``None`` if unknown of any."""
    counts = [job.unused if job.allocation.unplaced == 0 else None for job in jobs]
    return None if None in counts else sum(count or 0 for count in counts)


def job_texts(job: AllocatedJob, now: float) -> Iterator[str]:
    """What its line says: ``1 of 2 GPUs unused``, ``free in ≤ 2h``."""
    count, unused = len(job.gpus), job.unused
    if unused:
        some = "" if unused == count else f"{unused} of "
        yield f"{some}{counted(count, 'GPU')} unused"
    if job.allocation.unplaced:
        yield f"{counted(job.allocation.unplaced, 'more GPU')}, not known which"
    if job.allocation.until is not None:
        left = job.allocation.until - now
        yield "past its limit" if left <= 0 else f"free in ≤ {longest(left)}"


def job_facts(job: AllocatedJob, now: float) -> Iterator[Fact]:
    """What its page says: the GPUs that it has, until when, and all its machines."""
    allocation = job.allocation
    unused = "" if not job.unused else f"{job.unused} without a computing process"
    yield Fact("allocated", f"GPU {gpus_text((job,)) or UNKNOWN}", note=unused)
    if allocation.since is not None:
        ago = f"{duration(now - allocation.since)} ago"
        yield Fact("since", moment_text(allocation.since, now), note=ago)
    if allocation.until is not None:
        left = allocation.until - now
        note = "past its time limit" if left <= 0 else f"in {longest(left)} at most"
        yield Fact("until", moment_text(allocation.until, now), note=note)
    if allocation.nodes is not None:
        yield Fact("machines", printable(allocation.nodes))
