"""Calls NVML through ``pynvml``: return codes, measured time, the call in progress.

Structures, constants, error codes and function pointers are those of ``pynvml``, NVIDIA's binding.
Its functions are not used: they raise, decode names as strict UTF-8 and do not retry a list that
grew, and a watchdog could not see which GPU a call is waiting for.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import gpumon.makers.nvidia.pynvml_import  # noqa: F401 - pynvml takes 10 ms, not 34

# isort: split
import pynvml

from gpumon.makers.source import Call, CallGivenUpError, CallWatch

if TYPE_CHECKING:
    from gpumon.system.clock import Clock

LIBRARY = "libnvidia-ml.so.1"
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
"""Its path in Linux guests of Windows; the dynamic linker does not search there."""


Function = Callable[..., int]


def _missing(*_: object) -> int:
    """Replaces a function that this library does not have."""
    return pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


class Library(CallWatch):
    """The functions of ``libnvidia-ml``, to be called once ``load_library`` has loaded it.

    Only one thread at a time may use ``call``, see ``Source``.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._functions: dict[str, Function] = {}

    def call(self, gpu_uuid: str | None, name: str, *arguments: object) -> int:
        """Call a function of the library.

        Args:
            gpu_uuid: The GPU it reads, for the watchdog; ``None`` for the driver as a whole.
            name: The function.
            arguments: ctypes values; an ``int`` is passed as a C int, so it cannot be a handle.

        Returns:
            Its code; ``FUNCTION_NOT_FOUND`` if this library has no such function.

        Raises:
            CallGivenUpError: It was given up before it returned.
        """
        return self.prepared(gpu_uuid, name, *arguments)()

    def prepared(self, gpu_uuid: str | None, name: str, *arguments: object) -> Callable[[], int]:
        """A ``call`` that is repeated: it costs half as much, which counts ten times a second.

        The same as ``CallWatch.run``, inlined.
        """
        function = self._functions.get(name) or self._find(name)
        monotonic = self._monotonic

        def call() -> int:
            since = monotonic()
            inside = self._inside = [Call(gpu_uuid, name, since)]
            code = function(*arguments)
            try:
                # Only one thread can pop the call: this one, or ``give_up``.
                inside.pop()
            except IndexError:
                self.hanging.pop(gpu_uuid or "", None)
                raise CallGivenUpError from None
            self.driver_seconds += monotonic() - since
            return code

        return call

    def call_unmeasured(self, name: str, *arguments: object) -> int:
        """As ``call``, but neither published nor measured: for a thread that waits for events."""
        return (self._functions.get(name) or self._find(name))(*arguments)

    def has(self, name: str) -> bool:
        """Whether this library has a function."""
        return (self._functions.get(name) or self._find(name)) is not _missing

    def text(self, gpu_uuid: str | None, name: str, *arguments: object) -> tuple[int, str]:
        """Call a function that fills in a text.

        Returns:
            Its code, and the text with invalid UTF-8 replaced: not safe to print.
        """
        buffer = ctypes.create_string_buffer(256)
        code = self.call(gpu_uuid, name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return code, buffer.value.decode(errors="replace")

    def _find(self, name: str) -> Function:
        try:
            function: Function = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - the public functions raise and decode
        except pynvml.NVMLError:
            function = _missing
        self._functions[name] = function
        return function


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
