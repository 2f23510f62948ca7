"""Reads ``/proc``: one process, all of them, and the PID namespace of this program.

An open ``/proc/PID`` stays bound to its process, not to the PID: after the process has ended, all
reads through it fail, even if the PID was reused. So everything about one process is read through
one such directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.processes import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterator

STAT_BYTES = 2048
"""More than the length of ``/proc/PID/stat``."""
STATE, PPID, PGRP, SESSION, FLAGS, UTIME, STIME, THREADS = 0, 1, 2, 3, 6, 11, 12, 17
START_TIME, RSS, START_STACK = 19, 21, 25
"""Fields of ``split_stat``: the numbering of proc_pid_stat(5), less 3."""
_STATUS_BYTES, _TEXT_BYTES = 2048, 2**16
_LOOKS = 5
_MOMENT = 0.01
_CLOCK_SET_SECONDS = 0.05
_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000
"""``PF_EXITING`` and ``PF_KTHREAD`` of the kernel's ``include/linux/sched.h``."""
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""``PROC_PID_INIT_INO`` of the kernel's ``include/linux/proc_ns.h``."""


class Stat(Struct, frozen=True):
    """The content of ``/proc/PID/stat``."""

    id: ProcessId
    name: str  # the kernel's short name of it (``comm``), not safe to print
    state: str  # of its main thread: one letter, as in ``ps``
    parent: int  # a PID; 0 if that is in another PID namespace
    group: int  # its process group
    session: int  # 0 if it is of another PID namespace
    threads: int  # how many, including a dead main thread
    exiting: bool  # its main thread is exiting or dead: its memory is gone then
    kernel_thread: bool
    rss: int | None  # resident bytes; ``None`` if the main thread is dead while others live
    # Address of the bottom of its stack, which changes at every exec; ``None`` without permission
    # and for zombies.
    stack_start: int | None

    @property
    def leader_exited(self) -> bool:
        """Whether its main thread is dead while others live: it looks like a zombie."""
        return self.state == "Z" and self.threads > 1

    @property
    def ending(self) -> bool:
        """Whether it is exiting or dead as a whole: its command and environment are gone."""
        return self.exiting and not self.leader_exited

    @property
    def ended(self) -> bool:
        """Whether it is a zombie."""
        return self.state in "ZX" and self.threads <= 1


def split_stat(line: bytes) -> tuple[bytes, list[bytes]]:
    """Split ``/proc/PID/stat`` into the name and the fields after it, up to ``START_STACK``."""
    # The name is not escaped and may contain parentheses, spaces and line feeds; nothing after it
    # contains a parenthesis.
    end = line.rindex(b")")
    return line[line.index(b"(") + 1 : end], line[end + 2 :].split(None, START_STACK + 1)


def resident_bytes(fields: list[bytes]) -> int | None:
    """Resident bytes; ``None`` where the kernel reports 0 because the main thread is dead."""
    if fields[STATE] == b"Z" and int(fields[THREADS]) > 1:
        return None
    return int(fields[RSS]) * os.sysconf("SC_PAGE_SIZE")


def parse_stat(line: bytes) -> Stat:
    """Parse ``/proc/PID/stat``, or the same file of a thread."""
    name, fields = split_stat(line)
    flags = int(fields[FLAGS])
    return Stat(
        id=ProcessId(int(line[: line.index(b"(")]), int(fields[START_TIME])),
        name=name.decode(errors="replace"),
        state=fields[STATE].decode(),
        parent=int(fields[PPID]),
        group=int(fields[PGRP]),
        session=int(fields[SESSION]),
        threads=int(fields[THREADS]),
        exiting=bool(flags & _EXITING),
        kernel_thread=bool(flags & _KERNEL_THREAD),
        rss=resident_bytes(fields),
        stack_start=int(fields[START_STACK]) or None,
    )


def all_pids(proc: str) -> list[int]:
    """The PIDs that ``/proc`` shows.

    Raises:
        OSError: There is no ``/proc``.
    """
    names = os.listdir(proc)  # noqa: PTH208 - a Path for each of thousands is not needed
    return [int(name) for name in names if name.isdecimal()]


def read_table(proc: str) -> dict[int, Stat]:
    """All processes that ``/proc`` shows, by PID; about 10 µs each. Empty without ``/proc``."""
    table: dict[int, Stat] = {}
    try:
        pids = all_pids(proc)
    except OSError:
        return table
    for pid in pids:
        stat = stat_of(proc, pid)
        if stat is not None:
            table[pid] = stat
    return table


def stat_of(proc: str, pid: int) -> Stat | None:
    """The process that has this PID now; ``None`` if there is none."""
    try:
        return parse_stat(read_once(f"{proc}/{pid}/stat", STAT_BYTES))
    except OSError:
        return None


def thread_group(proc: str, tid: int) -> int | None:
    """The process of a thread, because ``/proc`` also answers for thread ids."""
    try:
        status = read_file(f"{proc}/{tid}/status", _STATUS_BYTES)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for line in status.splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return None


def in_initial_pid_namespace(proc: str) -> bool:
    """Whether this program runs in the machine's initial PID namespace.

    False also if the kernel does not say: a process without a name is better than one with the name
    of another.
    """
    try:
        inode = os.stat(f"{proc}/self/ns/pid").st_ino  # noqa: PTH116 - pathlib is not imported before the first frame
    except OSError:
        return False
    return inode == _INITIAL_PID_NAMESPACE


