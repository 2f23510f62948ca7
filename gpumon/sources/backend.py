"""The cards of one maker, as their driver tells of them. One door, ``GpuBackend``.

A backend knows the driver: its library, its error codes, its device files. What the operating
system knows of the machine and of processes is no concern of it; ``Sampler`` adds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.host.device_files import DeviceFiles
    from gpumon.model.snapshot import Gpu, GpuUse, HolderScan, Trouble
    from gpumon.sources import Call
    from gpumon.sources.links import Links


class ListedProcess(NamedTuple):
    """A process in the lists of the driver.

    Attributes:
        type: See ``GpuProcess.type``.
        uses: One entry per card and instance, in card order, at least one.
    """

    type: str
    uses: tuple[GpuUse, ...]


class DriverFacts(Struct, frozen=True):
    """What is known of the driver as a whole. ``None`` is unknown.

    Attributes:
        version: Of the kernel driver.
        library_version: Of the library that speaks with it.
        cuda_version: The newest CUDA version that it supports, if any.
        since: Since when, as far as this program saw, it answers.
        pids_are_ours: Whether its PIDs mean the same processes in this program's PID name space.
    """

    version: str | None = None
    library_version: str | None = None
    cuda_version: str | None = None
    since: float | None = None
    pids_are_ours: bool = True


class Reading(NamedTuple):
    """What a driver tells at one moment.

    Attributes:
        time: When, seconds since the epoch.
        gpus: The cards that were chosen, in their order: their values, and why others are unknown;
            whether a card answers; its last error event.
        driver: The same object as before until something of it changes.
        listed: The processes on these cards by PID: the same object as before until the lists are
            read anew; ``None`` while there are none.
        listed_at: When they were read, seconds since the epoch.
        trouble: Why the driver cannot be reached; then there are no cards.
        holders: Who holds device files besides, where the backend knows that by itself.
    """

    time: float
    gpus: tuple[Gpu, ...]
    driver: DriverFacts
    listed: Mapping[int, ListedProcess] | None = None
    listed_at: float | None = None
    trouble: Trouble | None = None
    holders: HolderScan | None = None


class GpuBackend(Protocol):
    """The cards of one maker. Threads may call the methods as ``Source`` has it."""

    @property
    def name(self) -> str:
        """What ``Snapshot.source`` says of its snapshots."""
        ...

    @property
    def device_files(self) -> DeviceFiles:
        """Which device files its cards have."""
        ...

    def open(self) -> None:
        """See ``Source.open``."""
        ...

    def read(self, *, closely: bool = True) -> Reading:
        """Ask what is due; see ``Source.sample``."""
        ...

    def past(self) -> Iterable[Reading]:
        """See ``Source.past``."""
        ...

    def links(self) -> Links:
        """How near the cards are to one another; unknown where the driver does not tell.

        Any thread may ask, opened or not; the answer comes within seconds.
        """
        ...

    def give_up(self, call: Call, /) -> bool:
        """See ``Source.give_up``."""
        ...

    def close(self) -> None:
        """See ``Source.close``."""
        ...

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        ...

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        ...
