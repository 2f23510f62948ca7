"""The driver's library: loading it, calling it, and why it cannot be reached.

Calls are those of ``pynvml``, NVIDIA's binding. ``Library`` publishes each one, so that a watchdog
sees which GPU it is waiting for, measures its time, and gives NVML's code in place of an exception.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.system.startup_imports import without_ctypes_util

with without_ctypes_util():
    import pynvml

from gpumon.makers.source import Call, CallGivenUpError, CallWatch
from gpumon.model.snapshot import Trouble
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
"""Its path in Linux guests of Windows; the dynamic linker does not search there."""

_PATIENCE = 2.0
"""Seconds for the driver's library to load and report its version. It need not ask the driver, but
a folder that does not answer can hold up loading."""
_MODULE_VERSION = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s")


class Library(CallWatch):
    """The functions of ``libnvidia-ml``, to be called once ``load_library`` has loaded it.

    Only one thread at a time may use it, see ``Source``. A call that was given up before it
    returned raises ``CallGivenUpError``. ``gpu_uuid`` is the GPU that is read, for the watchdog;
    ``None`` for the driver as a whole.
    """

    def reader(
        self, gpu_uuid: str | None, function: Callable[..., Any], *arguments: object
    ) -> Callable[[], Any]:
        """What calls a function of ``pynvml``, again and again. It raises ``NVMLError``."""
        return self._watched(gpu_uuid, function.__name__, function, *arguments)

    def ask(
        self, gpu_uuid: str | None, function: Callable[..., Any], *arguments: object
    ) -> tuple[int, Any]:
        """NVML's code for a function of ``pynvml``, and the value: ``None`` after an error."""
        try:
            return pynvml.NVML_SUCCESS, self.reader(gpu_uuid, function, *arguments)()
        except pynvml.NVMLError as error:
            return error.value, None

    def text(
        self, gpu_uuid: str | None, function: Callable[..., Any], *arguments: object
    ) -> tuple[int, str]:
        """As ``ask`` for a text, with invalid UTF-8 replaced: not safe to print."""
        code, text = self.ask(gpu_uuid, undecoded(function), *arguments)
        return code, "" if code else text.decode(errors="replace")

    def call(self, gpu_uuid: str | None, name: str, *arguments: object) -> int:
        """NVML's code for a function of C that ``pynvml`` lacks, or calls in another way.

        Args:
            gpu_uuid: The GPU that is read.
            name: The function.
            arguments: ctypes values; an ``int`` is passed as a C int, so it cannot be a handle.
        """
        return self.prepared(gpu_uuid, name, *arguments)()

    def prepared(self, gpu_uuid: str | None, name: str, *arguments: object) -> Callable[[], int]:
        """A ``call`` that is repeated with the same arguments."""
        try:
            function = c_function(name)
        except pynvml.NVMLError as error:
            return partial(int, error.value)
        return self._watched(gpu_uuid, name, function, *arguments)

    def _watched(
        self, gpu_uuid: str | None, name: str, function: Callable[..., T], *arguments: object
    ) -> Callable[[], T]:
        """As ``run``, inlined: this runs a thousand times a second."""
        monotonic = self._monotonic

        def call() -> T:
            since = monotonic()
            inside = self._inside = [Call(gpu_uuid, name, since)]
            try:
                return function(*arguments)
            finally:
                try:
                    # Only one thread can pop the call: this one, or ``give_up``.
                    inside.pop()
                except IndexError:
                    self.hanging.pop(gpu_uuid or "", None)
                    raise CallGivenUpError from None
                self.driver_seconds += monotonic() - since

        return call

    def has(self, name: str) -> bool:
        """Whether this library has a function."""
        try:
            return bool(c_function(name))
        except pynvml.NVMLError:
            return False


def c_function(name: str) -> Callable[..., int]:
    """The function of C. Raises ``NVMLError`` if this library lacks it."""
    return pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - pynvml keeps the pointers


def undecoded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``pynvml`` for a text, without its decoding, which fails for invalid UTF-8."""
    return function.__wrapped__  # type: ignore[attr-defined]  # what its decorator wraps


def nvmlDeviceGetMemoryInfo_v2(handle: object) -> Any:  # noqa: N802 - NVML's name, for the watchdog
    """``pynvml`` has one function for both versions."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)


def _renew_lock() -> None:
    """Give pynvml a new lock: a thread that does not live on in this child may hold the old one."""
    pynvml.libLoadLock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def load_library() -> None:
    """Load the library that the dynamic linker finds, else that of WSL.

    Raises:
        OSError: There is none; the text is the dynamic linker's reason.
    """
    if pynvml.nvmlLib is not None:
        return
    # pynvml itself does not search the path of WSL and hides the reason of a failure.
    try:
        pynvml.nvmlLib = ctypes.CDLL(LIBRARY)
    except OSError as searched:
        try:
            pynvml.nvmlLib = ctypes.CDLL(WSL_LIBRARY)
        except OSError:
            raise searched from None


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
    (
        "Load it with `sudo modprobe nvidia`; `sudo dmesg | grep -i nvidia` shows the reason if "
        "that fails."
    ),
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


def loaded_version(proc: str = THIS_SYSTEM.proc) -> str | None:
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
    ours = library_version(Library(THIS_SYSTEM.clock))
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
    return True, library_version(Library(THIS_SYSTEM.clock))


def library_version(library: Library) -> str | None:
    """The driver version of the library: NVML puts the major version of CUDA before it."""
    code, text = library.text(None, pynvml.nvmlSystemGetNVMLVersion)
    _, dot, version = text.partition(".")
    return None if code or not dot else version
