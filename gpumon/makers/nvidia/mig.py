"""Reads the MIG devices of a GPU, which have NVML handles of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
from msgspec import Struct

from gpumon.makers.nvidia.library import nvmlDeviceGetMemoryInfo_v2
from gpumon.makers.nvidia.queries import REACTIONS, PollRate, Query, Reaction, pause_after
from gpumon.model.snapshot import MigInstance

if TYPE_CHECKING:
    import ctypes

    from gpumon.makers.nvidia.gpu import NvmlGpu

_SEPARATOR = " MIG "
"""Separates the name of the GPU from the profile in the name of a MIG device."""


class _Slice(Struct, frozen=True):
    """The properties of a MIG device that never change."""

    uuid: str
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None
    multiprocessors: int | None
    retry_at: float | None  # When unknown ones are read again; ``None`` if all are known.
    refusals: int  # How often in a row one of them could not be read.


def mig_query(gpu: NvmlGpu) -> Query:
    """The query for the MIG mode and the MIG devices.

    Handles of MIG devices become stale when any device is created or destroyed, so they are read
    each time; the properties of the devices are kept by UUID.
    """
    known: dict[str, _Slice] = {}

    def ask() -> int:
        # The second mode is that after the next reset.
        code, modes = gpu.ask_driver(pynvml.nvmlDeviceGetMigMode, gpu.handle)
        if code:
            return code
        was_on = gpu.answers.values.get("mig_mode")
        is_on = gpu.answers.values["mig_mode"] = bool(modes[0])
        if was_on is not None and was_on is not is_on:
            gpu.mig_changed = True
        if not is_on:
            gpu.mig, gpu.mig_handles = (), ()
            return pynvml.NVML_SUCCESS
        code, most = gpu.ask_driver(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle)
        if code:
            return code
        code, found = _instances(gpu, most, known)
        if code:
            return code
        if found and not gpu.mig:
            gpu.ask_about_processes_again()
        gpu.mig = tuple(instance for instance, _ in found)
        gpu.mig_handles = tuple(handle for _, handle in found)
        return pynvml.NVML_SUCCESS

    return Query(("mig_mode",), ask, PollRate.SLOW)


def _instances(
    gpu: NvmlGpu, most: int, known: dict[str, _Slice]
) -> tuple[int, list[tuple[MigInstance, ctypes.c_void_p]]]:
    """The MIG devices, and an error code if it concerns the whole GPU."""
    before = {
        instance.index: (instance, handle)
        for instance, handle in zip(gpu.mig, gpu.mig_handles, strict=True)
    }
    found = []
    for index in range(most):
        code, handle = gpu.ask_driver(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, index)
        uuid = ""
        if not code:
            code, uuid = gpu.text(pynvml.nvmlDeviceGetUUID, handle)
        reaction = REACTIONS.get(code, Reaction.FAILING)
        if not code:
            what = known.get(uuid)
            if what is None or (
                what.retry_at is not None and what.retry_at <= gpu.clock.monotonic()
            ):
                what = known[uuid] = _describe(gpu, handle, uuid, what)
            found.append((_measure(gpu, handle, index, what), handle))
        elif reaction in {Reaction.GPU, Reaction.DRIVER}:
            return code, []
        elif reaction in {Reaction.PASSING, Reaction.FAILING} and index in before:
            found.append(before[index])
        # NOT_FOUND is a gap in the indexes; other errors concern this device only.
    return pynvml.NVML_SUCCESS, found


def _describe(gpu: NvmlGpu, handle: ctypes.c_void_p, uuid: str, before: _Slice | None) -> _Slice:
    """The properties of a MIG device; ``before`` are those read the last time."""
    no_gpu, gpu_instance = gpu.ask_driver(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    no_compute, compute_instance = gpu.ask_driver(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    no_attributes, attributes = gpu.ask_driver(pynvml.nvmlDeviceGetAttributes_v2, handle)
    no_name, name = gpu.text(pynvml.nvmlDeviceGetName, handle)
    _, separator, profile = name.partition(_SEPARATOR)
    retry_at, refusals = None, 0
    errors = [code for code in (no_gpu, no_compute, no_attributes, no_name) if code]
    if errors:
        refusals = 1 if before is None else before.refusals + 1
        reactions = {REACTIONS.get(code, Reaction.FAILING) for code in errors}
        passes = not reactions.isdisjoint({Reaction.PASSING, Reaction.FAILING})
        retry_at = gpu.clock.monotonic()
        retry_at += 0.0 if passes else pause_after(refusals, answered=False)
    return _Slice(
        uuid=uuid,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        profile=profile if separator and not no_name else None,
        multiprocessors=None if no_attributes else attributes.multiprocessorCount,
        retry_at=retry_at,
        refusals=refusals,
    )


def _measure(gpu: NvmlGpu, handle: ctypes.c_void_p, index: int, what: _Slice) -> MigInstance:
    code, memory = gpu.ask_driver(nvmlDeviceGetMemoryInfo_v2, handle)
    if code and not gpu.has("nvmlDeviceGetMemoryInfo_v2"):
        code, memory = gpu.ask_driver(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return MigInstance(
        uuid=what.uuid,
        index=index,
        gpu_instance=what.gpu_instance,
        compute_instance=what.compute_instance,
        profile=what.profile,
        multiprocessors=what.multiprocessors,
        memory_total=None if code else memory.total,
        memory_used=None if code else memory.used,
        memory_free=None if code else memory.free,
        **gpu.mig_shares.get(what.gpu_instance, {}),
    )
