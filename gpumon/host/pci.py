"""Finds GPUs on the PCI bus and whether the kernel has powered them down, without the driver.

Any driver call wakes a sleeping GPU, and keeps it awake while the driver is open. The kernel
answers from memory.
"""

from __future__ import annotations

import os
import re

from gpumon.host.procfs import read_file
from gpumon.system.system import THIS_SYSTEM

_DISPLAY_CONTROLLER = "0x03"
"""The PCI base class of graphics GPUs, with an output (0x0300) or without (0x0302)."""

_DEVICES = "bus/pci/devices"
_WORD_BYTES = 64

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


def slot(domain: str, bus: str, device: str) -> str:
    """Where a device is on the PCI bus, in the kernel's form, ``0000:41:00``.

    The kernel writes at least four digits of the domain, more where it needs them.
    """
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()


def slot_of(bus_id: str) -> str | None:
    """The slot of a GPU that NVML (``00000000:41:00.0``) or the kernel (``0000:41:00.0``) names.

    Returns:
        ``None`` where it is something else.
    """
    match = _BUS_ID.match(bus_id)
    return None if match is None else slot(match[1], match[2], match[3])


def kernel_name(bus_id: str) -> str | None:
    """The kernel's name of a device, ``0000:41:00.0``; ``bus_id`` is that of ``slot_of``.

    Returns:
        ``None`` where it is something else, or has no function.
    """
    match = _BUS_ID.fullmatch(bus_id)
    if match is None or match[4] is None:
        return None
    return f"{slot(match[1], match[2], match[3])}.{match[4]}"


def runtime_status(pci_bus_id: str, sys: str) -> str | None:
    """The state of a GPU's runtime power management.

    See ``Documentation/ABI/testing/sysfs-devices-power`` of the kernel. The GPU is named as a
    driver (``00000000:1B:00.0``) or the kernel (``0000:1b:00.0``) does.

    Returns:
        ``active``, ``suspended``, ``suspending``, ``resuming``, ``error`` or ``unsupported``;
        ``None`` if it cannot be read.
    """
    return _power_word(pci_bus_id, "runtime_status", sys)


def may_sleep(pci_bus_id: str, sys: str) -> bool:
    """Whether the kernel may power this GPU down (``power/control`` is ``auto``).

    It usually may not on servers, which then need no check before every sample.
    """
    return _power_word(pci_bus_id, "control", sys) == "auto"


def _power_word(pci_bus_id: str, name: str, sys: str) -> str | None:
    device = kernel_name(pci_bus_id)
    return None if device is None else read_word(os.path.join(sys, _DEVICES, device, "power", name))


def graphics_devices(vendor: str, sys: str = THIS_SYSTEM.sys) -> list[str]:
    """The GPUs of one maker on the PCI bus, asleep or awake, with a driver or without.

    Sound and USB functions of the same boards, and switches, are left out.
    ``vendor`` is the maker's PCI vendor ID as the kernel writes it.

    Returns:
        Their kernel names (``0000:1b:00.0``), sorted.
    """
    folder = os.path.join(sys, _DEVICES)
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return []
    return [
        name
        for name in names
        if read_word(f"{folder}/{name}/vendor") == vendor
        and (read_word(f"{folder}/{name}/class") or "").startswith(_DISPLAY_CONTROLLER)
    ]


def driver_of(device: str, sys: str = THIS_SYSTEM.sys) -> str | None:
    """Name of the driver of a PCI device (``0000:1b:00.0``); ``None`` without a driver."""
    try:
        return os.readlink(os.path.join(sys, _DEVICES, device, "driver")).rpartition("/")[2]  # noqa: PTH115 - pathlib is not imported before the first frame
    except OSError:
        return None


def read_word(path: str) -> str | None:
    """The content of a file of one word; ``None`` if it cannot be read."""
    try:
        return read_file(path, _WORD_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return None
