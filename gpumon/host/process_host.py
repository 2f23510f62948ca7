"""The interface to the operating system's processes: ``ProcessHost``.

Everything here is slow, or can hang together with a process, so it is never called on the sampling
thread or on the screen's thread.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.process_states import ENDED
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model.processes import HolderScan, UnlistedHolder
    from gpumon.model.snapshot import Snapshot


class RelatedProcess(Struct, frozen=True):
    """A GPU process, or an ancestor or a descendant of one.

    Attributes:
        id: Its identity; the start time is always known here.
        parent: PID of its parent; 0 for the first process.
        group: Its process group.
        session: Its session.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        user: Name of the owner, or the UID as text.
        uid: UID of the owner.
        state: One letter, as in ``ps``.
        threads: Number of threads.
        rss: Resident bytes.
        started_at: When it started, in seconds since the epoch.
        protected: Whether it is gpumon itself or one of its ancestors, which get no signal.
        stack_start: Address of the bottom of its stack, which changes at every exec, but not when
            the process rewrites its command line; ``None`` if it cannot be read.
    """

    id: ProcessId
    parent: int
    group: int
    session: int
    name: str
    command: tuple[str, ...] = ()
    user: str | None = None
    uid: int | None = None
    state: str = "?"
    threads: int | None = None
    rss: int | None = None
    started_at: float | None = None
    protected: bool = False
    stack_start: int | None = None

    def on_no_gpu(self, place: Workload | None = None) -> GpuProcess:
        """It as a process that uses no GPU.

        Args:
            place: Where it runs, if that is known.
        """
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
    """The details of one process, for its page. ``None`` is unknown.

    Attributes:
        id: Its identity.
        command: The whole argument vector.
        executable: Path of the program.
        cwd: Its working directory.
        environment: Its environment in the original order; ``None`` without permission.
        threads: Number of threads.
        state: One letter, as in ``ps``.
        wait_channel: The kernel function in which it waits; only in state D.
        devices: The open device files of GPUs and their driver, sorted, without duplicates;
            ``None`` without permission.
        place: Where it runs.
        family: The process with its ancestors and descendants.
        unreadable: What could not be read and why, one sentence each.
    """

    id: ProcessId
    command: tuple[str, ...] = ()
    executable: str | None = None
    cwd: str | None = None
    environment: tuple[tuple[str, str], ...] | None = None
    threads: int | None = None
    state: str | None = None
    wait_channel: str | None = None
    devices: tuple[str, ...] | None = None
    place: Workload | None = None
    family: tuple[RelatedProcess, ...] = ()
    unreadable: tuple[str, ...] = ()


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
    """No signal was sent, or its machine cannot be asked.

    Attributes:
        reason: The reason. Only after ``Refusal.UNANSWERED`` may the signal have been sent.
        sentence: The reason as a message for the user.
    """

    def __init__(self, reason: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


class Target(Struct, frozen=True):
    """A process as the user saw it when they chose it: a signal reaches this process or none.

    Attributes:
        id: Its identity.
        uid: UID of its owner at that time.
        user: Name of its owner.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        uses: Its use of GPUs; empty for a child that uses none.
        started_at: When it started.
        place: Where it runs.
        parent: PID of its parent at that time, if known.
        ended: Whether it had ended, and only the driver still listed it.
    """

    id: ProcessId
    uid: int | None
    user: str | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    uses: tuple[GpuUse, ...] = ()
    started_at: float | None = None
    place: Workload | None = None
    parent: int | None = None
    ended: bool = False


def target_of(process: GpuProcess) -> Target:
    """The target for a process on the screen."""
    parent = None if process.place is None else process.place.parent
    target = _target(process, process.uses, process.place, None if parent is None else parent.pid)
    return replace(target, ended=True) if process.state == ENDED else target


def target_of_relative(
    relative: RelatedProcess, uses: tuple[GpuUse, ...] = (), place: Workload | None = None
) -> Target:
    """The target for a relative of a GPU process.

    Args:
        relative: The relative.
        uses: Its use of GPUs, if the driver lists it too.
        place: Where the GPU process runs; a descendant runs there too.
    """
    return _target(relative, uses, place, relative.parent)


def target_of_holder(suspect: UnlistedHolder, uses: tuple[GpuUse, ...] = ()) -> Target:
    """The target for a process that holds a GPU's device file and is not in the driver's list.

    Args:
        suspect: The process.
        uses: The GPUs that it holds.
    """
    parent = None if suspect.parent is None else suspect.parent.pid
    return _target(suspect, uses, suspect.place, parent)


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
    """The state of a process.

    Attributes:
        state: One letter, as in ``ps``.
        wait_channel: The kernel function in which it waits; only in state D.
        parent: Its parent, which must reap it once it is a zombie.
        parent_name: The name of its parent.
    """

    state: str
    wait_channel: str | None = None
    parent: ProcessId | None = None
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
