"""The GPUs on the PCI bus, whoever made them and whichever driver they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor.machine import found
from gpumon.host.power import read_word
from gpumon.model.makers import MAKERS, Maker
from gpumon.sources.amd import gpu as amd
from gpumon.sources.drm.cards import read_hex
from gpumon.sources.intel import names as intel

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor.machine import Machine

_DISPLAY, _ACCELERATOR = "0x03", "0x12"
"""PCI base classes. The Instinct MI300 and later are accelerators (apache/cloudstack#11701), but so
are the NPUs of Intel's processors."""


class PciGpu(Struct, frozen=True):
    """A GPU on the PCI bus.

    Attributes:
        slot: Its kernel name: ``0000:03:00.0``.
        maker: Its maker.
        driver: Its kernel driver; ``None`` without one.
        render_nodes: Names of its render nodes: ``renderD128``.
        integrated: Whether it is part of a processor. AMD's are known only with their driver.
    """

    slot: str
    maker: Maker
    driver: str | None
    render_nodes: tuple[str, ...] = ()
    integrated: bool = False

    @property
    def shown_by_gpumon(self) -> bool:
        """Whether its driver is one of those that gpumon reads."""
        return self.driver in MAKERS[self.maker].kernel_drivers

    @property
    def line(self) -> str:
        """A line for a person."""
        return f"{self.slot}  {self.maker.value}  {self.driver or 'no driver'}"


def pci_gpus(machine: Machine) -> tuple[PciGpu, ...]:
    """The GPUs of the three makers, by maker and place. No GPU wakes."""
    folders = machine.folder("/sys/bus/pci/devices", "*")
    vendors = {folder: read_word(f"{folder}/vendor") for folder in folders}
    return tuple(
        gpu
        for maker, facts in MAKERS.items()
        for folder in folders
        if vendors[folder] == facts.pci_vendor and (gpu := _gpu(folder, maker)) is not None
    )


def _gpu(folder: Path, maker: Maker) -> PciGpu | None:
    """The GPU of a PCI device; ``None`` if it is something else."""
    try:
        driver: str | None = (folder / "driver").readlink().name
    except OSError:
        driver = None
    classes = (_DISPLAY, _ACCELERATOR) if maker is Maker.AMD else (_DISPLAY,)
    is_gpu = (read_word(f"{folder}/class") or "").startswith(classes)
    # The drivers amdgpu, i915 and xe have nothing but GPUs.
    if not is_gpu and (maker is Maker.NVIDIA or driver not in MAKERS[maker].kernel_drivers):
        return None
    nodes = tuple(path.name for path in found(folder, "drm/renderD*"))
    return PciGpu(folder.name, maker, driver, nodes, _is_integrated(folder, maker))


def _is_integrated(folder: Path, maker: Maker) -> bool:
    device = read_hex(f"{folder}/device")
    if maker is Maker.AMD:
        return amd.is_integrated(str(folder), device)
    return maker is Maker.INTEL and intel.is_integrated(folder.name, device)
