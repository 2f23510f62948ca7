"""All findings of a GPU, and the one to show first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.efficiency import busy_empty, idle_in_job, memory_bound, shared, starved
from gpumon.findings.errors import memory_errors, recovery, xid
from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.growth import filling
from gpumon.findings.heat import hot, slowed_lately, throttled
from gpumon.findings.links import nvlink_errors, slow_link
from gpumon.findings.memory import full, unattributed
from gpumon.findings.reserved import reserved
from gpumon.findings.status import not_answering, old
from gpumon.findings.work import busy_unlisted, free, idle, stuck, working
from gpumon.model.snapshot import GpuStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.findings.finding import Finding
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


def gpu_findings(history: History, gpu: Gpu) -> list[Finding]:
    """All findings of a GPU in the newest snapshot, most severe first.

    The result is never empty: without other findings the GPU is free, working or unknown. If its
    values are old because another GPU hangs, the result has their age and only those findings that
    cannot pass by themselves.
    """
    found = list(_found(history, gpu))
    if gpu.status is GpuStatus.OK and all(one.kind is not FindingKind.OLD for one in found):
        details = (rule(history, gpu) for rule in DETAILS)
        found += [finding for finding in details if finding is not None]
    return sorted(found, key=lambda finding: -finding.severity)


def gpu_state(history: History, gpu: Gpu) -> Finding:
    """The first of ``gpu_findings``, without the cost of the others: needed per GPU and frame.

    A rule that runs after a warning cannot find anything worse, except memory errors after the
    status of a failing GPU.
    """
    found = _found(history, gpu)
    worst = next(found)
    while worst.severity < Severity.WARNING or worst.kind is FindingKind.FAILING:
        finding = next(found, None)
        if finding is None:
            break
        if finding.severity > worst.severity:
            worst = finding
    return worst


def _found(history: History, gpu: Gpu) -> Iterator[Finding]:
    """The findings of a GPU, in the order of ``FindingKind``."""
    status = not_answering(history, gpu)
    if status is not None:
        yield status
        if gpu.status is not GpuStatus.FAILING:
            return
    stale = old(history, gpu)
    quiet = status is None
    for rule in RULES if stale is None else LASTING:
        finding = rule(history, gpu)
        if finding is not None:
            quiet = False
            yield finding
    rest = stale or free(history, gpu)
    if rest is not None:
        yield rest
    elif quiet:
        yield working(history, gpu)


RULES = (
    memory_errors,
    recovery,
    hot,
    throttled,
    xid,
    nvlink_errors,
    stuck,
    unattributed,
    busy_unlisted,
    idle_in_job,
    idle,
    slow_link,
    busy_empty,
    starved,
    shared,
    filling,
    reserved,
    full,
    memory_bound,
)
"""The rules for a GPU that answers, in the order of ``FindingKind``.

First come faults of the GPU, then current conditions, then past errors, which may have caused the
conditions after them.
"""
DETAILS = (slowed_lately,)
"""Rules whose findings are quiet and never the state of a GPU: they are told with the others."""
LASTING = (memory_errors, recovery, xid)
"""Rules for faults that do not pass by themselves, so that old values still prove them."""
