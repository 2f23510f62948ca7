"""Checks of the drivers: loaded, consistent, responding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.doctor import check, failed, passed, unknown, warned
from gpumon.doctor.context import exists, resolved, unreadable
from gpumon.model.makers import Maker
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext

_SLOW_SECONDS = 5.0
"""Initialising eight GPUs without persistence mode takes longer than this; all else does not."""
GIVEN = {"vfio-pci", "pci-stub", "xen-pciback"}
"""Drivers that hold a GPU for a virtual machine."""
DRM_LOG = "amdgpu|i915|xe"
"""Matches the lines of AMD's and Intel's drivers in the kernel's log."""
_LIBRARY_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/run/opengl-driver/lib",
)
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
_NO_DRIVER = {
    Maker.AMD: "Run `sudo modprobe amdgpu`, then `sudo dmesg | grep amdgpu`: the kernel may be too "
    "old for the GPU, or its firmware (linux-firmware) missing.",
    Maker.INTEL: "Run `sudo dmesg | grep -E 'i915|xe'`: the kernel may be too old for the GPU, or "
    "its firmware (linux-firmware) missing.",
}
# The kernel parameters are those of CONFIG_DRM_AMDGPU_SI and CONFIG_DRM_AMDGPU_CIK in the kernel's
# ``drivers/gpu/drm/amd/amdgpu/Kconfig``.
_RADEON = (
    "The first two generations of GCN (HD 7000 to R9 290) work with amdgpu too: start the kernel "
    "with `radeon.si_support=0 amdgpu.si_support=1 radeon.cik_support=0 amdgpu.cik_support=1`. "
    "gpumon and ROCm cannot use older ones."
)


@check("GPUs on the bus")
def gpus_on_the_bus(context: DiagnosticContext) -> Result | None:
    """The GPUs of NVIDIA, AMD and Intel on the PCI bus, and the kernel driver of each.

    Read from ``/sys/bus/pci``.
    """
    if context.in_wsl:
        return passed("Windows controls the GPUs of this guest (WSL).")
    if not context.cards:
        if context.module_version is not None or context.gpus:
            return None  # On some chips the GPU is not on a PCI bus.
        return failed(
            "This machine has no GPU of NVIDIA, AMD or Intel on its PCI bus.",
            "The host must assign a GPU to a virtual machine. A GPU that was just installed may "
            "sit loose or lack power. `lspci -nn` lists what the kernel sees.",
        )
    own = context.cards_of(Maker.NVIDIA)
    details = tuple(card.line for card in context.cards)
    gpus = ", ".join(
        counted(number, f"{maker.value} GPU")
        for maker in Maker
        if (number := len(context.cards_of(maker)))
    )
    other = {card.driver for card in own}
    if "nouveau" in other or "nova_core" in other:
        taken = "nouveau" if "nouveau" in other else "nova_core"
        return failed(
            f"The kernel's own driver {taken} controls a GPU.",
            f"Install NVIDIA's driver and disable {taken}: write `blacklist {taken}` to a file in "
            "/etc/modprobe.d, then rebuild the initramfs and reboot.",
            *details,
        )
    idle = [card for card in own if card.driver is None]
    if idle and context.module_version is not None:
        return warned(
            f"{gpus}; {len(idle)} of NVIDIA's without a driver.",
            "Run `sudo dmesg | grep NVRM` to see why the driver refused the GPU: the driver may be "
            "too old for it, or the open kernel modules do not support it (before Turing).",
            *details,
        )
    given = [card for card in context.cards if card.driver in GIVEN]
    if given:
        return passed(f"{gpus}, {len(given)} of them reserved for virtual machines.", *details)
    return passed(f"{gpus}.", *(details if len(own) < len(context.cards) else ()))


