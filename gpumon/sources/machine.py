"""Selects the backend for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.selection import ALL, GpuSelection
from gpumon.sources.nvml.source import NvmlSource

if TYPE_CHECKING:
    from gpumon.sources.sampler import Sampler


def this_machine(selection: GpuSelection = ALL) -> Sampler:
    """The sampler of this machine.

    Args:
        selection: The GPUs to sample.
    """
    return NvmlSource(selection)
