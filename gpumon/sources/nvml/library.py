"""The driver's own library, called by hand: raw codes, time measured, the present call published.

NVIDIA's Python binding is not called: its functions raise, decode names as strict UTF-8, look
missing symbols up anew each time and never retry a list that grew. What the library's structures
are is in ``structures``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

from gpumon.sources import Call, CallGivenUpError

if TYPE_CHECKING:
    from gpumon.clock import Clock

LIBRARY = "libnvidia-ml.so.1"
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
"""Where Windows puts it for its Linux guests; the dynamic linker does not search there."""


class Code(IntEnum):
    """What NVML's calls return: ``nvmlReturn_t`` of nvml.h, as far as gpumon tells them apart."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    VGPU_ECC_NOT_SUPPORTED = 22
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    UNKNOWN = 999


Function = Callable[..., int]


def _missing(*_: object) -> int:
    """Stands in for a symbol that this library does not have."""
    return Code.FUNCTION_NOT_FOUND


class Library:
    """A loaded ``libnvidia-ml``.

    ``call`` is for one thread at a time, see ``Source``; everything else for any.

    Attributes:
        driver_seconds: Seconds spent inside ``call``.
        hanging: The cards whose call was given up and has not returned, and when it began.
    """

    def __init__(self, loaded: ctypes.CDLL, clock: Clock) -> None:
        self._loaded = loaded
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
        function: Function = getattr(self._loaded, name, _missing)
        self._functions[name] = function
        return function


def load_library(clock: Clock) -> Library:
    """Load the library the dynamic linker finds, else that of WSL.

    Raises:
        OSError: When there is none; the text says why each was refused.
    """
    try:
        loaded = ctypes.CDLL(LIBRARY)
    except OSError as searched:
        try:
            loaded = ctypes.CDLL(WSL_LIBRARY)
        except OSError:
            raise searched from None
    return Library(loaded, clock)
