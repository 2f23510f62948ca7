"""Findings about a GPU's work: free, idle, stuck or working."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gpumon.availability.rule import (
    ASSUMED_FIELDS,
    NotFree,
    busy_sentence,
    listed_on,
    normal_unlisted,
    why_not_free,
)
from gpumon.findings.conditions import BUSY_UNLISTED, IDLE, STUCK
from gpumon.findings.errors import undated_xid
from gpumon.findings.finding import Answer, Finding, FindingKind, Severity
from gpumon.findings.phrases import (
    all_of,
    brief_duration,
    count_processes,
    in_container,
    long_duration,
    short_duration,
    with_duration,
)
from gpumon.findings.reserved import reservations
from gpumon.recording.history import Interval
from gpumon.text.formatting import gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.availability.rule import Listed
    from gpumon.model.snapshot import Gpu, MigInstance
    from gpumon.recording.history import History


def stuck(history: History, gpu: Gpu) -> Answer:
    """Fully busy at low power for long: this may be a hung job, but need not be.

    Utilisation is the share of time in which any kernel ran, so a kernel that only waits reads as
    100 %. The low power shows that it computes nothing.
    """
    interval = lasting(history, gpu, STUCK, history.thresholds.stuck_after)
    if not interval:
        return interval
    if gpu.utilization_gpu is None or gpu.power_draw is None or not gpu.power_limit:
        return None
    busy, share = gpu.utilization_gpu, 100 * gpu.power_draw / gpu.power_limit
    return Finding(
        kind=FindingKind.STUCK,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"{busy} % busy at {share:.0f} % of its power limit "
        f"for {long_duration(history, interval)}: a hung job can look like this",
        short=with_duration(f"stuck? {busy}% at {share:.0f}% power, ", history, interval),
        brief="stuck?",
        since=interval.since,
        evidence=(
            f"utilisation {busy} %",
            f"power {gpu.power_draw:.0f} W of {gpu.power_limit:.0f} W",
            f"so in {all_of(interval.samples, 'sample')}",
        ),
    )


def idle(history: History, gpu: Gpu) -> Answer:
    """A computing process holds the GPU, but nothing has run for a while.

    A process that started after the GPU fell idle is not blamed for the time before: the duration
    counts from the start of the named process. A condition that holds at the first sample is
    reported at once, as of now.
    """
    interval = history.interval(gpu.uuid, IDLE)
    holding = history.holding(gpu)
    if interval is None or holding is None or not holding.owners:
        return is_absent(history, gpu, IDLE)
    if holding.owner_since is not None and holding.owner_since > interval.since:
        samples = history.samples(gpu.uuid, "utilization_gpu", holding.owner_since)
        interval = Interval(
            holding.owner_since, interval.last, start_observed=True, samples=samples
        )
    lasted = rests(history, interval, history.thresholds.idle_after)
    if interval.start_observed and not lasted:
        return False
    length = f"idle {short_duration(history, interval)}" if lasted else "0% now"
    owner = holding.owners[0]
    others = f" +{len(holding.owners) - 1}" if len(holding.owners) > 1 else ""
    unseen = "a process not visible here" if holding.hidden else "a process that has ended"
    who = unseen if owner is None else printable(owner)
    size = "memory" if holding.memory is None else f"{gibibytes(holding.memory)} {gib()}"
    state = "0 % busy at this moment"
    if lasted:
        state = f"idle for {long_duration(history, interval)}"
    return Finding(
        kind=FindingKind.IDLE,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"{state} while {who}{others} holds {size}",
        short=length,
        brief=f"idle {brief_duration(history, interval)}" if lasted else "0% now",
        since=interval.since,
        evidence=(
            f"utilisation 0 % in {all_of(interval.samples, 'sample')}",
            f"{count_processes(holding.processes)} on it, with {size}",
        ),
    )


def busy_unlisted(history: History, gpu: Gpu) -> Answer:
    """Something runs although no process is listed: the driver does not tell whose it is.

    Utilisation covers the last second and the list is read less often, so the condition must have
    lasted. A condition that holds at the first sample is reported at once, as of now.
    """
    interval = history.interval(gpu.uuid, BUSY_UNLISTED)
    if interval is None or not gpu.utilization_gpu:
        return is_absent(history, gpu, BUSY_UNLISTED)
    lasted = interval.seconds >= history.thresholds.unattributed_after
    if interval.start_observed and not lasted:
        return False
    contained = in_container(history)
    sentence = busy_sentence(gpu.utilization_gpu, in_container=contained)
    lasting = f"for {long_duration(history, interval)}" if lasted else "at this moment"
    return Finding(
        kind=FindingKind.BUSY_UNLISTED,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"{sentence}, {lasting}",
        short="busy, by nobody visible here" if contained else "busy, by nobody listed",
        brief="busy, by ?",
        since=interval.since,
        evidence=(
            f"utilisation {gpu.utilization_gpu} %",
            "no process in the driver's list",
            f"memory used {gibibytes(gpu.memory_used)} {gib()}",
        ),
    )


def free(history: History, gpu: Gpu) -> Answer:
    """The GPU is free by the rule of ``availability.why_not_free``, which the commands use too.

    If the utilisation is never reported, as in MIG mode, memory and processes decide, and the
    sentence says so; without a list of processes, as in metrics, memory and utilisation.
    """
    reasons = list(_reasons_not_free(history, gpu))
    if reasons:
        return None if all(reason.is_unknown for reason in reasons) else False
    holding = history.holding(gpu)
    drawing = 0 if holding is None else holding.processes
    util = gpu.utilization_gpu
    busy = "utilisation is not reported" if util is None else f"utilisation {util} %"
    if holding is None:
        who, what = "processes are not exported", "its memory is empty"
    else:
        who = f"{count_processes(drawing)}, drawing only" if drawing else "no process"
        what = "no process is on it" if not drawing else f"nobody computes on it ({who})"
    return Finding(
        kind=FindingKind.FREE,
        subject=gpu.uuid,
        severity=Severity.GOOD,
        sentence=f"free: {what}; {busy}",
        short="free",
        brief="free",
        evidence=(who, f"memory used {gibibytes(gpu.memory_used)} {gib()}", busy),
    )


def certainly_free(history: History, gpu: Gpu) -> Answer:
    """``free``, but unknown while a value that could tell otherwise is missing."""
    is_missing = history.is_missing(gpu, *ASSUMED_FIELDS)
    return free(history, gpu) if not is_missing else free(history, gpu) and None


def not_free(history: History, gpu: Gpu, mig: MigInstance | None = None) -> NotFree | None:
    """Why a GPU, or a MIG device of it, is not free in the newest snapshot."""
    return next(_reasons_not_free(history, gpu, mig), None)


def _reasons_not_free(
    history: History, gpu: Gpu, mig: MigInstance | None = None
) -> Iterator[NotFree]:
    listed: Listed | None = history.holding(gpu)
    reserved_ = reservations(history, gpu)
    if mig is not None:
        reserved_ = [one for one in reserved_ if one.mig_uuid in {None, mig.uuid}]
        if listed is not None and history.latest is not None:
            listed = listed_on(history.latest.processes, gpu, mig)
    yield from why_not_free(
        gpu,
        listed,
        history.thresholds,
        mig=mig,
        reserved=bool(reserved_),
        old=history.old(gpu) is not None,
        in_container=in_container(history),
    )
    if (sentence := undated_xid(gpu)) is not None:
        yield NotFree("health", sentence)


def working(history: History, gpu: Gpu) -> Finding:
    """A GPU without any other finding: busy, or not known to be free."""
    holding = history.holding(gpu)
    held = holding is not None and holding.processes > 0
    unknown = gpu.utilization_gpu is None and gpu.memory_used is None and not held
    facts = [
        "utilisation unknown" if gpu.utilization_gpu is None else f"{gpu.utilization_gpu} % busy",
        f"memory used {gibibytes(gpu.memory_used)} {gib()}",
        "processes unknown" if holding is None else f"{count_processes(holding.processes)} on it",
    ]
    reason = not_free(history, gpu)
    filled = (gpu.memory_used or 0) > normal_unlisted(gpu, history.thresholds)
    start, short, brief = "unknown", "unknown", "unknown"
    if reason is not None and reason.kind == "mode":
        start, short, brief = reason.sentence, "no computing allowed", "no compute"
    elif held or gpu.utilization_gpu or filled:
        start, short, brief = "in use", "busy", "busy"
    return Finding(
        kind=FindingKind.UNKNOWN if unknown else FindingKind.WORKING,
        subject=gpu.uuid,
        severity=Severity.QUIET,
        sentence=f"{start}: {', '.join(facts)}",
        short=short,
        brief=brief,
        evidence=tuple(facts),
    )


def mig_state(history: History, gpu: Gpu, instance: MigInstance) -> Finding:
    """The state of a MIG device. Drivers do not report its utilisation."""
    reason = not_free(history, gpu, instance)
    kind, severity, short, brief = FindingKind.UNKNOWN, Severity.QUIET, "unknown", "unknown"
    if reason is None:
        kind, severity, short, brief = FindingKind.FREE, Severity.GOOD, "free", "free"
    elif reason.kind == "reserved":
        kind, severity, short, brief = FindingKind.RESERVED, Severity.NOTE, "reserved", "reserved"
    elif reason.kind == "memory" and instance.memory_used is not None:
        size = f"{gibibytes(instance.memory_used)}G"
        kind, severity = FindingKind.UNATTRIBUTED, Severity.NOTE
        short, brief = f"{size}, by nobody listed", f"{size} held"
    elif reason.kind == "processes" and history.holding(gpu) is not None:
        kind, short, brief = FindingKind.WORKING, "busy", "busy"
    return Finding(
        kind=kind,
        subject=instance.uuid,
        severity=severity,
        sentence=short if reason is None else reason.sentence,
        short=short,
        brief=brief,
    )


def lasting(
    history: History, gpu: Gpu, condition: str, seconds: float
) -> Interval | Literal[False] | None:
    """The interval of a condition that has lasted for so long, in enough samples.

    ``False`` if it has not, ``None`` if that is unknown: a value is unknown, or was so until the
    condition was seen again, which may have held meanwhile.
    """
    interval = history.interval(gpu.uuid, condition)
    if interval is None:
        return is_absent(history, gpu, condition)
    if rests(history, interval, seconds):
        return interval
    return False if interval.start_observed else None


def is_absent(history: History, gpu: Gpu, condition: str) -> Literal[False] | None:
    """``False`` if a condition does not hold, ``None`` if that is unknown."""
    return False if history.holds(gpu.uuid, condition) is False else None


def rests(history: History, interval: Interval, seconds: float) -> bool:
    """Whether an interval has lasted long enough, and has enough samples."""
    return interval.seconds >= seconds and interval.samples >= history.thresholds.least_samples
