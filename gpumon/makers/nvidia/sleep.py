"""Finds GPUs that are powered down, so that no call wakes them.

``nvmlInit_v2`` "initializes NVML, but does not initialize any GPUs yet" (nvml.h): it and counting
the GPUs are safe. ``nvmlDeviceGetHandleByIndex_v2`` "causes NVML to initialize the target GPU":
that, and every call with a handle, wakes it.
"""

from __future__ import annotations

from gpumon.host.power import graphics_devices, runtime_status
from gpumon.makers.nvidia import MAKER

SUSPENDED = "suspended"


def sleeping_gpus(count: int, sys: str) -> dict[int, str]:
    """The indices of sleeping GPUs, with their PCI bus IDs as NVML writes them.

    NVML counts GPUs in the order of the PCI bus. If it counts fewer than the bus has, as in a
    container that was given some of them, indices cannot be assigned and the result is empty.

    Args:
        count: Number of GPUs that NVML counts.
        sys: Where the system file system is mounted.
    """
    devices = graphics_devices(MAKER.pci_vendor, sys)
    if len(devices) != count:
        return {}
    return {
        index: _as_nvml(device)
        for index, device in enumerate(devices)
        if runtime_status(device, sys) == SUSPENDED
    }


def is_asleep(bus_id: str, sys: str) -> bool:
    """Whether the GPU with this PCI bus ID is powered down now."""
    return runtime_status(bus_id, sys) == SUSPENDED


def _as_nvml(device: str) -> str:
    domain, rest = device.split(":", 1)
    return f"{domain.zfill(8)}:{rest}".upper()
