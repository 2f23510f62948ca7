"""Checks of the driver: loaded, consistent, responding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.doctor.messages import count
from gpumon.doctor.result import failed, passed, unknown, warned

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result

_SLOW_SECONDS = 5.0
"""Initialising eight cards without persistence mode takes longer than this; all else does not."""

_GIVEN = {"vfio-pci", "pci-stub", "xen-pciback"}
"""Drivers that hold a card for a virtual machine."""

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


def cards_on_the_bus(case: DiagnosticContext) -> Result | None:
    """Whether the machine has a GPU, and which driver it has."""
    name = "cards on the bus"
    if case.in_wsl:
        return passed(name, "Windows drives the cards of this guest (WSL).")
    if not case.slots:
        if case.module_version is not None or case.gpus:
            return None  # On some chips the GPU is not on a PCI bus.
        return failed(
            name,
            "This machine has no NVIDIA card on its PCI bus.",
            "A virtual machine must be given one by its host; a card that was just put in may sit "
            "loose or lack power. `lspci -d 10de:` lists what the kernel sees.",
        )
    drivers = {slot: _driver_of(case, slot) for slot in case.slots}
    details = tuple(f"{slot}  {driver or 'no driver'}" for slot, driver in drivers.items())
    cards = count(len(drivers), "NVIDIA card")
    other = sorted({driver for driver in drivers.values() if driver and driver != "nvidia"})
    if "nouveau" in other or "nova_core" in other:
        taken = "nouveau" if "nouveau" in other else "nova_core"
        return failed(
            name,
            f"The kernel's own driver {taken} has taken a card.",
            f"Install NVIDIA's driver and keep {taken} away: write `blacklist {taken}` to a file "
            "in /etc/modprobe.d, then renew the initramfs and reboot.",
            *details,
        )
    idle = [slot for slot, driver in drivers.items() if driver is None]
    if idle and case.module_version is not None:
        return warned(
            name,
            f"{cards}, {len(idle)} of them with no driver.",
            "`sudo dmesg | grep NVRM` says why the driver refused it: too old a driver for this "
            "card, or open kernel modules for one from before Turing.",
            *details,
        )
    given = [slot for slot, driver in drivers.items() if driver in _GIVEN]
    if given:
        return passed(name, f"{cards}, {len(given)} of them held for virtual machines.", *details)
    return passed(name, f"{cards}.")


def _driver_of(case: DiagnosticContext, slot: str) -> str | None:
    link = case.machine.path(f"/sys/bus/pci/devices/{slot}/driver")
    try:
        return link.readlink().name
    except OSError:
        return None


def kernel_module(case: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's kernel module is loaded."""
    name = "kernel module"
    version = case.module_version
    if version is not None:
        text = case.machine.text("/proc/driver/nvidia/version") or ""
        kind = "open" if "Open Kernel Module" in text else "proprietary"
        return passed(name, f"{version}, {kind}.")
    if case.in_wsl:
        return None
    if case.machine.path("/sys/module/nvidia").exists():
        return unknown(name, "Loaded, but /proc does not tell its version here.")
    if not case.slots:
        return None  # Reported already: there is no GPU.
    return failed(
        name,
        "The NVIDIA kernel module is not loaded.",
        "`sudo modprobe nvidia`; after a kernel upgrade the module must be built anew: `sudo dkms "
        "autoinstall` and `sudo dmesg | grep -i nvidia` say why it will not load.",
    )


def library(case: DiagnosticContext) -> Result:
    """The driver's library, and whether it matches the loaded module."""
    name = "driver library"
    stubs = [
        entry
        for entry in case.machine.environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry.rstrip("/").endswith("/stubs")
    ]
    if stubs:
        return failed(
            name,
            f"LD_LIBRARY_PATH holds {stubs[0]}: its libraries are stubs for linking.",
            "Take that folder out of LD_LIBRARY_PATH.",
        )
    if not case.driver.library:
        return failed(
            name,
            "The driver's library libnvidia-ml.so.1 was not found.",
            "Install the NVIDIA driver; a container needs the NVIDIA container toolkit and must be "
            "started with its cards (--gpus all).",
        )
    version, module = case.driver.library_version, case.module_version
    if version is None:
        return unknown(name, "libnvidia-ml.so.1 is there, but does not tell its version.")
    if module is None:
        return passed(name, f"libnvidia-ml {version}.")
    if version != module:
        return failed(
            name,
            f"libnvidia-ml is {version}, the loaded kernel module {module}: the driver was "
            "upgraded while it was running.",
            "Reboot, or end all that uses the cards and load the nvidia modules anew. A container "
            "must be started again.",
        )
    return passed(name, f"libnvidia-ml {version}, as the kernel module.")


def cuda_library(case: DiagnosticContext) -> Result | None:
    """The library through which CUDA programs reach the driver."""
    name = "CUDA library"
    if not case.driver.library:
        return None
    folders = [*case.machine.environ.get("LD_LIBRARY_PATH", "").split(":"), *_LIBRARY_FOLDERS]
    links = [
        case.machine.path(f"{folder}/libcuda.so.1") for folder in folders if folder.startswith("/")
    ]
    link = next((link for link in links if link.exists()), None)
    if link is None:
        return unknown(
            name,
            "libcuda.so.1 is in none of the usual folders.",
            "If programs do not find it either: a container must be given it "
            "(NVIDIA_DRIVER_CAPABILITIES=compute,utility), a machine needs the driver's CUDA part.",
        )
    shown = case.machine.name(link)
    version = _version_of(link)
    module = case.module_version
    if version is None or module is None or version == module:
        return passed(name, f"{version or 'there'}, {shown}.")
    if "compat" in str(link.resolve()):
        return passed(name, f"{version} in {shown}, NVIDIA's forward compatibility package.")
    return failed(
        name,
        f"{shown} is {version}, the loaded kernel module {module}: CUDA programs fail.",
        "Reboot after an upgrade of the driver; else remove what was left behind by an earlier "
        "installation, or take its folder out of LD_LIBRARY_PATH.",
    )


def _version_of(link: Path) -> str | None:
    match = _VERSION.search(link.resolve().name)
    return match[1] if match else None


def answer(case: DiagnosticContext) -> Result | None:
    """Whether the driver responds, and how fast."""
    name = "answer"
    if not case.driver.library:
        return None
    trouble, snapshot = case.driver.trouble, case.driver.snapshot
    if snapshot is None:
        sentence = "The driver does not answer." if trouble is None else trouble.sentence
        return failed(name, sentence, "" if trouble is None else trouble.advice)
    cards = count(len(snapshot.gpus), "card")
    expected = sum(_driver_of(case, slot) == "nvidia" for slot in case.slots)
    if snapshot.host.in_container is False and expected > len(snapshot.gpus):
        return failed(
            name,
            f"The driver reports {cards}; on the bus it drives {expected}.",
            "A card may have fallen off the bus or failed to start: `sudo dmesg | grep NVRM` says "
            "which and why. It often takes a reboot.",
        )
    seconds = case.driver.seconds
    if seconds > _SLOW_SECONDS:
        return warned(
            name,
            f"{cards}, but it took {seconds:.0f} s to answer.",
            "Persistence mode keeps the cards initialised; else something is wrong with a card: "
            "`sudo dmesg | grep NVRM`.",
        )
    return passed(name, f"{cards}, within {seconds:.1f} s.")
