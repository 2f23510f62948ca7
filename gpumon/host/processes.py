"""What the kernel knows of a process, read from ``/proc`` by hand.

A hundred processes are looked at every second, which is why this does not go through psutil: one
read of one file a process, kept open, and what cannot change is kept under (pid, start time).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model import ENDED, ProcessId

if TYPE_CHECKING:
    from collections.abc import Collection

COMMAND_BYTES = 4096
"""How much of a command line is read. Command lines reach megabytes; a page holds nearly all."""

_STAT_BYTES = 2048
_OPEN_SHARE, _ENOUGH_FILES = 4, 1024
"""Of the files that this program may have open, one in so many is kept open here at most."""
_CLOCK_SET_SECONDS = 0.05
_USERS_KEPT = 4096

_Incarnation = tuple[bytes, bytes]


class ProcessFacts(Struct, frozen=True):
    """One process at one moment. ``None`` is unknown.

    Attributes:
        id: Its identity; the start time is always known here.
        name: The kernel's short name of it (``comm``), as it is: not safe to print.
        user: Name of the owner, or the number as text where it has no name.
        uid: The owner's effective user id.
        command: Its argument vector as far as it fits in ``COMMAND_BYTES``, bytes that are no
            UTF-8 replaced; ``()`` for kernel threads and for whoever died before it was read.
        state: One letter, as in ``ps``: R, S, D, Z, T, ...; ``X`` for one that has ended.
        cpu_percent: Of one core since the previous reading of this identity; ``None`` at the first.
        rss: Resident bytes, by the counters that ``ps`` shows. ``None`` for a process whose main
            thread is dead while others live: the kernel then reports 0, whatever they hold.
        started_at: When it started, seconds since the epoch.
    """

    id: ProcessId
    name: str
    user: str | None
    uid: int | None
    command: tuple[str, ...]
    state: str
    cpu_percent: float | None
    rss: int | None
    started_at: float


class _Known:
    """What is kept of a process between two readings."""

    __slots__ = (
        "boot",
        "command",
        "cpu_percent",
        "cpu_ticks",
        "facts",
        "id",
        "incarnation",
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
        self.facts: ProcessFacts | None = None

    def measure(self, cpu_ticks: int, now: float) -> None:
        """Take the CPU time used since the previous reading."""
        elapsed = now - self.read_at
        if elapsed > 0:
            used = (cpu_ticks - self.cpu_ticks) / os.sysconf("SC_CLK_TCK")
            self.cpu_percent = used / elapsed * 100
            self.cpu_ticks = cpu_ticks
            self.read_at = now

    def owes_command(self, rss: int | None) -> bool:
        """Whether it has memory and no arguments: an exec shows the new name a moment before."""
        return not self.command and bool(rss)


class _Opened(NamedTuple):
    """Files of one process, kept open: they fail once it has ended, whoever gets its number."""

    directory: int
    stat: int


class ProcessReader:
    """Reads processes again and again, at about 7 µs each that does nothing, and 15 µs others.

    Not safe to use from several threads. ``keep_only`` bounds what it remembers and keeps open.

    Args:
        proc: Where the process file system is mounted.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._opened: dict[int, _Opened] = {}
        self._most_opened = _most_files() // _OPEN_SHARE // len(_Opened._fields)
        self._users: dict[int, str] = {}
        self._boot = _boot_time()
        self._boot_checked_at: float | None = None

    def read(self, pid: int, now: float) -> ProcessFacts | None:
        """What is known of a process at this moment.

        The first process of a user asks the name service for the user's name, which may wait for
        the network.

        Args:
            pid: Its number in this program's own PID name space: one of another name space would
                name a stranger. See ``gpumon.host.namespaces``.
            now: Seconds on the monotonic clock.

        Returns:
            ``None`` when there is no such process to be seen here: it ended before it was first
            read, or ``/proc`` hides it (``hidepid``). One that ended since then keeps its facts,
            with state ``X``, until ``keep_only`` leaves it out: its number, should another process
            get it, is not what the driver lists. The very same facts as before when nothing about
            it has changed.
        """
        known = self._known.get(pid)
        if known is not None and known.facts is not None and known.facts.state == ENDED:
            return known.facts
        read = self._read_opened(pid) or self._read_unopened(pid)
        if read is None:
            return None if known is None or _exists(pid) else _end(known)
        stat, uid = read
        boot = self._boot_time(now)
        if known is not None and stat == known.stat and uid == known.uid:
            before = known.facts
            if before is not None and before.cpu_percent == 0 and known.boot == boot:
                known.read_at = now
                return before
        facts = self._tell(pid, stat, uid, boot, now)
        known = self._known[pid]
        known.stat, known.boot = stat, boot
        known.facts = None if known.owes_command(facts.rss) else facts
        return facts

    def _tell(
        self, pid: int, stat: bytes, uid: int | None, boot: float, now: float
    ) -> ProcessFacts:
        """What the kernel's line says of a process."""
        # The name is not escaped and may itself hold parentheses, spaces and line feeds; nothing
        # after it holds a parenthesis.
        end = stat.rindex(b")")
        # Numbering of proc_pid_stat(5), less 3: 0 state, 11 utime, 12 stime, 17 num_threads,
        # 19 starttime, 21 rss, 25 startstack.
        fields = stat[end + 2 :].split(None, 26)
        cpu_ticks = int(fields[11]) + int(fields[12])
        rss_pages = int(fields[21])

        known = self._known.get(pid)
        if known is None or known.start_time != fields[19]:
            known = self._known[pid] = _Known(pid, fields[19], cpu_ticks, now)
        else:
            known.measure(cpu_ticks, now)

        # The address of the stack is drawn anew at every exec, so it tells one python from the
        # next where the name does not; it is 0 in processes of other users, who have the name.
        incarnation = (stat[stat.index(b"(") + 1 : end], fields[25])
        if known.incarnation != incarnation or known.owes_command(rss_pages):
            self._read_identity(known, incarnation)
        # A process can change its user without an exec.
        if uid is not None and uid != known.uid:
            known.uid = uid
            known.user = self._user(uid)

        state = fields[0].decode()
        leader_died = state == "Z" and fields[17] != b"1"
        return ProcessFacts(
            known.id,
            known.name,
            known.user,
            known.uid,
            known.command,
            state,
            known.cpu_percent,
            None if leader_died else rss_pages * os.sysconf("SC_PAGE_SIZE"),
            _started_at(boot, fields[19]),
        )

    def keep_only(self, pids: Collection[int]) -> None:
        """Forget every process but these."""
        for pid in [pid for pid in self._known if pid not in pids]:
            del self._known[pid]
        for pid in [pid for pid in self._opened if pid not in pids]:
            self._close(pid)

    def _read_opened(self, pid: int) -> tuple[bytes, int] | None:
        """The kernel's line of a process and its effective user, by what is open of it."""
        opened = self._opened.get(pid)
        if opened is None:
            if len(self._opened) >= self._most_opened:
                return None
            opened = self._open(pid)
            if opened is None:
                return None
        try:
            # In this order: the directory of a process that is gone says root, its line fails.
            uid = os.fstat(opened.directory).st_uid
            return os.pread(opened.stat, _STAT_BYTES, 0), uid
        except OSError:
            # It has ended; the number may be another's by now.
            self._close(pid)
            return None

    def _open(self, pid: int) -> _Opened | None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            # The directory belongs to the effective user even where its files, of a process that
            # may not be dumped, belong to root: task_dump_owner() in fs/proc/base.c.
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
        """The same where no more may be kept open; the user is ``None`` when it has just ended."""
        stat = self._read_file(pid, "stat", _STAT_BYTES)
        if stat is None:
            return None
        uid = None
        with suppress(OSError):
            uid = os.stat(f"{self._proc}/{pid}").st_uid  # noqa: PTH116 - a hot path
        return stat, uid

    def _read_identity(self, known: _Known, incarnation: _Incarnation) -> None:
        """Fill in what changes at an exec only."""
        pid = known.id.pid
        known.name = incarnation[0].decode(errors="replace")
        command = self._read_file(pid, "cmdline", COMMAND_BYTES)
        # A dead process has no arguments left; those it had are still its own.
        if command or known.incarnation is None:
            known.command = _arguments(command or b"")
        known.incarnation = incarnation

    def _read_file(self, pid: int, name: str, size: int) -> bytes | None:
        try:
            descriptor = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, size)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _user(self, uid: int) -> str:
        name = self._users.get(uid)
        if name is None:
            import pwd

            try:
                name = pwd.getpwuid(uid).pw_name
            except KeyError:
                name = str(uid)
            if len(self._users) >= _USERS_KEPT:
                self._users.clear()
            self._users[uid] = name
        return name

    def _boot_time(self, now: float) -> float:
        """When the machine started, by the clock as it is set now.

        Taken afresh in every pass: when somebody sets the clock, start times move with it and ages
        stay right. Moved only by real jumps, so that a process keeps one start time to the digit.
        """
        if now != self._boot_checked_at:
            self._boot_checked_at = now
            boot = _boot_time()
            if abs(boot - self._boot) > _CLOCK_SET_SECONDS:
                self._boot = boot
        return self._boot


