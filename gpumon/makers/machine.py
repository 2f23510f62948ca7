"""Selects the backends for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.machine import MachineReader
from gpumon.host.processes import ProcessReader
from gpumon.makers.drm.cards import DRM_DRIVERS, list_nodes
from gpumon.makers.nvidia.source import NvmlBackend
from gpumon.makers.sampler import Sampler
from gpumon.model import makers
from gpumon.model.makers import MAKERS, Maker
from gpumon.model.selection import ALL, GpuSelection
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpumon.makers.backend import GpuBackend
    from gpumon.makers.drm.backend import DrmBackend
    from gpumon.system.system import System


def _amd() -> type[DrmBackend]:
    from gpumon.makers.amd.source import AmdBackend

    return AmdBackend


def _intel() -> type[DrmBackend]:
    from gpumon.makers.intel.source import IntelBackend

    return IntelBackend


_DRM_BACKENDS: dict[Maker, Callable[[], type[DrmBackend]]] = {
    Maker.AMD: _amd,
    Maker.INTEL: _intel,
}
"""The backends of makers other than NVIDIA, in the order of their GPUs; imported where used."""


def this_machine(
    selection: GpuSelection = ALL,
    *,
    profiled: bool = False,
    backend: str = makers.AUTO,
    system: System = THIS_SYSTEM,
) -> Sampler:
    """The sampler of this machine.

    Args:
        selection: The GPUs to sample.
        profiled: Whether to read how much of each GPU works (``sm_active`` and the like), which
            only those need who show or log it.
        backend: One of ``makers.BACKENDS``. ``auto`` is every driver that the machine has, without
            the GPUs of processors where there is another GPU; ``all`` has these too.
        system: The operating system that is read.
    """
    chosen = _backend(selection, backend, system, profiled=profiled)
    return Sampler(chosen, None, MachineReader(system.proc), ProcessReader(system.proc))


def _backend(
    selection: GpuSelection, backend: str, system: System, *, profiled: bool
) -> GpuBackend:
    if backend in {makers.AUTO, makers.ALL}:
        drivers = {driver for *_, driver in list_nodes(DRM_DRIVERS, system.sys)}
        there = [
            maker for maker in _DRM_BACKENDS if not drivers.isdisjoint(MAKERS[maker].kernel_drivers)
        ]
        if there:
            return _combined(there, selection, backend, system, profiled=profiled)
    for maker in _DRM_BACKENDS:
        if backend == MAKERS[maker].backend:
            return _drm_backend(maker, selection, system)
    return NvmlBackend(selection, system, profiled=profiled)


def _drm_backend(maker: Maker, selection: GpuSelection, system: System) -> GpuBackend:
    return _DRM_BACKENDS[maker]()(selection, None, system.proc, system.sys, system.dev)


def _nvidia_gpus(sys: str) -> int:
    """Number of NVIDIA's GPUs that have its driver, or none: no other driver has taken them."""
    from gpumon.host.power import driver_of, graphics_devices

    nvidia = MAKERS[Maker.NVIDIA]
    devices = graphics_devices(nvidia.pci_vendor, sys)
    return sum(driver_of(device, sys) in {*nvidia.kernel_drivers, None} for device in devices)


def _combined(
    there: Collection[Maker],
    selection: GpuSelection,
    backend: str,
    system: System,
    *,
    profiled: bool,
) -> GpuBackend:
    """NVIDIA's backend, which may find no driver, and these."""
    from gpumon.makers.combined import CombinedBackend, Member

    nvml = NvmlBackend(ALL, system, profiled=profiled)
    members = [Member(nvml, "NVIDIA's driver", expected=_nvidia_gpus(system.sys))]
    members += [
        Member(
            _drm_backend(maker, ALL, system),
            f"{maker.value}'s driver",
            expected=0,
            hides_integrated=backend == makers.AUTO,
        )
        for maker in there
    ]
    return CombinedBackend(members, selection)
