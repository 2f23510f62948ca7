"""The PCIe link of a device, from the files that the kernel's PCI core has for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from gpumon.makers.drm.attributes import Attributes

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
"""As ``pci_speed_string()`` in the kernel writes it."""

GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
"""By tenths of gigatransfers per second."""


class PcieLink(NamedTuple):
    """A link.

    Attributes:
        generation: Its PCIe generation, or why it is unknown.
        width: Its number of lanes.
    """

    generation: int | Unknown
    width: int | Unknown


NO_LINK = PcieLink(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)


def read_link(attributes: Attributes, which: str, folder: str = "") -> PcieLink:
    """The link of a device.

    Args:
        attributes: The attributes of a GPU.
        which: ``current`` or ``max``.
        folder: Path of the device from the folder of the GPU, with a slash at the end: ``../`` is
            the bridge above it.
    """
    speed = attributes.text(f"{folder}{which}_link_speed")
    width = attributes.number(f"{folder}{which}_link_width")
    if width in {0, 255}:
        # There is no link, or the device does not respond.
        width = Unknown.NOT_SUPPORTED
    if isinstance(speed, Unknown):
        return PcieLink(speed, width)
    match = _SPEED.match(speed)
    generation = None if match is None else GENERATIONS.get(round(float(match[1]) * 10))
    return PcieLink(generation or Unknown.NOT_SUPPORTED, width)
