"""Whether a GPU works: free, idle, stuck, or in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import (
    ASSUMED_FIELDS,
    NotFree,
    allocated_to_others,
    busy_sentence,
    is_busy_unlisted,
    listed_on,
    normal_unlisted,
    why_not_free,
)
from gpumon.findings.allocated import reservations
from gpumon.findings.explanation import (
    AS_ROOT,
    ASK_OWNER,
    END_IF_YOURS,
    KERNEL,
    NVML,
    README,
    SMI_PROCESSES,
    USAGE_SOURCE,
    ExplanationText,
)
from gpumon.findings.faults import undated_xid
from gpumon.findings.finding import Finding, FindingKind, Severity
from gpumon.findings.phrases import (
    all_of,
    count_processes,
    in_container,
)
from gpumon.findings.rule import LastingRule, Rule, Words
from gpumon.findings.speed import LIST_HYSTERESIS, jobs_on
from gpumon.recording.history import Interval
from gpumon.text.formatting import counted, gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.availability import Listed
    from gpumon.findings.rule import HeldFor, Said
    from gpumon.model.snapshot import Gpu, MigInstance
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History, Holding

IDLE_SIGN = ("◐", "idle while a process holds memory")
OWNERLESS_SECONDS = 10.0
"""Seconds for which memory or utilisation must have no owner: process lists are read less often
than these values."""


class Stuck(LastingRule):
    """Fully busy at low power for long: this may be a hung job, but need not be.

    Utilisation is the share of time in which any kernel ran, so a kernel that only waits reads as
    100 %. The low power shows that it computes nothing.
    """

    kind = FindingKind.STUCK
    severity = Severity.WARNING
    other_names = ("hung", "hung job")
    holder_first = True
    exported_briefs = ("stuck?",)
    explanation = ExplanationText(
        "A kernel runs all the time, but draws too little power to compute much. A hung job "
        "looks like this: a kernel that waits for others counts as running.",
        (
            "a collective that waits for a slower or a dead rank",
            "a light job with many small kernels",
        ),
        (
            "See whether the job still writes output.",
            "Look for the rank that does not take part: `py-spy dump` shows where it waits.",
        ),
        f"{NVML}, nvmlUtilization_t",
        f"{KERNEL}/amdgpu/thermal, gpu_busy_percent",
    )

    def least_seconds(self, thresholds: Thresholds) -> float:
        return thresholds.stuck_after

    def holds(
        self, thresholds: Thresholds, utilization_gpu: int, power_draw: float, power_limit: float
    ) -> bool | None:
        if not power_limit:
            return None
        is_busy = utilization_gpu >= thresholds.stuck_utilization
        return is_busy and power_draw < thresholds.stuck_power_share * power_limit

    def say(
        self, held: HeldFor, utilization_gpu: int, power_draw: float, power_limit: float
    ) -> Said:
        if not power_limit:
            return None
        share = f"{100 * power_draw / power_limit:.0f}"
        return Words(
            f"{utilization_gpu} % busy at {share} % of its power limit for {held}: a hung job can "
            "look like this",
            held.after(f"stuck? {utilization_gpu}% at {share}% power, "),
            "stuck?",
            (
                f"utilisation {utilization_gpu} %",
                f"power {power_draw:.0f} W of {power_limit:.0f} W",
                f"like this in {all_of(held.samples, 'sample')}",
            ),
        )


class Idle(LastingRule):
    """A computing process holds the GPU, but nothing has run for a while.

    A process that started after the GPU fell idle is not blamed for the time before: the duration
    counts from the start of the named process.
    """

    kind = FindingKind.IDLE
    sign = IDLE_SIGN
    holder_first = True
    explanation = ExplanationText(
        "A computing process holds the GPU, and no kernel has run for a while.",
        (
            "a notebook that was left open",
            "a job that reads data or saves a checkpoint",
            "a server without requests",
        ),
        (END_IF_YOURS,),
        f"{NVML}, nvmlUtilization_t",
        USAGE_SOURCE,
    )
    shows_at_once = True

    def least_seconds(self, thresholds: Thresholds) -> float:
        return thresholds.idle_after

    def holds(self, holding: Holding, utilization_gpu: int) -> bool:
        return utilization_gpu == 0 and holding.computing > 0

    def relevant(self, history: History, gpu: Gpu, interval: Interval) -> Interval | None:
        """From the start of the process that is named."""
        holding = history.holding(gpu)
        if holding is None or not holding.owners:
            return None
        since = holding.owner_since
        if since is None or since <= interval.since:
            return interval
        samples = history.gpu_series(gpu.uuid).samples("utilization_gpu", since)
        return Interval(since, interval.last, start_observed=True, samples=samples)

    def say(self, held: HeldFor, holding: Holding) -> Said:
        owner = holding.owners[0]
        others = f" +{len(holding.owners) - 1}" if len(holding.owners) > 1 else ""
        unseen = "a process not visible here" if holding.hidden else "a process that has ended"
        who = unseen if owner is None else printable(owner)
        size = "memory" if holding.memory is None else f"{gibibytes(holding.memory)} {gib()}"
        state = f"idle for {held}" if held.lasted else "0 % busy at this moment"
        return Words(
            f"{state} while {who}{others} holds {size}",
            f"idle {held.short}" if held.lasted else "0% now",
            f"idle {held.brief}" if held.lasted else "0% now",
            (
                f"utilisation 0 % in {all_of(held.samples, 'sample')}",
                f"{count_processes(holding.processes)} on it, with {size}",
            ),
        )


class IdleInJob(LastingRule):
    """A GPU does nothing while its job works on most of its other GPUs."""

    kind = FindingKind.IDLE_IN_JOB
    sign = IDLE_SIGN
    holder_first = True
    explanation = ExplanationText(
        "The job works on its other GPUs and not on this one.",
        (
            "a rank that hangs, or ended without the others",
            "work that is divided unevenly, such as a pipeline or an evaluation on one GPU",
            "a program that uses fewer GPUs than it opened",
        ),
        (
            "Look at the process of this GPU: its state, its CPU use, its output.",
            "If the job does not need the GPU, give it fewer: {variable}.",
        ),
        "docs.pytorch.org, torch.distributed, Debugging",
    )
    after = 60.0
    """Data loading and checkpoints pause for less."""
    hysteresis = LIST_HYSTERESIS

    def holds(self, holding: Holding, utilization_gpu: int) -> bool | None:
        return holding.left_out if utilization_gpu == 0 else False

    def say(self, history: History, gpu: Gpu, held: HeldFor) -> Said:
        if gpu.utilization_gpu:
            return False
        here = [job for job in jobs_on(history, gpu) if len(job.gpus) > 1]
        job = max(here, key=lambda job: len(job.gpus), default=None)
        if job is None:
            return None
        others = ", ".join(str(index) for index in job.gpus if index != gpu.index)
        return Words(
            f"idle for {held} while its job, {job.label}, works on GPU {others}: its part may "
            "hang, or have nothing to do",
            f"idle {held.short}, its job works",
            f"idle {held.brief}",
            (
                f"utilisation 0 % in {counted(held.samples, 'sample')}",
                (
                    f"{job.label}: {count_processes(len(job.processes))} on GPU "
                    f"{', '.join(map(str, job.gpus))}, with kernels on most of the others"
                ),
            ),
        )


class BusyUnlisted(LastingRule):
    """Something runs although no process is listed: the driver does not say whose it is.

    Utilisation covers the last second and the list is read less often, so the condition must have
    lasted.
    """

    kind = FindingKind.BUSY_UNLISTED
    sign = ("◎", "busy, but the driver lists no process")
    explanation = ExplanationText(
        "Kernels run, but the driver lists no process.",
        ("a process in another container", "a process that ended a moment ago"),
        ("Do not count on the GPU being free.",),
        SMI_PROCESSES,
        USAGE_SOURCE,
        (AS_ROOT, "Do not count on the GPU being free."),
    )
    after = OWNERLESS_SECONDS
    least_samples = 0
    shows_at_once = True
    assumed = ("display_active",)

    def holds(self, gpu: Gpu, holding: Holding) -> bool | None:
        return is_busy_unlisted(gpu, holding)

    def say(self, history: History, gpu: Gpu, held: HeldFor, utilization_gpu: int) -> Said:
        contained = in_container(history)
        lasting = f"for {held}" if held.lasted else "at this moment"
        return Words(
            f"{busy_sentence(utilization_gpu, in_container=contained)}, {lasting}",
            "busy, by nobody visible here" if contained else "busy, by nobody listed",
            "busy, by ?",
            (
                f"utilisation {utilization_gpu} %",
                "no process in the driver's list",
                f"memory used {gibibytes(gpu.memory_used)} {gib()}",
            ),
        )


class Free(Rule):
    """The GPU is free by the rule of ``availability.why_not_free``, which the commands use too.

    If the utilisation is never reported, as in MIG mode, memory and processes decide, and the
    sentence says so; without a list of processes, as in metrics, memory and utilisation.
    """

    kind = FindingKind.FREE
    severity = Severity.GOOD
    is_event = True
    explanation = ExplanationText(
        "No process computes on the GPU, its memory is empty, and it is neither allocated to a job "
        "nor reserved.",
        (),
        ("Use it: `gpumon run` reserves it for your job.",),
        "docs/select.md of gpumon",
    )
    assumed = ASSUMED_FIELDS

    def say(self, history: History, gpu: Gpu) -> Said:
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
        used = f"memory used {gibibytes(gpu.memory_used)} {gib()}"
        return Words(f"free: {what}; {busy}", "free", "free", (who, used, busy))


class InUse(Rule):
    """A GPU without any other finding: busy, or not known to be free."""

    severity = Severity.QUIET
    is_alert_state = False
    is_fallback = True

    def say(self, history: History, gpu: Gpu) -> Said:
        holding = history.holding(gpu)
        held = holding is not None and holding.processes > 0
        is_unknown = gpu.utilization_gpu is None and gpu.memory_used is None and not held
        if is_unknown is not (self.kind is FindingKind.UNKNOWN):
            return False
        evidence = (
            "utilisation unknown"
            if gpu.utilization_gpu is None
            else f"{gpu.utilization_gpu} % busy",
            f"memory used {gibibytes(gpu.memory_used)} {gib()}",
            "processes unknown"
            if holding is None
            else f"{count_processes(holding.processes)} on it",
        )
        reason = not_free(history, gpu)
        filled = (gpu.memory_used or 0) > normal_unlisted(gpu)
        start, short, brief = "unknown", "unknown", "unknown"
        if reason is not None and reason.kind == "mode":
            start, short, brief = reason.sentence, "no computing allowed", "no compute"
        elif held or gpu.utilization_gpu or filled:
            start, short, brief = "in use", "busy", "busy"
        return Words(f"{start}: {', '.join(evidence)}", short, brief, evidence)


class Working(InUse):
    """The GPU is in use."""

    kind = FindingKind.WORKING
    exported_briefs = ("busy", "no compute", "unknown")
    explanation = ExplanationText(
        "The GPU is in use. There is nothing else to report.", (), (ASK_OWNER,), README
    )


class StateUnknown(InUse):
    """The driver reports too few values to determine the state."""

    kind = FindingKind.UNKNOWN
    sign = ("?", "unknown: the driver reports too few values to determine the state")
    explanation = ExplanationText(
        "The driver reports too few values to determine the state.",
        ("a GPU in MIG mode, or a model that reports few values",),
        ("The page of the GPU says why each value is unknown.",),
        README,
    )


def not_free(history: History, gpu: Gpu, mig: MigInstance | None = None) -> NotFree | None:
    """Why a GPU, or a MIG device of it, is not free in the newest snapshot."""
    return next(_reasons_not_free(history, gpu, mig), None)


def _reasons_not_free(
    history: History, gpu: Gpu, mig: MigInstance | None = None
) -> Iterator[NotFree]:
    listed: Listed | None = history.holding(gpu)
    reserved = reservations(history, gpu)
    if mig is not None:
        reserved = [each for each in reserved if each.mig_uuid in {None, mig.uuid}]
        if listed is not None and history.latest is not None:
            listed = listed_on(history.latest.processes, gpu, mig)
    yield from why_not_free(
        gpu,
        listed,
        mig=mig,
        allocated=_allocated(history, gpu, mig),
        reserved=bool(reserved),
        old=history.old(gpu) is not None,
        in_container=in_container(history),
    )
    if (sentence := undated_xid(gpu)) is not None:
        yield NotFree("health", sentence)


def _allocated(history: History, gpu: Gpu, mig: MigInstance | None) -> NotFree | None:
    latest = history.latest
    if latest is None or not latest.allocations:
        return None
    return allocated_to_others(latest.allocations, gpu, history.now, mig)


def mig_state(history: History, gpu: Gpu, instance: MigInstance) -> Finding:
    """The state of a MIG device. Drivers do not report its utilisation."""
    reason = not_free(history, gpu, instance)
    kind, severity, short, brief = FindingKind.UNKNOWN, Severity.QUIET, "unknown", "unknown"
    if reason is None:
        kind, severity, short, brief = FindingKind.FREE, Severity.GOOD, "free", "free"
    elif reason.kind == "allocated":
        kind, severity = FindingKind.ALLOCATED, Severity.NOTE
        short, brief = "allocated", "allocated"
        if reason.is_unknown:
            short, brief = "perhaps allocated", "perhaps"
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
