"""The GPUs of NVIDIA's driver with the host, as ``this_machine`` joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.nvidia.source import NvmlBackend
from gpumon.makers.sampler import Sampler
from gpumon.model.selection import ALL, GpuSelection
from gpumon.system.clock import SystemClock
from gpumon.system.system import System

if TYPE_CHECKING:
    from gpumon.system.clock import Clock


class NvmlSource(Sampler):
    """See ``NvmlBackend`` and ``System`` for the arguments."""

    backend: NvmlBackend

    def __init__(
        self,
        selection: GpuSelection = ALL,
        clock: Clock | None = None,
        proc: str = "/proc",
        sys: str = "/sys",
        dev: str = "/dev",
        *,
        profiled: bool = False,
    ) -> None:
        system = System(proc, sys, dev, clock or SystemClock())
        backend = NvmlBackend(selection, system, profiled=profiled)
        super().__init__(backend, system)