def has_files(proc: str, pid: int) -> bool:
    """Whether a process that may not be looked into can have files open."""
    stat = stat_of(proc, pid)
    return stat is not None and not stat.kernel_thread and not stat.ended


@contextlib.contextmanager
def opened(proc: str, pid: int) -> Iterator[ProcessFiles]:
    """Open the directory of a process.

    Raises:
        OSError: There is no such process here.
    """
    directory = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield ProcessFiles(directory)
    finally:
        os.close(directory)


class ProcessFiles:
    """What ``/proc`` has on one process, read through its open directory.

    Every method but ``text`` and ``wait_channel`` raises ``OSError`` where it cannot be read.
    """

    __slots__ = ("_thread", "directory")

    def __init__(self, directory: int) -> None:
        self.directory = directory
        self._thread: str | None = None

    def stat(self, thread: str = "") -> Stat:
        """The process, or with ``task/TID/`` one of its threads."""
        return parse_stat(read_once(f"{thread}stat", STAT_BYTES, self.directory))

    def owner(self) -> int:
        """The effective UID.

        The directory belongs to that user even if its files belong to root because the process may
        not be dumped: ``task_dump_owner()`` in the kernel's ``fs/proc/base.c``.
        """
        uid = os.fstat(self.directory).st_uid
        # The directory of a process that is gone belongs to root; its files do not exist.
        os.stat("stat", dir_fd=self.directory)
        return uid

    def threads(self) -> list[str]:
        """The threads, ``task/TID/`` each."""
        return [f"task/{tid}/" for tid in self.names("task")]

    @property
    def thread(self) -> str:
        """The path of files that need a live thread: ``""``, or ``task/TID/`` of a live one.

        A process whose main thread is dead has no command, environment or open files; its other
        threads still have them.
        """
        if self._thread is None:
            self._thread = self._living_thread() if self.stat().leader_exited else ""
        return self._thread

    def _living_thread(self) -> str:
        for thread in self.threads():
            with contextlib.suppress(OSError):
                if self.stat(thread).state not in "ZX":
                    return thread
        return ""

    def hangs(self) -> bool:
        """Whether it waits inside the kernel (state D) for longer than some moments.

        Reading the memory of such a process, including its command and environment, can hang too:
        it may hold the lock that guards them.
        """
        for _ in range(_LOOKS):
            if self.stat(self.thread).state != "D":
                return False
            time.sleep(_MOMENT)
        return True

    def command(self, limit: int) -> tuple[str, ...]:
        """Its argument vector, cut to ``limit`` bytes, with invalid UTF-8 replaced.

        ``()`` for kernel threads, zombies, and if it ``hangs``.
        """
        return () if self.hangs() else split_strings(self.read("cmdline", limit))

    def read(self, name: str, limit: int) -> bytes:
        """The first bytes of a file of a live thread."""
        return read_file(f"{self.thread}{name}", limit, self.directory)

    def text(self, path: str) -> str:
        """The beginning of a file; empty if it cannot be read."""
        try:
            return read_file(path, _TEXT_BYTES, self.directory).decode(errors="replace")
        except OSError:
            return ""

    def link(self, path: str) -> str:
        """The target of a link."""
        return os.readlink(path, dir_fd=self.directory)

    def names(self, path: str) -> list[str]:
        """The names in a directory."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = os.open(path, flags, dir_fd=self.directory)
        try:
            return os.listdir(descriptor)  # noqa: PTH208 - pathlib knows no open directories
        finally:
            os.close(descriptor)

    def wait_channel(self, thread: str = "") -> str | None:
        """The kernel function in which it, or a thread of it, waits; ``None`` if unknown."""
        try:
            name = read_once(f"{thread}wchan", 128, self.directory)
        except OSError:
            return None
        text = name.decode(errors="replace").strip()
        return None if text in ("", "0") else text


def read_once(path: str, size: int, directory: int | None = None) -> bytes:
    """The result of one ``read`` of a file, at most ``size`` bytes.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def read_file(path: str, limit: int, directory: int | None = None) -> bytes:
    """The first bytes of a file, at most ``limit``.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        data = b""
        # The kernel returns some files one page or one record at a time.
        while len(data) < limit and (more := os.read(descriptor, limit - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def split_strings(data: bytes) -> tuple[str, ...]:
    """Strings that each end with a zero byte, as in ``cmdline`` and ``environ``."""
    # Programs that write their own title fill the rest with zeros.
    text = data.rstrip(b"\0").decode(errors="replace")
    return tuple(text.split("\0")) if text else ()


class _BootTime:
    def __init__(self) -> None:
        self._known = 0.0

    def read(self) -> float:
        """When the machine started, in seconds since the epoch, by the current clock.

        Exactly the same value until the clock is set, so that start times do not change.
        """
        # Start times count from the zero of CLOCK_BOOTTIME, also in time namespaces. `btime` of
        # /proc/stat is cut to whole seconds, takes milliseconds on a large machine, and is
        # replaced with the container's start by lxcfs.
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if abs(boot - self._known) > _CLOCK_SET_SECONDS:
            self._known = boot
        return self._known


boot_time = _BootTime().read


def started_after_boot(process: ProcessId) -> float:
    """Seconds from the start of the machine to that of a process."""
    return (process.start_time or 0) / os.sysconf("SC_CLK_TCK")
