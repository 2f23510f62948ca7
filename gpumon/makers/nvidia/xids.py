"""XIDs, the driver's reports of GPU errors: from its events and from the kernel log, each once.

NVML's events come only while gpumon runs, only for GPUs that can be registered, and not for every
XID. The kernel log also has those since the machine started; ``Sampler`` reads it.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from gpumon.makers.nvidia.library import c_function
from gpumon.makers.nvidia.queries import pause_after
from gpumon.model.accidents import SAME_SECONDS, AccidentKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.host.kernel_watcher import Heard
    from gpumon.system.system import Clock

THREAD = "gpumon-xid"

_WAIT_MILLISECONDS = 500
_ANSWERS = frozenset((int(pynvml.NVML_SUCCESS), int(pynvml.NVML_ERROR_GPU_IS_LOST)))
"""Codes of a set that can be waited for."""
_PAUSE_SECONDS = 5.0

_PAST_KEPT = 8
"""How many numbers of a GPU are reported of the time before."""

_LINE_SECONDS = 1.0
"""An event waits so long for its line in the kernel log, which is read within half of this: both
are then of one sample, with what only the line says, and are reported once."""

_ARRIVED_KEPT = 4096
_WAITING_KEPT = 32
"""How many numbers of a GPU may wait; the oldest are dropped."""
_GPUS_KEPT = 256
_TIMES_KEPT = 16
"""How many times of each number are remembered, to recognise it in the other origin."""


class XidOrigin(Enum):
    """Where a report comes from."""

    EVENT = 0
    """An event of NVML."""
    KERNEL_LOG = 1


class _Report(NamedTuple):
    """An XID of a GPU, which is named by its UUID in events, by its slot in the kernel log."""

    gpu: str
    number: int
    at: float
    origin: XidOrigin


class XidReports:
    """What was reported, oldest first.

    A snapshot has one XID of each GPU, its last one, and so have logs and other machines. XIDs that
    came between two samples are therefore reported in turn, one a sample: a hardware error is not
    hidden by those of the programs that it ended.

    Any thread may ``add``; one thread takes them with ``next_of``.
    """

    def __init__(self) -> None:
        self._arrived: deque[_Report] = deque(maxlen=_ARRIVED_KEPT)
        self._waiting: dict[str, dict[tuple[int, XidOrigin], float]] = {}
        self._reported: dict[tuple[str, int], deque[tuple[float, XidOrigin]]] = {}
        self._held = False
        self._lines_until: float | None = None

    def add(self, gpu: str, number: int, at: float, origin: XidOrigin) -> None:
        """Add a report.

        Args:
            gpu: The UUID of the GPU, or its place on the PCI bus as ``slot_of`` writes it.
            number: The XID.
            at: When, in seconds since the epoch.
            origin: Where it comes from.
        """
        self._arrived.append(_Report(gpu, number, at, origin))

    def add_heard(self, heard: Sequence[Heard]) -> None:
        """Add the XIDs among what the kernel log reported."""
        xids = [each for each in heard if each.report.kind is AccidentKind.ERROR_CODE]
        past = _worth_reporting([each for each in xids if each.is_past])
        for each in (*past, *(each for each in xids if not each.is_past)):
            slot, number = each.report.slot, each.report.number
            if slot is not None and number is not None:
                self.add(slot, number, each.time, XidOrigin.KERNEL_LOG)

    def hold(self) -> None:
        """Report nothing until ``release``: older XIDs are still to come."""
        self._held = True

    def release(self, now: float | None = None) -> None:
        """Report from now on.

        Args:
            now: The time, in seconds since the epoch, up to which the kernel log was read, if it
                is: newer events wait for their lines, for ``_LINE_SECONDS`` at most.
        """
        self._held, self._lines_until = False, now

    @property
    def nothing_to_report(self) -> bool:
        """Whether ``next_of`` has nothing for any GPU."""
        return self._held or not (self._arrived or self._waiting)

    def next_of(self, uuid: str, slot: str | None) -> tuple[int, float] | None:
        """The oldest XID of a GPU that was not reported, and its time; now it counts as reported.

        Args:
            uuid: The GPU's UUID.
            slot: Its place on the PCI bus, ``None`` if unknown.
        """
        if self._held:
            return None
        self._sort_in()
        while True:
            oldest: _Report | None = None
            for gpu in (uuid,) if slot is None else (uuid, slot):
                for (number, origin), at in self._waiting.get(gpu, {}).items():
                    if origin is XidOrigin.EVENT and self._waits_for_line(at):
                        continue
                    if oldest is None or at < oldest.at:
                        oldest = _Report(gpu, number, at, origin)
            if oldest is None:
                return None
            waiting = self._waiting[oldest.gpu]
            del waiting[oldest.number, oldest.origin]
            if not waiting:
                del self._waiting[oldest.gpu]
            if self._is_new(uuid, oldest):
                return oldest.number, oldest.at

    def _waits_for_line(self, at: float) -> bool:
        # An event from further in the future is from before the clock was set back.
        return self._lines_until is not None and abs(self._lines_until - at) < _LINE_SECONDS

    def _sort_in(self) -> None:
        while self._arrived:
            report = self._arrived.popleft()
            waiting = self._waiting.setdefault(report.gpu, {})
            # Many of the same number count once: the history keeps the newest of each.
            waiting.pop((report.number, report.origin), None)
            waiting[report.number, report.origin] = report.at
            if len(waiting) > _WAITING_KEPT:
                del waiting[min(waiting, key=waiting.__getitem__)]
            if len(self._waiting) > _GPUS_KEPT:
                del self._waiting[next(iter(self._waiting))]

    def _is_new(self, uuid: str, report: _Report) -> bool:
        """Whether neither origin has reported it; remembers it."""
        if (uuid, report.number) not in self._reported and len(self._reported) >= _ARRIVED_KEPT:
            del self._reported[next(iter(self._reported))]
        times = self._reported.setdefault((uuid, report.number), deque(maxlen=_TIMES_KEPT))
        known = any(
            origin is not report.origin and abs(at - report.at) <= SAME_SECONDS
            for at, origin in times
        )
        # The kernel's clock may be off: an older line of a known number adds nothing.
        old = report.origin is XidOrigin.KERNEL_LOG and any(at > report.at for at, _ in times)
        times.append((report.at, report.origin))
        return not (known or old)


class EventXidWatcher:
    """Waits for XIDs, from ``start`` to ``stop``.

    It initialises NVML a second time (NVML counts its users) and shuts it down when its thread
    ends, so that ``stop`` need not wait for a thread that hangs in the driver.

    Its calls are neither published nor measured: it waits most of the time.

    Args:
        clock: The clock, for the times of XIDs.
        reports: Where it adds them.
        wait: Waits for an event, a number of seconds at most, while the driver refuses.
    """

    def __init__(
        self,
        clock: Clock,
        reports: XidReports,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._clock = clock
        self._wait = wait
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
            if self._wait(self._stopped, _PAUSE_SECONDS):
                return
            self._take_library()
        events: Any = None
        gpus: dict[int, str] = {}
        listened = gpus
        registered, refusals, code = 0, 0, int(pynvml.NVML_SUCCESS)
        while not self._stopped.is_set():
            before = registered
            refusals = refusals + 1 if gpus is self._gpus else 1
            gpus = self._gpus
            try:
                newer = pynvml.nvmlEventSetCreate()
            except pynvml.NVMLError:
                self._wait(self._stopped, _PAUSE_SECONDS)
                continue
            registered = self._register(gpus, newer)
            # Not before the new set is registered, so that no event in between is lost.
            if events is not None and code in _ANSWERS:
                self._take_rest(listened, events)
            self._free(events)
            events, listened = newer, gpus
            if code == pynvml.NVML_ERROR_GPU_IS_LOST and registered == before:
                # The lost GPU can still be registered: waiting for it would return at once.
                self._wait(self._stopped, _WAIT_MILLISECONDS / 1000)
            refused = len(gpus) - registered
            again_in = pause_after(refusals, answered=False) if refused else math.inf
            code = self._wait_for(events, gpus, registered, again_in)
            if code not in _ANSWERS:
                self._wait(self._stopped, _PAUSE_SECONDS)
        self._free(events)
        c_function("nvmlShutdown")()

    def _take_library(self) -> None:
        self._has_library = not c_function("nvmlInit_v2")()

    def _free(self, events: Any) -> None:
        if events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def _register(self, gpus: dict[int, str], events: Any) -> int:
        """Register for events of these GPUs; returns how many allow it."""
        registered = 0
        kind = pynvml.nvmlEventTypeXidCriticalError
        for handle in gpus:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlDeviceRegisterEvents(ctypes.c_void_p(handle), kind, events)
                registered += 1
        return registered

    def _wait_for(self, events: Any, gpus: dict[int, str], registered: int, seconds: float) -> int:
        """Receive events until the GPUs change, the time is over or the thread must end.

        Returns:
            ``SUCCESS``, or the code with which the driver refused.
        """
        until = self._clock.monotonic() + seconds
        while gpus is self._gpus and not self._stopped.is_set() and self._clock.monotonic() < until:
            if not registered:
                self._wait(self._stopped, _WAIT_MILLISECONDS / 1000)
                continue
            try:
                self._take(gpus, pynvml.nvmlEventSetWait_v2(events, _WAIT_MILLISECONDS))
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    return error.value
        return pynvml.NVML_SUCCESS

    def _take_rest(self, gpus: dict[int, str], events: Any) -> None:
        """Receive what has arrived in a set by now.

        What the next set has too is received again, and counts once as long as no sample is taken
        between the two.
        """
        with suppress(pynvml.NVMLError):
            for _ in range(_ARRIVED_KEPT):
                self._take(gpus, pynvml.nvmlEventSetWait_v2(events, 0))

    def _take(self, gpus: dict[int, str], data: Any) -> None:
        uuid = gpus.get(ctypes.cast(data.device, ctypes.c_void_p).value or 0)
        if uuid is not None and data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            self._reports.add(uuid, data.eventData, self._clock.time(), XidOrigin.EVENT)


def _worth_reporting(heard: Iterable[Heard]) -> list[Heard]:
    """The newest of each number and GPU, in order; of too many, errors of programs are left out."""
    newest: dict[str | None, dict[int | None, Heard]] = {}
    for each in heard:
        newest.setdefault(each.report.slot, {})[each.report.number] = each
    from gpumon.model.error_codes import error_code

    kept: list[Heard] = []
    for of_gpu in newest.values():
        ranked = sorted(
            of_gpu.values(),
            key=lambda each: (error_code(each.report.number or 0).passing, -each.time),
        )
        kept += ranked[:_PAST_KEPT]
    return sorted(kept, key=lambda each: each.time)
