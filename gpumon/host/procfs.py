"""Reads one process, or the table of all, from ``/proc``, such that what is read belongs together.

An open ``/proc/PID`` stays bound to its process, not to the number: once that process has ended,
whatever is asked through it fails, even if the number was given to another. So everything said of
one process here goes through one such directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterator

_STAT_BYTES = 2048
_LOOKS = 5
_MOMENT = 0.01
_CLOCK_SET_SECONDS = 0.05
_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000
"""``PF_EXITING`` and ``PF_KTHREAD`` of the kernel's ``include/linux/sched.h``."""


class Stat(Struct, frozen=True):
    """What ``/proc/PID/stat`` says of a process.

    Attributes:
        id: Its identity.
        name: The kernel's short name of it (``comm``), as it is: not safe to print.
        state: One letter, as in ``ps``: that of its main thread.
        parent: Its parent's number; 0 where that is in another PID name space.
        group: Its process group.
        session: Its session; 0 where that is of another PID name space.
        threads: How many it has, a dead main thread included.
        exiting: Whether its main thread is on its way out, or dead: its memory is gone then.
        kernel_thread: Whether it is one of the kernel's own.
        rss: Resident bytes; ``None`` where the main thread is dead while others live.
        stack_start: Address of the bottom of its stack, which the kernel draws anew at every exec;
            ``None`` where it is not ours to see, and of the dead.
    """

    id: ProcessId
    name: str
    state: str
    parent: int
    group: int
    session: int
    threads: int
    exiting: bool
    kernel_thread: bool
    rss: int | None
    stack_start: int | None

    @property
    def leader_exited(self) -> bool:
        """Whether its main thread is dead while others live: it shows as a zombie and is none."""
        return self.state == "Z" and self.threads > 1

    @property
    def ended(self) -> bool:
        """Whether nothing but its number is left: a zombie."""
        return self.state in "ZX" and self.threads <= 1


def parse_stat(line: bytes) -> Stat:
    """Take apart a line of ``/proc/PID/stat``, or of one of its threads."""
    # The name is not escaped and may itself hold parentheses, spaces and line feeds; nothing
    # after it holds a parenthesis.
    start, end = line.index(b"("), line.rindex(b")")
    # Numbering of proc_pid_stat(5), less 3: 0 state, 1 ppid, 2 pgrp, 3 session, 6 flags,
    # 17 num_threads, 19 starttime, 21 rss, 25 startstack.
    fields = line[end + 2 :].split(None, 26)
    state, flags, threads = fields[0].decode(), int(fields[6]), int(fields[17])
    return Stat(
        id=ProcessId(int(line[:start]), int(fields[19])),
        name=line[start + 1 : end].decode(errors="replace"),
        state=state,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=threads,
        exiting=bool(flags & _EXITING),
        kernel_thread=bool(flags & _KERNEL_THREAD),
        rss=None if state == "Z" and threads > 1 else int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        stack_start=int(fields[25]) or None,
    )


def all_pids(proc: str) -> list[int]:
    """The numbers of all processes that ``/proc`` shows.

    Raises:
        OSError: There is no ``/proc``.
    """
    names = os.listdir(proc)  # noqa: PTH208 - a Path for each of thousands is not needed
    return [int(name) for name in names if name.isdecimal()]


def read_table(proc: str) -> dict[int, Stat]:
    """All processes that ``/proc`` shows, by number; about 10 µs each. Empty without ``/proc``."""
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
    """What the kernel says of the process that has this number now; ``None`` for none."""
    try:
        return parse_stat(_read_once(f"{proc}/{pid}/stat", _STAT_BYTES))
    except OSError:
        return None


@contextlib.contextmanager
def opened(proc: str, pid: int) -> Iterator[int]:
    """The directory of a process, to be passed to the readers below.

    Raises:
        OSError: There is no such process to be seen here.
    """
    directory = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def read_stat(directory: int, path: str = "stat") -> Stat:
    """What the kernel says of the process of this directory, or of one of its threads.

    Raises:
        OSError: It has ended and was waited for.
    """
    return parse_stat(_read_once(path, _STAT_BYTES, directory))


