"""GPUs that do not respond, or whose values are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.errors import advice_on
from gpumon.findings.finding import USUAL_SEVERITY, Finding, FindingKind, Severity
from gpumon.findings.phrases import first_part, spaced, time_of_day
from gpumon.model.snapshot import GpuStatus
from gpumon.sources.maker_words import error_code, words_of
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


def not_answering(history: History, gpu: Gpu) -> Finding | None:
    """The finding for a status other than OK."""
    if gpu.status is GpuStatus.OK:
        return None
    words = _STATUS_WORDS[gpu.status]
    severity = USUAL_SEVERITY[words.kind]
    since = gpu.status_since
    reset = words_of(gpu.name).reset
    how = "reboot once nothing uses it"
    if reset is not None:
        how = f"`{reset}` as root once nothing uses it, or a reboot"
    blanks = {"at": "", "since": "", "length": "", "xid": "", "reset": how}
    if since is not None:
        blanks |= _status_times(history, since)
    if gpu.xid is not None:
        blanks["xid"] = f" ({error_code(gpu.xid).label})"
    sentence = words.sentence.format_map(blanks)
    evidence: tuple[str, ...] = (f"status: {gpu.status.value}",)
    if gpu.xid is not None and severity is Severity.CRITICAL:
        code = error_code(gpu.xid)
        error = f"last {code.label}: {code.explanation}"
        at = "" if gpu.xid_at is None else f", at {time_of_day(history, gpu.xid_at)}"
        sentence, evidence = f"{sentence}; {error}", (*evidence, error + at, *advice_on([code]))
    return Finding(
        kind=words.kind,
        subject=gpu.uuid,
        severity=severity,
        sentence=sentence,
        short=words.short.format_map(blanks),
        brief=words.brief,
        since=since,
        evidence=evidence,
    )


def old(history: History, gpu: Gpu) -> Finding | None:
    """The values are old although the GPU has no known fault.

    The sampling thread waits for the driver, or for a file of the kernel.
    """
    age = history.old(gpu)
    if age is None:
        return None
    length = spaced(age)
    return Finding(
        kind=FindingKind.OLD,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"values are {length} old; gpumon waits for the driver or for this machine",
        short=f"read {length} ago",
        brief=f"{first_part(age)} ago",
        since=gpu.sampled_at,
        evidence=(f"newest values {length} old",),
    )


class _StatusWords(Struct, frozen=True):
    """The texts for a status; placeholders in braces are filled in if their value is known."""

    kind: FindingKind
    sentence: str
    short: str
    brief: str


_STATUS_WORDS = {
    GpuStatus.LOST: _StatusWords(
        FindingKind.LOST,
        "lost{since}: the driver reports that the GPU is gone",
        "LOST{at}{xid}",
        "LOST",
    ),
    GpuStatus.RESET_REQUIRED: _StatusWords(
        FindingKind.RESET_REQUIRED,
        "must be reset before it can be used{since}: {reset}",
        "reset required{xid}",
        "RESET",
    ),
    GpuStatus.NO_ANSWER: _StatusWords(
        FindingKind.NO_ANSWER,
        "no answer{length}: a call to the GPU has not come back",
        "no answer{length}",
        "no answer",
    ),
    GpuStatus.FAILING: _StatusWords(
        FindingKind.FAILING,
        "most calls to it have failed{length}, though the driver does not say that it is lost or "
        "must be reset",
        "failing{length}",
        "failing",
    ),
    GpuStatus.NO_PERMISSION: _StatusWords(
        FindingKind.NO_PERMISSION,
        "this user may not open the GPU, or this container was not given it",
        "no permission",
        "no access",
    ),
    GpuStatus.ASLEEP: _StatusWords(
        FindingKind.ASLEEP,
        "powered down while nobody uses it; gpumon does not wake it",
        "asleep",
        "asleep",
    ),
}
STATUS_KINDS = frozenset(words.kind for words in _STATUS_WORDS.values())
"""The kinds of findings that say how a GPU's status is."""


def _status_times(history: History, since: float) -> dict[str, str]:
    """Texts for the time since which a status has held.

    A status that held at the first sample began before it. A time of day from another day is
    ambiguous, so a duration replaces it.
    """
    age = history.now - since
    unseen = history.started is None or since <= history.started
    if age < 86400:
        moment = time_of_day(history, since)
        at = f" before {moment}" if unseen else f" since {moment}"
        sentence = f" since before {moment}" if unseen else at
    else:
        at = f" for {'≥' if unseen else ''}{duration(age)}"
        sentence = f" for {'at least ' if unseen else ''}{spaced(age)}"
    return {"at": at, "since": sentence, "length": f" for {spaced(age)}"}
