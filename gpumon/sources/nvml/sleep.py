"""Which cards are powered down, so that nobody wakes them by asking.

``nvmlInit_v2`` "initializes NVML, but does not initialize any GPUs yet" (nvml.h): it and counting
the cards are safe. ``nvmlDeviceGetHandleByIndex_v2`` "causes NVML to initialize the target GPU":
that, and every call with a handle, wakes it.
"""

from __future__ import annotations

import os

from gpumon.host.power import nvidia_pci_devices, read_word, runtime_status

SUSPENDED = "suspended"


def sleeping_cards(count: int, sys: str) -> dict[int, str]:
    """The indices of sleeping cards, and where on the PCI bus they are, as NVML writes it.

    NVML counts cards in the order of the bus. Where it counts another number than the bus has (a
    container that was given some), nothing can be said.

    Args:
        count: How many cards NVML counts.
        sys: Where the system file system is mounted.
    """
    devices = nvidia_pci_devices(sys)
    if len(devices) != count:
        return {}
    return {
        index: _as_nvml(device)
        for index, device in enumerate(devices)
        if runtime_status(device, sys) == SUSPENDED
    }


def is_asleep(bus_id: str, sys: str) -> bool:
    """Whether the card at this place is powered down at this moment."""
    return runtime_status(bus_id, sys) == SUSPENDED


def may_sleep(bus_id: str, sys: str) -> bool:
    """Whether the kernel may power this card down at all (``power/control`` is ``auto``).

    Servers' cards may not, and need not be looked at before every sample.
    """
    domain, rest = bus_id.lower().split(":", 1)
    device = f"{int(domain, 16):04x}:{rest}"
    return read_word(os.path.join(sys, "bus/pci/devices", device, "power/control")) == "auto"


def _as_nvml(device: str) -> str:
    domain, rest = device.split(":", 1)
    return f"{domain.zfill(8)}:{rest}".upper()
