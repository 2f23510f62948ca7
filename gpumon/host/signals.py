"""Signals that reach the process a person chose, or none. Nothing else in gpumon sends one.

A number names another process once the first has gone. So a process is held first, by a pidfd,
then compared with what the person saw, and only then signalled through what is held: whoever
takes over its number between these steps is not reached. Where there are no pidfds (Linux before
5.3, an old seccomp profile, gVisor) psutil compares the time of creation just before it sends,
which leaves some microseconds uncovered. All of it takes Linux's ``/proc``: on other systems nobody
can be compared with what the person saw, and every signal is refused.

gpumon never becomes root by itself: what is not permitted is said, with whom to ask.
"""

from __future__ import annotations

import errno
import os
import select
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.host import Refusal, Refused, Standing
from gpumon.host.procfs import (
    Stat,
    opened,
    owner,
    read_file,
    read_stat,
    stat_of,
    user_name,
    wait_channel,
)
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.host import Grip, Target

_STATUS_BYTES = 2048
_LOOK_SECONDS = 0.05
"""How often a process is looked at that cannot be waited for."""


def take_grip(target: Target, *, readonly: bool = False, proc: str = "/proc") -> Grip:
    """Take hold of a process, once it proved to be the one that was meant.

    The number, the start time and the effective user must be those of the target. A change of
    user alone, which a set-user-id program or a dropped privilege brings about, refuses it too:
    what runs there is no longer what the person read, and choosing it again takes one key.

    Args:
        target: The process as somebody saw it.
        readonly: Whether gpumon runs with ``--readonly``; then everything is refused.
        proc: Where the process file system is mounted.

    Raises:
        Refused: It is not to be signalled, with the reason.
        OSError: There are too many open files.
    """
    _refuse_the_untouchable(target, readonly, proc)
    grip = _PidfdGrip(target, proc) if _pidfds_work() else _PsutilGrip(target, proc)
    try:
        grip.compare()
    except BaseException:
        grip.close()
        raise
    return grip


def wait_for_any(grips: Sequence[Grip], seconds: float) -> None:
    """Return when one of these processes has ended, at once if one had already, or in time."""
    deadline = time.monotonic() + seconds
    # One that ends between this look and the poll makes the poll return at once.
    if any(grip.ended() for grip in grips):
        return
    poll = select.poll()
    at_most = seconds
    for grip in grips:
        if isinstance(grip, _PidfdGrip):
            poll.register(grip.descriptor, select.POLLIN)
        else:
            at_most = _LOOK_SECONDS
    left = seconds
    while left > 0 and not poll.poll(min(left, at_most) * 1000):
        if any(grip.ended() for grip in grips):
            return
        left = deadline - time.monotonic()


class _Grip:
    """What both kinds of grip share: all that ``/proc`` tells."""

    def __init__(self, target: Target, proc: str) -> None:
        self._target = target
        self._proc = proc

    @property
    def target(self) -> Target:
        """See ``Grip.target``."""
        return self._target

    def compare(self) -> None:
        """Refuse to go on unless the process held is the one that was meant, and lives."""
        pid, start_time = self._target.id.pid, self._target.id.start_time
        seen = _see(pid, self._proc)
        if seen is None:
            if self.ended():
                raise _gone(self._target)
            raise Refused(
                Refusal.NOT_VISIBLE,
                f"{pid} is hidden from you: /proc shows other users' processes to root only",
            )
        stat, uid = seen
        if stat.id.start_time != start_time:
            raise Refused(
                Refusal.REUSED,
                f"{pid} is another process by now; the one you chose has ended",
            )
        if self._target.uid not in (None, uid):
            raise Refused(
                Refusal.REUSED,
                f"{pid} runs as {printable(user_name(uid))} by now, not as {_owner(self._target)}: "
                "look at it and choose it again",
            )
        if self.ended():
            raise _gone(self._target, self.standing())

    def send(self, number: int) -> None:
        """See ``Grip.send``."""
        self.compare()
        try:
            self._deliver(number)
        except ProcessLookupError:
            raise _gone(self._target) from None
        except PermissionError:
            raise Refused(Refusal.NOT_PERMITTED, _not_permitted(self._target, number)) from None

    def _deliver(self, number: int) -> None:
        raise NotImplementedError

    def ended(self) -> bool:
        """See ``Grip.ended``."""
        try:
            seen = _see(self._target.id.pid, self._proc)
        except OSError:
            return False  # Too many open files, for one: that is no end.
        return seen is None or seen[0].id != self._target.id or seen[0].ended

    def standing(self) -> Standing | None:
        """See ``Grip.standing``."""
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
            return Standing(stat.state, channel)
        return Standing(stat.state, channel, parent.id, parent.name)

    def close(self) -> None:
        """See ``Grip.close``."""


