"""The messages for a driver that cannot be reached: what is wrong, and what to do."""

from __future__ import annotations

import re
import threading

import gpumon.makers.nvidia.pynvml_import  # noqa: F401 - pynvml takes 10 ms, not 34

# isort: split
import pynvml

from gpumon.makers.nvidia.library import LIBRARY, Library, load_library
from gpumon.model.snapshot import Trouble
from gpumon.system.clock import SystemClock

_PATIENCE = 2.0
"""Seconds for the driver's library to load and report its version. It need not ask the driver, but
a folder that does not answer can hold up loading."""
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


def driver_version(patience: float = _PATIENCE) -> str:
    """The version of NVIDIA's driver, or why there is none; within bounded time.

    It is that of the driver's library, which knows it without calling the driver: a driver that
    hangs, or GPUs that take seconds to initialise, do not matter.

    Args:
        patience: Maximum seconds.
    """
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(_driver_version()), daemon=True)
    asking.start()
    asking.join(patience)
    return (
        found[0] if found else f"NVIDIA driver: its library has not answered for {patience:.0f} s"
    )


def _driver_version() -> str:
    from pathlib import Path

    module = loaded_version()
    try:
        load_library()
    except OSError:
        loaded = "" if module is None else f"; the loaded kernel module is {module}"
        return f"no NVIDIA driver: its library {LIBRARY} was not found{loaded}"
    ours = library_version(Library(SystemClock()))
    driver = f"NVIDIA driver {ours or 'of unknown version'}"
    if module is not None:
        return driver if module == ours else f"{driver}, but the loaded kernel module is {module}"
    # Windows has the module of its guests; some containers hide the version of a loaded one.
    if Path("/dev/dxg").exists() or Path("/sys/module/nvidia").exists():
        return driver
    return f"{driver}, but its kernel module is not loaded"


def find_library() -> tuple[bool, str | None]:
    """Whether the dynamic linker finds the driver's library, and the version of its driver."""
    try:
        load_library()
    except OSError:
        return False, None
    return True, library_version(Library(SystemClock()))


def library_version(library: Library) -> str | None:
    """The driver version of the library: NVML puts the major version of CUDA before it."""
    code, text = library.text(None, "nvmlSystemGetNVMLVersion")
    _, dot, version = text.partition(".")
    return None if code or not dot else version
