"""Collects XIDs from the driver's events and the kernel log, and tells each one once."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

SAME_SECONDS = 2.0
"""Within so many seconds the same XID in an event and in the kernel log is one."""

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
    came between two samples are therefore told one sample after the other: a hardware error is not
    hidden by those of the programs that it ended.

    Any thread may ``add``; one thread takes them with ``next_of``.
    """

    def __init__(self) -> None:
        self._arrived: deque[_Report] = deque(maxlen=_ARRIVED_KEPT)
        self._waiting: dict[str, dict[tuple[int, XidOrigin], float]] = {}
        self._told: dict[tuple[str, int], deque[tuple[float, XidOrigin]]] = {}
        self._held = False

    def add(self, gpu: str, number: int, at: float, origin: XidOrigin) -> None:
        """Add a report.

        Args:
            gpu: The UUID of the GPU, or its place on the PCI bus as ``slot_of`` writes it.
            number: The XID.
            at: When, in seconds since the epoch.
            origin: Where it comes from.
        """
        self._arrived.append(_Report(gpu, number, at, origin))

    def hold(self) -> None:
        """Tell nothing until ``release``: older reports are still to come."""
        self._held = True

    def release(self) -> None:
        """Tell reports from now on."""
        self._held = False

    @property
    def nothing_to_tell(self) -> bool:
        """Whether ``next_of`` has nothing for any GPU."""
        return self._held or not (self._arrived or self._waiting)

    def next_of(self, uuid: str, slot: str | None) -> tuple[int, float] | None:
        """The oldest XID of a GPU that has not been told, and its time; it counts as told now.

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

    def _sort_in(self) -> None:
        while self._arrived:
            report = self._arrived.popleft()
            waiting = self._waiting.setdefault(report.gpu, {})
            # Many of one number count as one: the history keeps the newest of each.
            waiting.pop((report.number, report.origin), None)
            waiting[report.number, report.origin] = report.at
            if len(waiting) > _WAITING_KEPT:
                del waiting[min(waiting, key=waiting.__getitem__)]
            if len(self._waiting) > _GPUS_KEPT:
                del self._waiting[next(iter(self._waiting))]

    def _is_new(self, uuid: str, report: _Report) -> bool:
        """Whether neither origin has told it, and remember it."""
        if (uuid, report.number) not in self._told and len(self._told) >= _ARRIVED_KEPT:
            del self._told[next(iter(self._told))]
        times = self._told.setdefault((uuid, report.number), deque(maxlen=_TIMES_KEPT))
        known = any(
            origin is not report.origin and abs(at - report.at) <= SAME_SECONDS
            for at, origin in times
        )
        # The kernel's clock may be off: an older line of a known number adds nothing.
        old = report.origin is XidOrigin.KERNEL_LOG and any(at > report.at for at, _ in times)
        times.append((report.at, report.origin))
        return not (known or old)
