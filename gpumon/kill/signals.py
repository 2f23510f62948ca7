"""Sends signals to exactly the process that the user chose.

Nothing else in gpumon signals a process that it did not start.

A PID may name another process once the first has exited. So a process is first held by a pidfd,
then compared with what the user saw, and then signalled through the pidfd: a process that reuses
the PID between these steps is not affected. Without pidfds (Linux before 5.3, an old seccomp
profile, gVisor) psutil compares the creation time just before it sends, which leaves a race of some
microseconds. All of it needs Linux's ``/proc``: on other systems the comparison is impossible, and
every signal is refused.

gpumon never becomes root by itself: it reports missing permission, and whom to ask.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.host import refusals
from gpumon.host.process_host import ProcessStatus, Refusal, Refused
from gpumon.host.procfs import (
    Stat,
    ancestors,
    opened,
    owner,
    read_file,
    read_stat,
    stat_of,
    wait_channel,
)
from gpumon.kill.frozen import FROZEN
from gpumon.model.process_states import STOPPED
from gpumon.system.users import user_name
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import ProcessHandle, Target

_STATUS_BYTES = 2048
_LOOK_SECONDS = 0.05
"""Seconds between two checks of a process that has no pidfd."""


def open_handle(target: Target, *, readonly: bool = False, proc: str = "/proc") -> ProcessHandle:
    """Open a handle on a process after checking that it is the intended one.

    The PID, the start time and the effective user must match the target. A changed user alone, from
    a set-user-id program or dropped privileges, is also refused: the process is no longer what the
    user read, and selecting it again takes one key.

    Args:
        target: The process as shown to the user.
        readonly: Whether gpumon runs with ``--readonly``; then everything is refused.
        proc: Where the process file system is mounted.

    Raises:
        Refused: It must not be signalled, with the reason.
        OSError: There are too many open files.
    """
    _refuse_protected(target, readonly, proc)
    handle = _PidfdHandle(target, proc) if _pidfds_work() else _PsutilHandle(target, proc)
    try:
        handle.compare()
    except BaseException:
        handle.close()
        raise
    return handle


def wait_for_any(handles: Sequence[ProcessHandle], seconds: float) -> None:
    """Return when one of these processes has exited, or on timeout."""
    deadline = time.monotonic() + seconds
    # A process that exits between this check and the poll makes the poll return at once.
    if any(handle.ended() for handle in handles):
        return
    poll = select.poll()
    at_most = seconds
    for handle in handles:
        if isinstance(handle, _PidfdHandle):
            poll.register(handle.descriptor, select.POLLIN)
        else:
            at_most = _LOOK_SECONDS
    left = seconds
    while left > 0 and not poll.poll(min(left, at_most) * 1000):
        if any(handle.ended() for handle in handles):
            return
        left = deadline - time.monotonic()


class _Handle:
    """What both kinds of handles share: everything from ``/proc``."""

    def __init__(self, target: Target, proc: str) -> None:
        self._target = target
        self._proc = proc
        self._resumed = False

    @property
    def target(self) -> Target:
        """See ``ProcessHandle.target``."""
        return self._target

    def compare(self) -> None:
        """Refuse to continue unless the held process is the intended one and is alive."""
        pid, start_time = self._target.id.pid, self._target.id.start_time
        seen = _read_process(pid, self._proc)
        if seen is None:
            if self.ended():
                raise refusals.gone(pid)
            raise Refused(
                Refusal.NOT_VISIBLE,
                f"{pid} is hidden from you: /proc shows other users' processes to root only",
            )
        stat, uid = seen
        if stat.id.start_time != start_time:
            raise refusals.reused(pid)
        if self._target.uid not in (None, uid):
            now, before = printable(user_name(uid)), refusals.owner_name(self._target)
            raise Refused(
                Refusal.REUSED,
                f"{pid} runs as {now} by now, not as {before}: look at it and choose it again",
            )
        if self.ended():
            raise refusals.gone(pid, self.status())

    def send(self, number: int) -> None:
        """See ``ProcessHandle.send``."""
        self.compare()
        try:
            self._deliver(number)
        except ProcessLookupError:
            raise refusals.gone(self._target.id.pid) from None
        except PermissionError:
            raise refusals.not_permitted(self._target, number, os.geteuid()) from None
        if number in (signal.SIGKILL, signal.SIGCONT):
            FROZEN.killed(self)

    def freeze(self) -> None:
        """See ``ProcessHandle.freeze``."""
        status = self.status()
        if status is None or status.state != STOPPED:
            FROZEN.stop(self, lambda: self.send(signal.SIGSTOP))

    def thaw(self) -> bool:
        """See ``ProcessHandle.thaw``."""
        FROZEN.resume(self)
        resumed, self._resumed = self._resumed, False
        return resumed

    def resume(self) -> None:
        """See ``Freezable.resume``."""
        with suppress(Refused, OSError):
            # Without a free file it cannot be compared again; it was when it was stopped.
            with suppress(OSError):
                self.compare()
            self._deliver(signal.SIGCONT)
            self._resumed = True

    def _deliver(self, number: int) -> None:
        raise NotImplementedError

    def ended(self) -> bool:
        """See ``ProcessHandle.ended``."""
        try:
            seen = _read_process(self._target.id.pid, self._proc)
        except OSError:
            return False  # Too many open files, for example: that does not mean that it has exited.
        return seen is None or seen[0].id != self._target.id or seen[0].ended

    def status(self) -> ProcessStatus | None:
        """See ``ProcessHandle.status``."""
        pid = self._target.id.pid
        try:
            with opened(self._proc, pid) as directory:
                stat = read_stat(directory)
                channel = wait_channel(directory) if stat.state == "D" else None
        except OSError:
            return None
        if stat.id != self._target.id or stat.state == "X":
            return None
        parent = stat_of(self._proc, stat.parent) if stat.ended else None
        if parent is None:
            return ProcessStatus(stat.state, channel)
        return ProcessStatus(stat.state, channel, parent.id, parent.name)

    def close(self) -> None:
        """See ``ProcessHandle.close``."""
        FROZEN.resume(self)


class _PidfdHandle(_Handle):
    """Holds a process by a descriptor, which never refers to another process."""

    def __init__(self, target: Target, proc: str) -> None:
        super().__init__(target, proc)
        self._over = False
        try:
            self.descriptor = os.pidfd_open(target.id.pid)
        except OSError as error:
            # The id of a thread that is not a process is invalid, and in newer kernels absent.
            if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
                raise refusals.gone(target.id.pid) from None
            raise

    def _deliver(self, number: int) -> None:
        signal.pidfd_send_signal(self.descriptor, number)

    def ended(self) -> bool:
        """Whether the last thread has exited; the descriptor is closed then."""
        if self._over or self.descriptor < 0:
            return self._over or super().ended()
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        self._over = bool(poll.poll(0))
        if self._over:
            self.close()
        return self._over

    def close(self) -> None:
        """See ``ProcessHandle.close``."""
        super().close()
        with FROZEN.lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1


class _PsutilHandle(_Handle):
    """Holds a process by PID and creation time."""

    def __init__(self, target: Target, proc: str) -> None:
        import psutil

        super().__init__(target, proc)
        try:
            self._process = psutil.Process(target.id.pid)
        except psutil.NoSuchProcess:
            raise refusals.gone(target.id.pid) from None

    def _deliver(self, number: int) -> None:
        import psutil

        try:
            self._process.send_signal(number)
        except psutil.NoSuchProcess:
            raise ProcessLookupError from None
        except psutil.AccessDenied:
            raise PermissionError from None


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


def _refuse_protected(target: Target, readonly: bool, proc: str) -> None:
    """Refuse processes that must never be signalled."""
    pid = target.id.pid
    if readonly:
        raise refusals.read_only()
    if pid <= 1:
        raise refusals.whole_system(pid)
    if not os.path.lexists(f"{proc}/self"):
        raise Refused(
            Refusal.NOT_VISIBLE,
            f"{pid} cannot be compared with what you saw, for there is no {proc} here: "
            "look at it with ps, and use kill",
        )
    if target.ended and target.id.start_time is None:
        raise refusals.still_listed(pid)
    if target.id.start_time is None or not _shows_own_namespace(proc):
        raise Refused(
            Refusal.NOT_VISIBLE,
            f"{pid} is not visible here, and that number may be another process's: "
            "end it from its own container or host",
        )
    leader = _thread_group(pid, proc)
    if os.getpid() in (pid, leader):
        raise refusals.gpumon_itself(pid)
    if leader not in (None, pid):
        raise Refused(
            Refusal.THREAD, f"{pid} is a thread of {leader} and no process: choose {leader}"
        )
    if pid in ancestors(proc, os.getpid()):
        raise refusals.above_gpumon(pid)


def _shows_own_namespace(proc: str) -> bool:
    """Whether ``/proc`` shows our own PID namespace; its mount may belong to another one."""
    try:
        return Path(proc, "self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def _read_process(pid: int, proc: str) -> tuple[Stat, int] | None:
    """A process and its effective user; ``None`` if it does not exist or is hidden."""
    try:
        with opened(proc, pid) as directory:
            return read_stat(directory), owner(directory)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _thread_group(pid: int, proc: str) -> int | None:
    """The process of a thread, because ``/proc`` also answers for thread ids."""
    try:
        status = read_file(f"{proc}/{pid}/status", _STATUS_BYTES)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for line in status.splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return None
