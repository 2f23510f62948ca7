"""The interface to the driver of one maker's GPUs: ``GpuBackend``, and what it gives.

A backend knows its driver's library, error codes and device files. ``Sampler`` adds what the
operating system knows of processes and of the machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import Struct

from gpumon.model.selection import ALL
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from gpumon.model.topology import NO_KNOWN_LINKS, Links
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from gpumon.host.kernel_watcher import Heard
    from gpumon.makers.source import Call, CallWatch
    from gpumon.model.accidents import Accident
    from gpumon.model.allocations import Allocation
    from gpumon.model.makers import DeviceFiles, Maker
    from gpumon.model.processes import GpuUse, HolderScan
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import MigInstance, Trouble
    from gpumon.model.topology import Topology
    from gpumon.system.system import Clock, System

MPS, COMPUTE, GRAPHICS = "M", "C", "G"
"""The types of processes on a GPU, in nvidia-smi's letters."""


def joined_type(types: Container[str]) -> str:
    """``C``, ``G``, ``M``, ``C+G``, ``M+C``, as nvidia-smi writes them."""
    return "+".join(kind for kind in (MPS, COMPUTE, GRAPHICS) if kind in types)


class ListedProcess(NamedTuple):
    """A process in the driver's process lists."""

    type: str  # See ``GpuProcess.type``.
    uses: tuple[GpuUse, ...]  # One entry per GPU and instance, in GPU order, at least one.


class DriverInfo(Struct, frozen=True):
    """The driver as a whole. ``None`` is unknown."""

    version: str | None = None  # Version of the kernel driver.
    library_version: str | None = None  # Version of the driver's library.
    cuda_version: str | None = None  # The newest CUDA version that the driver supports.
    since: float | None = None  # When this program first saw the driver respond.
    pids_are_ours: bool = True  # Whether the driver reports PIDs of this program's PID namespace.


class Reading(NamedTuple):
    """What a driver reports at one moment."""

    time: float  # When, in seconds since the epoch.
    gpus: tuple[Gpu, ...]  # The selected GPUs in index order.
    driver: DriverInfo = DriverInfo()  # The same object as before while nothing in it changes.
    # The processes on these GPUs by PID: the same object as before until the lists are read again;
    # ``None`` if there are no lists.
    listed: Mapping[int, ListedProcess] | None = None
    listed_at: float | None = None  # When the lists were read, in seconds since the epoch.
    trouble: Trouble | None = None  # Why the driver cannot be reached; ``gpus`` is empty then.
    # Other processes that hold device files, if the backend knows them by itself.
    holders: HolderScan | None = None
    # What schedulers have given to jobs, if the backend knows it by itself.
    allocations: tuple[Allocation, ...] | None = None
    # The accidents of the last minutes, if the backend knows them by itself.
    accidents: tuple[Accident, ...] | None = None


class GpuBackend(ABC):
    """The GPUs of one maker, as their driver reports them.

    A backend of a maker defines ``maker`` and ``read``. The other methods have defaults for a
    driver that needs no preparation. Which thread calls a method is said
    at ``Source``.

    Args:
        selection: The GPUs to read.
        system: The operating system that is read.
        profiled: Whether to read how much of each GPU works (``sm_active`` and the like).
    """

    maker: ClassVar[Maker]
    name: str  # The value of ``Snapshot.source``.
    device_files: DeviceFiles  # Of its GPUs.
    calls: CallWatch | None = None  # Watches its calls, if they can hang.

    def __init__(
        self,
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
        *,
        profiled: bool = False,  # noqa: ARG002 - for drivers that measure it
    ) -> None:
        self.name = self.maker.backend
        self.device_files = self.maker.device_files
        self._selection = selection
        self._system = system

    @abstractmethod
    def read(self, *, full: bool = True) -> Reading:
        """Read the values that are due; see ``Source.sample``."""

    def open(self) -> None:  # noqa: B027 - a default, not a missing method
        """See ``Source.open``."""

    def close(self) -> None:  # noqa: B027 - a default, not a missing method
        """See ``Source.close``."""

    @property
    def only_integrated(self) -> bool:
        """Whether all of its GPUs are parts of a processor; known once it is open."""
        return False

    def hear(self, heard: Sequence[Heard] | None, *, is_readable: bool) -> None:  # noqa: B027 - as above
        """Take what the kernel log reported, before ``read``.

        Args:
            heard: What it reported since the last call; ``None`` while its lines from before are
                being read: what is newer must wait for them.
            is_readable: Whether more may come from it.
        """

    def past(self) -> Iterable[Reading]:
        """See ``Source.past``."""
        return ()

    def links(self) -> Links:
        """The links between the GPUs.

        May be called from any thread, before ``open`` too; returns within seconds.
        """
        return NO_KNOWN_LINKS

    def topology(self, gpus: Sequence[Gpu]) -> Topology:
        """How these GPUs, the network adapters and the processors are connected; see ``links``."""
        from gpumon.host.topology import read_topology

        return read_topology(gpus, self.links(), self._system.sys)

    def give_up(self, call: Call, /) -> bool:
        """See ``Source.give_up``."""
        return self.calls is not None and self.calls.give_up(call)

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        return None if self.calls is None else self.calls.current_call

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        return 0.0 if self.calls is None else self.calls.driver_seconds


