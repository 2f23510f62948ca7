"""Whether the kernel has powered a card down, learned without touching it.

Any call to the driver wakes a sleeping card, and keeps it awake while the driver is open. Linux
itself answers these questions from memory.
"""

from __future__ import annotations

import os
import re

from gpumon.host.procfs import read_file

_NVIDIA = "0x10de"
_DISPLAY_CONTROLLER = "0x03"
"""The PCI base class of graphics cards, with an output (0x0300) or without (0x0302)."""

_DEVICES = "bus/pci/devices"
_WORD_BYTES = 64

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def runtime_status(pci_bus_id: str, sys: str = "/sys") -> str | None:
    """The state of a card's runtime power management.

    See ``Documentation/ABI/testing/sysfs-devices-power`` of the kernel.

    Args:
        pci_bus_id: As NVML writes it (``00000000:1B:00.0``) or as the kernel does.
        sys: Where the system file system is mounted.

    Returns:
        ``active``, ``suspended``, ``suspending``, ``resuming``, ``error`` or ``unsupported``;
        ``None`` when nothing is to be read here.
    """
    match = _BUS_ID.fullmatch(pci_bus_id)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    # The kernel writes at least four digits, more where the domain needs them.
    name = f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()
    return read_word(os.path.join(sys, _DEVICES, name, "power/runtime_status"))


def nvidia_pci_devices(sys: str = "/sys") -> list[str]:
    """NVIDIA's graphics cards on the PCI bus, asleep or awake, with a driver or without.

    Sound and USB functions of the same boards, and NVSwitches, are left out.

    Args:
        sys: Where the system file system is mounted.

    Returns:
        The kernel's names of them (``0000:1b:00.0``), in order.
    """
    folder = os.path.join(sys, _DEVICES)
    try:
        # A server has hundreds of them, and this is asked before the first picture.
        names = sorted(os.listdir(folder))  # noqa: PTH208 - nor is pathlib there by then
    except OSError:
        return []
    return [
        name
        for name in names
        if read_word(f"{folder}/{name}/vendor") == _NVIDIA
        and (read_word(f"{folder}/{name}/class") or "").startswith(_DISPLAY_CONTROLLER)
    ]


def read_word(path: str) -> str | None:
    """What the kernel says in a file of one word; ``None`` where it says nothing."""
    try:
        return read_file(path, _WORD_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return None
