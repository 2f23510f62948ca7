"""Checks of the GPUs: response, persistence mode, memory health."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.availability import memory_faults, recovery_action
from gpumon.doctor import CheckVerdict, check, failed, passed, unknown, warned
from gpumon.doctor.driver import DRM_LOG
from gpumon.findings.faults import advice_on
from gpumon.host.kernel_log import KMSG, KernelLog, journal_xids, slot_of
from gpumon.host.power import may_sleep
from gpumon.makers.maker_words import XID_CATALOGUE, error_code
from gpumon.model.makers import Maker, maker_of
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.text.formatting import counted, duration, index_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext
    from gpumon.host.kernel_log import Xid
    from gpumon.model.snapshot import Gpu

_MOST_LISTED = 8
"""Errors of the kernel's log."""
_WRONG = {
    GpuStatus.LOST: (CheckVerdict.FAIL, "fell off the bus"),
    GpuStatus.RESET_REQUIRED: (CheckVerdict.FAIL, "must be reset"),
    GpuStatus.FAILING: (CheckVerdict.FAIL, "fails"),
    GpuStatus.NO_ANSWER: (CheckVerdict.FAIL, "does not answer"),
    GpuStatus.NO_PERMISSION: (CheckVerdict.WARN, "denies you access"),
}
_LOST = {
    "NVIDIA": "Run `sudo dmesg | grep NVRM` to see what happened. To reset a GPU, end its "
    "processes, then run `sudo nvidia-smi --gpu-reset -i INDEX`.",
    "others": f"Run `sudo dmesg | grep -E '{DRM_LOG}'` to see what happened: these drivers reset a "
    "GPU themselves.",
}
_REBOOT = "A GPU that fell off the bus often needs a reboot."
_REPLACE = {
    "NVIDIA": "End what uses the GPU, then `sudo nvidia-smi --gpu-reset -i INDEX`: a reset "
    "replaces what is bad.",
    "others": "Reboot: the driver then leaves out bad pages of memory. If errors return, show the "
    "GPU's vendor the kernel's log.",
}


def _advice(texts: Mapping[str, str], gpus: Iterable[Gpu]) -> str:
    """What to do about GPUs of these makers."""
    kinds = {"NVIDIA" if maker_of(gpu.name) is Maker.NVIDIA else "others" for gpu in gpus}
    return " ".join(text for kind, text in texts.items() if kind in kinds)


def _gpus(gpus: Sequence[Gpu]) -> str:
    return f"GPU{'' if len(gpus) == 1 else 's'} {index_list(gpu.index for gpu in gpus)}"


@check("GPUs answer")
def answering(context: DiagnosticContext) -> Result | None:
    """Whether every GPU answers: lost, failing, reset required, no permission."""
    gpus = context.gpus
    if not gpus:
        return None
    wrong = [gpu for gpu in gpus if gpu.status in _WRONG]
    details = tuple(f"GPU {gpu.index} {_WRONG[gpu.status][1]}" for gpu in wrong)
    if any(_WRONG[gpu.status][0] is CheckVerdict.FAIL for gpu in wrong):
        return failed(
            f"{_gpus(wrong)} cannot be used.",
            f"{_advice(_LOST, wrong)} {_REBOOT}",
            *details,
        )
    if wrong:
        return warned(
            f"You may not use {_gpus(wrong)}.",
            "A batch system grants GPUs only to a job, a container only the GPUs it was started "
            "with. Otherwise see the check of the device files above.",
            *details,
        )
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        models.setdefault(gpu.name or "a GPU without a name", []).append(gpu)
    return passed(
        "All GPUs answer." if len(gpus) > 1 else "The GPU answers.",
        *(f"{index_list(gpu.index for gpu in same)}: {model}" for model, same in models.items()),
    )