@check("kernel module")
def kernel_module(context: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's kernel module is loaded: ``/proc/driver/nvidia/version``."""
    version = context.module_version
    if version is not None:
        text = context.machine.text("/proc/driver/nvidia/version") or ""
        kind = "open" if "Open Kernel Module" in text else "proprietary"
        return passed(f"{version}, {kind}.")
    if context.in_wsl:
        return None
    if exists(context.machine.path("/sys/module/nvidia")):
        return unknown("Loaded, but /proc does not report its version.")
    if not context.cards_of(Maker.NVIDIA):
        return None  # Reported already: there is no GPU.
    return failed(
        "The NVIDIA kernel module is not loaded.",
        "Run `sudo modprobe nvidia`. After a kernel upgrade rebuild the module with `sudo dkms "
        "autoinstall`. `sudo dmesg | grep -i nvidia` says why it does not load.",
    )


@check("driver library")
def library(context: DiagnosticContext) -> Result | None:
    """Whether ``libnvidia-ml.so.1`` is there, and of the version of the kernel module.

    Folders with stubs in ``LD_LIBRARY_PATH`` are found too.
    """
    if not context.expects_nvidia and not context.driver.library:
        return None
    stubs = [
        entry
        for entry in context.machine.environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry.rstrip("/").endswith("/stubs")
    ]
    if stubs:
        return failed(
            f"LD_LIBRARY_PATH contains {stubs[0]}: its libraries are stubs for linking.",
            "Remove that folder from LD_LIBRARY_PATH.",
        )
    if not context.driver.library:
        return failed(
            "The driver's library libnvidia-ml.so.1 was not found.",
            "Install the NVIDIA driver. For a container install the NVIDIA container toolkit, and "
            "start the container with its GPUs (--gpus all).",
        )
    version, module = context.driver.library_version, context.module_version
    if version is None:
        return unknown("libnvidia-ml.so.1 exists, but does not report its version.")
    if module is None:
        return passed(f"libnvidia-ml {version}.")
    if version != module:
        return failed(
            f"libnvidia-ml is {version}, but the loaded kernel module is {module}: the driver was "
            "upgraded while it was running.",
            "Reboot, or end every process on the GPUs and reload the nvidia modules. Start a "
            "container again.",
        )
    return passed(f"libnvidia-ml {version}, the same version as the kernel module.")


@check("CUDA library")
def cuda_library(context: DiagnosticContext) -> Result | None:
    """Whether ``libcuda.so.1``, which CUDA programs load, is of the version of the module."""
    if not context.driver.library:
        return None
    folders = (*context.machine.folders("LD_LIBRARY_PATH"), *_LIBRARY_FOLDERS)
    links = (context.machine.path(f"{folder}/libcuda.so.1") for folder in folders)
    link = next(filter(exists, links), None)
    if link is None:
        return unknown(
            "libcuda.so.1 is not in the usual folders.",
            "If programs do not find it either: start a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a host install the driver's CUDA part.",
            *unreadable(context.machine, ("LD_LIBRARY_PATH",)),
        )
    shown = context.machine.name(link)
    version = _version_of(link)
    module = context.module_version
    if version is None or module is None or version == module:
        return passed(f"{version or 'unknown version'}, {shown}.")
    if "compat" in str(resolved(link)):
        return passed(f"{version} in {shown}, NVIDIA's forward compatibility package.")
    return failed(
        f"{shown} is {version}, but the loaded kernel module is {module}: CUDA programs fail.",
        "Reboot after an upgrade of the driver. Otherwise remove the files of an earlier "
        "installation, or remove their folder from LD_LIBRARY_PATH.",
    )


def _version_of(link: Path) -> str | None:
    match = _VERSION.search(resolved(link).name)
    return match[1] if match else None


@check("AMD driver")
def amd_driver(context: DiagnosticContext) -> Result | None:
    """Whether AMD's GPUs have the driver ``amdgpu``, and its version.

    It finds the older ``radeon``, GPUs without a driver, and a changed parameter ``noretry``
    (XNACK).
    """
    return _driver(context, Maker.AMD)


@check("Intel driver")
def intel_driver(context: DiagnosticContext) -> Result | None:
    """Whether Intel's GPUs have the driver ``i915`` or ``xe``, not none; its version."""
    return _driver(context, Maker.INTEL)


def _driver(context: DiagnosticContext, maker: Maker) -> Result | None:
    cards = context.cards_of(maker)
    if not cards or context.in_wsl:
        return None
    details = [f"{card.slot}  {card.driver or 'no driver'}" for card in cards]
    drivers = dict.fromkeys(card.driver for card in cards if card.driver and card.shown_by_gpumon)
    versions = "; ".join(_version(context, driver) for driver in drivers)
    complain = warned if context.gpus else failed
    if any(card.driver == "radeon" for card in cards):
        return complain(
            "The old driver radeon controls a GPU: gpumon and ROCm need amdgpu.",
            _RADEON,
            *details,
        )
    idle = [card for card in cards if card.driver is None]
    if idle and context.gpus and all(card.integrated for card in idle):
        return passed("The processor's GPU has no driver, and is not used.", *details)
    if idle:
        return complain(
            f"{counted(len(idle), f'{maker.value} GPU')} without a driver.",
            _NO_DRIVER[maker],
            *details,
        )
    if not drivers:
        given = all(card.driver in GIVEN for card in cards)
        other = ", ".join(sorted({card.driver or "" for card in cards}))
        why = "reserved for virtual machines" if given else "gpumon does not read this driver"
        return passed(f"{other}: {why}.")
    return passed(f"{versions}.", *_parameters(context, drivers))


def _version(context: DiagnosticContext, driver: str) -> str:
    """The driver and its version: that of the kernel, unless it was installed apart (DKMS)."""
    own = (context.machine.text(f"/sys/module/{driver}/version") or "").strip()
    if own:
        return f"{driver} {own}, installed beside the kernel (DKMS)"
    release = (context.machine.text("/proc/sys/kernel/osrelease") or "").strip()
    return f"{driver}, part of Linux {release}" if release else f"{driver}, part of the kernel"


def _parameters(context: DiagnosticContext, drivers: dict[str, None]) -> list[str]:
    """Parameters of amdgpu that were changed and decide what programs may do."""
    retry = (context.machine.text("/sys/module/amdgpu/parameters/noretry") or "").strip()
    if "amdgpu" not in drivers or retry not in {"0", "1"}:
        return []
    # The kernel's ``Documentation/gpu/amdgpu/module-parameters.rst``.
    return [
        f"noretry={retry}: retries after page faults (XNACK) are {'off' if int(retry) else 'on'}"
    ]


@check("answer")
def answer(context: DiagnosticContext) -> Result | None:
    """Whether the drivers answer, how fast, and for how many of the GPUs on the bus."""
    if not context.driver.library and not any(card.shown_by_gpumon for card in context.cards):
        return None
    trouble, snapshot = context.driver.trouble, context.driver.snapshot
    if snapshot is None:
        sentence = "The driver does not answer." if trouble is None else trouble.sentence
        return failed(sentence, "" if trouble is None else trouble.advice)
    for maker in Maker:
        missing = _missing(context, maker)
        if missing and snapshot.host.in_container is False:
            return missing
    gpus = counted(len(snapshot.gpus), "GPU")
    seconds = context.driver.seconds
    if seconds > _SLOW_SECONDS:
        return warned(
            f"{gpus}, but it took {seconds:.0f} s to answer.",
            "Turn on persistence mode, which keeps the GPUs initialised. If it is on, a GPU may be "
            "faulty: run `sudo dmesg | grep NVRM`."
            if context.gpus_of(Maker.NVIDIA)
            else f"A GPU may be faulty: run `sudo dmesg | grep -E '{DRM_LOG}'`.",
        )
    return passed(f"{gpus}, in {seconds:.1f} s.")


def _missing(context: DiagnosticContext, maker: Maker) -> Result | None:
    """The result if the driver of a maker reports fewer GPUs than it controls."""
    if maker is Maker.NVIDIA and not context.driver.library:
        return None  # Reported already.
    reported = context.gpus_of(maker)
    cards = [card for card in context.cards_of(maker) if card.shown_by_gpumon]
    expected = len([card for card in cards if card not in context.hidden])
    if expected <= len(reported):
        return None
    label = "NVRM" if maker is Maker.NVIDIA else DRM_LOG
    whose = "" if len({gpu.maker for gpu in context.cards}) == 1 else f" of {maker.value}"
    return failed(
        f"The driver reports {counted(len(reported), 'GPU')}{whose}, but controls {expected} on "
        "the bus.",
        "A GPU may have fallen off the bus or failed to start: run `sudo dmesg | grep "
        f"{label if label.isalnum() else f'-E {label!r}'}` to see which one and why. It often "
        "needs a reboot.",
    )
