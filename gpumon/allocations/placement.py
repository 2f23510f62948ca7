"""Which GPUs a job has, where that is certain: by their numbers, or by its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.allocations import job_keys_of
from gpumon.model.snapshot import ANSWERING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpumon.allocations.slurm_node import GpuOrder
    from gpumon.model.allocations import JobKey
    from gpumon.model.snapshot import Gpu, Snapshot


def devices_by_place(order: GpuOrder | None, gpus: Sequence[Gpu]) -> Mapping[int, str]:
    """The UUIDs of GPUs or MIG devices by their place in slurmd's list, those that are certain.

    Args:
        order: How slurmd numbers them; ``None`` if that is uncertain.
        gpus: The GPUs that are sampled, maybe not all.
    """
    answering = [gpu for gpu in gpus if gpu.status in ANSWERING]
    if any(gpu.minor_number is None for gpu in answering):
        # One of the places may be that of this GPU.
        order = None if order is None or order.by == "files" else order
    by_minor = {gpu.minor_number: gpu.uuid for gpu in gpus if gpu.minor_number is not None}
    is_divided = any(gpu.mig_mode or gpu.mig for gpu in gpus)
    if order is not None and order.by == "files":
        places = ((place, by_minor.get(minor)) for place, minor in enumerate(order.files))
        return {place: uuid for place, uuid in places if uuid is not None}
    if order is not None and order.by == "nvml":
        return _in_order_of_nvml(gpus, is_divided=is_divided)
    # By device file, or by a way that is not known: certain where all ways are the same.
    if is_divided or any(gpu.minor_number != gpu.index for gpu in gpus):
        return {}
    return {gpu.index: gpu.uuid for gpu in gpus}


def _in_order_of_nvml(gpus: Sequence[Gpu], *, is_divided: bool) -> Mapping[int, str]:
    if not is_divided:
        return {gpu.index: gpu.uuid for gpu in gpus}
    # Each MIG device has a place, so that all GPUs before it must be known.
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    if [gpu.index for gpu in ordered] != list(range(len(ordered))):
        return {}
    devices = [
        device.uuid
        for gpu in ordered
        for device in (gpu.mig if gpu.mig_mode or gpu.mig else (gpu,))
    ]
    return dict(enumerate(devices))


def devices_with_processes(snapshot: Snapshot, jobs: Collection[JobKey]) -> tuple[str, ...]:
    """The GPUs and MIG devices on which a job's processes are, in order: these are certainly its.

    Args:
        snapshot: A sample with the workloads of processes.
        jobs: The keys of the job.
    """
    instances = {
        (gpu.uuid, mig.gpu_instance, mig.compute_instance): mig.uuid
        for gpu in snapshot.gpus
        for mig in gpu.mig
    }
    found: dict[str, None] = {}
    for process in snapshot.processes:
        if not any(job in jobs for job in job_keys_of(process.place)):
            continue
        for use in process.uses:
            instance = use.instance or (None, None)
            found[instances.get((use.gpu_uuid, *instance), use.gpu_uuid)] = None
    return tuple(found)