@check("persistence mode")
def persistence(context: DiagnosticContext) -> Result | None:
    """Whether the first program on an unused GPU of NVIDIA must wait."""
    own = context.gpus_of(Maker.NVIDIA)
    if context.in_wsl or not own:
        return None
    sys = str(context.machine.path("/sys"))
    server = [
        gpu
        for gpu in own
        if gpu.status is GpuStatus.OK
        and not (gpu.pci_bus_id is not None and may_sleep(gpu.pci_bus_id, sys))
    ]
    if not server:
        return passed("Not needed: these GPUs power down while they are unused.")
    if all(gpu.persistence_mode is None for gpu in server):
        return unknown("The driver does not report it.")
    off = [gpu for gpu in server if gpu.persistence_mode is False]
    if not off:
        return passed("On.")
    return warned(
        f"Off on {_gpus(off)}: the first program on an unused GPU waits 1 to 3 s, and error "
        "counters and power limits are lost in between.",
        "Run `sudo systemctl enable --now nvidia-persistenced`, or, until the next reboot, `sudo "
        "nvidia-smi -pm 1`.",
    )


@check("GPU memory")
def memory_health(context: DiagnosticContext) -> Result | None:
    """ECC errors, rows and pages to be replaced, and the driver's recovery action."""
    gpus = [gpu for gpu in context.gpus if gpu.status is GpuStatus.OK]
    if not gpus:
        return None
    faults = [(gpu, fault) for gpu in gpus for fault in memory_faults(gpu)]
    asked = [(gpu, action) for gpu in gpus if (action := recovery_action(gpu)) is not None]
    details = (
        *(f"GPU {gpu.index}: {fault.sentence}" for gpu, fault in faults),
        *(f"GPU {gpu.index}: the driver asks for {action}" for gpu, action in asked),
    )
    broken = [gpu for gpu in gpus if gpu.remapped_rows_failure]
    if broken:
        return failed(
            f"Return {_gpus(broken)}: bad memory can no longer be replaced.",
            "Take the GPU out of use and show its vendor the output of `nvidia-smi -q`.",
            *details,
        )
    if details:
        indices = {gpu.index for gpu, _ in (*faults, *asked)}
        troubled = [gpu for gpu in gpus if gpu.index in indices]
        return warned(
            f"There were errors on {_gpus(troubled)}.", _advice(_REPLACE, troubled), *details
        )
    counters = {
        counter
        for gpu in gpus
        for counter in (
            gpu.ecc_uncorrected_volatile,
            gpu.remapped_rows_pending,
            gpu.retired_pages_pending,
        )
    }
    if counters == {None}:
        return unknown("These GPUs do not count memory errors (no ECC).")
    return passed("No uncorrected errors, nothing to replace.")


