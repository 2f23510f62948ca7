"""Selects the backends for this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model import makers
from gpumon.model.makers import MAKERS, Maker
from gpumon.model.selection import ALL, GpuSelection
from gpumon.sources.drm import DRM_MAKERS
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpumon.sources.backend import GpuBackend


class Roots(Struct, frozen=True):
    """Where the file systems of the kernel are mounted."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"


HERE = Roots()


def this_machine(
    selection: GpuSelection = ALL,
    *,
    profiled: bool = False,
    backend: str = makers.AUTO,
    roots: Roots = HERE,
) -> Sampler:
    """The sampler of this machine.

    Args:
        selection: The GPUs to sample.
        profiled: Whether to read how much of each GPU works (``sm_active`` and the like), which
            only those need who show or log it.
        backend: One of ``makers.BACKENDS``. ``auto`` is every driver that the machine has, without
            the GPUs of processors where there is another GPU; ``all`` has these too.
        roots: Where the file systems of the kernel are mounted.
    """
    if backend in {makers.AUTO, makers.ALL}:
        drivers = _drivers(roots.sys)
        there = [
            maker for maker in DRM_MAKERS if not drivers.isdisjoint(MAKERS[maker].kernel_drivers)
        ]
        if there:
            return _sampler(_combined(there, selection, backend, roots, profiled=profiled), roots)
    for maker in DRM_MAKERS:
        if backend == MAKERS[maker].backend:
            return _sampler(_drm_backend(maker, selection, roots), roots)
    return NvmlSource(selection, proc=roots.proc, sys=roots.sys, profiled=profiled)


def _drivers(sys: str) -> set[str]:
    """The kernel drivers of the machine's GPUs."""
    folder = f"{sys}/class/drm"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return set()
    found = set()
    for name in names:
        if name.startswith("card") and name[4:].isdigit():
            try:
                found.add(os.readlink(f"{folder}/{name}/device/driver").rpartition("/")[2])  # noqa: PTH115 - as above
            except OSError:
                continue
    return found


def _sampler(backend: GpuBackend, roots: Roots) -> Sampler:
    from gpumon.host.machine import MachineReader
    from gpumon.host.processes import ProcessReader

    return Sampler(backend, None, MachineReader(roots.proc), ProcessReader(roots.proc))


def _drm_backend(maker: Maker, selection: GpuSelection, roots: Roots) -> GpuBackend:
    if maker is Maker.AMD:
        from gpumon.sources.amd.source import AmdBackend

        return AmdBackend(selection, None, roots.proc, roots.sys, roots.dev)
    from gpumon.sources.intel.source import IntelBackend

    return IntelBackend(selection, None, roots.proc, roots.sys, roots.dev)


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
    roots: Roots,
    *,
    profiled: bool,
) -> GpuBackend:
    """NVIDIA's backend, which may find no driver, and these."""
    from gpumon.sources.combined import CombinedBackend, Member
    from gpumon.sources.nvml.source import NvmlBackend

    nvml = NvmlBackend(ALL, None, roots.proc, roots.sys, profiled=profiled)
    members = [Member(nvml, "NVIDIA's driver", expected=_nvidia_gpus(roots.sys))]
    members += [
        Member(
            _drm_backend(maker, ALL, roots),
            f"{maker.value}'s driver",
            expected=0,
            hides_integrated=backend == makers.AUTO,
        )
        for maker in there
    ]
    return CombinedBackend(members, selection)
