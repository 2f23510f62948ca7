"""Reserves GPUs for a program, and reads who has reserved one.

A lock is a ``flock`` on a file named after the GPU. Only the process that runs the job holds it, so
any end of that process, even ``kill -9``, frees the GPU. The contents of the file are only the
holder's claims; the kernel proves that it holds the lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpumon.makers.visible_devices import names_gpu
from gpumon.model.number_types import Count, Time  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.snapshot import ReservationHolder
from gpumon.scheduling.lock_folder import FolderError, own_folder, shared_folder, user_named
from gpumon.system.system import THIS_SYSTEM
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.scheduling.lock_folder import Folder

LOCK_DIR_VARIABLE = "GPUMON_LOCK_DIR"
"""The variable that names the shared folder."""
_MOST_BYTES = 4096
_TRIES = 5
_MOMENT = 0.005
"""A reader holds a lock for microseconds; a job that wants the lock retries after this."""


class TakenError(Exception):
    """Another process has reserved it; the text is the UUID of the GPU or MIG device."""


class _Note(msgspec.Struct, frozen=True):
    """The data that a holder writes into the lock file."""

    pid: Count
    start_time: Count
    since: Time
    command: str = ""


class Locks:
    """The locks of a machine's GPUs.

    A reservation of a ``gpumon run`` around this program, named here by ``CUDA_VISIBLE_DEVICES``,
    is available to this program.
    """

    def __init__(
        self,
        asked: str | None,  # shared folder; ``None``: that of ``LOCK_DIR_VARIABLE``, or the default
        environment: Mapping[str, str],  # of this program
        *,
        make: bool = True,  # whether to create the folder; read-only callers do not
    ) -> None:
        # Why locks work only among this user's programs, safe to print; empty if for all users.
        self.trouble = ""
        self._environment = environment
        self.shared: Folder | None = None  # the folder that all users share, if there is one
        self._own: Folder | None = None
        self._around: frozenset[int] | None = None
        try:
            self.shared = shared_folder(
                asked or environment.get(LOCK_DIR_VARIABLE) or None, make=make
            )
        except FolderError as error:
            self._note(str(error))

    def close(self) -> None:
        """Close the folders. Reservations remain."""
        for folder in (self.shared, self._own):
            if folder is not None:
                folder.close()
        self.shared = self._own = None

    def holders(self, uuids: Iterable[str]) -> dict[str, ReservationHolder]:
        """The holders of these GPUs and MIG devices, without those that are not reserved."""
        holders = {uuid: self._holder(uuid) for uuid in uuids}
        return {uuid: holder for uuid, holder in holders.items() if holder is not None}

    def others(self, uuids: Iterable[str]) -> dict[str, ReservationHolder]:
        """The same without the reservations of a ``gpumon run`` around this program."""
        found = self.holders(uuids)
        return {uuid: holder for uuid, holder in found.items() if not self._is_for_us(uuid, holder)}

    def _holder(self, uuid: str) -> ReservationHolder | None:
        for folder in (self.shared, self._fallback(make=False)):
            holder = None if folder is None else _holder_in(folder, _file_name(uuid))
            if holder is not None:
                return holder
        return None

    def _is_for_us(self, uuid: str, holder: ReservationHolder) -> bool:
        """Whether the holder is a ``gpumon run`` that runs this very program on this GPU."""
        if not names_gpu(self._environment, uuid):
            return False
        if self._around is None:
            from gpumon.host.process_tree import pids_above

            self._around = pids_above(os.getpid())
        return holder.pid in self._around

    def take(self, uuids: Iterable[str], command: str) -> HeldReservation:
        """Reserve all of these GPUs and MIG devices, or none. Does not wait.

        All users can read ``command``.

        Raises:
            TakenError: Another process has reserved one of them.
            FolderError: No lock can be created.
        """
        reservation = HeldReservation()
        try:
            # All processes take locks in the same order: if two want the same GPUs, one gets all of
            # them.
            for uuid in sorted(uuids):
                self._add(uuid, reservation)
        except BaseException:
            reservation.close()
            raise
        reservation.note(command)
        return reservation

    def _add(self, uuid: str, reservation: HeldReservation) -> None:
        try:
            reservation.add(self._take(uuid))
        except TakenError:
            holder = self._holder(uuid)
            # The lock of the surrounding ``gpumon run`` stands for ours.
            if holder is None or not self._is_for_us(uuid, holder):
                raise

    def _take(self, uuid: str) -> int:
        name = _file_name(uuid)
        if self.shared is not None:
            try:
                return _locked(self.shared, name, uuid)
            except FolderError as error:
                self._note(str(error))
            except OSError as error:
                self._note(f"{self.shared.path / name} cannot be made: {error.strerror}")
        own = self._fallback(make=True)
        if own is None:
            raise FolderError(self.trouble)
        try:
            return _locked(own, name, uuid)
        except OSError as error:
            raise FolderError(f"{own.path / name} cannot be made: {error.strerror}") from None

    def _fallback(self, *, make: bool) -> Folder | None:
        if self._own is None:
            try:
                self._own = own_folder(self._environment, make=make)
            except FolderError as error:
                if make:
                    self._note(str(error))
        return self._own

    def _note(self, why: str) -> None:
        self.trouble = self.trouble or printable(why)


def holders_now(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
    """The holders of these GPUs and MIG devices; creates nothing, and keeps nothing open.

    The folder is opened anew each time, because a cleanup tool may have replaced it.
    """
    if os.name != "posix":
        return {}
    locks = Locks(None, os.environ, make=False)
    try:
        return locks.holders(uuids)
    finally:
        locks.close()


def holder_sentence(holder: ReservationHolder, now: float) -> str:
    """Describe a holder, safe to print: ``reserved by ann for 12m: python train.py``."""
    if holder.pid is None:
        return "reserved by a process that is not visible here"
    words = "reserved"
    if holder.user is not None:
        words += f" by {printable(holder.user)}"
    if holder.since is not None:
        words += f" for {duration(now - holder.since)}"
    words += f", gpumon run {holder.pid}"
    return f"{words}: {printable(holder.command)}" if holder.command else words


class HeldReservation:
    """The reservations of this process. They end with ``close``, or with the process."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def add(self, descriptor: int) -> None:
        """Keep a locked file."""
        self._descriptors.append(descriptor)

    def note(self, command: str) -> None:
        """Write the holder's data; a full disk does not matter."""
        note = _Note(os.getpid(), _start_time(os.getpid()) or 0, time.time(), command)
        for descriptor in self._descriptors:
            # Another user's file that is not writable for all can still be locked.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, msgspec.json.encode(note) + b"\n", 0)

    def touch(self) -> None:
        """Update the file times: cleanup tools of ``/tmp`` remove files unused for days."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):
                os.utime(descriptor)

    def close(self) -> None:
        """End the reservation. May be called more than once."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def lock(descriptor: int, *, tries: int = 1) -> bool:
    """Lock an open file for this process; returns whether it was unlocked."""
    import fcntl

    for tried in range(tries):
        if tried:
            time.sleep(_MOMENT)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def is_locked(descriptor: int) -> bool:
    """Whether a process has locked an open file."""
    import fcntl

    try:
        # A shared lock: readers do not block one another.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _locked(folder: Folder, name: str, uuid: str) -> int:
    while True:
        descriptor = folder.open(name, make=True)
        try:
            if not lock(descriptor, tries=_TRIES):
                raise TakenError(uuid)
            if folder.is_there(name, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # A cleanup tool removed the file in between: a lock on a deleted file protects nothing.
        os.close(descriptor)


def _holder_in(folder: Folder, name: str) -> ReservationHolder | None:
    try:
        descriptor = folder.open(name)
    except (OSError, FolderError):
        return None
    try:
        return _holder(descriptor) if is_locked(descriptor) else None
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> ReservationHolder:
    """The process named in a locked file, if it is alive and matches."""
    try:
        note = msgspec.json.decode(os.pread(descriptor, _MOST_BYTES, 0), type=_Note)
        owner = Path(THIS_SYSTEM.proc, str(note.pid)).stat().st_uid
    except (OSError, msgspec.MsgspecError, RecursionError, OverflowError):
        return ReservationHolder()
    if _start_time(note.pid) != note.start_time:
        return ReservationHolder()
    return ReservationHolder(user_named(owner), note.pid, note.since, note.command)


def _start_time(pid: int) -> int | None:
    """The start time of a process in kernel ticks; ``None`` if it cannot be read."""
    from gpumon.host.procfs import stat_of

    stat = stat_of(THIS_SYSTEM.proc, pid)
    return None if stat is None else stat.id.start_time


def _file_name(uuid: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", uuid)[:200] + ".lock"
