"""This machine, or the demo: where snapshots come from, and the GPUs that a caller names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from gpumon.model.makers import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.host.process_host import ProcessHost
    from gpumon.makers.links import Links
    from gpumon.makers.source import Source
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import ReservationHolder
    from gpumon.sampling.enrichment import Reservations

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


class LocalMachine:
    """This machine, or the simulated one of ``--demo``. Nothing of it is opened yet.

    Args:
        selection: The GPUs to sample; all by default.
        demo: Whether it is the simulated machine.
        profiled: Whether to read ``sm_active`` and the like; see ``this_machine``.
        backend: See ``this_machine``.

    Attributes:
        source: The source of snapshots.
        links: Reads the links between the GPUs; ``None`` for the demo.
        reservations: Reads which GPUs ``gpumon run`` has reserved; ``None`` for the demo.
    """

    source: Source
    links: Callable[[], Links] | None = None
    reservations: Reservations | None = None

    def __init__(
        self,
        selection: GpuSelection | None = None,
        *,
        demo: bool = False,
        profiled: bool = False,
        backend: str | None = None,
    ) -> None:
        from gpumon.model.selection import ALL

        chosen = ALL if selection is None else selection
        if demo:
            from gpumon.makers.demo import DemoSource

            self.source = simulated = DemoSource(selection=chosen)
            self._processes: Callable[[bool], ProcessHost] = lambda readonly: simulated.host(
                readonly=readonly
            )
            return
        from gpumon.makers.machine import this_machine

        self.source = source = this_machine(chosen, profiled=profiled, backend=backend or AUTO)
        self.links = source.backend.links
        self.reservations = _reservations

        def processes(readonly: bool) -> ProcessHost:
            from gpumon.kill.local_host import LocalHost

            return LocalHost(source.backend.device_files, readonly=readonly)

        self._processes = processes

    def processes(self, *, readonly: bool = True) -> ProcessHost:
        """The processes of the machine; with ``readonly`` they get no signal."""
        return self._processes(readonly)


def _reservations(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
    # Needed after the first picture only.
    from gpumon.scheduling.locks import holders_now

    return holders_now(uuids)
