"""Calls of NVML through ``pynvml``: return codes, measured time, the call in progress.

Structures, constants, error codes and function pointers are those of ``pynvml``, NVIDIA's binding.
Its functions are not used: they raise, decode names as strict UTF-8 and do not retry a list that
grew, and a watchdog could not see which card a call is waiting for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import pynvml

from gpumon.sources import Call, CallGivenUpError

if TYPE_CHECKING:
    from gpumon.system.clock import Clock

LIBRARY = "libnvidia-ml.so.1"
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
"""Where Windows puts it for its Linux guests; the dynamic linker does not search there."""


Function = Callable[..., int]


def _missing(*_: object) -> int:
    """Stands in for a symbol that this library does not have."""
    return pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


class Library:
    """A loaded ``libnvidia-ml``.

    ``call`` is for one thread at a time, see ``Source``; everything else for any.

    Attributes:
        driver_seconds: Seconds spent inside ``call``.
        hanging: The cards whose call was given up and has not returned, and when it began.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._functions: dict[str, Function] = {}
        self._inside: list[Call] = []
        self.driver_seconds = 0.0
        self.hanging: dict[str, float] = {}

    def call(self, gpu_uuid: str | None, name: str, *arguments: object) -> int:
        """Call a function of the library.

        Args:
            gpu_uuid: The card it asks, for whoever watches it not come back.
            name: The function.
            arguments: ctypes values; a bare int is passed as a C int, so never a handle.

        Returns:
            Its code; ``FUNCTION_NOT_FOUND`` when this library has no such function.

        Raises:
            CallGivenUpError: It was given up before it returned.
        """
        return self.prepared(gpu_uuid, name, *arguments)()

    def prepared(self, gpu_uuid: str | None, name: str, *arguments: object) -> Callable[[], int]:
        """A ``call`` to make again and again: what is asked ten times a second costs half then."""
        function = self._functions.get(name) or self._find(name)
        monotonic = self._monotonic

        def call() -> int:
            since = monotonic()
            inside = self._inside = [Call(gpu_uuid, name, since)]
            code = function(*arguments)
            try:
                # Only one thread can take the call out of its list: this one, or ``give_up``.
                inside.pop()
            except IndexError:
                self.hanging.pop(gpu_uuid or "", None)
                raise CallGivenUpError from None
            self.driver_seconds += monotonic() - since
            return code

        return call

    def call_unseen(self, name: str, *arguments: object) -> int:
        """As ``call``, neither published nor measured: for a thread whose trade is waiting."""
        return (self._functions.get(name) or self._find(name))(*arguments)

    def has(self, name: str) -> bool:
        """Whether this library has the function at all."""
        return (self._functions.get(name) or self._find(name)) is not _missing

    def text(self, gpu_uuid: str | None, name: str, *arguments: object) -> tuple[int, str]:
        """Call a function that fills in a text.

        Returns:
            Its code, and the text with bytes that are no UTF-8 replaced: not safe to print.
        """
        buffer = ctypes.create_string_buffer(256)
        code = self.call(gpu_uuid, name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return code, buffer.value.decode(errors="replace")

    @property
    def current_call(self) -> Call | None:
        """The call that has not come back yet."""
        inside = self._inside.copy()
        return inside[0] if inside else None

    def give_up(self, call: Call) -> bool:
        """See ``Source.give_up``."""
        inside = self._inside
        if call.gpu_uuid is None or call not in inside.copy():
            return False
        self.hanging[call.gpu_uuid] = call.since
        try:
            inside.pop()
        except IndexError:
            # It returned at this moment.
            del self.hanging[call.gpu_uuid]
            return False
        return True

    def _find(self, name: str) -> Function:
        try:
            function: Function = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - the public functions raise and decode
        except pynvml.NVMLError:
            function = _missing
        self._functions[name] = function
        return function


def load_library(clock: Clock) -> Library:
    """Load the library the dynamic linker finds, else that of WSL.

    Raises:
        OSError: When there is none; the text says why each was refused.
    """
    if pynvml.nvmlLib is None:
        # By hand, because pynvml neither looks where WSL has the library nor says why it failed.
        try:
            pynvml.nvmlLib = ctypes.CDLL(LIBRARY)
        except OSError as searched:
            try:
                pynvml.nvmlLib = ctypes.CDLL(WSL_LIBRARY)
            except OSError:
                raise searched from None
    return Library(clock)