EVERY_SECOND = 0.95
"""A second, less the time that a tick may come early."""

PERIOD = 2.0
"""Seconds between two readings of a slow value, and between two searches for added GPUs."""

RETRY_SECONDS = 5.0
"""Seconds after which a driver that did not respond, or a GPU that could not be opened or was lost,
is retried."""

KEPT_SECONDS = 10.0
"""Seconds for which the last value is kept while reading it fails for a passing reason."""

SHARE = 0.05
"""The share of time that the process lists may take, and expensive queries together."""

GOLDEN = 0.6180339887498949
"""Multiples of this spread evenly over a period, whatever their number."""

_LONGEST_PAUSE = 4.0
"""Findings use lists of the last five seconds, so slow lists are read before that, too."""


def pause_after_lists(spent: float) -> float:
    """Seconds until process lists are due again.

    Args:
        spent: Seconds that reading them took: lists that take long, as on some laptops, are read
            less often.
    """
    return min(max(EVERY_SECOND, spent / SHARE), _LONGEST_PAUSE)


DRIVER_FIELDS = Gpu.__struct_fields__[Gpu.__struct_fields__.index("mig") + 1 :]
"""The fields of ``Gpu`` that the driver fills, in their order; the others come first."""

REASON_OF_STATUS: dict[GpuStatus, Unknown] = {
    GpuStatus.LOST: Unknown.GPU_LOST,
    GpuStatus.RESET_REQUIRED: Unknown.GPU_LOST,
    GpuStatus.NO_PERMISSION: Unknown.NO_PERMISSION,
    GpuStatus.ASLEEP: Unknown.ASLEEP,
    GpuStatus.NO_ANSWER: Unknown.NO_ANSWER,
    GpuStatus.FAILING: Unknown.NO_ANSWER,
}
"""Why the values of a GPU with this status are unknown."""


class Answers:
    """Values by name, and the reasons for unknown ones.

    Attributes:
        values: The values; ``None`` is unknown.
        unknown: The reasons for values that are ``None``; replaced, never changed, because a
            snapshot holds it.
    """

    __slots__ = ("unknown", "values")

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        """Create it without any value.

        Args:
            names: The names that ``values`` has from the start, in this order.
        """
        self.values: dict[str, Any] = dict.fromkeys(names)
        self.unknown: dict[str, Unknown] = {}

    def miss(self, names: tuple[str, ...], reason: Unknown | None) -> None:
        """Set values to unknown; a reason of ``None`` means that there is no value."""
        unknown = {name: why for name, why in self.unknown.items() if name not in names}
        for name in names:
            self.values[name] = None
            if reason is not None:
                unknown[name] = reason
        self.unknown = unknown

    def found(self, names: tuple[str, ...]) -> None:
        """Remove the reasons of values that are known again."""
        if not self.unknown.keys().isdisjoint(names):
            self.unknown = {name: why for name, why in self.unknown.items() if name not in names}


class BackendGpu(ABC):
    """A GPU as its backend knows it.

    Attributes:
        uuid: Its UUID.
        index: Its index among the GPUs of its backend.
        status: Whether it responds.
        status_since: Since when, in seconds since the epoch.
        sampled_at: When values were last read, in seconds since the epoch.
        answers: The fields of ``Gpu``.
        mig: Its MIG devices.
    """

    def __init__(self, uuid: str, index: int, clock: Clock, answers: Answers) -> None:
        self.uuid = uuid
        self.index = index
        self.clock = clock
        self.status = GpuStatus.OK
        self.status_since = clock.time()
        self.sampled_at: float | None = None
        self.answers = answers
        self.mig: tuple[MigInstance, ...] = ()

    def set_status(self, status: GpuStatus) -> None:
        """Set the status, and its time if it changed."""
        if status is not self.status:
            self.status = status
            self.status_since = self.clock.time()

    @property
    @abstractmethod
    def processes_unknown(self) -> Unknown | None:
        """Why its processes are unknown; ``None`` if they are known."""

    def snapshot(self) -> Gpu:
        """The GPU with its current values."""
        unknown, why = self.answers.unknown, self.processes_unknown
        if why is not None:
            unknown = {**unknown, "processes": why}
        # Positional: seventy keywords took twice as long.
        return Gpu(
            self.index,
            self.uuid,
            self.status,
            self.status_since,
            self.sampled_at,
            unknown,
            self.mig,
            *self.answers.values.values(),
        )
