"""The order of waiting jobs: first come, first served.

Each waiter has a file in the lock folder, locked while it waits, with its requirements inside. A
job leaves those GPUs alone that an earlier waiter could use. The inode change time of the file
gives the order: no user can set it, and nothing changes it later.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpumon.scheduling.reservation.lock_folder import FolderError, user_named
from gpumon.scheduling.reservation.locks import is_locked, lock

if TYPE_CHECKING:
    from gpumon.scheduling.reservation.lock_folder import Folder

_PREFIX = "waiting-"
_MOST_BYTES = 65536
_NEWBORN_SECONDS = 60.0
"""An unlocked file younger than this may belong to a process that is about to lock it."""


class Ticket(Struct, frozen=True):
    """A waiting job.

    Attributes:
        name: Name of the file.
        at: Start of the wait, in seconds since the epoch.
        place: The sort key.
        uid: The user id.
        pid: The PID it claims.
        wants: The requirements it claims, as bytes.
    """

    name: str
    at: float
    place: tuple[int, str]
    uid: int
    pid: int
    wants: bytes

    @property
    def user(self) -> str:
        """The user's name; safe to print."""
        return user_named(self.uid)


class _Content(Struct, frozen=True):
    pid: int
    wants: msgspec.Raw


class QueueEntry:
    """This process's own place in the queue.

    It has its name before its file, so that it can be left whenever a signal ends the program.

    Args:
        folder: The folder of the queue.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        # The kernel's time has steps; within one step the name decides.
        self.name = f"{_PREFIX}{time.monotonic_ns():020d}-{os.getpid()}-{os.urandom(6).hex()}"
        self._descriptor: int | None = None

    def join(self, wants: bytes) -> None:
        """Join the queue, once.

        Args:
            wants: The requirements, as JSON.

        Raises:
            OSError: The file cannot be created.
        """
        try:
            self._descriptor = self._folder.make(self.name, mode=0o644)
            lock(self._descriptor)
            content = _Content(os.getpid(), msgspec.Raw(wants))
            os.write(self._descriptor, msgspec.json.encode(content))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the queue."""
        self._folder.remove(self.name)
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def tickets(folder: Folder) -> list[Ticket]:
    """All waiting jobs, first come first."""
    found = []
    for name in folder.names():
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError, FolderError, msgspec.MsgspecError, RecursionError):
                ticket = _read(folder, name)
                if ticket is not None:
                    found.append(ticket)
    return sorted(found, key=lambda one: one.place)


def _read(folder: Folder, name: str) -> Ticket | None:
    descriptor = folder.open(name)
    try:
        status = os.fstat(descriptor)
        if not is_locked(descriptor):
            # The waiter of this file was killed.
            if time.time() > status.st_ctime + _NEWBORN_SECONDS:
                folder.remove(name)
            return None
        content = msgspec.json.decode(os.pread(descriptor, _MOST_BYTES, 0), type=_Content)
    finally:
        os.close(descriptor)
    place = status.st_ctime_ns, name
    return Ticket(name, status.st_ctime, place, status.st_uid, content.pid, bytes(content.wants))
