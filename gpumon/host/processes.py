"""Reads processes from ``/proc``.

psutil is not used: a hundred processes are read every second, and it takes 105 µs for each against
3. Each takes one read of one file, which stays open; properties that cannot change are kept by PID
and start time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.procfs import (
    START_STACK,
    START_TIME,
    STAT_BYTES,
    STATE,
    STIME,
    UTIME,
    boot_time,
    in_initial_pid_namespace,
    read_once,
    resident_bytes,
    split_stat,
    split_strings,
    started_after_boot,
)
from gpumon.model.process_states import ENDED
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.system.resource_errors import max_open_files
from gpumon.system.system import THIS_SYSTEM, user_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpumon.system.system import System

COMMAND_BYTES = 4096
"""Bytes of a command line that are read; some have megabytes, but few exceed a page."""
_NUMBER_BYTES = 32

_OPEN_SHARE, _ENOUGH_FILES = 4, 1024
"""At most this share of the files that this program may open stays open here."""

_Incarnation = tuple[bytes, bytes]


class _Known:
    """A process as remembered between two readings."""

    __slots__ = (
        "boot",
        "command",
        "cpu_percent",
        "cpu_ticks",
        "id",
        "incarnation",
        "info",
        "name",
        "read_at",
        "start_time",
        "stat",
        "uid",
        "user",
    )

    def __init__(self, pid: int, start_time: bytes, cpu_ticks: int, now: float) -> None:
        self.id = ProcessId(pid, int(start_time))
        self.start_time = start_time
        self.incarnation: _Incarnation | None = None
        self.name = ""
        self.uid: int | None = None
        self.user: str | None = None
        self.command: tuple[str, ...] = ()
        self.cpu_ticks = cpu_ticks
        self.cpu_percent: float | None = None
        self.read_at = now
        self.boot = 0.0
        self.stat = b""
        self.info: GpuProcess | None = None

    def measure(self, cpu_ticks: int, now: float) -> None:
        """Compute the CPU percentage since the previous reading."""
        elapsed = now - self.read_at
        if elapsed > 0:
            used = (cpu_ticks - self.cpu_ticks) / os.sysconf("SC_CLK_TCK")
            # The kernel counts in ticks: more digits are noise, which a stream would send.
            self.cpu_percent = round(used / elapsed * 100, 2)
            self.cpu_ticks = cpu_ticks
            self.read_at = now

    def now(
        self, state: str, cpu_percent: float | None, rss: int | None, boot: float
    ) -> GpuProcess:
        """The process with what changes."""
        return GpuProcess(
            self.id,
            "",
            (),
            user=self.user,
            uid=self.uid,
            name=self.name,
            command=self.command,
            state=state,
            cpu_percent=cpu_percent,
            rss=rss,
            started_at=boot + started_after_boot(self.id),
        )

    def lacks_command(self, rss: int | None) -> bool:
        """Whether it has memory but no arguments yet: an exec sets its name before them."""
        return not self.command and bool(rss)


class _Opened(NamedTuple):
    """Open files of one process: they fail once it has ended, even if its PID is reused."""

    directory: int
    stat: int


class ProcessReader:
    """Reads processes repeatedly: about 7 µs for an idle one, 15 µs for others.

    Not thread-safe. ``keep_only`` limits what it remembers and keeps open.

    Args:
        system: The operating system that is read.
    """

    def __init__(self, system: System = THIS_SYSTEM) -> None:
        self._proc = system.proc
        self._known: dict[int, _Known] = {}
        self._opened: dict[int, _Opened] = {}
        self._most_opened = max_open_files(_ENOUGH_FILES) // _OPEN_SHARE // len(_Opened._fields)
        self._boot = boot_time()
        self._boot_checked_at: float | None = None

    def read(self, pid: int, now: float) -> GpuProcess | None:
        """A process at this moment, without its use of GPUs.

        The first process of a user looks up the user's name, which may wait for the network.

        Args:
            pid: Its PID in this program's own PID namespace.
            now: Seconds on the monotonic clock.

        Returns:
            ``None`` if it ended before the first reading, or ``/proc`` hides it (``hidepid``). If
            it ended later, it keeps its values with state ``X`` until ``keep_only`` omits it: a
            process that reuses its PID is not the one that the driver lists. The same object as
            before if nothing has changed.
        """
        known = self._known.get(pid)
        if known is not None and known.info is not None and known.info.state == ENDED:
            return known.info
        read = self._read_opened(pid) or self._read_unopened(pid)
        if read is None:
            if known is None or _exists(pid):
                return None
            known.info = known.now(ENDED, None, None, known.boot)
            return known.info
        stat, uid = read
        # Once per pass: if the clock is set, start times move with it.
        if now != self._boot_checked_at:
            self._boot_checked_at, self._boot = now, boot_time()
        boot = self._boot
        if known is not None and stat == known.stat and uid == known.uid:
            before = known.info
            if before is not None and before.cpu_percent == 0 and known.boot == boot:
                known.read_at = now
                return before
        info = self._parse(pid, stat, uid, boot, now)
        known = self._known[pid]
        known.stat, known.boot = stat, boot
        known.info = None if known.lacks_command(info.rss) else info
        return info

    def _parse(self, pid: int, stat: bytes, uid: int | None, boot: float, now: float) -> GpuProcess:
        """Parse ``/proc/PID/stat``."""
        name, fields = split_stat(stat)
        cpu_ticks = int(fields[UTIME]) + int(fields[STIME])
        rss = resident_bytes(fields)

        known = self._known.get(pid)
        if known is None or known.start_time != fields[START_TIME]:
            known = self._known[pid] = _Known(pid, fields[START_TIME], cpu_ticks, now)
        else:
            known.measure(cpu_ticks, now)

        # The address of the stack changes at every exec, also if the name stays the same. It is 0
        # for processes of other users.
        incarnation = (name, fields[START_STACK])
        if known.incarnation != incarnation or known.lacks_command(rss):
            self._read_identity(known, incarnation)
        # A process can change its user without an exec.
        if uid is not None and uid != known.uid:
            known.uid = uid
            known.user = user_name(uid)

        return known.now(fields[STATE].decode(), known.cpu_percent, rss, boot)

    def keep_only(self, pids: Collection[int]) -> None:
        """Forget all other processes."""
        for pid in [pid for pid in self._known if pid not in pids]:
            del self._known[pid]
        for pid in [pid for pid in self._opened if pid not in pids]:
            self._close(pid)

    def has_ended(self, pid: int) -> bool:
        """Whether a process with this PID is gone.

        False in a container, where the driver may list a process of another PID namespace, and for
        a number that no process can have had here.
        """
        if not in_initial_pid_namespace(self._proc) or _exists(pid):
            return False
        try:
            return pid <= int(read_once(f"{self._proc}/sys/kernel/pid_max", _NUMBER_BYTES))
        except (OSError, ValueError):
            return False

    def _read_opened(self, pid: int) -> tuple[bytes, int] | None:
        """Read ``/proc/PID/stat`` and the effective UID through open files."""
        opened = self._opened.get(pid)
        if opened is None:
            if len(self._opened) >= self._most_opened:
                return None
            opened = self._open(pid)
            if opened is None:
                return None
        try:
            # In this order: if the process is gone, its directory belongs to root and this fails.
            uid = os.fstat(opened.directory).st_uid
            return os.pread(opened.stat, STAT_BYTES, 0), uid
        except OSError:
            # It has ended; its PID may be reused.
            self._close(pid)
            return None

    def _open(self, pid: int) -> _Opened | None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            # The directory belongs to the effective user even if its files belong to root because
            # the process may not be dumped: task_dump_owner() in fs/proc/base.c.
            directory = os.open(f"{self._proc}/{pid}", flags | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            stat = os.open("stat", flags, dir_fd=directory)
        except OSError:
            os.close(directory)
            return None
        opened = self._opened[pid] = _Opened(directory, stat)
        return opened

    def _close(self, pid: int) -> None:
        for descriptor in self._opened.pop(pid):
            os.close(descriptor)

    def _read_unopened(self, pid: int) -> tuple[bytes, int | None] | None:
        """The same without keeping files open; the UID is ``None`` if it has just ended."""
        stat = self._read_file(pid, "stat", STAT_BYTES)
        if stat is None:
            return None
        uid = None
        with suppress(OSError):
            uid = os.stat(f"{self._proc}/{pid}").st_uid  # noqa: PTH116 - a hot path
        return stat, uid

    def _read_identity(self, known: _Known, incarnation: _Incarnation) -> None:
        """Read the properties that change only at an exec."""
        pid = known.id.pid
        known.name = incarnation[0].decode(errors="replace")
        command = self._read_file(pid, "cmdline", COMMAND_BYTES)
        # A dead process has no arguments any more: keep those it had.
        if command or known.incarnation is None:
            known.command = split_strings(command or b"")
        known.incarnation = incarnation

    def _read_file(self, pid: int, name: str, size: int) -> bytes | None:
        try:
            return read_once(f"{self._proc}/{pid}/{name}", size)
        except OSError:
            return None


def _exists(pid: int) -> bool:
    """Whether a process with this PID exists, even if ``hidepid`` hides it."""
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # A security module may refuse the answer.
    return True
