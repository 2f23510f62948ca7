"""Error findings: memory errors, error codes, and the driver's recovery action."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.availability.health import MEMORY_FIELDS, memory_faults, recovery_action
from gpumon.findings.finding import SHORT_CELLS, Answer, Finding, FindingKind, Severity
from gpumon.findings.phrases import at_most, time_of_day
from gpumon.sources.maker_words import error_code
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History
    from gpumon.sources.maker_words import ErrorCode


def memory_errors(history: History, gpu: Gpu) -> Answer:
    """Memory errors, and what remains to be done about them.

    The next reset replaces a bad row or page; when
    no spare is left, the GPU should be returned. Until then the memory may fail again, so no job is
    sent there.
    """
    is_missing = history.is_missing(gpu, *MEMORY_FIELDS)
    faults = memory_faults(gpu)
    if not faults:
        return None if is_missing else False
    return Finding(
        kind=FindingKind.MEMORY_ERRORS,
        subject=gpu.uuid,
        severity=Severity.CRITICAL if gpu.remapped_rows_failure else Severity.WARNING,
        sentence="; ".join(fault.sentence for fault in faults),
        short=at_most(faults[0].short, SHORT_CELLS),
        brief=faults[0].brief,
        evidence=tuple(fault.evidence for fault in faults),
    )


def recovery(_history: History, gpu: Gpu) -> Answer:
    """The recovery action that the driver recommends."""
    action = recovery_action(gpu)
    if action is None:
        return None if gpu.recovery_action is None else False
    word = next((word for word in _RECOVERY_WORDS if word in action.lower()), "recover")
    return Finding(
        kind=FindingKind.RECOVERY,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"the driver recommends a recovery action: {action}",
        short=at_most(f"driver asks for: {action}", SHORT_CELLS),
        brief=f"{word}!",
        evidence=(f"recovery action: {action}",),
    )


def xid(history: History, gpu: Gpu) -> Answer:
    """An error code of a GPU that still responds.

    A hardware error stays, because it may be the reason why a job hangs hours later, and it comes
    before the errors of the programs that it ended. Current conditions such as heat come before it.
    One from before gpumon was started is reported for ``past_xid_for``: the GPU may have been reset
    since.
    """
    known, thresholds = history.xids(gpu.uuid), history.thresholds
    if not known:
        return False
    newest_first = sorted(known.items(), key=lambda item: -(item[1] or 0))
    seen = [(error_code(number), at) for number, at in newest_first]
    own = [
        (error, at)
        for error, at in seen
        if not error.passing
        and (not is_of_the_past(history, at) or _age(history, at) <= thresholds.past_xid_for)
    ]
    recent = [
        (error, at)
        for error, at in seen
        if error.passing and _age(history, at) <= thresholds.program_xid_for
    ]
    reported = own + recent
    if not reported:
        return False
    error, at = reported[0]
    start = error.label if at is None else _with_time(history, error, at)
    facts = tuple(
        f"{_with_time(history, error, at)}: {error.explanation}" for error, at in reported
    )
    return Finding(
        kind=FindingKind.XID,
        subject=gpu.uuid,
        severity=Severity.WARNING if own else Severity.NOTE,
        sentence=f"the driver reported an error: {facts[0]}",
        short=at_most(f"{start}: {error.meaning}" if error.meaning else start, SHORT_CELLS),
        brief=error.label,
        since=at,
        evidence=(*facts, *advice_on(error for error, _ in reported)),
    )


def undated_xid(gpu: Gpu) -> str | None:
    """The XID after which a GPU is not sound, in a sentence, where its time is unknown.

    Metrics have the last XID until the GPU is reset: as long as it stands there, nobody can tell
    whether the fault is over.
    """
    if gpu.xid is None or gpu.xid_at is not None:
        return None
    error = error_code(gpu.xid)
    if error.passing:
        return None
    return f"{error.label}, when is not known: {error.explanation}"


def is_of_the_past(history: History, at: float | None) -> bool:
    """Whether an XID was reported before gpumon was started: the kernel log tells these too."""
    return at is not None and history.started is not None and at < history.started


def advice_on(errors: Iterable[ErrorCode]) -> Iterator[str]:
    """What to do about errors, each advice once, with the errors that it is for."""
    labels: dict[str, list[str]] = {}
    for error in errors:
        if error.advice is not None:
            labels.setdefault(error.advice, []).append(error.label)
    return (f"what to do about {', '.join(same)}: {advice}" for advice, same in labels.items())


_RECOVERY_WORDS = ("reset", "reboot", "drain")


def _age(history: History, at: float | None) -> float:
    """Seconds since an error; endless if its time is unknown."""
    return math.inf if at is None else history.now - at


def _with_time(history: History, error: ErrorCode, at: float | None) -> str:
    """An error with its time of day, or with its age if that is more than a day."""
    if at is None:
        return f"{error.label}, when is not known"
    if history.now - at < 86400:
        return f"{error.label} at {time_of_day(history, at)}"
    return f"{error.label} {duration(history.now - at)} ago"
