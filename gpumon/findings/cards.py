"""All that is to be said of a card, and the one thing to show of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.errors import memory_errors, recovery, xid
from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.heat import hot, throttled
from gpumon.findings.memory import full, unattributed
from gpumon.findings.reserved import reserved
from gpumon.findings.status import not_answering, old
from gpumon.findings.work import busy_unlisted, free, idle, stuck, working
from gpumon.model import CardStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.findings.finding import Finding
    from gpumon.history import History
    from gpumon.model import Gpu
    from gpumon.thresholds import Thresholds


def card_findings(
    history: History, gpu: Gpu, thresholds: Thresholds | None = None
) -> list[Finding]:
    """All that is to be said of a card as it stands in the newest snapshot, most severe first.

    Never empty: when nothing else is to be said it is free, at work, or unknown. Of old values, as
    they stand there while another card hangs, their age is said and what does not pass by itself.
    """
    return sorted(
        _found(history, gpu, thresholds or history.thresholds),
        key=lambda finding: -finding.severity,
    )


def card_state(history: History, gpu: Gpu, thresholds: Thresholds | None = None) -> Finding:
    """The first of ``card_findings``, without making the others: asked of every card, every frame.

    What follows a warning is no worse, but for memory errors after the word of a failing card.
    """
    found = _found(history, gpu, thresholds or history.thresholds)
    worst = next(found)
    while worst.severity < Severity.WARNING or worst.kind is FindingKind.FAILING:
        finding = next(found, None)
        if finding is None:
            break
        if finding.severity > worst.severity:
            worst = finding
    return worst


def _found(history: History, gpu: Gpu, thresholds: Thresholds) -> Iterator[Finding]:
    """What is to be said of a card, in the order of ``FindingKind``."""
    status = not_answering(history, gpu)
    if status is not None:
        yield status
        if gpu.status is not CardStatus.FAILING:
            return
    stale = old(history, gpu)
    quiet = status is None
    for rule in RULES if stale is None else LASTING:
        finding = rule(history, gpu, thresholds)
        if finding is not None:
            quiet = False
            yield finding
    rest = stale or free(history, gpu, thresholds)
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
    stuck,
    unattributed,
    busy_unlisted,
    idle,
    reserved,
    full,
)
"""What may be said of a card that answers and is not simply free or at work.

In the order of ``FindingKind``: first the card that cannot be trusted, then what happens to it now,
then what did, which may be the cause of what follows.
"""
LASTING = (memory_errors, recovery, xid)
"""Those of what does not pass by itself, and so is true of old values too."""