def _exists(pid: int) -> bool:
    """Whether a process has this number, hidden by ``hidepid`` or not."""
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # A security module may refuse the answer.
    return True


def _end(known: _Known) -> ProcessFacts:
    """What stays known of a process that has ended."""
    known.facts = ProcessFacts(
        known.id,
        known.name,
        known.user,
        known.uid,
        known.command,
        ENDED,
        None,
        None,
        _started_at(known.boot, known.start_time),
    )
    return known.facts


def _started_at(boot: float, start_time: bytes) -> float:
    return boot + int(start_time) / os.sysconf("SC_CLK_TCK")


def _most_files() -> int:
    """How many files this program may have open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _ENOUGH_FILES if soft == resource.RLIM_INFINITY else min(soft, _ENOUGH_FILES)


def _boot_time() -> float:
    # Start times count from CLOCK_BOOTTIME's zero, time name spaces included. `btime` of
    # /proc/stat is the same difference cut to whole seconds, in a file of several milliseconds on
    # a large machine, and lxcfs puts the container's start in its place.
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _arguments(command_line: bytes) -> tuple[str, ...]:
    # Programs that write their own title leave the rest of the space filled with zeros.
    text = command_line.rstrip(b"\0").decode(errors="replace")
    return tuple(text.split("\0")) if text else ()
