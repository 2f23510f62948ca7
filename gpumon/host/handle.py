"""Holds a process of this machine, so that a process that reuses its PID is not taken for it.

A pidfd never refers to another process. Without pidfds (Linux before 5.3, an old seccomp profile,
gVisor) psutil compares the creation time just before it sends, which leaves a race of some
microseconds. Whether a process has ended is read from ``/proc`` then: to psutil, one whose main
thread alone has ended is a zombie.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Protocol

from gpumon.host.procfs import Stat, opened
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psutil

    from gpumon.model.processes import ProcessId
    from gpumon.system.system import System

_FIRST_CHECK_SECONDS, _LAST_CHECK_SECONDS = 0.05, 0.5
"""Seconds between two checks of a process that has no pidfd, at first and after some doublings."""


class Handle:
    """An open reference to one process.

    Whether it is the intended process can be compared once it is held.

    Args:
        process: The process; without pidfds, its start time says which process it is.
        system: The operating system that is read.

    Raises:
        ProcessLookupError: There is no process with this PID; it may be the number of a thread.
        OSError: There are too many open files.
    """

    def __init__(self, process: ProcessId, system: System = THIS_SYSTEM) -> None:
        self.id = process
        self.descriptor = -1  # its pidfd; -1 without one, and once it has ended or is closed
        self._proc = system.proc
        self._ended = False
        self._process: psutil.Process | None = None
        if _pidfds_work():
            self.descriptor = _open_pidfd(process.pid)
        else:
            self._process = _psutil_process(process.pid)

    def read(self) -> tuple[Stat, int] | None:
        """The process that has its PID now, and the effective user of that.

        ``None`` if there is none, or it is hidden.

        Raises:
            OSError: There are too many open files.
        """
        try:
            with opened(self._proc, self.id.pid) as files:
                return files.stat(), files.owner()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None

    def ended(self) -> bool:
        """Whether the process with all its threads is known to have ended; true for a zombie."""
        if self._ended:
            return True
        if self.descriptor >= 0:
            poll = select.poll()
            poll.register(self.descriptor, select.POLLIN)
            self._ended = bool(poll.poll(0))
            if self._ended:
                self.close()
            return self._ended
        try:
            seen = self.read()
        except OSError:
            return False  # Too many open files, for example: that does not mean that it has exited.
        return seen is None or seen[0].id != self.id or seen[0].ended

    def deliver(self, number: int) -> None:
        """Send a signal to the held process, whichever process that is.

        Raises:
            OSError: It was not sent: ``ProcessLookupError`` if the process has ended,
                ``PermissionError`` if it is another user's.
        """
        if self._process is None:
            signal.pidfd_send_signal(self.descriptor, number)
            return
        import psutil

        try:
            self._process.send_signal(number)
        except psutil.NoSuchProcess:
            raise ProcessLookupError from None
        except psutil.AccessDenied:
            raise PermissionError from None

    def close(self) -> None:
        """Release it. May be called more than once."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Endable(Protocol):
    def ended(self) -> bool: ...


def wait_for_any(handles: Sequence[_Endable], seconds: float) -> None:
    """Return when one of these processes has exited, or on timeout."""
    deadline = time.monotonic() + seconds
    # A process that exits between this check and the poll makes the poll return at once.
    if any(handle.ended() for handle in handles):
        return
    poll = select.poll()
    pause = seconds
    for handle in handles:
        if isinstance(handle, Handle) and handle.descriptor >= 0:
            poll.register(handle.descriptor, select.POLLIN)
        else:
            pause = _FIRST_CHECK_SECONDS
    left = seconds
    while left > 0 and not poll.poll(min(left, pause) * 1000):
        if any(handle.ended() for handle in handles):
            return
        left = deadline - time.monotonic()
        pause = min(2 * pause, _LAST_CHECK_SECONDS)


def _pidfds_work() -> bool:
    """Whether this kernel has usable pidfds: tested on gpumon itself with signal 0."""
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except (AttributeError, OSError):
        return False
    finally:
        os.close(descriptor)
    return True


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # The id of a thread that is not a process is invalid, and in newer kernels absent.
        if error.errno in (errno.EINVAL, errno.ENOENT):
            raise ProcessLookupError from None
        raise


def _psutil_process(pid: int) -> psutil.Process:
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        raise ProcessLookupError from None
