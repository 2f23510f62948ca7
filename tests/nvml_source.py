"""The GPUs of NVIDIA's driver with the host, as ``this_machine`` joins them."""

from __future__ import annotations

from gpumon.makers.nvidia.source import NvmlBackend
from gpumon.makers.sampler import Sampler
from gpumon.model.selection import ALL, GpuSelection
from gpumon.system.system import THIS_SYSTEM, System


class NvmlSource(Sampler):
    """See ``NvmlBackend`` for the arguments."""

    backend: NvmlBackend

    def __init__(
        self,
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
        *,
        profiled: bool = False,
    ) -> None:
        super().__init__(NvmlBackend(selection, system, profiled=profiled), system)
