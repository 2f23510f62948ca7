"""Checks of GPUs and drivers: on the bus, responding, sound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import memory_faults, recovery_action
from gpumon.doctor import CheckVerdict, check, checks_of, failed, passed, unknown, warned
from gpumon.makers.drm.cards import drm_drivers
from gpumon.model.makers import makers, makers_of
from gpumon.model.snapshot import GpuStatus
from gpumon.text.formatting import counted, index_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext
    from gpumon.model.makers import Maker
    from gpumon.model.snapshot import Gpu

_SLOW_SECONDS = 5.0
"""Initialising eight GPUs without persistence mode takes longer than this; all else does not."""
GIVEN = {"vfio-pci", "pci-stub", "xen-pciback"}
"""Drivers that hold a GPU for a virtual machine."""
_WRONG = {
    GpuStatus.LOST: (CheckVerdict.FAIL, "fell off the bus"),
    GpuStatus.RESET_REQUIRED: (CheckVerdict.FAIL, "must be reset"),
    GpuStatus.FAILING: (CheckVerdict.FAIL, "fails"),
    GpuStatus.NO_ANSWER: (CheckVerdict.FAIL, "does not answer"),
    GpuStatus.NO_PERMISSION: (CheckVerdict.WARN, "denies you access"),
}
_REBOOT = "A GPU that fell off the bus often needs a reboot."


def drm_log() -> str:
    """Matches the lines of the DRM drivers in the kernel's log."""
    return "|".join(drm_drivers())


@check("GPUs on the bus")
def gpus_on_the_bus(context: DiagnosticContext) -> Result | None:
    """The GPUs of all makers on the PCI bus, and the kernel driver of each.

    Read from ``/sys/bus/pci``.
    """
    if context.in_wsl:
        return passed("Windows controls the GPUs of this guest (WSL).")
    if not context.cards:
        if context.gpus or any(checks_of(maker).is_loaded(context) for maker in makers()):
            return None  # On some chips the GPU is not on a PCI bus.
        *names, last = [maker.name for maker in makers()]
        return failed(
            f"This machine has no GPU of {', '.join(names)} or {last} on its PCI bus.",
            "The host must assign a GPU to a virtual machine. A GPU that was just installed may "
            "sit loose or lack power. `lspci -nn` lists what the kernel sees.",
        )
    details = tuple(card.line for card in context.cards)
    gpus = ", ".join(
        counted(number, f"{maker.name} GPU")
        for maker in makers()
        if (number := len(context.cards_of(maker)))
    )
    for maker in makers():
        if (fault := checks_of(maker).fault_on_bus(context, gpus, details)) is not None:
            return fault
    given = [card for card in context.cards if card.driver in GIVEN]
    if given:
        return passed(f"{gpus}, {len(given)} of them reserved for virtual machines.", *details)
    worth_listing = any(card.maker.is_drm for card in context.cards)
    return passed(f"{gpus}.", *(details if worth_listing else ()))


@check("answer")
def answer(context: DiagnosticContext) -> Result | None:
    """Whether the drivers answer, how fast, and for how many of the GPUs on the bus."""
    if not context.driver.libraries and not any(card.shown_by_gpumon for card in context.cards):
        return None
    trouble, snapshot = context.driver.trouble, context.driver.snapshot
    if snapshot is None:
        sentence = "The driver does not answer." if trouble is None else trouble.sentence
        return failed(sentence, "" if trouble is None else trouble.advice)
    for maker in makers():
        missing = _missing(context, maker)
        if missing and snapshot.host.in_container is False:
            return missing
    gpus = counted(len(snapshot.gpus), "GPU")
    seconds = context.driver.seconds
    if seconds > _SLOW_SECONDS:
        advice = [checks_of(maker).slow for maker in makers() if context.gpus_of(maker)]
        usual = f"A GPU may be faulty: run `sudo dmesg | grep -E '{drm_log()}'`."
        return warned(
            f"{gpus}, but it took {seconds:.0f} s to answer.",
            next(filter(None, advice), usual),
        )
    return passed(f"{gpus}, in {seconds:.1f} s.")


