"""Many machines: the newest snapshot of each, and what is wrong with those that have none.

A ``Fleet`` is a set of hosts that are read at the same time. The screen, ``select``, ``snapshot``
and ``log`` use a fleet through this interface only, whatever it reads; the dashboard of a host has
it as a ``Machine``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from enum import Enum
from functools import cached_property
from threading import Event, Lock
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.makers.backend import REASON_OF_STATUS
from gpumon.makers.source import Source
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import GPU_METRICS, Gpu, GpuStatus, Host, Snapshot, Trouble
from gpumon.sampling.collector import unanswering
from gpumon.sampling.machine import Machine
from gpumon.stream import GpuState  # noqa: TC001 - msgspec resolves it

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.host.process_host import ProcessHost

_LONGEST_WAIT = 0.9
"""Seconds that ``sample`` waits: a collector takes a longer sample for a hung one."""
_DELAY = 1.0
"""Seconds that a sample may arrive late; if it is older than that, a clock was set back."""
_RETRIED = "gpumon tries again; the other hosts are not affected."


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
    """nvidia-smi on the host, without this gpumon: fewer values, and nothing can be ended there."""
    PROMETHEUS = "prometheus"
    """Metrics of an exporter: no processes, and nothing can be ended there."""


class Owner(Struct, frozen=True, gc=False):
    """Who has GPUs of a host whose processes are not known. ``None`` is unknown."""

    user: str  # a user, a pod with its namespace, or ``slurm`` with a job's number; safe to print
    gpus: int | None = None  # the number of GPUs
    memory: int | None = None  # bytes of GPU memory
    idle_memory: int | None = None  # bytes held by processes that do not use the GPU


class HostState(Struct, frozen=True, gc=False):
    """One host of a fleet at one moment. All texts are safe to print."""

    name: str  # as the user wrote it; unique in a fleet
    status: HostStatus
    since: float  # when this status began, seconds since the epoch
    sentence: str = ""  # what is wrong, or what is missing there
    origin: HostOrigin | None = None  # ``None`` before it is known
    # The newest, with the times of this machine's clock. A host that is down keeps its last one.
    snapshot: Snapshot | None = None
    received_at: float | None = None  # when that arrived, on this machine's clock
    version: str | None = None  # of gpumon on the host; ``None`` if unknown or if there is none
    # What the findings there say of its GPUs, in the order of ``snapshot.gpus``, if that is known.
    states: tuple[GpuState, ...] = ()
    # Most memory first, from metrics; empty if ``snapshot.processes`` says it.
    owners: tuple[Owner, ...] = ()
    note: str = ""  # which of its GPUs are shown, where that is not as asked for

    @property
    def remark(self) -> str:
        """The sentence, and the note."""
        return "; ".join(filter(None, (self.sentence, self.note)))


class FleetSnapshot(Struct, frozen=True, gc=False):
    """All hosts at one moment."""

    time: float  # when it was taken, seconds since the epoch
    hosts: tuple[HostState, ...] = ()  # in the order in which the user named them


class Fleet(ABC):
    """Hosts that are read at the same time. Every method may be called on any thread."""

    title = ""
    """What the hosts are together, such as ``slurm 88123``; empty for a list of names."""

    def __init__(self, interval: float) -> None:
        self.interval = interval  # seconds between samples of a host
        self._subscribing = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    @abstractmethod
    def start(self) -> None:
        """Begin to connect. Returns at once."""

    @abstractmethod
    def close(self) -> None:
        """End all connections and their processes. May be called more than once."""

    @abstractmethod
    def latest(self) -> FleetSnapshot:
        """The newest state of all hosts. Cheap: nothing is read for it."""

    @abstractmethod
    def machine(self, name: str, *, readonly: bool = True) -> Machine:
        """One host, for a dashboard of it. Closing its source does not end the connection.

        A host whose origin is not ``HostOrigin.GPUMON`` refuses every signal with a sentence, as
        each does with ``readonly``.

        Raises:
            KeyError: There is no such host.
        """

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after every change of a host, on another thread; it must be quick.

        Returns a function that ends the subscription.
        """

        # A function of its own, so that a listener that subscribes twice ends one subscription.
        def entry() -> None:
            listener()

        def end() -> None:
            with self._subscribing:
                self._listeners = tuple(known for known in self._listeners if known is not entry)

        with self._subscribing:
            self._listeners = (*self._listeners, entry)
        return end

    def _notify(self) -> None:
        """Call all listeners."""
        for listener in self._listeners:
            listener()


