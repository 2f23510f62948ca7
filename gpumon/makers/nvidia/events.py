"""Receives XIDs, the driver's reports of GPU errors, on a thread of its own."""

from __future__ import annotations

import ctypes
import math
import threading
from ctypes import byref, c_ulonglong
from typing import TYPE_CHECKING, Any

import pynvml

from gpumon.makers.nvidia.queries import pause_after
from gpumon.makers.nvidia.xid_reports import XidOrigin

if TYPE_CHECKING:
    from gpumon.makers.nvidia.library import Library
    from gpumon.makers.nvidia.xid_reports import XidReports
    from gpumon.system.clock import Clock

THREAD = "gpumon-xid"

_WAIT_MILLISECONDS = 500
_PAUSE_SECONDS = 5.0


class XidWatcher:
    """Waits for XIDs, from ``start`` to ``stop``.

    It initialises NVML a second time (NVML counts its users) and shuts it down when its thread
    ends, so that ``stop`` need not wait for a thread that hangs in the driver.

    Args:
        library: The driver's library.
        clock: Clock, for tests.
        reports: Where it reports them.
    """

    def __init__(self, library: Library, clock: Clock, reports: XidReports) -> None:
        self._library = library
        self._clock = clock
        self._stopped = threading.Event()
        self._gpus: dict[int, str] = {}
        self._has_library = False
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._reports = reports

    def start(self, gpus: dict[int, str]) -> None:
        """Start to wait for XIDs of these GPUs; see ``watch``."""
        self.watch(gpus)
        self._take_library()
        self._thread.start()

    def watch(self, gpus: dict[int, str]) -> None:
        """Replace the GPUs: UUIDs by the value of their handles."""
        if gpus != self._gpus:
            self._gpus = gpus

    def stop(self, timeout: float = 0.0) -> None:
        """End the thread, which takes up to half a second.

        Args:
            timeout: Seconds to wait for that.
        """
        self._stopped.set()
        if timeout and self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._has_library:
            if self._stopped.wait(_PAUSE_SECONDS):
                return
            self._take_library()
        events: ctypes.c_void_p | None = None
        gpus: dict[int, str] = {}
        heard, refusals, code = 0, 0, int(pynvml.NVML_SUCCESS)
        while not self._stopped.is_set():
            before = heard
            refusals = refusals + 1 if gpus is self._gpus else 1
            gpus = self._gpus
            newer = ctypes.c_void_p()
            if self._library.call_unmeasured("nvmlEventSetCreate", byref(newer)):
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            heard = self._register(gpus, newer)
            # Not before the new set is registered, so that no event in between is lost.
            self._free(events)
            events = newer
            if code == pynvml.NVML_ERROR_GPU_IS_LOST and heard == before:
                # The lost GPU can still be registered: waiting for it would return at once.
                self._stopped.wait(_WAIT_MILLISECONDS / 1000)
            refused = len(gpus) - heard
            again_in = pause_after(refusals, answered=False) if refused else math.inf
            code = self._wait_for(events, gpus, heard, again_in)
            if code not in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_GPU_IS_LOST}:
                self._stopped.wait(_PAUSE_SECONDS)
        self._free(events)
        self._library.call_unmeasured("nvmlShutdown")

    def _take_library(self) -> None:
        self._has_library = not self._library.call_unmeasured("nvmlInit_v2")

    def _free(self, events: ctypes.c_void_p | None) -> None:
        if events is not None:
            self._library.call_unmeasured("nvmlEventSetFree", events)

    def _register(self, gpus: dict[int, str], events: ctypes.c_void_p) -> int:
        """Register for events of these GPUs; returns how many allow it."""
        kind = c_ulonglong(pynvml.nvmlEventTypeXidCriticalError)
        return sum(
            not self._library.call_unmeasured(
                "nvmlDeviceRegisterEvents", ctypes.c_void_p(handle), kind, events
            )
            for handle in gpus
        )

    def _wait_for(
        self, events: ctypes.c_void_p, gpus: dict[int, str], heard: int, seconds: float
    ) -> int:
        """Receive events until the GPUs change, the time is over or the thread must end.

        Returns:
            ``SUCCESS``, or the code with which the driver refused.
        """
        data = pynvml.c_nvmlEventData_t()
        until = self._clock.monotonic() + seconds
        while gpus is self._gpus and not self._stopped.is_set() and self._clock.monotonic() < until:
            if not heard:
                self._stopped.wait(_WAIT_MILLISECONDS / 1000)
                continue
            code = self._library.call_unmeasured(
                "nvmlEventSetWait_v2", events, byref(data), ctypes.c_uint(_WAIT_MILLISECONDS)
            )
            if code == pynvml.NVML_ERROR_TIMEOUT:
                continue
            if code:
                return code
            self._take(gpus, data)
        return pynvml.NVML_SUCCESS

    def _take(self, gpus: dict[int, str], data: Any) -> None:
        uuid = gpus.get(ctypes.cast(data.device, ctypes.c_void_p).value or 0)
        if uuid is not None and data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            self._reports.add(uuid, data.eventData, self._clock.time(), XidOrigin.EVENT)
