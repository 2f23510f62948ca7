"""Sends signals to exactly the process that the user chose.

Nothing else in gpumon signals a process that it did not start.

A PID may name another process once the first has exited. So a process is first held by a pidfd,
then compared with what the user saw, and then signalled through the pidfd: a process that reuses
the PID between these steps is not affected; ``host.handle`` has the case of kernels without pidfds.
All of it needs Linux's ``/proc``: on other systems the comparison is impossible, and
every signal is refused.

gpumon never becomes root by itself: it reports missing permission, and whom to ask.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.host import refusals
from gpumon.host.handle import Handle
from gpumon.host.process_host import ProcessStatus, Refusal, Refused
from gpumon.host.process_tree import pids_above
from gpumon.host.procfs import opened, stat_of, thread_group
from gpumon.kill.frozen import FROZEN
from gpumon.model.process_states import STOPPED
from gpumon.system.system import THIS_SYSTEM, user_name
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import System


def open_handle(
    target: Target, *, readonly: bool = False, system: System = THIS_SYSTEM
) -> ProcessHandle:
    """Open a handle on a process after checking that it is the intended one.

    The PID, the start time and the effective user must match the target. A changed user alone, from
    a set-user-id program or dropped privileges, is also refused: the process is no longer what the
    user read, and selecting it again takes one key.

    Args:
        target: The process as shown to the user.
        readonly: Whether gpumon runs with ``--readonly``; then everything is refused.
        system: The operating system that is read.

    Raises:
        Refused: It must not be signalled, with the reason.
        OSError: There are too many open files.
    """
    _refuse_protected(target, readonly, system)
    try:
        handle = TargetHandle(target, system)
    except ProcessLookupError:
        raise refusals.gone(target.id.pid) from None
    try:
        handle.compare()
    except BaseException:
        handle.close()
        raise
    return handle


class TargetHandle(Handle):
    """See ``ProcessHandle``: compares the process with the target before every signal."""

    def __init__(self, target: Target, system: System) -> None:
        super().__init__(target.id, system)
        self._target = target
        self._resumed = False

    @property
    def target(self) -> Target:
        """See ``ProcessHandle.target``."""
        return self._target

    def compare(self) -> None:
        """Refuse to continue unless the held process is the intended one and is alive."""
        pid = self.id.pid
        seen = self.read()
        if seen is None:
            if self.ended():
                raise refusals.gone(pid)
            raise Refused(
                Refusal.NOT_VISIBLE,
                f"{pid} is hidden from you: /proc shows other users' processes to root only",
            )
        stat, uid = seen
        if stat.id != self.id:
            raise refusals.reused(pid)
        if self._target.uid not in (None, uid):
            now, before = printable(user_name(uid)), refusals.owner_name(self._target)
            raise Refused(
                Refusal.REUSED,
                f"{pid} now runs as {now}, not as {before}: check it and choose it again",
            )
        if self.ended():
            raise refusals.gone(pid, self.status())

    def send(self, number: int) -> None:
        """See ``ProcessHandle.send``."""
        self.compare()
        try:
            self.deliver(number)
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
            self.deliver(signal.SIGCONT)
            self._resumed = True

    def status(self) -> ProcessStatus | None:
        """See ``ProcessHandle.status``."""
        return read_status(self.id, self._proc)

    def close(self) -> None:
        """See ``ProcessHandle.close``."""
        # Not while another thread continues the process: its descriptor would be another file's.
        with FROZEN.lock:
            FROZEN.resume(self)
            super().close()


def read_status(process: ProcessId, proc: str) -> ProcessStatus | None:
    """The state of a process; ``None`` once it is reaped."""
    try:
        with opened(proc, process.pid) as files:
            stat = files.stat()
            channel = files.wait_channel() if stat.state == "D" else None
    except OSError:
        return None
    if stat.id != process or stat.state == "X":
        return None
    parent = stat_of(proc, stat.parent) if stat.ended else None
    if parent is None:
        return ProcessStatus(stat.state, channel)
    return ProcessStatus(stat.state, channel, parent.id, parent.name)


def _refuse_protected(target: Target, readonly: bool, system: System) -> None:
    """Refuse processes that must never be signalled."""
    pid, proc = target.id.pid, system.proc
    if readonly:
        raise refusals.read_only()
    if pid <= 1:
        raise refusals.whole_system(pid)
    if not os.path.lexists(f"{proc}/self"):
        raise Refused(
            Refusal.NOT_VISIBLE,
            (
                f"{pid} cannot be compared with the process you saw, because there is no {proc} "
                "here: check it with ps, and use kill"
            ),
        )
    if target.ended and target.id.start_time is None:
        raise refusals.still_listed(pid)
    if target.id.start_time is None or not _shows_own_namespace(proc):
        raise Refused(
            Refusal.NOT_VISIBLE,
            f"{pid} is not visible here, and that number may be another process's: "
            "end it from its own container or host",
        )
    leader = thread_group(proc, pid)
    if os.getpid() in (pid, leader):
        raise refusals.gpumon_itself(pid)
    if leader not in (None, pid):
        raise Refused(
            Refusal.THREAD, f"{pid} is a thread of {leader}, not a process: choose {leader}"
        )
    if pid in pids_above(os.getpid(), system):
        raise refusals.above_gpumon(pid)


def _shows_own_namespace(proc: str) -> bool:
    """Whether ``/proc`` shows our own PID namespace; its mount may belong to another one."""
    try:
        return Path(proc, "self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False
