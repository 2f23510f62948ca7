"""All findings of a GPU, and the one to show first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpumon.findings.efficiency import busy_empty, idle_in_job, memory_bound, shared, starved
from gpumon.findings.errors import memory_errors, recovery, xid
from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.growth import filling
from gpumon.findings.heat import hot, slowed_lately, throttled
from gpumon.findings.links import nvlink_errors, slow_link
from gpumon.findings.memory import full, unattributed
from gpumon.findings.reserved import reserved
from gpumon.findings.status import not_answering, old
from gpumon.findings.work import busy_unlisted, certainly_free, free, idle, stuck, working
from gpumon.model.snapshot import ANSWERING, GpuStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.findings.finding import Answer, Finding
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
        details = (rule(history, gpu) for rule in DETAILS.values())
        found += [finding for finding in details if finding]
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
    for kind, rule in RULES.items():
        if stale is not None and kind not in LASTING:
            continue
        finding = rule(history, gpu)
        if finding:
            quiet = False
            yield finding
    rest = stale or free(history, gpu)
    if rest:
        yield rest
    elif quiet:
        yield working(history, gpu)


Rule: TypeAlias = "Callable[[History, Gpu], Answer]"

RULES: dict[FindingKind, Rule] = {
    FindingKind.MEMORY_ERRORS: memory_errors,
    FindingKind.RECOVERY: recovery,
    FindingKind.HOT: hot,
    FindingKind.THROTTLED: throttled,
    FindingKind.XID: xid,
    FindingKind.NVLINK_ERRORS: nvlink_errors,
    FindingKind.STUCK: stuck,
    FindingKind.UNATTRIBUTED: unattributed,
    FindingKind.BUSY_UNLISTED: busy_unlisted,
    FindingKind.IDLE_IN_JOB: idle_in_job,
    FindingKind.IDLE: idle,
    FindingKind.SLOW_LINK: slow_link,
    FindingKind.BUSY_EMPTY: busy_empty,
    FindingKind.STARVED: starved,
    FindingKind.SHARED: shared,
    FindingKind.FILLING: filling,
    FindingKind.RESERVED: reserved,
    FindingKind.FULL: full,
    FindingKind.MEMORY_BOUND: memory_bound,
}
"""The rules for a GPU that answers, in the order of ``FindingKind``.

First come faults of the GPU, then current conditions, then past errors, which may have caused the
conditions after them.
"""
DETAILS: dict[FindingKind, Rule] = {FindingKind.SLOWED_LATELY: slowed_lately}
"""Rules whose findings are quiet and never the state of a GPU: they are told with the others."""
LASTING = (FindingKind.MEMORY_ERRORS, FindingKind.RECOVERY, FindingKind.XID)
"""Faults that do not pass by themselves, so that old values still prove them."""
_ANSWERS = RULES | DETAILS | {FindingKind.FREE: certainly_free}


def gpu_answer(history: History, gpu: Gpu, kind: FindingKind) -> Answer:
    """Whether a GPU is in a state: the finding, ``False``, or ``None`` if that is unknown.

    A GPU that does not answer is neither hot nor cool.
    """
    status = not_answering(history, gpu)
    if status is not None and status.kind is kind:
        return status
    if gpu.status not in ANSWERING:
        return None
    stale = old(history, gpu)
    if kind is FindingKind.OLD:
        return stale or False
    rule = _ANSWERS.get(kind)
    if rule is None:
        return False
    answer = rule(history, gpu)
    return answer if stale is None or (answer and kind in LASTING) else None
