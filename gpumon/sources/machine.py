"""Selects the backend for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.selection import ALL, GpuSelection
from gpumon.sources.nvml.source import NvmlSource

if TYPE_CHECKING:
    from gpumon.sources.sampler import Sampler


def this_machine(selection: GpuSelection = ALL, *, profiled: bool = False) -> Sampler:
    """The sampler of this machine.

    Args:
        selection: The GPUs to sample.
        profiled: Whether to read how much of each GPU works (``sm_active`` and the like), which
            only those need who show or log it.
    """
    return NvmlSource(selection, profiled=profiled)
