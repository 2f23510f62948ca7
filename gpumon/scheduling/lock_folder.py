"""The lock folder: shared by all users of the machine, and safe against tampering.

It is in the system's lock directory, or else in ``/tmp``: the choice is the same for every user.
All users may create files in it, but only remove their own, as in ``/tmp`` itself. So any name in
it may be a symbolic link, a pipe, or a file without read permission. Such entries are never
followed or written to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.system.system import user_name
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHARED_PARENTS = ("/run/lock", "/tmp")  # noqa: S108 - safe through the checks here
"""The first of these folders in which all users may create files has the default lock folder."""
_NAME = "gpumon"
_FOR_ALL = 0o1777
_TRIES = 8


class FolderError(Exception):
    """A folder, or a file in it, cannot be used; the text says why, and is safe to print."""


class Folder:
    """An open lock folder."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor  # closed with this object

    def close(self) -> None:
        """Close it. Locks opened in it remain."""
        os.close(self._descriptor)

    def status(self) -> os.stat_result:
        """The status of the folder itself."""
        return os.fstat(self._descriptor)

    def names(self) -> list[str]:
        """The names of all entries; empty if it cannot be read."""
        try:
            return os.listdir(self._descriptor)  # noqa: PTH208 - there is only a descriptor, no path
        except OSError:
            return []

    def make(self, name: str, *, mode: int) -> int:
        """Create a file with exactly these permissions, and open it for writing.

        Raises:
            OSError: It cannot be created, or exists.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _no_mask():
            return os.open(name, flags, mode, dir_fd=self._descriptor)

    def open(self, name: str, *, make: bool = False) -> int:
        """Open a file for reading and, if allowed, for writing.

        With ``make``, it is created for all users if it does not exist.

        Raises:
            FileNotFoundError: It does not exist.
            FolderError: The entry is not a regular file.
            OSError: It cannot be opened or created.
        """
        for _ in range(_TRIES):
            # Never use O_CREAT on an existing file: the kernel refuses that for files of other
            # users in such a folder (fs.protected_regular).
            with contextlib.suppress(FileNotFoundError):
                return self._open(name)
            if not make:
                raise FileNotFoundError(name)
            with contextlib.suppress(FileExistsError):
                return self.make(name, mode=0o666)
        raise FolderError(f"{self._shown(name)} is created and removed again and again")

    def _open(self, name: str) -> int:
        # Checked before opening, because opening some devices has effects; and after, because the
        # name may lead to another file by then.
        self._check(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False), name)
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(name, flags | os.O_RDWR, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise
        except OSError:
            descriptor = os.open(name, flags | os.O_RDONLY, dir_fd=self._descriptor)
        try:
            self._check(os.fstat(descriptor), name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def is_there(self, name: str, descriptor: int) -> bool:
        """Whether a name still leads to this open file."""
        try:
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(descriptor))

    def remove(self, name: str) -> None:
        """Remove a file; does nothing if that is not allowed."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)

    def _check(self, found: os.stat_result, name: str) -> None:
        if not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no plain file"
            raise FolderError(f"{self._shown(name)} is {kind} that {user_named(found.st_uid)} made")
        if found.st_nlink != 1:
            raise FolderError(f"{self._shown(name)} has other names, too")

    def _shown(self, name: str) -> str:
        return printable(str(self.path / name))


def shared_folder(asked: str | None, *, make: bool = True) -> Folder | None:
    """The folder that all users of this machine share; ``asked`` is another path for it.

    Returns:
        ``None`` if it does not exist and is not to be made.

    Raises:
        FolderError: There is no usable folder.
    """
    path = usual_path() if asked is None else Path(asked)
    try:
        if make:
            with contextlib.suppress(FileExistsError), _no_mask():
                path.mkdir(_FOR_ALL)
        folder = _opened(path)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            return None
        # Path.is_symlink raises without permission.
        link = os.path.islink(path)  # noqa: PTH114 - for that
        why = "it is a symbolic link" if link else error.strerror
        raise FolderError(f"{printable(str(path))} cannot be used: {why}") from None
    try:
        _check_shared(folder, usual=asked is None)
    except BaseException:
        folder.close()
        raise
    return folder


def own_folder(environment: Mapping[str, str], *, make: bool = True) -> Folder | None:
    """A folder of this user only.

    Returns:
        ``None`` if it does not exist and is not to be made.

    Raises:
        FolderError: There is no usable folder.
    """
    from gpumon.system.folders import state_folder

    runtime = environment.get("XDG_RUNTIME_DIR")
    path = Path(runtime, _NAME) if runtime else Path(state_folder(), "locks")
    try:
        if make:
            path.mkdir(0o700, parents=True, exist_ok=True)
        folder = _opened(path)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            return None
        raise FolderError(f"{printable(str(path))} cannot be used: {error.strerror}") from None
    found = folder.status()
    if found.st_uid != os.geteuid():
        folder.close()
        raise FolderError(f"{printable(str(path))} belongs to {user_named(found.st_uid)}")
    return folder


def user_named(uid: int) -> str:
    """A user's name, or the user id if it has none; safe to print."""
    return printable(user_name(uid, "user "))


def usual_path() -> Path:
    """The default path of the folder that all users share, existing or not."""
    for parent in SHARED_PARENTS:
        with contextlib.suppress(OSError):
            if Path(parent).stat().st_mode & _FOR_ALL == _FOR_ALL:
                return Path(parent, _NAME)
    return Path(SHARED_PARENTS[-1], _NAME)


def _opened(path: Path) -> Folder:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return Folder(path, os.open(path, flags))


def _check_shared(folder: Folder, *, usual: bool) -> None:
    """Reject a folder in which other users could remove a lock file, or not create one."""
    found = folder.status()
    shown = printable(str(folder.path))
    everybody = found.st_mode & stat.S_IWOTH
    if everybody and not found.st_mode & stat.S_ISVTX:
        raise FolderError(f"in {shown} anybody may remove anybody's files: it is not sticky")
    if usual and not everybody:
        owner = user_named(found.st_uid)
        raise FolderError(f"{shown} belongs to {owner} and is not open to everybody (mode 1777)")


@contextlib.contextmanager
def _no_mask() -> Iterator[None]:
    """Create entries with exactly the requested permissions, from the start."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)
