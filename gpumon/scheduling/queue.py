"""The order of waiting jobs: first come, first served.

Each waiter has a file in the lock folder, locked while it waits, with its requirements inside. The
inode change time of the file gives the order: no user can set it, and nothing changes it later.
GPUs that earlier waiters could use are reserved for them. A job that needs several GPUs is skipped
while there are too few, so that small jobs can run; but only for a limited time, then eligible GPUs
are kept for it until there are enough.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpumon.availability import Insider
from gpumon.host.procfs import stat_of
from gpumon.model.makers import makers
from gpumon.model.snapshot import GpuStatus
from gpumon.scheduling.eligibility import Allowance, Circumstances, judge
from gpumon.scheduling.lock_folder import FolderError, user_named
from gpumon.scheduling.locks import is_locked, lock
from gpumon.scheduling.ranking import choose
from gpumon.scheduling.requirements import Requirements  # noqa: TC001 - msgspec resolves it
from gpumon.system.system import THIS_SYSTEM, user_name
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.lock_folder import Folder

TAKES_SECONDS = 10.0
"""A waiter that has not taken an available GPU for this long is skipped."""
GATHERS_AFTER = 600.0
"""Seconds after which GPUs are kept for a waiter that needs more than there are."""
_MOST_TICKETS = 256
_STAYS = (GpuStatus.LOST, GpuStatus.RESET_REQUIRED, GpuStatus.NO_PERMISSION)
"""It is unknown when such a GPU comes back: the others are not kept for that long."""
_PREFIX = "waiting-"
_MOST_BYTES = 65536
_NEWBORN_SECONDS = 60.0
"""An unlocked file younger than this may belong to a process that is about to lock it."""


class _Wants(Struct, frozen=True):
    """The requirements of a waiter, and what its environment allows."""

    requirements: Requirements
    allowed: tuple[str, ...] | None = None


class WaitQueue:
    """The jobs that wait for GPUs of this machine."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._mine: QueueEntry | None = None
        self._since: dict[tuple[str, str], float] = {}

    def join(self, requirements: Requirements, allowance: Allowance) -> None:
        """Join the queue.

        Raises:
            OSError: The queue's file cannot be created.
        """
        allowed = None if allowance.uuids is None else tuple(sorted(allowance.uuids))
        self._mine = QueueEntry(self._folder)
        self._mine.join(msgspec.json.encode(_Wants(requirements, allowed)))

    def leave(self) -> None:
        """Leave the queue."""
        if self._mine is not None:
            self._mine.close()
            self._mine = None

    def reserved_for(self, snapshot: Snapshot, circumstances: Circumstances) -> dict[str, str]:
        """The earlier waiter that a GPU is kept for, in a sentence, by UUID."""
        found: dict[str, str] = {}
        seen = set()
        for ticket in self._before_me():
            for verdict in self._theirs(ticket, snapshot, circumstances, found):
                uuid = verdict.candidate.uuid
                since = self._since.setdefault((ticket.name, uuid), time.monotonic())
                seen.add((ticket.name, uuid))
                if time.monotonic() < since + _patience(ticket):
                    found[uuid] = (
                        f"{ticket.user} has waited for it for "
                        f"{duration(time.time() - ticket.at)}, gpumon run {ticket.pid}"
                    )
        self._since = {key: since for key, since in self._since.items() if key in seen}
        return found

    def _before_me(self) -> Sequence[Ticket]:
        waiting = tickets(self._folder)[:_MOST_TICKETS]
        names = [ticket.name for ticket in waiting]
        if self._mine is None or self._mine.name not in names:
            return waiting
        return waiting[: names.index(self._mine.name)]

    def _theirs(
        self,
        ticket: Ticket,
        snapshot: Snapshot,
        circumstances: Circumstances,
        reserved_for: dict[str, str],
    ) -> Sequence[Eligibility]:
        """The GPUs that a waiter would use, or that are kept for it."""
        wants = _wants(ticket)
        if wants is None or _is_stopped(ticket):
            return ()
        allowed = None if wants.allowed is None else frozenset(wants.allowed)
        seen_by_them = replace(
            circumstances,
            allowance=Allowance(allowed),
            reserved_for=reserved_for,
            uid=ticket.uid,
            asker=Insider(user_name(ticket.uid)),
        )
        verdicts = judge(snapshot, wants.requirements, seen_by_them)
        choice = choose(verdicts, wants.requirements)
        if choice is not None:
            return [verdict for verdict in verdicts if verdict.candidate in choice.candidates]
        possible = sum(
            1
            for verdict in verdicts
            if verdict.may_come and verdict.candidate.gpu.status not in _STAYS
        )
        if possible < wants.requirements.least or time.time() < ticket.at + GATHERS_AFTER:
            return ()
        return [verdict for verdict in verdicts if verdict.fits]


def _wants(ticket: Ticket) -> _Wants | None:
    try:
        wants = msgspec.json.decode(ticket.wants, type=_Wants)
    except (msgspec.MsgspecError, RecursionError):
        return None  # Possibly written by another version of gpumon.
    if wants.requirements.maker not in {None, *(maker.name for maker in makers())}:
        return None
    # Any user may write here, and a waiter that wants no GPU blocks no other.
    return wants if 1 <= wants.requirements.least <= wants.requirements.most else None


def _patience(ticket: Ticket) -> float:
    wants = _wants(ticket)
    if wants is None:
        return 0.0
    if wants.requirements.least > 1 and time.time() > ticket.at + GATHERS_AFTER:
        return float("inf")
    return TAKES_SECONDS + (wants.requirements.stable or 0.0)


def _is_stopped(ticket: Ticket) -> bool:
    stat = stat_of(THIS_SYSTEM.proc, ticket.pid)
    return stat is not None and stat.state in "Tt"


class Ticket(Struct, frozen=True):
    """A waiting job."""

    name: str  # of the file
    at: float  # start of the wait, in seconds since the epoch
    order: tuple[int, str]  # the sort key
    uid: int
    pid: int  # as it claims
    wants: bytes  # the requirements it claims

    @property
    def user(self) -> str:
        """The user's name; safe to print."""
        return user_named(self.uid)


class _Content(Struct, frozen=True):
    pid: int
    wants: msgspec.Raw


class QueueEntry:
    """This process's own entry in the queue.

    It has its name before its file, so that it can be left whenever a signal ends the program.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        # The kernel's time has steps; within one step the name decides.
        self.name = f"{_PREFIX}{time.monotonic_ns():020d}-{os.getpid()}-{os.urandom(6).hex()}"
        self._descriptor: int | None = None

    def join(self, wants: bytes) -> None:
        """Join the queue, once, with the requirements as JSON.

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
    return sorted(found, key=lambda ticket: ticket.order)


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
    order = status.st_ctime_ns, name
    return Ticket(name, status.st_ctime, order, status.st_uid, content.pid, bytes(content.wants))
