"""Many machines: the newest snapshot of each, and what is wrong with those that have none.

A ``Fleet`` is a set of hosts that are read at the same time. The screen, ``select``, ``snapshot``
and ``log`` use a fleet through this interface only, whatever it reads.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gpumon.model.snapshot import Snapshot  # noqa: TC001 - msgspec resolves it
from gpumon.stream import GpuState  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.sampling.machine import Machine


class FleetError(Exception):
    """A fleet cannot be opened, or names of hosts cannot be read; the message is one sentence."""


class HostStatus(str, Enum):
    """Whether the values of a host are current."""

    CONNECTING = "connecting"
    """No first sample yet, and nothing known to be wrong."""
    LIVE = "live"
    """Samples arrive."""
    SILENT = "silent"
    """Connected, but nothing has arrived for several intervals."""
    DOWN = "down"
    """Not connected; ``HostState.sentence`` says why. It is tried again."""


class HostOrigin(str, Enum):
    """Where the values of a host come from."""

    GPUMON = "gpumon"
    """``gpumon stream`` on the host: all values."""
    NVIDIA_SMI = "nvidia-smi"
    """nvidia-smi on the host, which has no gpumon: fewer values, and nothing can be ended there."""
    PROMETHEUS = "prometheus"
    """Metrics of an exporter: no processes, and nothing can be ended there."""


class Owner(Struct, frozen=True, gc=False):
    """Who has GPUs of a host whose processes are not known.

    Attributes:
        user: A user, a pod with its namespace, or ``slurm`` with the number of a job; safe to
            print.
        gpus: Number of GPUs; ``None`` if unknown.
        memory: Bytes of GPU memory; ``None`` if unknown.
        idle_memory: Bytes held by processes that do not use the GPU; ``None`` if unknown.
    """

    user: str
    gpus: int | None = None
    memory: int | None = None
    idle_memory: int | None = None


class HostState(Struct, frozen=True, gc=False):
    """One host of a fleet at one moment. All texts are safe to print.

    Attributes:
        name: The host as the user named it; unique in a fleet.
        status: Whether its values are current.
        since: When this status began, seconds since the epoch.
        sentence: What is wrong, or what is missing there; empty if nothing is.
        origin: Where the values come from; ``None`` before that is known.
        snapshot: The newest snapshot, with the times of this machine's clock; ``None`` before the
            first one. A host that is down keeps its last one.
        received_at: When the newest snapshot arrived, on this machine's clock.
        version: Version of gpumon on the host; ``None`` if unknown or if there is none.
        states: What the findings there say of its GPUs, in the order of ``snapshot.gpus``; empty
            where nothing is known of it.
        owners: Who has its GPUs, most memory first, where metrics tell it; empty where the
            processes of the snapshot do.
    """

    name: str
    status: HostStatus
    since: float
    sentence: str = ""
    origin: HostOrigin | None = None
    snapshot: Snapshot | None = None
    received_at: float | None = None
    version: str | None = None
    states: tuple[GpuState, ...] = ()
    owners: tuple[Owner, ...] = ()


class FleetSnapshot(Struct, frozen=True, gc=False):
    """All hosts at one moment.

    Attributes:
        time: When it was taken, seconds since the epoch.
        hosts: The hosts in the order in which the user named them.
    """

    time: float
    hosts: tuple[HostState, ...] = ()


class Fleet(Protocol):
    """Hosts that are read at the same time. Every method may be called on any thread."""

    def start(self) -> None:
        """Begin to connect. Returns at once."""
        ...

    def close(self) -> None:
        """End all connections and their processes. May be called more than once."""
        ...

    def latest(self) -> FleetSnapshot:
        """The newest state of all hosts. Cheap: nothing is read for it."""
        ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after every change of a host, on another thread; it must be quick.

        Returns:
            A function that ends the subscription.
        """
        ...

    @property
    def interval(self) -> float:
        """Seconds between samples of a host."""
        ...

    def machine(self, name: str, *, readonly: bool = True) -> Machine:
        """One host, for a dashboard of it. Closing its source does not end the connection.

        A host whose origin is not ``HostOrigin.GPUMON`` refuses every signal with a sentence, as
        each does with ``readonly``.

        Raises:
            KeyError: There is no such host.
        """
        ...
