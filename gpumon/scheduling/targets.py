"""The processes to wait for, held so that a reused PID is not mistaken for one of them."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.procfs import opened, owner, started_after_boot, stat_of
from gpumon.system.users import user_name
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOK_SECONDS = 0.5
"""Seconds between two checks on kernels before 5.3, which have no pidfds."""


class WaitedProcess(Struct, frozen=True):
    """A process to wait for.

    Attributes:
        pid: Its PID.
        start_time: Its start in the kernel's ticks.
        name: The kernel's short name of it.
        user: Its owner; ``None`` if unknown.
        started_at: When it started, in seconds since boot.
        descriptor: Its pidfd; -1 if the kernel has none.
    """

    pid: int
    start_time: int
    name: str
    user: str | None
    started_at: float
    descriptor: int

    @property
    def words(self) -> str:
        """The name for the user, safe to print: ``ann's python (4711)``."""
        whose = "" if self.user is None else f"{printable(self.user)}'s "
        return f"{whose}{printable(self.name)} ({self.pid})"

    @property
    def age(self) -> str:
        """How long it has run."""
        return duration(time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_at)

    def ended(self) -> bool:
        """Whether it has exited with all its threads. A zombie has."""
        if self.descriptor >= 0:
            return bool(_readable([self], 0.0))
        stat = stat_of("/proc", self.pid)
        return stat is None or stat.ended or stat.id.start_time != self.start_time

    def close(self) -> None:
        """Release it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def hold(pid: int) -> WaitedProcess | None:
    """Open a handle on a process; ``None`` if it does not exist or is a zombie."""
    descriptor = _open(pid)
    stat = stat_of("/proc", pid)
    if stat is None or stat.ended:
        if descriptor >= 0:
            os.close(descriptor)
        return None
    started = started_after_boot(stat.id)
    return WaitedProcess(pid, stat.id.start_time or 0, stat.name, _user(pid), started, descriptor)


def _open(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _user(pid: int) -> str | None:
    try:
        with opened("/proc", pid) as directory:
            return user_name(owner(directory))
    except OSError:
        return None


def wait_for_one(processes: Sequence[WaitedProcess], seconds: float) -> None:
    """Return when one of them has exited, or on timeout."""
    if any(process.descriptor < 0 for process in processes):
        seconds = min(seconds, _LOOK_SECONDS)
    _readable(processes, seconds)


def _readable(processes: Sequence[WaitedProcess], seconds: float) -> list[tuple[int, int]]:
    """A pidfd becomes readable when its process has exited."""
    poll = select.poll()
    for process in processes:
        if process.descriptor >= 0:
            poll.register(process.descriptor, select.POLLIN)
    return poll.poll(seconds * 1000)