@check("work of the SMs")
def profiling(context: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's driver measures how much of a GPU works, and lets you read it.

    This is GPM, which Hopper and later GPUs have.
    """
    gpus = [gpu for gpu in context.gpus_of(Maker.NVIDIA) if gpu.status is GpuStatus.OK]
    if not gpus:
        return None
    reasons = {gpu.index: gpu.unknown.get("sm_active") for gpu in gpus}
    # One sample gives no value yet, but the reason is another one where the driver refuses it.
    can = [gpu for gpu in gpus if reasons[gpu.index] in {None, Unknown.NOT_READ}]
    refused = [gpu for gpu in gpus if reasons[gpu.index] is Unknown.NO_PERMISSION]
    failing = [gpu for gpu in gpus if reasons[gpu.index] is Unknown.NO_ANSWER]
    if refused:
        return warned(
            f"The driver denies it to you on {_gpus(refused)}.",
            "Run gpumon as root, or ask an administrator whether every user may read performance "
            "counters: that is the option NVreg_RestrictProfilingToAdminUsers=0 of the kernel "
            "module nvidia.",
        )
    if failing:
        return unknown(f"The driver did not answer for {_gpus(failing)}.")
    if not can:
        return unknown(
            "Not supported: GPM needs GPUs of the Hopper generation or later, and driver 520 or "
            "later.",
        )
    if len(can) == len(gpus):
        return passed("Available (GPM): the page of a GPU shows how much of it works.")
    return passed(f"Available (GPM) on {_gpus(can)}; the others do not support it.")


@check("reported errors")
def reported_errors(context: DiagnosticContext) -> Result | None:
    """XIDs, which are errors of NVIDIA's GPUs, with their meaning and what to do.

    They are in the kernel log: ``/dev/kmsg``, or where that may not be read the journal, which
    members of the group ``adm`` may read. Where neither can be read, the result has the reason.
    """
    if not context.gpus_of(Maker.NVIDIA) and not context.cards_of(Maker.NVIDIA):
        return None
    xids = _kernel_xids(context)
    if isinstance(xids, str):
        return unknown(xids, "Run `sudo dmesg | grep -i xid`.")
    if not xids:
        return passed("There is no XID in the kernel log.")
    details = _listed(xids, context)
    own = [xid for xid in xids if not error_code(xid.number).passing]
    if not own:
        caused = all(error_code(xid.number).by_program for xid in xids)
        rest = "" if caused else ", or that the driver dealt with"
        return passed(f"There are only errors that programs caused{rest}.", *details)
    return warned(
        f"The GPUs themselves caused {counted(len(own), 'XID')}.",
        f"Follow the advice for each; NVIDIA's XID catalogue ({XID_CATALOGUE}) has more.",
        *details,
    )


_LOG_LINES, _LOG_SECONDS = 1_000_000, 1.0


def _kernel_xids(context: DiagnosticContext) -> list[Xid] | str:
    """The XIDs since the machine started, oldest first, or why they are not known."""
    log = KernelLog(str(context.machine.path(KMSG)))
    try:
        return log.read(_LOG_LINES, _LOG_SECONDS)
    except OSError as error:
        in_journal = journal_xids() if context.machine.path("/") == Path("/") else None
        if in_journal is not None:
            return in_journal
        if isinstance(error, PermissionError):
            return (
                "You may not read the kernel log, which contains them: only root may "
                "(kernel.dmesg_restrict), and through journalctl members of the group adm."
            )
        if isinstance(error, FileNotFoundError):
            return f"There is no kernel log ({KMSG}) here, as in most containers: see the host."
        return f"The kernel log, which contains them, cannot be read: {error.strerror or error}."
    finally:
        log.close()


def _listed(xids: Sequence[Xid], context: DiagnosticContext) -> tuple[str, ...]:
    """The newest XID of each number and GPU, one line each, hardware errors first."""
    newest = {(xid.slot, xid.number): xid for xid in xids}
    counts = Counter((xid.slot, xid.number) for xid in xids)
    now = context.machine.uptime()
    ordered = sorted(newest.values(), key=lambda xid: (error_code(xid.number).passing, -xid.at))
    lines = []
    for xid in ordered[:_MOST_LISTED]:
        times = counts[xid.slot, xid.number]
        often = "" if times == 1 else f", {times} times"
        error = error_code(xid.number)
        lines.append(
            f"{_gpu_at(xid.slot, context.gpus)}: {error.label} {duration(now - xid.at)} ago"
            f"{often}: {error.explanation}"
        )
    if len(ordered) > _MOST_LISTED:
        lines.append(f"and {len(ordered) - _MOST_LISTED} more kinds")
    listed = dict.fromkeys(error_code(xid.number) for xid in ordered[:_MOST_LISTED])
    return (*lines, *advice_on(listed))


def _gpu_at(slot: str, gpus: Sequence[Gpu]) -> str:
    for gpu in gpus:
        if gpu.pci_bus_id is not None and slot_of(gpu.pci_bus_id) == slot:
            return f"GPU {gpu.index}"
    return slot


@check("asleep")
def asleep(context: DiagnosticContext) -> Result | None:
    """The GPUs that the kernel has powered down, which the check does not wake."""
    sleeping = [gpu for gpu in context.gpus if gpu.status is GpuStatus.ASLEEP]
    if not sleeping:
        return None
    return passed(
        f"{_gpus(sleeping)}: powered down until a program computes. gpumon does not wake a GPU, "
        "so most values are unknown.",
    )


@check("processor's GPU")
def processor_gpus(context: DiagnosticContext) -> Result | None:
    """GPUs of processors that gpumon leaves out beside another GPU."""
    if not context.hidden:
        return None
    names = ", ".join(f"{card.maker.value}'s at {card.slot}" for card in context.hidden)
    return passed(
        f"gpumon leaves out {names}, because there is another GPU. `gpumon --backend all` shows "
        "it too.",
    )
