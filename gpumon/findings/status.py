"""Cards that do not answer, or whose values are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.errors import LOOK_IT_UP, XID_MEANINGS
from gpumon.findings.finding import Finding, FindingKind, Severity
from gpumon.findings.words import first_part, spaced, time_of_day
from gpumon.model import CardStatus
from gpumon.text import duration

if TYPE_CHECKING:
    from gpumon.history import History
    from gpumon.model import Gpu


def not_answering(history: History, gpu: Gpu) -> Finding | None:
    """What a status other than OK comes to."""
    if gpu.status is CardStatus.OK:
        return None
    words = _STATUS_WORDS[gpu.status]
    since = gpu.status_since
    blanks = {"at": "", "since": "", "length": "", "xid": ""}
    if since is not None:
        blanks |= _status_times(history, since)
    if gpu.xid is not None:
        blanks["xid"] = f" (XID {gpu.xid})"
    sentence = words.sentence.format_map(blanks)
    evidence: tuple[str, ...] = (f"status: {gpu.status.value}",)
    if gpu.xid is not None and words.severity is Severity.CRITICAL:
        error = f"last XID {gpu.xid}: {XID_MEANINGS.get(gpu.xid, LOOK_IT_UP)}"
        at = "" if gpu.xid_at is None else f", at {time_of_day(history, gpu.xid_at)}"
        sentence, evidence = f"{sentence}; {error}", (*evidence, error + at)
    return Finding(
        kind=words.kind,
        subject=gpu.uuid,
        severity=words.severity,
        sentence=sentence,
        short=words.short.format_map(blanks),
        brief=words.brief,
        since=since,
        evidence=evidence,
    )


def old(history: History, gpu: Gpu) -> Finding | None:
    """Not read for too long, though nothing is known against the card.

    The sampling thread waits for the driver as a whole, or outside it, for a file of the kernel's.
    """
    age = history.old(gpu)
    if age is None:
        return None
    length = spaced(age)
    return Finding(
        kind=FindingKind.OLD,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"read {length} ago: what is shown of it was so then; gpumon waits for the "
        "driver, or for this machine",
        short=f"read {length} ago",
        brief=f"{first_part(age)} ago",
        since=gpu.sampled_at,
        evidence=(f"newest values {length} old",),
    )


class _StatusWords(Struct, frozen=True):
    """How a status is told; what stands in braces is filled in where it is known."""

    kind: FindingKind
    severity: Severity
    sentence: str
    short: str
    brief: str


_STATUS_WORDS = {
    CardStatus.LOST: _StatusWords(
        FindingKind.LOST,
        Severity.CRITICAL,
        "lost{since}: the driver says that the card is gone",
        "LOST{at}{xid}",
        "LOST",
    ),
    CardStatus.RESET_REQUIRED: _StatusWords(
        FindingKind.RESET_REQUIRED,
        Severity.CRITICAL,
        "must be reset before it can be used{since}: `nvidia-smi --gpu-reset` as root once nothing "
        "uses it, or a reboot",
        "reset required{xid}",
        "RESET",
    ),
    CardStatus.NO_ANSWER: _StatusWords(
        FindingKind.NO_ANSWER,
        Severity.CRITICAL,
        "no answer{length}: a call to the card has not come back",
        "no answer{length}",
        "no answer",
    ),
    CardStatus.FAILING: _StatusWords(
        FindingKind.FAILING,
        Severity.WARNING,
        "most calls to it have failed{length}, though the driver does not say that it is lost or "
        "must be reset",
        "failing{length}",
        "failing",
    ),
    CardStatus.NO_PERMISSION: _StatusWords(
        FindingKind.NO_PERMISSION,
        Severity.NOTE,
        "this user may not open the card, or this container was not given it",
        "no permission",
        "no access",
    ),
    CardStatus.ASLEEP: _StatusWords(
        FindingKind.ASLEEP,
        Severity.NOTE,
        "powered down while nobody uses it; gpumon does not wake it",
        "asleep",
        "asleep",
    ),
}


def _status_times(history: History, since: float) -> dict[str, str]:
    """The ways to say since when a status holds.

    What held when gpumon began to look began before that. Another day's time of day says little,
    so a length takes its place.
    """
    age = history.now - since
    unseen = history.started is None or since <= history.started
    if age < 86400:
        moment = time_of_day(history, since)
        at = f" before {moment}" if unseen else f" since {moment}"
        told = f" since before {moment}" if unseen else at
    else:
        at = f" for {'≥' if unseen else ''}{duration(age)}"
        told = f" for {'at least ' if unseen else ''}{spaced(age)}"
    return {"at": at, "since": told, "length": f" for {spaced(age)}"}
