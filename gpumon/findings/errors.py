"""Errors: what the memory, the driver's log and its advice say against a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.finding import SHORT_CELLS, Finding, FindingKind, Severity
from gpumon.findings.words import at_most, time_of_day
from gpumon.health import memory_faults, recovery_action
from gpumon.text import duration

if TYPE_CHECKING:
    from gpumon.history import History
    from gpumon.model import Gpu
    from gpumon.thresholds import Thresholds

XID_MEANINGS: dict[int, str] = {
    13: "a program crashed on the graphics engine",
    31: "a program touched memory that it does not own",
    32: "a program's commands arrived corrupted",
    38: "the firmware reported an error",
    43: "a program was stopped after an error of its own",
    44: "a fault while programs took turns",
    45: "a program was ended after an earlier error, or killed",
    46: "the card stopped processing",
    48: "memory error that could not be corrected",
    61: "the card's micro-controller warned",
    62: "the card's micro-controller halted",
    63: "a bad piece of memory was marked for replacement",
    64: "a bad piece of memory could not be replaced",
    68: "the video decoder failed",
    69: "a program used the graphics engine wrongly",
    74: "error on an NVLink",
    79: "the card fell off the bus",
    92: "corrected memory errors are frequent",
    94: "memory error, kept within one program",
    95: "memory error that may have touched every program",
    109: "a program did not make way for another in time",
    119: "the card's system processor (GSP) did not answer",
    120: "the card's system processor (GSP) failed",
    121: "error on the link between chips (C2C)",
    140: "memory error that was not recovered from",
    143: "the card could not be initialised",
    154: "the driver changed its advice on how to recover the card",
}
"""The common ones of NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), in plain words."""

PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68})
"""Those that a program brings about and that leave the card well, by the same catalogue."""


def memory_errors(_history: History, gpu: Gpu, _thresholds: Thresholds) -> Finding | None:
    """Memory that failed, and what is still to be done about it.

    Source: NVIDIA's "GPU Memory Error Management". A row or page that was found bad is replaced at
    the next reset; when none is left to replace it, the card is to be returned. Until then it may
    fail again, so nobody is sent there.
    """
    faults = memory_faults(gpu)
    if not faults:
        return None
    return Finding(
        kind=FindingKind.MEMORY_ERRORS,
        subject=gpu.uuid,
        severity=Severity.CRITICAL if gpu.remapped_rows_failure else Severity.WARNING,
        sentence="; ".join(fault.sentence for fault in faults),
        short=at_most(faults[0].short, SHORT_CELLS),
        brief=faults[0].brief,
        evidence=tuple(fault.evidence for fault in faults),
    )


def recovery(_history: History, gpu: Gpu, _thresholds: Thresholds) -> Finding | None:
    """What the driver asks for to make the card whole again (nvmlDeviceGpuRecoveryAction_t)."""
    action = recovery_action(gpu)
    if action is None:
        return None
    word = next((word for word in _RECOVERY_WORDS if word in action.lower()), "recover")
    return Finding(
        kind=FindingKind.RECOVERY,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"the driver asks for this to make the card whole again: {action}",
        short=at_most(f"driver asks for: {action}", SHORT_CELLS),
        brief=f"{word}!",
        evidence=(f"recovery action: {action}",),
    )


def xid(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """An error that the driver reported, of a card that answers all the same.

    One of the card's own stays: it may be why a job hangs hours later, and it is told before the
    errors of the programs that it ended. It comes after what holds at this moment, such as heat.
    Source: NVIDIA's XID catalogue, see ``XID_MEANINGS``.
    """
    known = history.xids(gpu.uuid)
    if not known:
        return None
    seen = sorted(known.items(), key=lambda xid: -(xid[1] or 0))
    own = [xid for xid in seen if xid[0] not in PROGRAM_XIDS]
    recent = [
        (number, at)
        for number, at in seen
        if number in PROGRAM_XIDS
        and at is not None
        and history.now - at <= thresholds.program_xid_for
    ]
    told = own + recent
    if not told:
        return None
    number, at = told[0]
    meaning = XID_MEANINGS.get(number)
    start = _xid_and_when(history, number, at)
    facts = tuple(
        f"{_xid_and_when(history, number, at)}: {XID_MEANINGS.get(number, LOOK_IT_UP)}"
        for number, at in told
    )
    return Finding(
        kind=FindingKind.XID,
        subject=gpu.uuid,
        severity=Severity.WARNING if own else Severity.NOTE,
        sentence=f"the driver reported an error: {facts[0]}",
        short=at_most(start if meaning is None else f"{start}: {meaning}", SHORT_CELLS),
        brief=f"XID {number}",
        since=at,
        evidence=facts,
    )


LOOK_IT_UP = "look it up in XID Errors"
_RECOVERY_WORDS = ("reset", "reboot", "drain")


def _xid_and_when(history: History, number: int, at: float | None) -> str:
    """An XID with its time of day, or how long ago it was when that is more than a day."""
    if at is None:
        return f"XID {number}"
    if history.now - at < 86400:
        return f"XID {number} at {time_of_day(history, at)}"
    return f"XID {number} {duration(history.now - at)} ago"
