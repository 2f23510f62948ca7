"""The interface to the operating system's processes: ``ProcessHost``.

Everything here is slow, or can hang together with a process, so it is never called on the sampling
thread or on the screen's thread.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.process_states import ENDED, ZOMBIE
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model.processes import HolderScan, UnlistedHolder
    from gpumon.model.snapshot import Snapshot

_READ_BEFORE = "What it had before is shown."


class RelatedProcess(Struct, frozen=True):
    """A GPU process, or an ancestor or a descendant of one."""

    id: ProcessId  # with its start time
    parent: int  # a PID; 0 for the first process
    group: int  # its process group
    session: int
    name: str  # the kernel's short name of it
    command: tuple[str, ...] = ()  # its argument vector, not safe to print
    user: str | None = None  # name of the owner, or the UID as text
    uid: int | None = None
    state: str = "?"  # one letter, as in ``ps``
    threads: int | None = None  # how many
    rss: int | None = None  # resident bytes
    started_at: float | None = None  # seconds since the epoch
    protected: bool = False  # gpumon itself or an ancestor of it, which get no signal
    # Address of the bottom of its stack, which changes at every exec, but not when the process
    # rewrites its command line; ``None`` if it cannot be read.
    stack_start: int | None = None

    def on_no_gpu(self, place: Workload | None = None) -> GpuProcess:
        """It as a process that uses no GPU."""
        return GpuProcess(
            self.id,
            "",
            (),
            user=self.user,
            uid=self.uid,
            name=self.name,
            command=self.command,
            state=self.state,
            rss=self.rss,
            started_at=self.started_at,
            place=place,
        )


class Details(Struct, frozen=True):
    """The details of one process, for its page. ``None`` is unknown."""

    id: ProcessId
    command: tuple[str, ...] = ()  # the whole argument vector
    executable: str | None = None  # path of the program
    cwd: str | None = None
    environment: tuple[tuple[str, str], ...] | None = None  # in the original order
    threads: int | None = None  # how many
    state: str | None = None  # one letter, as in ``ps``
    wait_channel: str | None = None  # the kernel function in which it waits; only in state D
    # The open device files of GPUs and their driver, sorted, without duplicates.
    devices: tuple[str, ...] | None = None
    place: Workload | None = None
    family: tuple[RelatedProcess, ...] = ()  # it with its ancestors and descendants
    unreadable: tuple[str, ...] = ()  # what could not be read and why, one sentence each

    @property
    def ended(self) -> bool:
        """Whether it is a zombie. One with other threads has a dead main thread only."""
        return self.state in (ZOMBIE, ENDED) and (self.threads is None or self.threads <= 1)

    def after(self, earlier: Details | None) -> Details:
        """These details, with what is unknown of them taken from ``earlier`` ones, and that said.

        A process that ends or hangs has no command and environment that can be read, and those
        that it had are wanted most then. Those of another program that it ran are not taken.
        """
        if earlier is None or self.command not in ((), earlier.command):
            return self
        kept = {
            name: getattr(earlier, name)
            for name in ("executable", "cwd", "environment", "devices")
            if getattr(self, name) is None and getattr(earlier, name) is not None
        }
        if self.command != earlier.command:
            kept["command"] = earlier.command
        return replace(self, **kept, unreadable=(*self.unreadable, _READ_BEFORE)) if kept else self


class Refusal(str, Enum):
    """The reason why no signal is sent."""

    READ_ONLY = "read only"
    """gpumon was started with ``--readonly``."""
    PROTECTED = "protected"
    """It is gpumon itself, one of its ancestors, PID 1 or less; or was named as a child of one."""
    NOT_VISIBLE = "not visible"
    """Its PID may be of another PID namespace."""
    REUSED = "reused"
    """Its PID, or that of its parent, now belongs to another process or another user."""
    GONE = "gone"
    """It has ended."""
    THREAD = "thread"
    """The PID is that of a thread; signals are sent to processes."""
    NOT_PERMITTED = "not permitted"
    """It belongs to another user."""
    UNREACHABLE = "unreachable"
    """Its machine cannot be reached, so it got nothing and nothing is known of it."""
    UNANSWERED = "unanswered"
    """Its machine was asked to send the signal and has not answered: it may have got it."""


class Refused(Exception):  # noqa: N818 - an expected result, not an error
    """No signal was sent, or its machine cannot be asked."""

    def __init__(self, reason: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason  # only after ``UNANSWERED`` may the signal have been sent
        self.sentence = sentence  # a message for the user


class Target(Struct, frozen=True):
    """A process as the user saw it when they chose it: a signal reaches this process or none."""

    id: ProcessId
    uid: int | None
    user: str | None = None
    name: str | None = None  # the kernel's short name of it
    command: tuple[str, ...] = ()  # its argument vector, not safe to print
    uses: tuple[GpuUse, ...] = ()  # empty for a child that uses no GPU
    started_at: float | None = None
    place: Workload | None = None
    parent: int | None = None  # PID of its parent, if known
    ended: bool = False  # it had ended, and only the driver still listed it
    # Why it may hold memory of its GPUs although the driver does not list it there.
    unlisted: str = ""


def target_of(process: GpuProcess) -> Target:
    """The target for a process on the screen."""
    parent = None if process.place is None else process.place.parent
    target = _target(process, process.uses, process.place, None if parent is None else parent.pid)
    return replace(target, ended=True) if process.state == ENDED else target


def target_of_relative(
    relative: RelatedProcess, uses: tuple[GpuUse, ...] = (), place: Workload | None = None
) -> Target:
    """The target for a relative of a GPU process; a descendant runs where that runs."""
    return _target(relative, uses, place, relative.parent)


def target_of_holder(suspect: UnlistedHolder, uses: tuple[GpuUse, ...] = ()) -> Target:
    """The target for a process that holds a GPU's device file and is not in the driver's list."""
    parent = None if suspect.parent is None else suspect.parent.pid
    return replace(_target(suspect, uses, suspect.place, parent), unlisted=suspect.sentence)


def _target(
    process: GpuProcess | RelatedProcess | UnlistedHolder,
    uses: tuple[GpuUse, ...],
    place: Workload | None,
    parent: int | None,
) -> Target:
    return Target(
        process.id,
        process.uid,
        user=process.user,
        name=process.name,
        command=process.command,
        uses=uses,
        started_at=process.started_at,
        place=place,
        parent=parent,
    )


class ProcessStatus(Struct, frozen=True):
    """The state of a process."""

    state: str  # one letter, as in ``ps``
    wait_channel: str | None = None  # the kernel function in which it waits; only in state D
    parent: ProcessId | None = None  # it must reap the process once that is a zombie
    parent_name: str | None = None


class ProcessHandle(Protocol):
    """An open reference to one process that stays correct when its PID is reused."""

    @property
    def target(self) -> Target:
        """The process."""
        ...

    def send(self, number: int) -> None:
        """Send a signal.

        Raises:
            Refused: It was not sent.
        """
        ...

    def freeze(self) -> None:
        """Stop the process until it gets SIGKILL.

        Whatever prevents that continues it: ``thaw``, ``close``, the end of this program or of the
        connection, and some seconds without another request. One that is stopped already stays so.

        Raises:
            Refused: It was not stopped.
        """
        ...

    def thaw(self) -> bool:
        """Continue the process if ``freeze`` has stopped it; whether it was continued."""
        ...

    def ended(self) -> bool:
        """Whether the process with all its threads is known to have ended; true for a zombie."""
        ...

    def status(self) -> ProcessStatus | None:
        """Its state; ``None`` once it is reaped.

        Raises:
            Refused: Its machine cannot be asked, and nothing more will be known of it.
        """
        ...

    def close(self) -> None:
        """Close the handle, which continues a frozen process. May be called more than once."""
        ...


class ProcessHost(Protocol):
    """The processes of a machine: of this one, of another one, of a demo or of a recording."""

    @property
    def uid(self) -> int | None:
        """UID of the user who runs this program; ``None`` if it has no meaning."""
        ...

    @property
    def user(self) -> str | None:
        """Name of that user."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether every signal is refused."""
        ...

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        """Where these processes run, without those that ended or are not visible."""
        ...

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """Find unlisted holders of the GPUs' device files; ``None`` if that is impossible."""
        ...

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """These processes with all their ancestors and descendants, each once, parents first.

        Raises:
            Refused: The machine cannot be asked.
        """
        ...

    def details(self, process: ProcessId) -> Details | None:
        """The details of one process; ``None`` if it has ended or its PID was reused.

        Raises:
            Refused: The machine cannot be asked.
        """
        ...

    def open_handle(self, target: Target) -> ProcessHandle:
        """Open a handle of a process.

        Raises:
            Refused: It must not be signalled, or cannot be opened.
        """
        ...

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:
        """Wait until one of the live processes ends, or until the time is over."""
        ...


class RecordedHost:
    """See ``ProcessHost``. The log holds everything that is known of a process."""

    readonly = True
    uid = None
    """Unknown: the log may be of another machine with other UIDs."""

    @property
    def user(self) -> str:
        """Name of the current user: names usually mean the same person on several machines."""
        from gpumon.system.system import user_name

        return user_name(os.geteuid())

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:  # noqa: ARG002 - see ProcessHost
        """Empty: the places are in the log."""
        return {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:  # noqa: ARG002 - see ProcessHost
        """Always ``None``."""
        return None

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:  # noqa: ARG002 - see ProcessHost
        """Always empty."""
        return ()

    def details(self, process: ProcessId) -> Details | None:  # noqa: ARG002 - see ProcessHost
        """Always ``None``."""
        return None

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is a process of a log: nothing is sent from a replay.",
        )

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:  # noqa: ARG002 - see ProcessHost
        """Return at once: there are no handles."""
        return