class _PidfdGrip(_Grip):
    """Holds a process by a descriptor, which never comes to mean another one."""

    def __init__(self, target: Target, proc: str) -> None:
        super().__init__(target, proc)
        self._over = False
        try:
            self.descriptor = os.pidfd_open(target.id.pid)
        except OSError as error:
            # A number that names a thread only is invalid, and in newer kernels absent.
            if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
                raise _gone(target) from None
            raise

    def _deliver(self, number: int) -> None:
        signal.pidfd_send_signal(self.descriptor, number)

    def ended(self) -> bool:
        """Whether the last thread has gone; the descriptor is given back then."""
        if self._over or self.descriptor < 0:
            return self._over or super().ended()
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        self._over = bool(poll.poll(0))
        if self._over:
            self.close()
        return self._over

    def close(self) -> None:
        """See ``Grip.close``."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _PsutilGrip(_Grip):
    """Holds a process by its number and time of creation."""

    def __init__(self, target: Target, proc: str) -> None:
        import psutil

        super().__init__(target, proc)
        try:
            self._process = psutil.Process(target.id.pid)
        except psutil.NoSuchProcess:
            raise _gone(target) from None

    def _deliver(self, number: int) -> None:
        import psutil

        try:
            self._process.send_signal(number)
        except psutil.NoSuchProcess:
            raise ProcessLookupError from None
        except psutil.AccessDenied:
            raise PermissionError from None


def _pidfds_work() -> bool:
    """Whether this kernel has pidfds and lets us use them: asked of gpumon itself, by signal 0."""
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


def _refuse_the_untouchable(target: Target, readonly: bool, proc: str) -> None:
    """Refuse what must not be signalled, whoever asks."""
    pid = target.id.pid
    if readonly:
        raise Refused(Refusal.READ_ONLY, "gpumon runs with --readonly: it sends no signal")
    if pid <= 1:
        raise Refused(
            Refusal.PROTECTED, f"{pid} is never signalled: it stands for the whole system"
        )
    if not os.path.lexists(f"{proc}/self"):
        raise Refused(
            Refusal.NOT_VISIBLE,
            f"{pid} cannot be compared with what you saw, for there is no {proc} here: "
            "look at it with ps, and use kill",
        )
    if target.id.start_time is None or not _speaks_of_us(proc):
        raise Refused(
            Refusal.NOT_VISIBLE,
            f"{pid} is not visible here, and that number may be another process's: "
            "end it from its own container or host",
        )
    leader = _thread_group(pid, proc)
    if os.getpid() in (pid, leader):
        raise Refused(Refusal.PROTECTED, f"{pid} is gpumon itself: q leaves it")
    if leader not in (None, pid):
        raise Refused(
            Refusal.THREAD, f"{pid} is a thread of {leader} and no process: choose {leader}"
        )
    if pid in _ancestors(proc):
        raise Refused(
            Refusal.PROTECTED,
            f"{pid} is what gpumon was started from: ending it would end gpumon too",
        )


def _speaks_of_us(proc: str) -> bool:
    """Whether the numbers in ``/proc`` are those of our PID name space; mounts can lag behind."""
    try:
        return Path(proc, "self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def _ancestors(proc: str) -> Iterator[int]:
    """The numbers of our ancestors, as far as they can be seen, the nearest first."""
    stat = stat_of(proc, os.getpid())
    while stat is not None and stat.parent > 0:
        yield stat.parent
        stat = stat_of(proc, stat.parent)


def _gone(target: Target, standing: Standing | None = None) -> Refused:
    return Refused(Refusal.GONE, f"{target.id.pid} had ended already{unreaped(standing)}")


def unreaped(standing: Standing | None) -> str:
    """The end of a sentence on a process that ended but is still listed; else nothing."""
    if standing is None or standing.parent is None:
        return ""
    name = printable(standing.parent_name or "")
    return f"; its parent {standing.parent.pid} ({name}) has not taken notice yet"


def _not_permitted(target: Target, number: int) -> str:
    """Whose it is, and what a person would do."""
    pid = target.id.pid
    kill = f"sudo kill -{signal_name(number)} {pid}"
    if target.uid == os.geteuid():
        return f"{pid} is yours, but this system does not let you signal it: {kill}"
    owner = _owner(target)
    ask = "ask an administrator" if target.uid == 0 else f"ask {owner}"
    return f"{pid} is {owner}'s, not yours: {ask}, or {_other_way(target) or kill}"


def _other_way(target: Target) -> str | None:
    """What ends it as a whole and in order, where something else keeps it."""
    place = target.place
    if place is None:
        return None
    if place.slurm_job is not None:
        return f"an operator runs scancel {_quoted(place.slurm_job)}"
    container = place.container
    if container is None or container.runtime != "docker":
        # Others keep containers per user, or under names that only their pods tell.
        return None
    name = container.name or container.id
    return f"docker stop {_quoted(name)}, which ends all that is in it" if name else None


def _quoted(text: str) -> str:
    return shlex.quote(printable(text))


def signal_name(number: int) -> str:
    """``TERM``, ``KILL``; the number of one that has no name here."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def _owner(target: Target) -> str:
    if target.user is not None:
        return printable(target.user)
    return "another user" if target.uid is None else printable(user_name(target.uid))


def _see(pid: int, proc: str) -> tuple[Stat, int] | None:
    """A process and its effective user; ``None`` when there is none, or it is hidden."""
    try:
        with opened(proc, pid) as directory:
            return read_stat(directory), owner(directory)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _thread_group(pid: int, proc: str) -> int | None:
    """The process that a thread belongs to: ``/proc`` answers for the numbers of threads too."""
    try:
        status = read_file(f"{proc}/{pid}/status", _STATUS_BYTES)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for line in status.splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return None
