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
"""Initialising eight GPUs without persistence mode takes longer than this; all else does not."""

_GIVEN = {"vfio-pci", "pci-stub", "xen-pciback"}
"""Drivers that hold a GPU for a virtual machine."""

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
    """Whether the machine has a GPU, and which driver it has."""
    name = "GPUs on the bus"
    if case.in_wsl:
        return passed(name, "Windows controls the GPUs of this guest (WSL).")
    if not case.slots:
        if case.module_version is not None or case.gpus:
            return None  # On some chips the GPU is not on a PCI bus.
        return failed(
            name,
            "This machine has no NVIDIA GPU on its PCI bus.",
            "The host must assign a GPU to a virtual machine. A GPU that was just installed may "
            "sit loose or lack power. `lspci -d 10de:` lists what the kernel sees.",
        )
    drivers = {slot: _driver_of(case, slot) for slot in case.slots}
    details = tuple(f"{slot}  {driver or 'no driver'}" for slot, driver in drivers.items())
    gpus = count(len(drivers), "NVIDIA GPU")
    other = sorted({driver for driver in drivers.values() if driver and driver != "nvidia"})
    if "nouveau" in other or "nova_core" in other:
        taken = "nouveau" if "nouveau" in other else "nova_core"
        return failed(
            name,
            f"The kernel's own driver {taken} controls a GPU.",
            f"Install NVIDIA's driver and disable {taken}: write `blacklist {taken}` to a file in "
            "/etc/modprobe.d, then rebuild the initramfs and reboot.",
            *details,
        )
    idle = [slot for slot, driver in drivers.items() if driver is None]
    if idle and case.module_version is not None:
        return warned(
            name,
            f"{gpus}, {len(idle)} of them without a driver.",
            "Run `sudo dmesg | grep NVRM` to see why the driver refused the GPU: the driver may be "
            "too old for it, or the open kernel modules do not support it (before Turing).",
            *details,
        )
    given = [slot for slot, driver in drivers.items() if driver in _GIVEN]
    if given:
        return passed(
            name, f"{gpus}, {len(given)} of them reserved for virtual machines.", *details
        )
    return passed(name, f"{gpus}.")


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
        return unknown(name, "Loaded, but /proc does not report its version.")
    if not case.slots:
        return None  # Reported already: there is no GPU.
    return failed(
        name,
        "The NVIDIA kernel module is not loaded.",
        "Run `sudo modprobe nvidia`. After a kernel upgrade rebuild the module with `sudo dkms "
        "autoinstall`. `sudo dmesg | grep -i nvidia` says why it does not load.",
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
            f"LD_LIBRARY_PATH contains {stubs[0]}: its libraries are stubs for linking.",
            "Remove that folder from LD_LIBRARY_PATH.",
        )
    if not case.driver.library:
        return failed(
            name,
            "The driver's library libnvidia-ml.so.1 was not found.",
            "Install the NVIDIA driver. For a container install the NVIDIA container toolkit, and "
            "start the container with its GPUs (--gpus all).",
        )
    version, module = case.driver.library_version, case.module_version
    if version is None:
        return unknown(name, "libnvidia-ml.so.1 exists, but does not report its version.")
    if module is None:
        return passed(name, f"libnvidia-ml {version}.")
    if version != module:
        return failed(
            name,
            f"libnvidia-ml is {version}, but the loaded kernel module is {module}: the driver was "
            "upgraded while it was running.",
            "Reboot, or end every process on the GPUs and reload the nvidia modules. Start a "
            "container again.",
        )
    return passed(name, f"libnvidia-ml {version}, the same version as the kernel module.")


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
            "libcuda.so.1 is not in the usual folders.",
            "If programs do not find it either: start a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a host install the driver's CUDA part.",
        )
    shown = case.machine.name(link)
    version = _version_of(link)
    module = case.module_version
    if version is None or module is None or version == module:
        return passed(name, f"{version or 'unknown version'}, {shown}.")
    if "compat" in str(link.resolve()):
        return passed(name, f"{version} in {shown}, NVIDIA's forward compatibility package.")
    return failed(
        name,
        f"{shown} is {version}, but the loaded kernel module is {module}: CUDA programs fail.",
        "Reboot after an upgrade of the driver. Otherwise remove the files of an earlier "
        "installation, or remove their folder from LD_LIBRARY_PATH.",
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
    gpus = count(len(snapshot.gpus), "GPU")
    expected = sum(_driver_of(case, slot) == "nvidia" for slot in case.slots)
    if snapshot.host.in_container is False and expected > len(snapshot.gpus):
        return failed(
            name,
            f"The driver reports {gpus}, but controls {expected} on the bus.",
            "A GPU may have fallen off the bus or failed to start: run `sudo dmesg | grep NVRM` to "
            "see which one and why. It often needs a reboot.",
        )
    seconds = case.driver.seconds
    if seconds > _SLOW_SECONDS:
        return warned(
            name,
            f"{gpus}, but it took {seconds:.0f} s to answer.",
            "Turn on persistence mode, which keeps the GPUs initialised. If it is on, a GPU may be "
            "faulty: run `sudo dmesg | grep NVRM`.",
        )
    return passed(name, f"{gpus}, in {seconds:.1f} s.")
