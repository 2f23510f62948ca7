"""What a process uses of one GPU, made of its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.makers.backend import COMPUTE, GRAPHICS, ListedProcess, joined_type
from gpumon.model.processes import GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.makers.drm.clients import Client


class Engines(Struct, frozen=True):
    """The engines of a driver by their meaning. A name is the driver's in ``fdinfo``.

    Attributes:
        graphics: Engines that draw, and may compute too.
        compute: Engines that only compute.
        encoder: Engines that only encode video.
        decoder: Engines that only decode video.
    """

    graphics: tuple[str, ...]
    compute: tuple[str, ...]
    encoder: tuple[str, ...] = ()
    decoder: tuple[str, ...] = ()


class ProcessUse(Struct, frozen=True):
    """The use that one process makes of one GPU. ``None`` is unknown.

    Attributes:
        types: A subset of ``C`` and ``G``; empty if nothing indicates either.
        memory: Bytes.
        sm: Percent of the busiest of the engines that draw or compute.
        encoder: Percent of the video encoder.
        decoder: Percent of the video decoder.
    """

    types: frozenset[str] = frozenset()
    memory: int | None = None
    sm: float | None = None
    encoder: float | None = None
    decoder: float | None = None


def uses_of(
    clients: Iterable[Client], engines: Engines, regions: tuple[str, ...]
) -> dict[int, ProcessUse]:
    """The use of one GPU by PID.

    Args:
        clients: The clients of the GPU.
        engines: The engines of its driver.
        regions: Prefixes of the memory regions that count: ``vram`` is ``vram0`` too.
    """
    by_pid: dict[int, list[Client]] = {}
    for client in clients:
        by_pid.setdefault(client.pid, []).append(client)
    return {pid: _use(its, engines, regions) for pid, its in by_pid.items()}


def resident_bytes(client: Client, regions: tuple[str, ...]) -> int | None:
    """Bytes of a client in some regions: resident ones where they are told, else all."""
    table = client.usage.resident or client.usage.memory
    sizes = [size for name, size in table.items() if name.startswith(regions)]
    return sum(sizes) if sizes else None


def busy_percent(clients: Iterable[Client], names: tuple[str, ...]) -> float | None:
    """Percent of the busiest of some engines, all clients together; ``None`` if unknown."""
    totals: dict[str, float] = {}
    known = False
    for client in clients:
        if client.busy is not None:
            known = True
            for name in names:
                totals[name] = totals.get(name, 0.0) + client.busy.get(name, 0.0)
    return min(100.0, max(totals.values(), default=0.0)) if known and names else None


def _use(clients: list[Client], engines: Engines, regions: tuple[str, ...]) -> ProcessUse:
    sizes = [size for client in clients if (size := resident_bytes(client, regions)) is not None]
    types = set()
    for client in clients:
        if _has_used(client, engines.graphics):
            types.add(GRAPHICS)
        if _has_used(client, engines.compute):
            types.add(COMPUTE)
    return ProcessUse(
        types=frozenset(types),
        memory=sum(sizes) if sizes else None,
        sm=busy_percent(clients, engines.graphics + engines.compute),
        encoder=busy_percent(clients, engines.encoder),
        decoder=busy_percent(clients, engines.decoder),
    )


def _has_used(client: Client, names: tuple[str, ...]) -> bool:
    usage = client.usage
    return any(
        usage.engine_ns.get(name) or usage.cycles.get(name) or usage.percent.get(name)
        for name in names
    )


def list_processes(
    uses: Sequence[tuple[str, int, Mapping[int, ProcessUse]]],
) -> dict[int, ListedProcess]:
    """The processes on all GPUs.

    Args:
        uses: UUID and index of each GPU, in index order, with the uses by PID.
    """
    types: dict[int, set[str]] = {}
    listed: dict[int, list[GpuUse]] = {}
    for uuid, index, by_pid in uses:
        for pid, use in by_pid.items():
            types.setdefault(pid, set()).update(use.types)
            listed.setdefault(pid, []).append(
                GpuUse(
                    gpu_uuid=uuid,
                    gpu_index=index,
                    memory_used=use.memory,
                    sm=_whole(use.sm),
                    encoder=_whole(use.encoder),
                    decoder=_whole(use.decoder),
                )
            )
    return {
        # A process that has only opened the GPU is most probably a display's.
        pid: ListedProcess(joined_type(types[pid]) or GRAPHICS, tuple(its))
        for pid, its in listed.items()
    }


def _whole(percent: float | None) -> int | None:
    return None if percent is None else round(percent)
