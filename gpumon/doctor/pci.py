"""The GPUs on the PCI bus, whoever made them and whichever driver they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor.machine import found
from gpumon.host.power import graphics_devices
from gpumon.model.makers import Maker

if TYPE_CHECKING:
    from gpumon.doctor.machine import Machine

VENDORS = {Maker.NVIDIA: "0x10de", Maker.AMD: "0x1002", Maker.INTEL: "0x8086"}
"""PCI vendor IDs, as the kernel writes them."""

OWN_DRIVERS = {Maker.NVIDIA: ("nvidia",), Maker.AMD: ("amdgpu",), Maker.INTEL: ("i915", "xe")}
"""The kernel drivers whose GPUs gpumon shows."""

_INTEL_PROCESSOR = "0000:00:02.0"
"""The place of the GPU of Intel's processors."""


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
        return self.driver in OWN_DRIVERS[self.maker]

    @property
    def line(self) -> str:
        """A line for a person."""
        return f"{self.slot}  {self.maker.value}  {self.driver or 'no driver'}"


def pci_gpus(machine: Machine) -> tuple[PciGpu, ...]:
    """The GPUs of the three makers, by maker and place. No GPU wakes."""
    sys = str(machine.path("/sys"))
    return tuple(
        _gpu(machine, slot, maker)
        for maker, vendor in VENDORS.items()
        for slot in graphics_devices(vendor, sys)
    )


def _gpu(machine: Machine, slot: str, maker: Maker) -> PciGpu:
    folder = machine.path(f"/sys/bus/pci/devices/{slot}")
    try:
        driver: str | None = (folder / "driver").readlink().name
    except OSError:
        driver = None
    if maker is Maker.INTEL:
        integrated = slot == _INTEL_PROCESSOR
    else:
        # Of AMD's GPUs only those of processors have the voltage vddnb (``in1``), see
        # ``hwmon_attributes_visible`` of the kernel's ``amdgpu_pm.c``.
        integrated = maker is Maker.AMD and bool(found(folder, "hwmon/hwmon*/in1_label"))
    nodes = tuple(path.name for path in found(folder, "drm/renderD*"))
    return PciGpu(slot, maker, driver, nodes, integrated)
