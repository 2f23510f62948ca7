"""Opens log files safely in shared directories, and locks them for one writer.

In a directory such as ``/tmp``, another user may have placed something under the log's name: a
symbolic link to one of our files, a pipe without a reader, or a file that its owner can read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from gpumon.system.system import user_name
from gpumon.text.formatting import printable

_LINKS = 8
"""How many symbolic links may lead from one to the next."""

_UNLOCKABLE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)
"""What a file system without locks answers. The log is worth more there than the lock."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class LogError(Exception):
    """A log cannot be written; the message says what failed, why, and what to do."""


def refuse_no_file(asked: Path) -> None:
    """Reject a path that exists under exactly the requested name but cannot hold a log.

    A user who types ``/dev/full`` does not mean ``/dev/full.csv``.

    Raises:
        LogError: It is a device, a pipe or the like.
    """
    with contextlib.suppress(OSError, ValueError):
        _check_kind(asked.stat(), asked)


def open_file(path: Path) -> tuple[int, bool]:
    """Open a file for appending, or create it readable only by its owner.

    Returns:
        Its descriptor, and whether it was created.

    Raises:
        LogError: When what is there is no file, belongs to somebody else, or is a symbolic link
            that somebody else made.
        OSError: When it cannot be opened or made.
    """
    at = path
    for _ in range(_LINKS):
        try:
            return _make(at), True
        except FileExistsError:
            pass
        try:
            status = os.lstat(at)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            at = _followed(at, path)
        else:
            return _open(at, path), False
    raise LogError(f"{shown(path)} is a link to another link; name the file itself.")


def _make(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _open(path: Path, named: Path) -> int:
    # Checked before opening, because opening some devices has effects; and after, because the path
    # may lead to another file by then.
    _check(os.lstat(path), named)
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        _check(status, named)
        if not status.st_size:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(status: os.stat_result, named: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
        raise LogError(f"{shown(named)} is {kind} and no file to log to; choose another name.")


def _check(status: os.stat_result, named: Path) -> None:
    _check_kind(status, named)
    if status.st_uid != os.geteuid():
        raise LogError(
            f"{shown(named)} belongs to {_user(status.st_uid)} and not to you;"
            " choose another name for the log."
        )


def _followed(link: Path, named: Path) -> Path:
    """The target of a symbolic link of our own."""
    # Read the link through its descriptor: the name may lead to another link by then.
    descriptor = os.open(link, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise LogError(
                f"{shown(named)} is a symbolic link that {_user(status.st_uid)} made, which is not"
                " followed; choose another name for the log."
            )
        target = os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)
    return link.parent / target


def lock(descriptor: int, path: Path) -> None:
    """Lock a file for this writer while the descriptor is open.

    Raises:
        LogError: Another writer has it; the message names it if the system tells.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise being_written(path, _holder(descriptor)) from None
    except OSError as error:
        if error.errno not in _UNLOCKABLE:
            raise


def being_written(path: Path, holder: str) -> LogError:
    """The error for a file that another process is writing."""
    return LogError(
        f"{shown(path)} is already being written by {holder}; end that, or choose another name for"
        " the log."
    )


def holder(path: Path, but_not: int | None = None) -> str | None:
    """The writer that locks a file, as text; ``None`` if none is known.

    The holder of the given descriptor does not count.
    """
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if but_not is not None and os.path.sameopenfile(descriptor, but_not):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def shown(path: Path) -> str:
    """A path, safe to print in a sentence."""
    return printable(os.fspath(path))


def _holder(descriptor: int) -> str:
    """The process that locks a file, from ``/proc/locks`` (proc_locks(5))."""
    mine = os.fstat(descriptor)
    device = f"{os.major(mine.st_dev):02x}:{os.minor(mine.st_dev):02x}"
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        locks = []
    # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF, or with -> before FLOCK for a waiting
    # process. Some file systems show another device there than stat; then only the inode is
    # compared.
    holders: dict[bool, set[int]] = {True: set(), False: set()}
    for line in locks:
        fields = line.split()
        if len(fields) == 8 and fields[1] == "FLOCK":
            where, _, inode = fields[5].rpartition(":")
            if int(inode) == mine.st_ino and int(fields[4]) > 0:
                holders[where == device].add(int(fields[4]))
    pids = holders[True] or holders[False]
    if len(pids) != 1:
        return "another program"
    pid = pids.pop()
    name = "another program"
    with contextlib.suppress(OSError):
        name = printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    return f"{name} (PID {pid})"


def _user(uid: int) -> str:
    return printable(user_name(uid, "user "))