def _read_once(path: str, size: int, directory: int | None = None) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def read_file(path: str, limit: int, directory: int | None = None) -> bytes:
    """The first bytes of a file, at most ``limit``.

    Raises:
        OSError: It cannot be read: ``PermissionError`` where that takes another user.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        data = b""
        # The kernel hands out some of its files a page or a record at a time.
        while len(data) < limit and (more := os.read(descriptor, limit - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def living_thread(directory: int) -> str:
    """Where the files are that need a living thread: ``""``, or ``task/TID/`` of one that lives.

    A process whose main thread is dead shows no command, environment or open files of its own;
    each of its other threads still does.
    """
    if not read_stat(directory).leader_exited:
        return ""
    for tid in list_directory("task", directory):
        with contextlib.suppress(OSError):
            if read_stat(directory, f"task/{tid}/stat").state not in "ZX":
                return f"task/{tid}/"
    return ""


def list_directory(path: str, directory: int) -> list[str]:
    """The names in a directory of a process.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.listdir(descriptor)  # noqa: PTH208 - pathlib knows no open directories
    finally:
        os.close(descriptor)


def hangs(directory: int, thread: str = "") -> bool:
    """Whether it waits inside the kernel (state D) and does not come out of it within moments.

    Whoever reads the memory of such a process, its command and environment included, may have to
    wait with it: it can hold the lock that guards them.

    Raises:
        OSError: It has ended and was waited for.
    """
    for _ in range(_LOOKS):
        if read_stat(directory, f"{thread}stat").state != "D":
            return False
        time.sleep(_MOMENT)
    return True


def read_command(directory: int, limit: int, thread: str = "") -> tuple[str, ...]:
    """Its argument vector as far as it fits in ``limit`` bytes; bytes that are no UTF-8 replaced.

    Returns:
        ``()`` where there is none, as for kernel threads and zombies, and where it ``hangs``.

    Raises:
        OSError: It cannot be read.
    """
    if hangs(directory, thread):
        return ()
    return split_strings(read_file(f"{thread}cmdline", limit, directory))


def split_strings(data: bytes) -> tuple[str, ...]:
    """Strings that each end with a zero byte, as in ``cmdline`` and ``environ``."""
    # Programs that write their own title leave the rest of the space filled with zeros.
    text = data.rstrip(b"\0").decode(errors="replace")
    return tuple(text.split("\0")) if text else ()


def wait_channel(directory: int, thread: str = "") -> str | None:
    """The kernel's function in which it waits; ``None`` where the kernel does not say."""
    try:
        name = _read_once(f"{thread}wchan", 128, directory).decode(errors="replace").strip()
    except OSError:
        return None
    return None if name in ("", "0") else name


def owner(directory: int) -> int:
    """The effective user id of the process of this directory.

    The directory belongs to that user even where its files, of a process that may not be dumped,
    belong to root: ``task_dump_owner()`` in the kernel's ``fs/proc/base.c``.

    Raises:
        OSError: It has ended and was waited for.
    """
    uid = os.fstat(directory).st_uid
    # The directory of a process that is gone says root; its files say that they are not there.
    os.stat("stat", dir_fd=directory)
    return uid


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Name of a user, or the number as text where it has no name. May wait for the network."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class _BootTime:
    """When the machine started, moved by real jumps of the clock only."""

    def __init__(self) -> None:
        self._known = 0.0

    def read(self) -> float:
        # See gpumon.host.processes on why not `btime`.
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if abs(boot - self._known) > _CLOCK_SET_SECONDS:
            self._known = boot
        return self._known


_boot_time = _BootTime()


def boot_time() -> float:
    """When the machine started, seconds since the epoch, by the clock as it is set now.

    The same to the digit until somebody sets the clock, and so are the start times made of it.
    """
    return _boot_time.read()


def started_after_boot(process: ProcessId) -> float:
    """When a process that is visible here started, seconds after the machine did."""
    return (process.start_time or 0) / os.sysconf("SC_CLK_TCK")
