"""Whether a GPU works: free, reserved, idle, stuck, or in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import (
    ASSUMED_FIELDS,
    NotFree,
    allocated_sentence,
    allocated_to_others,
    busy_sentence,
    is_busy_unlisted,
    listed_on,
    normal_unlisted,
    why_not_free,
)
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
from gpumon.findings.finding import BRIEF_CELLS, SHORT_CELLS, Finding, FindingKind, Severity
from gpumon.findings.phrases import (
    all_of,
    at_most,
    count_processes,
    first_part,
    in_container,
    spaced,
)
from gpumon.findings.rule import LastingRule, Rule, Words, bound
from gpumon.findings.speed import LIST_HYSTERESIS, jobs_on
from gpumon.model.allocations import allocations_of, unplaced_of
from gpumon.recording.history import Condition, Interval
from gpumon.text.formatting import cell_width, counted, duration, gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.availability import Listed
    from gpumon.findings.finding import Answer
    from gpumon.findings.rule import HeldFor, Said
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Gpu, MigInstance, Reserved
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History, Holding

IDLE_SIGN = ("◐", "idle while a process holds memory")
NO_LOAD = "no load"
"""The condition of a GPU on which nothing runs."""
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
                f"so in {all_of(held.samples, 'sample')}",
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
    sign = ("◎", "busy, though the driver lists no process")
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

    def say(self, history: History, gpu: Gpu, held: HeldFor) -> Said:
        if not gpu.utilization_gpu:
            return False if history.holds(gpu.uuid, self.kind.value) is False else None
        contained = in_container(history)
        lasting = f"for {held}" if held.lasted else "at this moment"
        return Words(
            f"{busy_sentence(gpu.utilization_gpu, in_container=contained)}, {lasting}",
            "busy, by nobody visible here" if contained else "busy, by nobody listed",
            "busy, by ?",
            (
                f"utilisation {gpu.utilization_gpu} %",
                "no process in the driver's list",
                f"memory used {gibibytes(gpu.memory_used)} {gib()}",
            ),
        )


class Allocated(LastingRule):
    """A scheduler has given the GPU to a job: it is not free, whether the job uses it or not."""

    kind = FindingKind.ALLOCATED
    hides_memory = True
    is_normal_use = True
    sign = ("◈", "given to a job by a scheduler such as Slurm")
    explanation = ExplanationText(
        "A scheduler has given the GPU to a job, so that it is not free even while nothing runs "
        "on it. After an hour without a process (`unused_after`) it is a warning.",
        (
            "a job that prepares its data on the CPU, or has ended its work on the GPU",
            "a shell that somebody left open in a job",
            "a job that asked for more GPUs than it uses",
        ),
        ("Ask the owner to end the job, or to ask for fewer GPUs: `scancel`, `--gres`.",),
        "slurm.schedmd.com, scontrol and gres.conf",
    )
    after = 0.0

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        return {
            **super().conditions(thresholds),
            NO_LOAD: Condition(bound(self.has_no_load, thresholds)),
        }

    def holds(self, holding: Holding) -> bool:
        """Whether no process computes on it: a history tracks no allocations."""
        return holding.computing == 0

    def has_no_load(self, utilization_gpu: int) -> bool:
        """Whether nothing runs on it, by whomever it is held."""
        return utilization_gpu == 0

    def answer(self, history: History, gpu: Gpu) -> Answer:
        """See ``Rule.answer``."""
        latest = history.latest
        if latest is None or not latest.allocations:
            return False
        certain = allocations_of(latest.allocations, gpu)
        if certain:
            return self._finding(gpu.uuid, self._certain(history, gpu, certain))
        unsure = allocated_to_others(latest.allocations, gpu, history.now)
        holding = history.holding(gpu)
        if unsure is None or (holding is not None and holding.computing):
            return False
        labels = [printable(each.label) for each in unplaced_of(latest.allocations)]
        short = at_most(f"perhaps {labels[0]}'s", SHORT_CELLS)
        brief = at_most(f"{latest.allocations[0].scheduler}?", BRIEF_CELLS)
        return self._finding(gpu.uuid, Words(unsure.sentence, short, brief))

    def _certain(self, history: History, gpu: Gpu, certain: Sequence[Allocation]) -> Words:
        first = certain[0]
        more = f" +{len(certain) - 1}" if len(certain) > 1 else ""
        sentence = allocated_sentence(first, history.now)
        evidence = tuple(allocated_sentence(each, history.now) for each in certain)
        unused = self._unused(history, gpu, first)
        if unused is None:
            left = None if first.until is None else max(0.0, first.until - history.now)
            end = "" if left is None else f", free in ≤ {first_part(left)}"
            name = at_most(printable(first.label), SHORT_CELLS - len(more) - len(end))
            return Words(
                sentence,
                f"{name}{more}{end}",
                "allocated" if left is None else f"≤ {first_part(left)}",
                evidence,
                first.since,
                Severity.QUIET,
            )
        since, is_least = unused
        seconds = history.now - since
        length = f"{'≥' if is_least else ''}{first_part(seconds)}"
        end = f"{more}, no process {length}"
        name = at_most(printable(first.owned_label), SHORT_CELLS - cell_width(end))
        long = seconds >= history.thresholds.unused_after
        least = "at least " if is_least else ""
        return Words(
            f"{sentence}; no process has computed on it for {least}{spaced(seconds)}",
            f"{name}{end}",
            f"unused {length}" if len(length) <= 3 else "unused",
            (*evidence, "no process computes on it"),
            since,
            Severity.WARNING if long else Severity.NOTE,
        )

    def _unused(
        self, history: History, gpu: Gpu, allocation: Allocation
    ) -> tuple[float, bool] | None:
        """Since when no process of the job computes on it, and whether that may be longer."""
        interval = history.interval(gpu.uuid, self._condition)
        if interval is None:
            return None
        started = allocation.since
        if started is not None and started >= interval.since:
            return min(started, history.now), False
        return interval.since, not interval.start_observed


class Reservation(Rule):
    """``gpumon run`` has reserved the GPU.

    A user who looks for a free one must see that before the job runs.
    """

    kind = FindingKind.RESERVED
    hides_memory = True
    is_normal_use = True
    sign = ("◆", "reserved by gpumon run for a job")
    explanation = ExplanationText(
        "`gpumon run` keeps the GPU for a job that is about to start or runs.",
        (),
        ("Select another GPU, or wait: `gpumon wait`.",),
        "docs/run.md of gpumon",
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        held = reservations(history, gpu)
        if not held:
            return False
        first = held[0]
        holding = history.holding(gpu)
        quiet = holding is not None and bool(holding.processes)
        by = "" if first.user is None else f" by {printable(first.user)}"
        since = "" if first.since is None else f" {duration(history.now - first.since)}"
        more = f" +{len(held) - 1}" if len(held) > 1 else ""
        room = SHORT_CELLS - len("reserved") - len(since) - len(more)
        what = "reserved" if first.mig_uuid is None else "a MIG device of it is reserved"
        length = f" for{since}" if since else ""
        return Words(
            f"{what}{by}{length}: gpumon run keeps it for a job",
            f"reserved{at_most(by, room)}{since}{more}",
            "reserved",
            tuple(map(_reservation_text, held)),
            first.since,
            Severity.QUIET if quiet else Severity.NOTE,
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
        "The GPU is in use, and nothing else about it is worth knowing.", (), (ASK_OWNER,), README
    )


class StateUnknown(InUse):
    """The driver reports nothing to judge by."""

    kind = FindingKind.UNKNOWN
    sign = ("?", "unknown: the driver reports nothing to judge by")
    explanation = ExplanationText(
        "The driver reports nothing to judge by.",
        ("a GPU in MIG mode, or of a kind that reports little",),
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


def reservations(history: History, gpu: Gpu) -> Sequence[Reserved]:
    """The reservations of a GPU and of its MIG devices."""
    latest = history.latest
    return () if latest is None else [held for held in latest.reserved if held.gpu_uuid == gpu.uuid]


def _reservation_text(reserved: Reserved) -> str:
    if reserved.pid is None:
        return "its lock is held by a process that cannot be seen here"
    command = f": {printable(reserved.command)}" if reserved.command else ""
    return f"gpumon run {reserved.pid}{command}"


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
