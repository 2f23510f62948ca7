"""Faults: GPUs that do not respond, memory errors, error codes, and what the driver recommends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from gpumon.accidents import report_of
from gpumon.availability import MEMORY_FIELDS, memory_faults, recovery_action
from gpumon.findings.explanation import DEBUG, KERNEL, LOOK_IN_LOG, NVML, README, ExplanationText
from gpumon.findings.finding import SHORT_CELLS, FindingKind, Severity
from gpumon.findings.phrases import at_most, first_part, spaced, time_of_day
from gpumon.findings.rule import Rule, Words
from gpumon.model.accidents import SAME_SECONDS, AccidentKind
from gpumon.model.error_codes import error_code
from gpumon.model.makers import maker_of
from gpumon.model.snapshot import GpuStatus
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.findings.rule import Said
    from gpumon.model.error_codes import ErrorCode
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

_REPORT_IT = (
    "End the processes that still hold the GPU, then reboot. If it happens again, report the GPU."
)


class StatusRule(Rule):
    """A status of a GPU other than OK.

    The texts have ``{at}``, ``{since}``, ``{length}`` and ``{xid}``, which are empty if not known,
    and ``{reset}``.
    """

    sentence: ClassVar[str]
    short: ClassVar[str]
    brief: ClassVar[str]

    def say(self, history: History, gpu: Gpu) -> Said:
        if gpu.status is not self.status:
            return False
        reset = maker_of(gpu.name).reset
        how = "reboot once nothing uses it"
        if reset is not None:
            how = f"`{reset}` as root once nothing uses it, or a reboot"
        blanks = {"at": "", "since": "", "length": "", "xid": "", "reset": how}
        if gpu.status_since is not None:
            blanks |= _status_times(history, gpu.status_since)
        if gpu.xid is not None:
            blanks["xid"] = f" ({error_code(gpu.xid, gpu.name).label})"
        sentence = self.sentence.format_map(blanks)
        evidence: tuple[str, ...] = (f"status: {gpu.status.value}",)
        if gpu.xid is not None and self.severity is Severity.CRITICAL:
            code = error_code(gpu.xid, gpu.name)
            error = f"last {code.label}: {code.explanation}"
            at = "" if gpu.xid_at is None else f", at {time_of_day(history, gpu.xid_at)}"
            sentence, evidence = f"{sentence}; {error}", (*evidence, error + at, *advice_on([code]))
        short = self.short.format_map(blanks)
        return Words(sentence, short, self.brief, evidence, gpu.status_since)


class Lost(StatusRule):
    """The GPU is gone."""

    kind = FindingKind.LOST
    severity = Severity.CRITICAL
    other_names = ("gone",)
    status = GpuStatus.LOST
    sentence = "lost{since}: the driver reports that the GPU is gone"
    short = "LOST{at}{xid}"
    brief = "LOST"
    explanation = ExplanationText(
        "The driver can no longer reach the GPU. Programs that ran on it have failed.",
        ("a hardware fault", "its power or its slot", "a driver that crashed"),
        ("Look for the XID in the kernel log.", _REPORT_IT),
        DEBUG,
        f"{KERNEL}/drm-uapi, Device Hot-Unplug",
        (LOOK_IN_LOG, _REPORT_IT),
    )


class ResetRequired(StatusRule):
    """The GPU must be reset before it can be used."""

    kind = FindingKind.RESET_REQUIRED
    severity = Severity.CRITICAL
    other_names = ("reset",)
    status = GpuStatus.RESET_REQUIRED
    sentence = "must be reset before it can be used{since}: {reset}"
    short = "reset required{xid}"
    brief = "RESET"
    explanation = ExplanationText(
        "The GPU had an error that only a reset clears. Nothing can run on it until the reset.",
        ("a hardware fault, if it comes back after the reset",),
        ("Reset it once nothing uses it, or reboot. gpumon never resets a GPU.",),
        DEBUG,
    )


class NoAnswer(StatusRule):
    """A call to the GPU has not returned."""

    kind = FindingKind.NO_ANSWER
    severity = Severity.CRITICAL
    other_names = ("hangs",)
    status = GpuStatus.NO_ANSWER
    sentence = "no answer{length}: a call to the GPU has not returned"
    short = "no answer{length}"
    brief = "no answer"
    explanation = ExplanationText(
        "A call to the driver about this GPU has not returned. Its values are unknown.",
        ("the GPU is about to be lost", "a driver that is overloaded, or that waits for a reset"),
        ("Wait a minute, then look for an XID in the kernel log.",),
        "github.com/NVIDIA/open-gpu-kernel-modules/issues/1333",
        f"{KERNEL}/drm-uapi, Device reset",
        ("Wait a minute: the driver may be resetting the GPU.", LOOK_IN_LOG),
    )


class Failing(StatusRule):
    """Most calls fail with an error that names no cause."""

    kind = FindingKind.FAILING
    severity = Severity.WARNING
    status = GpuStatus.FAILING
    sentence = (
        "most calls to it have failed{length}, but the driver reports neither that it is lost nor "
        "that it must be reset"
    )
    short = "failing{length}"
    brief = "failing"
    explanation = ExplanationText(
        "Most calls about this GPU fail with an error that names no cause.",
        ("a GPU that is about to be lost", "a container that lost access to its devices"),
        ("Look for an XID in the kernel log.", "Restart the container, if it is one."),
        DEBUG,
        f"{KERNEL}/drm-uapi",
        (LOOK_IN_LOG, "Restart the container, if it is one."),
    )


class NoPermission(StatusRule):
    """This user or container may not open the GPU."""

    kind = FindingKind.NO_PERMISSION
    hides_memory = True
    sign = ("⊘", "this user may not open the GPU")
    status = GpuStatus.NO_PERMISSION
    sentence = "this user may not open the GPU, or this container was not given it"
    short = "no permission"
    brief = "no access"
    explanation = ExplanationText(
        "This user may not open the GPU, or this container was not given it.",
        (),
        ("Start the container with this GPU, or ask an administrator.",),
        "docs.nvidia.com/datacenter/cloud-native, NVIDIA_VISIBLE_DEVICES",
        f"{KERNEL}/drm-uapi, Render nodes",
        ("Ask for the group that owns /dev/dri/renderD*, often render or video.",),
    )


class Asleep(StatusRule):
    """The kernel powered the GPU down."""

    kind = FindingKind.ASLEEP
    hides_memory = True
    sign = ("◌", "asleep: powered down because nobody uses it")
    status = GpuStatus.ASLEEP
    sentence = "powered down while nobody uses it; gpumon does not wake it"
    short = brief = "asleep"
    explanation = ExplanationText(
        "The kernel powered the GPU down because nobody uses it. gpumon does not wake it.",
        (),
        ("Nothing: it wakes when a program uses it.",),
        "kernel.org, Documentation/power/runtime_pm",
    )


class Old(Rule):
    """The values are old although the GPU has no known fault.

    The sampling thread waits for the driver, or for a file of the kernel.
    """

    kind = FindingKind.OLD
    hides_memory = True
    is_permanent = True
    sign = ("◔", "old values: the driver has not returned")
    explanation = ExplanationText(
        "gpumon waits for the driver or for this machine. The values are from an earlier sample.",
        ("another GPU that does not answer", "a machine that is overloaded"),
        ("Look at the GPU that does not answer.",),
        README,
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        age = history.old(gpu)
        if age is None:
            return False
        length = spaced(age)
        return Words(
            f"values are {length} old; gpumon waits for the driver or for this machine",
            f"read {length} ago",
            f"{first_part(age)} ago",
            (f"newest values {length} old",),
            gpu.sampled_at,
        )


class MemoryErrors(Rule):
    """Memory errors, and what remains to be done about them.

    The next reset replaces a bad row or page; when no spare is left, the GPU should be returned.
    Until then the memory may fail again, so no job is sent there.
    """

    kind = FindingKind.MEMORY_ERRORS
    severity = Severity.WARNING
    other_names = ("ecc", "ecc errors")
    is_permanent = True
    explanation = ExplanationText(
        "Cells of the GPU's memory failed. The driver replaces them at the next reset.",
        ("memory that wears out, if it happens repeatedly",),
        (
            "Reset the GPU or reboot once nothing uses it.",
            "If no spare rows are left, return the GPU.",
        ),
        "docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt",
        f"{KERNEL}/amdgpu/ras",
        (LOOK_IN_LOG, "Drain the GPU, and reboot once nothing uses it."),
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        # Asked in any case: what a GPU reports is remembered by that.
        is_missing = history.is_missing(gpu, *MEMORY_FIELDS)
        faults = memory_faults(gpu)
        if not faults:
            return None if is_missing else False
        return Words(
            "; ".join(fault.sentence for fault in faults),
            at_most(faults[0].short, SHORT_CELLS),
            faults[0].brief,
            tuple(fault.evidence for fault in faults),
            severity=Severity.CRITICAL if gpu.remapped_rows_failure else Severity.WARNING,
        )


class Recovery(Rule):
    """The recovery action that the driver recommends."""

    kind = FindingKind.RECOVERY
    severity = Severity.WARNING
    is_permanent = True
    explanation = ExplanationText(
        "The driver recommends an action. Do not rely on the GPU before that.",
        (),
        ("Drain, reset or reboot, as the driver recommends, once nothing uses the GPU.",),
        f"{NVML}, nvmlDeviceGpuRecoveryAction_t",
    )
    _ACTIONS = ("reset", "reboot", "drain")

    def say(self, history: History, gpu: Gpu) -> Said:
        action = recovery_action(gpu)
        if action is None:
            return None if gpu.recovery_action is None else False
        word = next((word for word in self._ACTIONS if word in action.lower()), "recover")
        return Words(
            f"the driver recommends a recovery action: {action}",
            at_most(f"driver asks for: {action}", SHORT_CELLS),
            f"{word}!",
            (f"recovery action: {action}",),
        )


class ReportedXid(Rule):
    """An error code of a GPU that still responds.

    A hardware error stays, because it may be the reason why a job hangs hours later, and it comes
    before the errors of the programs that it ended. Current conditions such as heat come before it.
    """

    kind = FindingKind.XID
    severity = Severity.WARNING
    is_alert_state = False
    """For alerts XIDs are events."""
    is_permanent = True
    explanation = ExplanationText(
        "The driver reported an error of this GPU, or of a program on it.",
        ("a fault in the hardware, the driver or the program: look up the XID",),
        ("Look the number up in NVIDIA's catalogue of XIDs.",),
        "docs.nvidia.com/deploy/xid-errors",
    )
    after_program: ClassVar[float] = 600.0
    """Seconds for which an error that a program caused is reported: the GPU works after it, and a
    user who asks why a job ended asks soon."""
    after_past: ClassVar[float] = 86400.0
    """Seconds for which a hardware error from before gpumon was started is reported: the GPU may
    have been reset since."""

    def say(self, history: History, gpu: Gpu) -> Said:
        known = history.xids(gpu.uuid)
        newest_first = sorted(known.items(), key=lambda item: -(item[1] or 0))
        seen = [(error_code(number, gpu.name), at) for number, at in newest_first]
        own = [
            (error, at)
            for error, at in seen
            if not error.passing
            and (not is_of_the_past(history, at) or _age(history, at) <= self.after_past)
        ]
        recent = [
            (error, at)
            for error, at in seen
            if error.passing and _age(history, at) <= self.after_program
        ]
        reported = own + recent
        if not reported:
            return False
        error, at = reported[0]
        start = error.label if at is None else _with_time(history, error, at)
        errors = tuple(
            f"{_with_time(history, error, at)}: {error.explanation}" for error, at in reported
        )
        named = _named_process(history, gpu, error, at)
        return Words(
            f"the driver reported an error: {errors[0]}{named}",
            at_most(f"{start}: {error.meaning}" if error.meaning else start, SHORT_CELLS),
            error.label,
            (*errors, *advice_on(error for error, _ in reported)),
            at,
            Severity.WARNING if own else Severity.NOTE,
        )


class ReportedAccident(Rule):
    """A time-out or a reset that the kernel reported of a GPU that responds again.

    A user who asks why a job ended asks soon: the snapshots have it for ``ACCIDENT_SECONDS``.
    """

    kind = FindingKind.ACCIDENT
    is_alert_state = False
    """For alerts accidents are events."""
    is_permanent = True
    explanation = ExplanationText(
        (
            "The driver reset the GPU, or a program did not finish its work there in time. The GPU "
            "works again, but programs that ran on it may have ended."
        ),
        ("a program that hangs", "a fault of the hardware or the driver, if it happens again"),
        (
            (
                "Open the page of accidents (key x): it shows who was on the GPU and which "
                "processes left it."
            ),
            LOOK_IN_LOG,
        ),
        f"{KERNEL}/drm-uapi, Device reset",
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        accidents = () if history.latest is None else history.latest.accidents
        own = [
            accident
            for accident in accidents
            if accident.gpu_uuid == gpu.uuid and accident.kind is not AccidentKind.ERROR_CODE
        ]
        if not own:
            return False
        # A reset comes after the time-out that it is for, and is what ends the others' work.
        worst = max(own, key=lambda each: (each.kind is AccidentKind.RESET, each.time))
        report = report_of(worst, history.latest, None)
        at = time_of_day(history, worst.time)
        whose = f"; the kernel names {printable(report.whose)}" if worst.pid is not None else ""
        return Words(
            f"the kernel reported a {report.label} at {at}: {report.meaning}{whose}",
            f"{report.label} {at}",
            report.label,
            tuple(f"{time_of_day(history, each.time)} {printable(each.text)}" for each in own),
            worst.time,
        )


def _named_process(history: History, gpu: Gpu, error: ErrorCode, at: float | None) -> str:
    """The process that the kernel names with an error, as the end of a sentence."""
    if history.latest is None or at is None:
        return ""
    for accident in reversed(history.latest.accidents):
        if accident.gpu_uuid != gpu.uuid or abs(accident.time - at) > SAME_SECONDS:
            continue
        report = report_of(accident, history.latest, None)
        if report.label == error.label and accident.pid is not None:
            return f"; the kernel names {printable(report.whose)}"
    return ""


def undated_xid(gpu: Gpu) -> str | None:
    """The XID after which a GPU is not sound, in a sentence, where its time is unknown.

    Metrics have the last XID until the GPU is reset, so they do not show whether the fault is over.
    """
    if gpu.xid is None or gpu.xid_at is not None:
        return None
    error = error_code(gpu.xid, gpu.name)
    if error.passing:
        return None
    return f"{error.label} at an unknown time: {error.explanation}"


def is_of_the_past(history: History, at: float | None) -> bool:
    """Whether an XID was reported before gpumon was started: the kernel log has these too."""
    return at is not None and history.started is not None and at < history.started


def advice_on(errors: Iterable[ErrorCode]) -> Iterator[str]:
    """What to do about errors, each advice once, with the errors that it is for."""
    labels: dict[str, list[str]] = {}
    for error in errors:
        if error.advice is not None:
            labels.setdefault(error.advice, []).append(error.label)
    return (f"what to do about {', '.join(same)}: {advice}" for advice, same in labels.items())


def _age(history: History, at: float | None) -> float:
    """Seconds since an error; endless if its time is unknown."""
    return math.inf if at is None else history.now - at


def _with_time(history: History, error: ErrorCode, at: float | None) -> str:
    """An error with its time of day, or with its age if that is more than a day."""
    if at is None:
        return f"{error.label} at an unknown time"
    if history.now - at < 86400:
        return f"{error.label} at {time_of_day(history, at)}"
    return f"{error.label} {duration(history.now - at)} ago"


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
