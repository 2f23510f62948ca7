"""Selects the backends for this machine, and names the versions of its drivers."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.makers.drm.cards import driver_version, drm_drivers, list_nodes
from gpumon.model.makers import AUTO, load, makers
from gpumon.model.selection import ALL as ALL_GPUS
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from gpumon.makers.backend import GpuBackend
    from gpumon.makers.sampler import Sampler
    from gpumon.model.makers import Maker
    from gpumon.model.selection import GpuSelection
    from gpumon.system.system import System


def this_machine(
    selection: GpuSelection = ALL_GPUS,
    *,
    profiled: bool = False,
    backend: str = AUTO,
    system: System = THIS_SYSTEM,
) -> Sampler:
    """The sampler of this machine.

    Args:
        selection: The GPUs to sample.
        profiled: Whether to read how much of each GPU works (``sm_active`` and the like), which
            only those need who show or log it.
        backend: One of ``makers.backends()``. ``auto`` is every driver that the machine has,
            without the GPUs of processors where there is another GPU; ``all`` has these too.
        system: The operating system that is read.
    """
    from gpumon.makers.sampler import Sampler  # Versions need none.

    chosen = _backend(selection, backend, system, profiled=profiled)
    return Sampler(chosen, system)


def _backend(
    selection: GpuSelection, backend: str, system: System, *, profiled: bool
) -> GpuBackend:
    chosen = [maker for maker in makers() if maker.backend == backend] or _present(system)
    backends: list[type[GpuBackend]] = [load(maker.backend_class) for maker in chosen]
    if len(backends) == 1:
        return backends[0](selection, system, profiled=profiled)
    from gpumon.makers.combined import CombinedBackend, Member

    members = [
        Member(
            kind(ALL_GPUS, system, profiled=profiled),
            f"{maker.name}'s driver",
            expected=0 if maker.is_drm else _gpus_on_the_bus(maker, system.sys),
            hides_integrated=maker.integrated is not None and backend == AUTO,
        )
        for maker, kind in zip(chosen, backends, strict=True)
    ]
    return CombinedBackend(members, selection, system)


def _present(system: System) -> list[Maker]:
    """The makers whose drivers may have GPUs; of a driver outside of DRM only itself knows."""
    drivers = {driver for *_, driver in list_nodes(drm_drivers(), system.sys)}
    return [
        maker
        for maker in makers()
        if not maker.is_drm or not drivers.isdisjoint(maker.kernel_drivers)
    ]


def _gpus_on_the_bus(maker: Maker, sys: str) -> int:
    """Number of GPUs that have the maker's driver, or none: no other driver has taken them."""
    from gpumon.host.pci import driver_of, graphics_devices

    devices = graphics_devices(maker.pci_vendor, sys)
    return sum(driver_of(device, sys) in {*maker.kernel_drivers, None} for device in devices)


def software() -> tuple[str, ...]:
    """The versions of gpumon, Python and Textual, such as ``Python 3.11.7``."""
    # Importing Textual would take ten times as long.
    from importlib.metadata import PackageNotFoundError, version

    try:
        textual = f"Textual {version('textual')}"
    except PackageNotFoundError:
        textual = "no Textual"
    return (f"gpumon {__version__}", f"Python {platform.python_version()}", textual)


def driver_versions(system: System = THIS_SYSTEM) -> tuple[str, ...]:
    """The versions of the drivers: one each, and all DRM drivers that have GPUs."""
    drivers = sorted({driver for *_, driver in list_nodes(drm_drivers(), system.sys)})
    own = [load(maker.version)() for maker in makers() if maker.version is not None]
    return (*own, *(driver_version(driver, system) for driver in drivers))


def all_versions() -> str:
    """The versions that a bug report needs, one per line."""
    return "\n".join((*software(), *driver_versions()))
