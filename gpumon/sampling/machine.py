"""The interface to a machine: what is sampled of it, and its processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from gpumon.allocations import Allocations
    from gpumon.host.process_host import ProcessHost
    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Gpu, ReservationHolder
    from gpumon.model.topology import Links, Topology
    from gpumon.sampling.servers import Servers

    Reservations: TypeAlias = Callable[[Iterable[str]], Mapping[str, ReservationHolder]]
    """Returns who has reserved which of these GPUs and MIG devices, by UUID."""


class Machine(ABC):
    """A machine: this one, a host of a fleet, a log that is played, or a simulated one.

    Making a machine opens nothing. ``source`` and ``processes`` are the same objects at each
    access; whether signals are refused is decided when the machine is made.
    """

    name: str | None = None
    """Its name as the user wrote it, safe to print; ``None`` if it is this machine."""
    reservations: Reservations | None = None
    """Looks up what ``gpumon run`` has reserved; ``None`` where there is nothing to look up, as for
    another machine, whose snapshots have it."""

    @cached_property
    def allocations(self) -> Allocations | None:
        """Looks up what schedulers have given to jobs; ``None`` where there is none to ask."""
        return None

    @cached_property
    def servers(self) -> Servers | None:
        """Asks the inference servers what they do; ``None`` where that is not done."""
        return None

    @property
    @abstractmethod
    def source(self) -> Source:
        """Its samples."""

    @cached_property
    def processes(self) -> ProcessHost:
        """Its processes; by default nothing is known of them, and they get no signal."""
        from gpumon.host.process_host import RecordedHost

        return RecordedHost()

    def links(self) -> Links:
        """The links between its GPUs, which are read now; by default none is known."""
        from gpumon.model.topology import NO_KNOWN_LINKS

        return NO_KNOWN_LINKS

    def topology(self, gpus: Sequence[Gpu]) -> Topology | None:  # noqa: ARG002 - a default
        """How these GPUs of it, its network adapters and processors are connected, read now.

        May be called from any thread; returns within seconds.

        Returns:
            ``None`` where it cannot be asked, as by default.
        """
        return None
