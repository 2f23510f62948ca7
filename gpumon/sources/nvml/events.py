"""XIDs: the driver's reports of what went wrong on a card, waited for on a thread of their own."""

from __future__ import annotations

import ctypes
import math
import threading
from ctypes import byref, c_ulonglong
from typing import TYPE_CHECKING

from gpumon.sources.nvml.library import Code
from gpumon.sources.nvml.reading import pause_after
from gpumon.sources.nvml.structures import EventData

if TYPE_CHECKING:
    from gpumon.clock import Clock
    from gpumon.sources.nvml.library import Library

THREAD = "gpumon-xid"
XID_CRITICAL_ERROR = 0x8
"""``nvmlEventTypeXidCriticalError`` of nvml.h."""

_WAIT_MILLISECONDS = 500
_PAUSE_SECONDS = 5.0


class XidWatcher:
    """Waits for XIDs, from ``start`` to ``stop``.

    It holds a reference of its own on the library (``nvmlInit`` counts them), and gives it back
    when its thread ends: so ``stop`` need not wait for a thread that the driver will not let go.

    Attributes:
        latest: The last XID of each card, by UUID, and when it came, since the epoch. Replaced,
            never changed.
    """

    def __init__(
        self, library: Library, clock: Clock, latest: dict[str, tuple[int, float]]
    ) -> None:
        self._library = library
        self._clock = clock
        self._stopped = threading.Event()
        self._cards: dict[int, str] = {}
        self._has_library = False
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self.latest = latest

    def start(self, cards: dict[int, str]) -> None:
        """Begin to wait for these cards."""
        self.watch(cards)
        self._take_library()
        self._thread.start()

    def watch(self, cards: dict[int, str]) -> None:
        """From now on it is about these cards: UUIDs by the value of their handles."""
        if cards != self._cards:
            self._cards = cards

    def stop(self, timeout: float = 0.0) -> None:
        """Let the thread end, which takes it up to half a second.

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
        cards: dict[int, str] = {}
        heard, refusals, code = 0, 0, int(Code.SUCCESS)
        while not self._stopped.is_set():
            before = heard
            refusals = refusals + 1 if cards is self._cards else 1
            cards = self._cards
            newer = ctypes.c_void_p()
            if self._library.call_unseen("nvmlEventSetCreate", byref(newer)):
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            heard = self._register(cards, newer)
            # Only now: of what comes in between, the older set would hear the last.
            self._free(events)
            events = newer
            if code == Code.GPU_IS_LOST and heard == before:
                # The lost card can still be registered: waiting for it would return at once.
                self._stopped.wait(_WAIT_MILLISECONDS / 1000)
            refused = len(cards) - heard
            again_in = pause_after(refusals, answered=False) if refused else math.inf
            code = self._wait_for(events, cards, heard, again_in)
            if code not in {Code.SUCCESS, Code.GPU_IS_LOST}:
                self._stopped.wait(_PAUSE_SECONDS)
        self._free(events)
        self._library.call_unseen("nvmlShutdown")

    def _take_library(self) -> None:
        self._has_library = not self._library.call_unseen("nvmlInit_v2")

    def _free(self, events: ctypes.c_void_p | None) -> None:
        if events is not None:
            self._library.call_unseen("nvmlEventSetFree", events)

    def _register(self, cards: dict[int, str], events: ctypes.c_void_p) -> int:
        """Have events of these cards come in here; returns of how many they will."""
        kind = c_ulonglong(XID_CRITICAL_ERROR)
        return sum(
            not self._library.call_unseen(
                "nvmlDeviceRegisterEvents", ctypes.c_void_p(handle), kind, events
            )
            for handle in cards
        )

    def _wait_for(
        self, events: ctypes.c_void_p, cards: dict[int, str], heard: int, seconds: float
    ) -> int:
        """Take events until the cards change, the time is over or it must end.

        Returns:
            ``SUCCESS``, or the code of the driver that will not have it.
        """
        data = EventData()
        until = self._clock.monotonic() + seconds
        while (
            cards is self._cards and not self._stopped.is_set() and self._clock.monotonic() < until
        ):
            if not heard:
                self._stopped.wait(_WAIT_MILLISECONDS / 1000)
                continue
            code = self._library.call_unseen(
                "nvmlEventSetWait_v2", events, byref(data), ctypes.c_uint(_WAIT_MILLISECONDS)
            )
            if code == Code.TIMEOUT:
                continue
            if code:
                return code
            self._take(cards, data)
        return Code.SUCCESS

    def _take(self, cards: dict[int, str], data: EventData) -> None:
        uuid = cards.get(data.device or 0)
        if uuid is not None and data.eventType == XID_CRITICAL_ERROR:
            self.latest = {**self.latest, uuid: (data.eventData, self._clock.time())}