MEASURED_FIELDS = tuple(
    [metric.field for metric in GPU_METRICS if metric.field not in {"index", "uuid"}]
)
STATIC_FIELDS = tuple(
    [
        metric.field
        for metric in GPU_METRICS
        if metric.tier is Tier.STATIC and metric.field in MEASURED_FIELDS
    ]
)
"""Values that never change, besides index and UUID."""


def without_values(gpu: Gpu, status: GpuStatus) -> Gpu:
    """A GPU that is known and has no values now, with its static values only."""
    kept = {field: getattr(gpu, field) for field in STATIC_FIELDS}
    missing = [field for field in (*MEASURED_FIELDS, "fan_speeds") if kept.get(field) is None]
    return Gpu(
        gpu.index,
        gpu.uuid,
        status,
        sampled_at=gpu.sampled_at,
        unknown=dict.fromkeys((*missing, "processes"), REASON_OF_STATUS[status]),
        **kept,
    )


class HostSource(Source):
    """The snapshots of a host as they arrive. The fleet goes on after this source is closed."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self._name = name
        self._changed = Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._given: Snapshot | None = None
        self._given_at = float("-inf")

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``: the name by which the user knows the host."""
        return self._name

    def open(self) -> None:
        """See ``Source.open``; never fails."""
        self._unsubscribe = self._fleet.subscribe(self._changed.set)

    def sample(self, *, full: bool = True) -> Snapshot:  # noqa: ARG002 - a host sends all it reads
        """The newest snapshot of the host.

        It waits for a snapshot that it has not returned yet, less than a second and at most an
        interval. If none arrives, the last one is returned with the current time: the age of its
        values grows. GPUs of a host that is silent or down do not answer.
        """
        snapshot = self._sample()
        # A sample that arrives late is from before the time that the last one was returned with.
        if 0 < self._given_at - snapshot.time < _DELAY:
            snapshot = replace(snapshot, time=self._given_at)
        self._given_at = snapshot.time
        return snapshot

    def _sample(self) -> Snapshot:
        state = self._awaited()
        if state.snapshot is None:
            sentence = state.sentence or f"{self.hostname} has not answered yet"
            return Snapshot(
                time.time(), Host(self.hostname), trouble=Trouble(f"{sentence}.", _RETRIED)
            )
        is_new = state.snapshot is not self._given
        self._given = state.snapshot
        snapshot = replace(state.snapshot, host=replace(state.snapshot.host, name=self.hostname))
        if state.status is HostStatus.LIVE and is_new:
            return snapshot
        snapshot = replace(snapshot, time=max(time.time(), snapshot.time))
        if state.status is HostStatus.LIVE:
            return snapshot
        return unanswering(snapshot, state.since)

    def _awaited(self) -> HostState:
        deadline = time.monotonic() + min(self._fleet.interval, _LONGEST_WAIT)
        while True:
            self._changed.clear()
            state = self._state()
            is_new = state.snapshot is not None and state.snapshot is not self._given
            left = deadline - time.monotonic()
            if is_new or left <= 0:
                return state
            self._changed.wait(left)

    def close(self) -> None:
        """End the subscription. The connection goes on."""
        self._unsubscribe()

    def _state(self) -> HostState:
        return next(host for host in self._fleet.latest().hosts if host.name == self.hostname)


class HostMachine(Machine):
    """A host of a fleet; ``processes`` returns its processes when they are needed."""

    def __init__(self, source: HostSource, processes: Callable[[], ProcessHost]) -> None:
        self.name = source.hostname
        self._source = source
        self._open_processes = processes

    @property
    def source(self) -> HostSource:
        """See ``Machine.source``."""
        return self._source

    @cached_property
    def processes(self) -> ProcessHost:
        """See ``Machine.processes``."""
        return self._open_processes()
