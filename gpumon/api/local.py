"""This machine, or the demo, and the GPUs of it that a caller names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from gpumon.model.makers import AUTO
from gpumon.sampling.machine import Machine
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.allocations import Allocations
    from gpumon.host.process_host import ProcessHost
    from gpumon.makers.demo import DemoSource
    from gpumon.makers.sampler import Sampler
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import Gpu, ReservationHolder
    from gpumon.model.topology import Links, Topology
    from gpumon.sampling.servers import Servers
    from gpumon.system.system import Clock

    Gpus: TypeAlias = str | int | Iterable[str | int] | None
    """GPUs as ``--gpus`` names them: ``"0,2-3"``, 0, ``["GPU-1a2b", 3]``; ``None`` for all."""


def selection_of(gpus: Gpus) -> GpuSelection:
    """The selection for GPUs as a caller names them.

    Raises:
        ValueError: They cannot be read; the text says what is valid.
    """
    from gpumon.model.selection import ALL, parse_selection

    return ALL if gpus is None else parse_selection(",".join(_names(gpus)))


def exclusion_of(gpus: Gpus) -> GpuSelection:
    """The selection for GPUs that a caller excludes, of which there may be none.

    Raises:
        ValueError: See ``selection_of``.
    """
    from gpumon.model.selection import ALL, parse_selection

    names = [] if gpus is None else _names(gpus)
    return parse_selection(",".join(names)) if any(names) else ALL


def _names(gpus: str | int | Iterable[str | int]) -> list[str]:
    """The GPUs as ``--gpus`` names them; an index may be an integer of NumPy."""
    if isinstance(gpus, (bytes, float)):
        raise ValueError(f"cannot read {gpus!r} as GPUs: give a text, an index, or a list of these")
    if isinstance(gpus, str) or not isinstance(gpus, Iterable):
        return [str(gpus)]
    return [str(gpu) for gpu in gpus]


class LocalMachine(Machine):
    """This machine. For ``profiled`` and ``backend`` see ``this_machine``."""

    def __init__(
        self,
        selection: GpuSelection,
        *,
        profiled: bool,
        backend: str,
        readonly: bool,
    ) -> None:
        self._selection = selection
        self._profiled = profiled
        self._backend = backend
        self._readonly = readonly

    @cached_property
    def source(self) -> Sampler:
        """See ``Machine.source``."""
        from gpumon.makers.machine import this_machine

        return this_machine(self._selection, profiled=self._profiled, backend=self._backend)

    @cached_property
    def processes(self) -> ProcessHost:
        """See ``Machine.processes``."""
        from gpumon.kill.local_host import LocalHost

        # Without the source: importing a driver's library is a third of the CPU of gpumon remote.
        return LocalHost(lambda: self.source.backend.device_files, readonly=self._readonly)

    def links(self) -> Links:
        """See ``Machine.links``."""
        return self.source.backend.links()

    def topology(self, gpus: Sequence[Gpu]) -> Topology:
        """See ``Machine.topology``."""
        return self.source.backend.topology(gpus)

    @cached_property
    def allocations(self) -> Allocations | None:
        """See ``Machine.allocations``."""
        from gpumon.allocations import local_allocations

        return local_allocations()

    @cached_property
    def servers(self) -> Servers:
        """See ``Machine.servers``."""
        from gpumon.config import load
        from gpumon.sampling.servers import Servers

        return Servers(lambda: load().settings.serving)

    @staticmethod
    def reservations(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
        """See ``Machine.reservations``."""
        # Needed after the first picture only.
        from gpumon.scheduling.locks import holders_now

        return holders_now(uuids)


class SimulatedMachine(Machine):
    """The machine of ``--demo``."""

    def __init__(
        self, selection: GpuSelection, *, readonly: bool, clock: Clock = THIS_SYSTEM.clock
    ) -> None:
        self._selection = selection
        self._readonly = readonly
        self._clock = clock

    @cached_property
    def source(self) -> DemoSource:
        """See ``Machine.source``."""
        from gpumon.makers.demo import DemoSource

        return DemoSource(clock=self._clock, selection=self._selection)

    @cached_property
    def processes(self) -> ProcessHost:
        """See ``Machine.processes``."""
        return self.source.host(readonly=self._readonly)

    @staticmethod
    def reservations(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:  # noqa: ARG004 - see Machine
        """See ``Machine.reservations``; nothing is reserved there."""
        return {}

    def topology(self, gpus: Sequence[Gpu]) -> Topology:
        """See ``Machine.topology``."""
        return self.source.backend.topology(gpus)


def open_machine(
    selection: GpuSelection | None = None,
    *,
    demo: bool = False,
    profiled: bool = False,
    backend: str = AUTO,
    readonly: bool = True,
) -> Machine:
    """This machine, or the simulated one; by default with all of its GPUs."""
    from gpumon.model.selection import ALL

    chosen = ALL if selection is None else selection
    if demo:
        return SimulatedMachine(chosen, readonly=readonly)
    return LocalMachine(chosen, profiled=profiled, backend=backend, readonly=readonly)
