"""Checks of the driver: loaded, consistent, responding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.doctor.machine import exists, resolved, unreadable
from gpumon.doctor.result import failed, passed, unknown, warned
from gpumon.model.makers import Maker
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result

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


def gpus_on_the_bus(case: DiagnosticContext) -> Result | None:
    """The GPUs of the machine, and whether NVIDIA's have NVIDIA's driver."""
    if case.in_wsl:
        return passed("Windows controls the GPUs of this guest (WSL).")
    if not case.cards:
        if case.module_version is not None or case.gpus:
            return None  # On some chips the GPU is not on a PCI bus.
        return failed(
            "This machine has no GPU of NVIDIA, AMD or Intel on its PCI bus.",
            "The host must assign a GPU to a virtual machine. A GPU that was just installed may "
            "sit loose or lack power. `lspci -nn` lists what the kernel sees.",
        )
    own = case.cards_of(Maker.NVIDIA)
    details = tuple(card.line for card in case.cards)
    gpus = ", ".join(
        counted(number, f"{maker.value} GPU")
        for maker in Maker
        if (number := len(case.cards_of(maker)))
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
    if idle and case.module_version is not None:
        return warned(
            f"{gpus}; {len(idle)} of NVIDIA's without a driver.",
            "Run `sudo dmesg | grep NVRM` to see why the driver refused the GPU: the driver may be "
            "too old for it, or the open kernel modules do not support it (before Turing).",
            *details,
        )
    given = [card for card in case.cards if card.driver in GIVEN]
    if given:
        return passed(f"{gpus}, {len(given)} of them reserved for virtual machines.", *details)
    return passed(f"{gpus}.", *(details if len(own) < len(case.cards) else ()))


def kernel_module(case: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's kernel module is loaded."""
    version = case.module_version
    if version is not None:
        text = case.machine.text("/proc/driver/nvidia/version") or ""
        kind = "open" if "Open Kernel Module" in text else "proprietary"
        return passed(f"{version}, {kind}.")
    if case.in_wsl:
        return None
    if exists(case.machine.path("/sys/module/nvidia")):
        return unknown("Loaded, but /proc does not report its version.")
    if not case.slots:
        return None  # Reported already: there is no GPU.
    return failed(
        "The NVIDIA kernel module is not loaded.",
        "Run `sudo modprobe nvidia`. After a kernel upgrade rebuild the module with `sudo dkms "
        "autoinstall`. `sudo dmesg | grep -i nvidia` says why it does not load.",
    )


def library(case: DiagnosticContext) -> Result | None:
    """The library of NVIDIA's driver, and whether it matches the loaded module."""
    if not case.expects_nvidia and not case.driver.library:
        return None
    stubs = [
        entry
        for entry in case.machine.environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry.rstrip("/").endswith("/stubs")
    ]
    if stubs:
        return failed(
            f"LD_LIBRARY_PATH contains {stubs[0]}: its libraries are stubs for linking.",
            "Remove that folder from LD_LIBRARY_PATH.",
        )
    if not case.driver.library:
        return failed(
            "The driver's library libnvidia-ml.so.1 was not found.",
            "Install the NVIDIA driver. For a container install the NVIDIA container toolkit, and "
            "start the container with its GPUs (--gpus all).",
        )
    version, module = case.driver.library_version, case.module_version
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


def cuda_library(case: DiagnosticContext) -> Result | None:
    """The library through which CUDA programs reach the driver."""
    if not case.driver.library:
        return None
    folders = [*case.machine.environ.get("LD_LIBRARY_PATH", "").split(":"), *_LIBRARY_FOLDERS]
    links = [
        case.machine.path(f"{folder}/libcuda.so.1") for folder in folders if folder.startswith("/")
    ]
    link = next((link for link in links if exists(link)), None)
    if link is None:
        return unknown(
            "libcuda.so.1 is not in the usual folders.",
            "If programs do not find it either: start a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a host install the driver's CUDA part.",
            *unreadable(case.machine, ("LD_LIBRARY_PATH",)),
        )
    shown = case.machine.name(link)
    version = _version_of(link)
    module = case.module_version
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


def answer(case: DiagnosticContext) -> Result | None:
    """Whether the drivers respond, and how fast."""
    if not case.driver.library and not any(card.shown_by_gpumon for card in case.cards):
        return None
    trouble, snapshot = case.driver.trouble, case.driver.snapshot
    if snapshot is None:
        sentence = "The driver does not answer." if trouble is None else trouble.sentence
        return failed(sentence, "" if trouble is None else trouble.advice)
    for maker in Maker:
        missing = _missing(case, maker)
        if missing and snapshot.host.in_container is False:
            return missing
    gpus = counted(len(snapshot.gpus), "GPU")
    seconds = case.driver.seconds
    if seconds > _SLOW_SECONDS:
        return warned(
            f"{gpus}, but it took {seconds:.0f} s to answer.",
            "Turn on persistence mode, which keeps the GPUs initialised. If it is on, a GPU may be "
            "faulty: run `sudo dmesg | grep NVRM`."
            if case.gpus_of(Maker.NVIDIA)
            else f"A GPU may be faulty: run `sudo dmesg | grep -E '{DRM_LOG}'`.",
        )
    return passed(f"{gpus}, in {seconds:.1f} s.")


def _missing(case: DiagnosticContext, maker: Maker) -> Result | None:
    """The result if the driver of a maker reports fewer GPUs than it controls."""
    if maker is Maker.NVIDIA and not case.driver.library:
        return None  # Reported already.
    reported = case.gpus_of(maker)
    cards = [card for card in case.cards_of(maker) if card.shown_by_gpumon]
    expected = len([card for card in cards if card not in case.hidden])
    if expected <= len(reported):
        return None
    label = "NVRM" if maker is Maker.NVIDIA else DRM_LOG
    whose = "" if len({gpu.maker for gpu in case.cards}) == 1 else f" of {maker.value}"
    return failed(
        f"The driver reports {counted(len(reported), 'GPU')}{whose}, but controls {expected} on "
        "the bus.",
        "A GPU may have fallen off the bus or failed to start: run `sudo dmesg | grep "
        f"{label if label.isalnum() else f'-E {label!r}'}` to see which one and why. It often "
        "needs a reboot.",
    )