def _missing(context: DiagnosticContext, maker: Maker) -> Result | None:
    """The result if the driver of a maker reports fewer GPUs than it controls."""
    has_library = checks_of(maker).find_library is not None
    if has_library and maker.name not in context.driver.libraries:
        return None  # Reported already.
    reported = context.gpus_of(maker)
    cards = [card for card in context.cards_of(maker) if card.shown_by_gpumon]
    expected = len([card for card in cards if card not in context.hidden])
    if expected <= len(reported):
        return None
    label = maker.log_pattern or drm_log()
    whose = "" if len({gpu.maker for gpu in context.cards}) == 1 else f" of {maker.name}"
    return failed(
        f"The driver reports {counted(len(reported), 'GPU')}{whose}, but controls {expected} on "
        "the bus.",
        "A GPU may have fallen off the bus or failed to start: run `sudo dmesg | grep "
        f"{label if label.isalnum() else f'-E {label!r}'}` to see which one and why. It often "
        "needs a reboot.",
    )


def gpu_names(gpus: Sequence[Gpu]) -> str:
    """``GPU 3``, ``GPUs 0-3, 5``."""
    return f"GPU{'' if len(gpus) == 1 else 's'} {index_list(gpu.index for gpu in gpus)}"


def _makers_of(gpus: Sequence[Gpu]) -> list[Maker]:
    """The makers of GPUs, in the order of makers."""
    return sorted(makers_of(gpus), key=makers().index)


@check("GPUs answer")
def answering(context: DiagnosticContext) -> Result | None:
    """Whether every GPU answers: lost, failing, reset required, no permission."""
    gpus = context.gpus
    if not gpus:
        return None
    wrong = [gpu for gpu in gpus if gpu.status in _WRONG]
    details = tuple(f"GPU {gpu.index} {_WRONG[gpu.status][1]}" for gpu in wrong)
    if any(_WRONG[gpu.status][0] is CheckVerdict.FAIL for gpu in wrong):
        lost = " ".join(dict.fromkeys(checks_of(maker).lost for maker in _makers_of(wrong)))
        return failed(
            f"{gpu_names(wrong)} cannot be used.",
            f"{lost} {_REBOOT}",
            *details,
        )
    if wrong:
        return warned(
            f"You may not use {gpu_names(wrong)}.",
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
            f"Return {gpu_names(broken)}: bad memory can no longer be replaced.",
            "Take the GPU out of use and show its vendor the output of `nvidia-smi -q`.",
            *details,
        )
    if details:
        indices = {gpu.index for gpu, _ in (*faults, *asked)}
        troubled = [gpu for gpu in gpus if gpu.index in indices]
        replace = " ".join(
            dict.fromkeys(checks_of(maker).replace for maker in _makers_of(troubled))
        )
        return warned(f"There were errors on {gpu_names(troubled)}.", replace, *details)
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


@check("asleep")
def asleep(context: DiagnosticContext) -> Result | None:
    """The GPUs that the kernel has powered down, which the check does not wake."""
    sleeping = [gpu for gpu in context.gpus if gpu.status is GpuStatus.ASLEEP]
    if not sleeping:
        return None
    return passed(
        f"{gpu_names(sleeping)}: powered down until a program computes. gpumon does not wake a "
        "GPU, so most values are unknown.",
    )


@check("processor's GPU")
def processor_gpus(context: DiagnosticContext) -> Result | None:
    """Integrated GPUs that gpumon leaves out because there is another GPU."""
    if not context.hidden:
        return None
    names = ", ".join(f"{card.maker.name}'s at {card.slot}" for card in context.hidden)
    return passed(
        f"gpumon leaves out {names}, because there is another GPU. `gpumon --backend all` shows "
        "it too.",
    )
