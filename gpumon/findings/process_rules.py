"""Findings about a process: idle, growing, or reserved memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.finding import (
    SHORT_CELLS,
    Answer,
    Finding,
    FindingKind,
    Severity,
)
from gpumon.findings.growth import growth, room
from gpumon.findings.phrases import all_of, brief_duration, long_duration, short_duration
from gpumon.findings.preallocation import preallocation
from gpumon.findings.work import rests
from gpumon.text.formatting import cell_width, gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


def process_findings(
    history: History, process: GpuProcess, details: Details | None = None
) -> list[Finding]:
    """All findings of a process; empty if it is in no current list.

    Takes some hundred microseconds, because it looks for growth over up to an hour: for the pages
    of single processes. Tables use ``History.process_idle``.

    Args:
        history: The history.
        process: The process, as in the newest snapshot.
        details: Further details; its environment shows settings.
    """
    latest = history.latest
    if latest is None or all(one.id != process.id for one in latest.processes):
        return []
    found = (
        idle_process(history, process),
        growing_process(history, process),
        _preallocated(process, details, latest.gpus),
    )
    return [finding for finding in found if finding]


def idle_process(history: History, process: GpuProcess) -> Answer:
    """The process holds memory but has not run for a while."""
    interval = history.process_idle(process.id)
    if interval is None:
        return False if process.resting is False else None
    if not rests(history, interval, history.thresholds.idle_after):
        return False if interval.start_observed else None
    size = f"{gibibytes(process.memory_used)} {gib()}"
    return Finding(
        kind=FindingKind.IDLE_PROCESS,
        subject=process.id,
        severity=Severity.NOTE,
        sentence=f"idle for {long_duration(history, interval)}, holds {size} on {_gpus(process)}",
        short=f"idle {short_duration(history, interval)}, holds {size}",
        brief=f"idle {brief_duration(history, interval)}",
        since=interval.since,
        evidence=(f"SM use 0 % in {all_of(interval.samples, 'reading')}", f"GPU memory {size}"),
    )


def growing_process(history: History, process: GpuProcess) -> Answer:
    """Its memory grows steadily; with a forecast if it is on one GPU only.

    Takes most of the time of ``process_findings``.
    """
    found = growth(
        lambda seconds, count: history.process_buckets(
            process.id, "memory_used", seconds, count, history.now
        ),
        history.thresholds,
    )
    if not found:
        return found
    evidence = list(found.evidence)
    sentence = short = f"grows {found.pace}"
    free = _room(history, process)
    left = found.full_in(free)
    if left is not None:
        sentence += f": GPU full in about {left} at this pace"
        evidence.append(f"{gibibytes(free)} {gib()} free on {_gpus(process)}")
        if cell_width(longer := f"{short}, full in {left}") <= SHORT_CELLS:
            short = longer
    return Finding(
        kind=FindingKind.GROWING,
        subject=process.id,
        severity=Severity.NOTE,
        sentence=sentence,
        short=short,
        brief="grows",
        since=history.now - found.seconds,
        evidence=tuple(evidence),
    )


def _preallocated(
    process: GpuProcess, details: Details | None, gpus: Sequence[Gpu]
) -> Finding | None:
    """Its memory was probably reserved in advance."""
    found = preallocation(process, details, gpus)
    if found is None:
        return None
    return Finding(
        kind=FindingKind.PREALLOCATED,
        subject=process.id,
        severity=Severity.NOTE,
        sentence=found.sentence,
        short=f"preallocated by {found.framework}",
        brief="prealloc.",
        evidence=found.evidence,
    )


def _room(history: History, process: GpuProcess) -> int | None:
    """Free bytes of the one GPU a process is on; ``None`` if they do not limit its growth."""
    uuids = {use.gpu_uuid for use in process.uses}
    gpus = () if history.latest is None else history.latest.gpus
    here = [gpu for gpu in gpus if gpu.uuid in uuids]
    if len(uuids) != 1 or len(here) != 1:
        return None
    return room(history, here[0])


def _gpus(process: GpuProcess) -> str:
    return f"GPU {', '.join(map(str, process.gpu_indices))}"
