"""Follows the kernel log for XIDs, on a thread of its own.

NVML's events come only while gpumon runs, only for GPUs that can be registered, and not for every
XID. The kernel log also has those since the machine started.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.host.kernel_log import KMSG, KernelLog, Xid
from gpumon.makers.nvidia.xid_reports import XidOrigin
from gpumon.model.error_codes import error_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.makers.nvidia.xid_reports import XidReports
    from gpumon.system.clock import Clock

KERNEL_THREAD = "gpumon-kernel-log"

_PAST_LINES, _PAST_SECONDS = 10_000, 0.2
_PAST_KEPT = 8
"""How many numbers of a GPU are told of the time before."""
_TURN_LINES, _TURN_SECONDS = 1000, 0.02
_PAUSE_SECONDS = 0.5
"""With the turn above, a kernel that writes without end takes 4 % of a core at most."""
_WAIT_SECONDS = 2.0
_SLEPT_SECONDS = 60.0
"""The kernel's clock stands still while the machine sleeps: a machine that slept longer than this
has no known times for older lines."""


class KernelXidWatcher:
    """Reports the XIDs of the kernel log, first those since the machine started.

    Where the log may not be read the thread ends. The reports are held while it reads what there
    is, 0.2 s at most, so that they are told in order.

    Args:
        reports: Where it reports.
        clock: Clock, for tests.
        path: The kernel log.
    """

    def __init__(self, reports: XidReports, clock: Clock, path: str = KMSG) -> None:
        self._reports = reports
        self._clock = clock
        self._log = KernelLog(path)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=KERNEL_THREAD, daemon=True)

    def start(self) -> None:
        """Start to read."""
        self._reports.hold()
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads: it must not end what samples.
            self._reports.release()

    def stop(self) -> None:
        """End the thread, which takes up to ``_WAIT_SECONDS``; does not wait for it."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            self._read_past()
            self._reports.release()
            self._follow()
        except OSError:
            pass  # It may not be read here, or is gone; `gpumon doctor` says why.
        finally:
            self._reports.release()
            self._log.close()

    def _read_past(self) -> None:
        found = self._log.read(_PAST_LINES, _PAST_SECONDS)
        if self._log.behind:
            self._log.skip()
        if _slept() > _SLEPT_SECONDS:
            return
        for xid in _worth_telling(found):
            self._report(xid, self._wall_time(xid))

    def _follow(self) -> None:
        behind = False
        while not self._stopped.is_set():
            xids = self._log.read(_TURN_LINES, _TURN_SECONDS)
            for xid in xids:
                self._report(xid, self._wall_time(xid) if behind else self._clock.time())
            behind = self._log.behind
            if not behind:
                self._log.wait(_WAIT_SECONDS)
            self._stopped.wait(_PAUSE_SECONDS)

    def _report(self, xid: Xid, at: float) -> None:
        self._reports.add(xid.slot, xid.number, at, XidOrigin.KERNEL_LOG)

    def _wall_time(self, xid: Xid) -> float:
        """When it was, in seconds since the epoch."""
        return self._clock.time() - max(0.0, self._clock.monotonic() - xid.at)


def _worth_telling(xids: Iterable[Xid]) -> list[Xid]:
    """The newest of each number and GPU, in order; of too many, errors of programs are left out."""
    newest: dict[str, dict[int, Xid]] = {}
    for xid in xids:
        newest.setdefault(xid.slot, {})[xid.number] = xid
    kept: list[Xid] = []
    for of_one in newest.values():
        ranked = sorted(of_one.values(), key=lambda xid: (error_code(xid.number).passing, -xid.at))
        kept += ranked[:_PAST_KEPT]
    return sorted(kept, key=lambda xid: xid.at)


def _slept() -> float:
    """Seconds for which the machine slept since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
