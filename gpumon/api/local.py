"""This machine, or the demo: where snapshots come from, and the GPUs that a caller names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from gpumon.model.makers import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.host.process_host import ProcessHost
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import ReservationHolder
    from gpumon.sampling.enrichment import Reservations
    from gpumon.sources.links import Links
    from gpumon.sources.source import Source

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


def source_and_host(
    selection: GpuSelection,
    *,
    demo: bool,
    readonly: bool,
    profiled: bool,
    backend: str | None = None,
) -> tuple[Source, ProcessHost]:
    """The source of snapshots, and the processes of its machine.

    Args:
        selection: The GPUs to sample.
        demo: The simulated machine of ``--demo`` instead of this one.
        readonly: Whether the processes get no signal.
        profiled: See ``this_machine``.
        backend: See ``this_machine``, whose default applies without one.
    """
    if demo:
        from gpumon.sources.demo import DemoSource

        simulated = DemoSource(selection=selection)
        return simulated, simulated.host(readonly=readonly)
    from gpumon.kill.local_host import LocalHost
    from gpumon.sources.machine import this_machine

    source = this_machine(selection, profiled=profiled, backend=backend or AUTO)
    return source, LocalHost(source.backend.device_files, readonly=readonly)


def whole_machine(
    *, demo: bool, backend: str | None = None
) -> tuple[Source, Callable[[], Links] | None]:
    """A source of every GPU, and a function that reads the links between them."""
    if demo:
        from gpumon.sources.demo import DemoSource

        return DemoSource(), None
    from gpumon.sources.machine import this_machine

    source = this_machine(backend=backend or AUTO)
    return source, source.backend.links


def reservations(*, demo: bool) -> Reservations | None:
    """The function that reads reservations; ``None`` for the demo."""
    if demo:
        return None

    def holders(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
        # Needed after the first picture only.
        from gpumon.scheduling.reservation.holders import holders_now

        return holders_now(uuids)

    return holders
