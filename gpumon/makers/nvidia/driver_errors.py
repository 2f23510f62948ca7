"""The messages for a driver that cannot be reached: what is wrong, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pynvml

from gpumon.makers.nvidia.library import LIBRARY
from gpumon.model.snapshot import Trouble

if TYPE_CHECKING:
    from gpumon.makers.nvidia.library import Library

_MODULE_VERSION = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s")

NO_LIBRARY = Trouble(
    f"The NVIDIA driver's library {LIBRARY} was not found.",
    "Install the NVIDIA driver on this machine; a container needs the NVIDIA container toolkit "
    "and must be started with its GPUs (--gpus all).",
)

NO_GPUS = Trouble(
    "The NVIDIA driver is running, but it has no GPUs.",
    "`lspci -d 10de:` lists those of the machine, and `sudo dmesg | grep NVRM` shows what the "
    "driver reports about them; a container must be given its GPUs (--gpus all).",
)

NONE_CHOSEN = Trouble(
    "This machine has none of the selected GPUs.",
    "`nvidia-smi -L` lists its GPUs.",
)

_NOT_LOADED = Trouble(
    "The NVIDIA driver is not loaded.",
    "Load it with `sudo modprobe nvidia`; `sudo dmesg | grep -i nvidia` says why if it will not.",
)

NO_PERMISSION = Trouble(
    "You have no permission to use the NVIDIA driver.",
    "`ls -l /dev/nvidia*` shows who may: ask for the group named there, often video or render; "
    "a batch system grants the GPUs only inside a job.",
)


def trouble_of(code: int, library: Library, proc: str) -> Trouble:
    """The message for an error of NVML.

    Args:
        code: NVML's error code.
        library: The library, which knows its own version without a driver.
        proc: Where the process file system is mounted.
    """
    if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return _NOT_LOADED
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NO_LIBRARY
    if code in {pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_OPERATING_SYSTEM}:
        return NO_PERMISSION
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return _mismatch(library, proc)
    return Trouble(
        f"The NVIDIA driver does not answer (NVML error {code}: {pynvml.NVMLError(code)}).",
        "`sudo dmesg | grep NVRM` may say why; a container may have lost its devices, and needs "
        "to be started again.",
    )


def _mismatch(library: Library, proc: str) -> Trouble:
    ours = library_version(library) or "unknown"
    loaded = loaded_version(proc) or "unknown"
    return Trouble(
        "The NVIDIA driver was upgraded while it was running: "
        f"the library is version {ours}, the loaded kernel module {loaded}.",
        "Reboot, or end everything that uses the GPUs and reload the nvidia modules; then start "
        "gpumon again.",
    )


def loaded_version(proc: str = "/proc") -> str | None:
    """Version of the loaded kernel module; ``None`` if it is unknown.

    Args:
        proc: Where the process file system is mounted.
    """
    from pathlib import Path

    try:
        text = Path(proc, "driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _MODULE_VERSION.search(text)
    return match[1] if match else None


def library_version(library: Library) -> str | None:
    """The driver version of the library: NVML puts the major version of CUDA before it."""
    code, text = library.text(None, "nvmlSystemGetNVMLVersion")
    _, dot, version = text.partition(".")
    return None if code or not dot else version
