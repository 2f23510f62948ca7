"""The interface to the driver of one maker's GPUs: ``GpuBackend``.

A backend knows its driver's library, error codes and device files. ``Sampler`` adds what the
operating system knows of processes and of the machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct

from gpumon.host.device_files import DeviceFiles
from gpumon.makers.links import NONE_KNOWN
from gpumon.model.selection import ALL
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from gpumon.makers.calls import CallWatch
    from gpumon.makers.links import Links
    from gpumon.makers.source import Call
    from gpumon.model.makers import Maker
    from gpumon.model.processes import GpuUse, HolderScan
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import Gpu, Trouble
    from gpumon.system.system import System


MPS, COMPUTE, GRAPHICS = "M", "C", "G"
"""The types of processes on a GPU, in nvidia-smi's letters."""


def joined_type(types: Container[str]) -> str:
    """``C``, ``G``, ``M``, ``C+G``, ``M+C``, as nvidia-smi writes them."""
    return "+".join(one for one in (MPS, COMPUTE, GRAPHICS) if one in types)


class ListedProcess(NamedTuple):
    """A process in the driver's process lists.

    Attributes:
        type: See ``GpuProcess.type``.
        uses: One entry per GPU and instance, in GPU order, at least one.
    """

    type: str
    uses: tuple[GpuUse, ...]


class DriverInfo(Struct, frozen=True):
    """The driver as a whole. ``None`` is unknown.

    Attributes:
        version: Version of the kernel driver.
        library_version: Version of the driver's library.
        cuda_version: The newest CUDA version that the driver supports.
        since: When this program first saw the driver respond.
        pids_are_ours: Whether the driver reports PIDs of this program's PID namespace.
    """

    version: str | None = None
    library_version: str | None = None
    cuda_version: str | None = None
    since: float | None = None
    pids_are_ours: bool = True


class Reading(NamedTuple):
    """What a driver reports at one moment.

    Attributes:
        time: When, in seconds since the epoch.
        gpus: The selected GPUs in index order.
        driver: The same object as before while nothing in it changes.
        listed: The processes on these GPUs by PID: the same object as before until the lists are
            read again; ``None`` if there are no lists.
        listed_at: When the lists were read, in seconds since the epoch.
        trouble: Why the driver cannot be reached; ``gpus`` is empty then.
        holders: Other processes that hold device files, if the backend knows them by itself.
    """

    time: float
    gpus: tuple[Gpu, ...]
    driver: DriverInfo = DriverInfo()
    listed: Mapping[int, ListedProcess] | None = None
    listed_at: float | None = None
    trouble: Trouble | None = None
    holders: HolderScan | None = None


def device_files_of(maker: Maker) -> DeviceFiles:
    """The device files of a maker's GPUs and drivers."""
    others = tuple([DeviceFiles(path, path, maker) for path in maker.driver_files])
    return DeviceFiles(maker.device_file, maker.device_prefix, maker, others)


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
        self.device_files = device_files_of(self.maker)
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

    def past(self) -> Iterable[Reading]:
        """See ``Source.past``."""
        return ()

    def links(self) -> Links:
        """The links between the GPUs.

        May be called from any thread, before ``open`` too; returns within seconds.
        """
        return NONE_KNOWN

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
