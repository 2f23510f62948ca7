"""Some of the GPUs of a snapshot, with all that belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpumon.model.allocations import Allocation
    from gpumon.model.processes import GpuProcess, HolderScan
    from gpumon.model.snapshot import Snapshot


def subset_of(snapshot: Snapshot, gpus: Collection[str]) -> Snapshot:
    """A snapshot with only the GPUs that have these UUIDs; a GPU keeps all of its MIG devices."""
    kept = tuple([gpu for gpu in snapshot.gpus if gpu.uuid in gpus])
    devices = {gpu.uuid for gpu in kept} | {mig.uuid for gpu in kept for mig in gpu.mig}
    return replace(
        snapshot,
        gpus=kept,
        processes=processes_on(snapshot.processes, gpus),
        holders=None if snapshot.holders is None else _holders_on(snapshot.holders, gpus),
        reserved=tuple([each for each in snapshot.reserved if each.gpu_uuid in gpus]),
        allocations=None
        if snapshot.allocations is None
        else tuple(_allocations_of(snapshot.allocations, devices)),
    )


def processes_on(processes: Iterable[GpuProcess], gpus: Collection[str]) -> tuple[GpuProcess, ...]:
    """The processes on the GPUs that have these UUIDs, with their use of these."""
    kept = []
    for process in processes:
        uses = tuple([use for use in process.uses if use.gpu_uuid in gpus])
        if uses:
            kept.append(process if len(uses) == len(process.uses) else replace(process, uses=uses))
    return tuple(kept)


def _holders_on(scan: HolderScan, gpus: Collection[str]) -> HolderScan:
    suspects = [
        replace(each, gpu_uuids=held)
        for each in scan.suspects
        if (held := tuple([uuid for uuid in each.gpu_uuids if uuid in gpus]))
    ]
    return replace(scan, suspects=tuple(suspects))


def _allocations_of(
    allocations: Iterable[Allocation], devices: Collection[str]
) -> Iterable[Allocation]:
    for each in allocations:
        kept = tuple([uuid for uuid in each.devices if uuid in devices])
        # What has no place may be on any of them.
        if kept or each.unplaced != 0:
            yield each if len(kept) == len(each.devices) else replace(each, devices=kept)
