"""Findings about a process: idle, growing, or reserved memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.finding import (
    SHORT_CELLS,
    Finding,
    FindingKind,
    Severity,
)
from gpumon.findings.phrases import brief_duration, long_duration, short_duration, spaced
from gpumon.findings.preallocation import preallocation
from gpumon.findings.work import rests
from gpumon.model.snapshot import CardStatus
from gpumon.text.formatting import cell_width, gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host import Details
    from gpumon.model.snapshot import Gpu, GpuProcess
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History

_GROWTH_SPANS = (3600.0, 1800.0, 900.0, 300.0)
"""The windows in seconds in which growth is searched, longest first."""
_GROWTH_POINTS = 30
_FORESEEN = 10.0
"""A line is extrapolated to this multiple of its observed length, and no further."""


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
    thresholds = history.thresholds
    found = (
        idle_process(history, process, thresholds),
        growing_process(history, process, latest.gpus, thresholds),
        _reserved(process, details, latest.gpus),
    )
    return [finding for finding in found if finding is not None]


def idle_process(history: History, process: GpuProcess, thresholds: Thresholds) -> Finding | None:
    """The process holds memory but has not run for a while."""
    interval = history.process_idle(process.id)
    if interval is None or not rests(interval, thresholds.idle_after, thresholds):
        return None
    size = f"{gibibytes(process.memory_used)} {gib()}"
    return Finding(
        kind=FindingKind.IDLE_PROCESS,
        subject=process.id,
        severity=Severity.NOTE,
        sentence=f"idle for {long_duration(history, interval)}, holds {size} on {_cards(process)}",
        short=f"idle {short_duration(history, interval)}, holds {size}",
        brief=f"idle {brief_duration(history, interval)}",
        since=interval.since,
        evidence=(f"SM use 0 % in all {interval.samples} readings", f"GPU memory {size}"),
    )


class _Growth(Struct, frozen=True):
    """Memory that grows linearly.

    Attributes:
        rate: Bytes a second.
        rise: Bytes from the first to the last of the points.
        seconds: Length of the observed time.
        fit: R² of the line, 0 to 1.
    """

    rate: float
    rise: float
    seconds: float
    fit: float


def growing_process(
    history: History, process: GpuProcess, gpus: Sequence[Gpu], thresholds: Thresholds
) -> Finding | None:
    """Its memory grows steadily; with a forecast if it is on one GPU only.

    Takes most of the time of ``process_findings``.
    """
    growth = _growth(history, process, thresholds)
    if growth is None:
        return None
    rate = f"{gibibytes(int(3600 * growth.rate))} {gib()}/h"
    evidence = [
        f"GPU memory rose by {gibibytes(int(growth.rise))} {gib()} in {spaced(growth.seconds)}",
        f"a line explains {100 * growth.fit:.0f} % of the change",
    ]
    sentence = short = f"grows {rate}"
    free = _room(history, process, gpus)
    if free is not None and free / growth.rate <= _FORESEEN * growth.seconds:
        left = _about(free / growth.rate)
        sentence += f": GPU full in about {left} at this pace"
        evidence.append(f"{gibibytes(free)} {gib()} free on {_cards(process)}")
        if cell_width(longer := f"{short}, full in {left}") <= SHORT_CELLS:
            short = longer
    return Finding(
        kind=FindingKind.GROWING,
        subject=process.id,
        severity=Severity.NOTE,
        sentence=sentence,
        short=short,
        brief="grows",
        since=history.now - growth.seconds,
        evidence=tuple(evidence),
    )


def _reserved(process: GpuProcess, details: Details | None, gpus: Sequence[Gpu]) -> Finding | None:
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


def _growth(history: History, process: GpuProcess, thresholds: Thresholds) -> _Growth | None:
    """Steady growth up to now, over the longest window that shows it."""
    for seconds in _GROWTH_SPANS:
        means = history.process_buckets(
            process.id, "memory_used", seconds, _GROWTH_POINTS, history.now
        )
        known = [mean for mean in means if mean is not None]
        if len(known) < _GROWTH_POINTS or known[-1] - known[0] < thresholds.growth_bytes:
            continue
        slope, fit = _line(known)
        if fit >= thresholds.growth_fit and _goes_on(known):
            rate = slope / (seconds / _GROWTH_POINTS)
            return _Growth(rate, known[-1] - known[0], seconds, fit)
    return None


def _line(values: Sequence[float]) -> tuple[float, float]:
    """The least-squares line through equally spaced values: its rise per step, and R²."""
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    spread = sum((place - middle) ** 2 for place in range(len(values)))
    change = sum((value - mean) ** 2 for value in values)
    shared = sum((place - middle) * (value - mean) for place, value in enumerate(values))
    return shared / spread, shared**2 / (spread * change)


def _goes_on(values: Sequence[float]) -> bool:
    """Whether the newest third rose at least half as much as the third before it.

    A program that loads its data and then stops growing fits a line rather well.
    """
    third = len(values) // 3
    first, second, last = (
        sum(values[part * third : (part + 1) * third]) / third for part in range(3)
    )
    return last - second >= 0.5 * (second - first) > 0


def _room(history: History, process: GpuProcess, gpus: Sequence[Gpu]) -> int | None:
    """Free bytes of the one GPU a process is on; ``None`` if they do not limit its growth."""
    uuids = {use.gpu_uuid for use in process.uses}
    here = [gpu for gpu in gpus if gpu.uuid in uuids]
    if len(uuids) != 1 or len(here) != 1:
        return None
    gpu = here[0]
    present = gpu.status is CardStatus.OK and history.old(gpu) is None
    if not present or gpu.memory_unified or gpu.mig_mode:
        return None
    return gpu.memory_free


def _about(seconds: float) -> str:
    """A future duration, rounded to its accuracy: ``40 min``, ``3 h``."""
    minutes = seconds / 60
    if minutes < 10:
        return f"{max(1, round(minutes))} min"
    if minutes < 120:
        return f"{5 * round(minutes / 5)} min"
    return f"{round(minutes / 60)} h"


def _cards(process: GpuProcess) -> str:
    return f"GPU {', '.join(map(str, process.gpu_indices))}"
