"""What the operating system knows of processes and lets us do to them. One door: ``ProcessHost``.

Everything here is slow, or may hang on one process that hangs, so none of it is called on the
sampling thread or on the screen's.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gpumon.model import GpuUse, Place, ProcessId  # noqa: TC001 - msgspec resolves them

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model import GpuProcess, HolderScan, Snapshot


class Kin(Struct, frozen=True):
    """A process of the family of a GPU process: the process itself, an ancestor or a descendant.

    Attributes:
        id: Its identity; the start time is always known here.
        parent: Its parent's number; 0 for the first process.
        group: Its process group.
        session: Its session.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        user: Name of the owner, or the number as text.
        uid: The owner's number.
        state: One letter, as in ``ps``.
        threads: How many it has.
        rss: Resident bytes.
        started_at: When it started, seconds since the epoch.
        protected: Whether it is gpumon itself or one of its ancestors, which get no signal.
        stack_start: Address of the bottom of its stack, which every exec draws anew, as a change of
            the command line alone does not; ``None`` where it cannot be seen.
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


class Details(Struct, frozen=True):
    """All that can be said of one process, when somebody asks. ``None`` is unknown.

    Attributes:
        id: Its identity.
        command: The whole argument vector.
        executable: Path of the program.
        cwd: Its working directory.
        environment: Its environment, in its own order; ``None`` where it is not ours to read.
        threads: How many it has.
        state: One letter, as in ``ps``.
        wait_channel: Where in the kernel it waits, told only in state D.
        devices: The ``/dev/nvidia*`` files it holds open, sorted, each once; ``None`` where that
            is not ours to see.
        place: Where it runs.
        family: Its ancestors and descendants, itself included.
        unreadable: What could not be read and why, a sentence each.
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
    place: Place | None = None
    family: tuple[Kin, ...] = ()
    unreadable: tuple[str, ...] = ()


class Refusal(str, Enum):
    """Why no signal is sent."""

    READ_ONLY = "read only"
    """gpumon was started with ``--readonly``."""
    PROTECTED = "protected"
    """It is gpumon itself, one of its ancestors, PID 1 or less; or was named as a child of one."""
    NOT_VISIBLE = "not visible"
    """Its number may belong to another PID name space, so it names nobody here."""
    REUSED = "reused"
    """The number belongs to another process by now, or to another user; or that of its parent."""
    GONE = "gone"
    """There is no such process any more."""
    THREAD = "thread"
    """The number is that of a thread, and signals are for processes."""
    NOT_PERMITTED = "not permitted"
    """It is another user's."""


class Refused(Exception):  # noqa: N818 - it is the answer to a question, not a fault
    """No signal was sent.

    Attributes:
        reason: Which of the reasons.
        sentence: The same for a person.
    """

    def __init__(self, reason: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


class Target(Struct, frozen=True):
    """A process as somebody saw it when they decided to end it; a signal reaches this one or none.

    Attributes:
        id: Its identity.
        uid: Its owner's number then.
        user: Its owner's name.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        uses: What it has of the cards; nothing for a child that holds none.
        started_at: When it started.
        place: Where it runs.
        parent: Number of its parent then, where known.
    """

    id: ProcessId
    uid: int | None
    user: str | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    uses: tuple[GpuUse, ...] = ()
    started_at: float | None = None
    place: Place | None = None
    parent: int | None = None


def target_of(process: GpuProcess) -> Target:
    """A process as it is on screen, to be ended as that one or not at all."""
    parent = None if process.place is None else process.place.parent
    return Target(
        process.id,
        process.uid,
        user=process.user,
        name=process.name,
        command=process.command,
        uses=process.uses,
        started_at=process.started_at,
        place=process.place,
        parent=None if parent is None else parent.pid,
    )


def target_of_kin(kin: Kin, uses: tuple[GpuUse, ...] = (), place: Place | None = None) -> Target:
    """A relative of a GPU process, to be ended as that one or not at all.

    Args:
        kin: The relative.
        uses: What it has of the cards, where the driver lists it too.
        place: Where the process runs that it descends from; it runs there too.
    """
    return Target(
        kin.id,
        kin.uid,
        user=kin.user,
        name=kin.name,
        command=kin.command,
        uses=uses,
        started_at=kin.started_at,
        place=place,
        parent=kin.parent,
    )


class Standing(Struct, frozen=True):
    """How a process stands that has not ended.

    Attributes:
        state: One letter, as in ``ps``.
        wait_channel: Where in the kernel it waits, told only in state D.
        parent: Its parent, who has to take notice of a zombie's end.
        parent_name: That one's name.
    """

    state: str
    wait_channel: str | None = None
    parent: ProcessId | None = None
    parent_name: str | None = None


class Grip(Protocol):
    """A hold on one process that survives the reuse of its number."""

    @property
    def target(self) -> Target:
        """Whom it holds."""
        ...

    def send(self, number: int) -> None:
        """Send a signal.

        Raises:
            Refused: It was not sent, and why.
        """
        ...

    def ended(self) -> bool:
        """Whether the process, all its threads included, has ended. A zombie has."""
        ...

    def standing(self) -> Standing | None:
        """How it stands, or ``None`` once there is no trace of it."""
        ...

    def close(self) -> None:
        """Let go. May be called more than once."""
        ...


class ProcessHost(Protocol):
    """The processes of a machine. A demo and a recording have one of their own."""

    @property
    def uid(self) -> int | None:
        """The number of the user who runs this program; ``None`` where it has no meaning."""
        ...

    @property
    def user(self) -> str | None:
        """That user's name."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether every signal is refused."""
        ...

    def places(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Place]:
        """Where these processes run. Those that ended or are not visible are left out."""
        ...

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """Who holds the cards' device files and is not listed; ``None`` where nobody can look."""
        ...

    def families(self, roots: Iterable[ProcessId]) -> tuple[Kin, ...]:
        """These processes with all their ancestors and descendants, each once, parents first."""
        ...

    def details(self, process: ProcessId) -> Details | None:
        """Everything about one process; ``None`` when it has ended or its number was reused."""
        ...

    def grip(self, target: Target) -> Grip:
        """Take hold of a process.

        Raises:
            Refused: It cannot be held, or must not be.
        """
        ...

    def wait(self, grips: Sequence[Grip], seconds: float) -> None:
        """Return when one of those that live has ended, or when the time has passed."""
        ...
