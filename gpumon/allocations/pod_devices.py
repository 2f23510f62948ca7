"""Which GPU a device of a pod is, by the names that device plugins and DRA drivers give to GPUs.

The names are from the sources of NVIDIA's k8s-device-plugin (internal/rm/devices.go) and
k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go), Google's container-engine-accelerators
(pkg/gpu/nvidia), ROCm's k8s-device-plugin (internal/pkg/amdgpu/amdgpu.go) and k8s-gpu-dra-driver,
Intel's intel-device-plugins-for-kubernetes (cmd/gpu_plugin/gpu_plugin.go) and
intel-resource-drivers-for-kubernetes.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from gpumon.allocations.pod_resources import PodDevice
    from gpumon.model.snapshot import Gpu

_GPU_RESOURCE = re.compile(
    r"nvidia\.com/(?:gpu(?:[.-].*)?|mig-.*)|amd\.com/(?:gpu|[a-z]{3}_nps[0-9])"
    r"|gpu\.intel\.com/(?:i915|xe)"
)
_GPU_DRIVER = re.compile(r"gpu\.(?:nvidia|amd|intel)\.com")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")


class FoundDevice(Struct, frozen=True):
    """A device that is a GPU, a MIG device, or a part of them."""

    # Its UUID; empty if it is not shown. ``None``: not known which GPU it is.
    uuids: tuple[str, ...] | None
    is_share: bool = False  # Whether others may have it, too.


class DeviceFinder:
    """Finds GPUs by the names that Kubernetes has for them.

    Args:
        gpus: The GPUs that are sampled, maybe not all.
        sys: Where sysfs is mounted.
    """

    def __init__(self, gpus: Sequence[Gpu], sys: str = "/sys") -> None:
        self._gpus, self._sys = gpus, sys
        self._uuids = {gpu.uuid for gpu in gpus} | {mig.uuid for gpu in gpus for mig in gpu.mig}

    def find(self, device: PodDevice) -> FoundDevice | None:
        """The GPU that a device is, or is a part of; ``None`` if it is none."""
        found = self._find(device)
        return replace(found, is_share=True) if found is not None and device.is_share else found

    def _find(self, device: PodDevice) -> FoundDevice | None:
        for source, name, locate in _OF_DRIVERS if device.is_claimed else _OF_PLUGINS:
            found = re.fullmatch(name, device.id)
            if found is not None and re.fullmatch(source, device.source):
                return locate(self, found)
        kind = _GPU_DRIVER if device.is_claimed else _GPU_RESOURCE
        return FoundDevice(None) if kind.fullmatch(device.source) else None

    def by_uuid(self, name: re.Match[str]) -> FoundDevice:
        """``GPU-UUID`` or ``MIG-UUID``, with ``::N`` if it is shared by time or MPS."""
        return FoundDevice((name[1],) if name[1] in self._uuids else (), name[2] is not None)

    def by_nvidia_file(self, name: re.Match[str]) -> FoundDevice:
        """``nvidia0``, or ``nvidia0/gi1`` with MIG, with ``/vgpuN`` if it is shared."""
        found = self._by_minor(int(name[1]))
        if name[2] is None:
            return FoundDevice(found, name[3] is not None)
        parts = tuple(
            mig.uuid
            for gpu in self._gpus
            for mig in gpu.mig
            if gpu.uuid in (found or ()) and mig.gpu_instance == int(name[2])
        )
        return FoundDevice(parts or found, name[3] is not None or not parts)

    def by_nvidia_claim(self, name: re.Match[str]) -> FoundDevice:
        """``gpu-MINOR``, with ``-mig-PROFILE-START-SIZE`` for a MIG device, which is not known."""
        return FoundDevice(self._by_minor(int(name[1])), name[2] is not None)

    def by_render_node(self, name: re.Match[str]) -> FoundDevice:
        """``gpu-CARD-RENDER`` of AMD, whose partitions have render nodes of their own."""
        found = self._by_minor(int(name[1]))
        return FoundDevice(found) if found else FoundDevice(None, is_share=True)

    def by_address(self, name: re.Match[str]) -> FoundDevice:
        """A PCI address, with dashes for Intel's driver."""
        domain, bus, slot, function = name.groups()
        return FoundDevice(self._by_address(f"{domain}:{bus}:{slot}.{function}"))

    def by_card(self, name: re.Match[str]) -> FoundDevice:
        """``card0-N`` of Intel, the N-th share of a GPU if it is shared."""
        try:
            folder = os.readlink(f"{self._sys}/class/drm/card{name[1]}/device")  # noqa: PTH115 - a plain string
        except OSError:
            return FoundDevice(None)
        return FoundDevice(self._by_address(folder.rpartition("/")[2]), int(name[2]) > 0)

    def of_partition(self, _: re.Match[str]) -> FoundDevice:
        """A partition of AMD, whose name says nothing about its GPU."""
        return FoundDevice(None, is_share=True)

    def outside(self, _: re.Match[str]) -> None:
        """A GPU that a virtual machine has, which has left its driver."""

    def _by_minor(self, minor: int) -> tuple[str, ...] | None:
        # NVIDIA's start at 0, those of render nodes at 128.
        return _matching(minor, {gpu.uuid: gpu.minor_number for gpu in self._gpus})

    def _by_address(self, address: str) -> tuple[str, ...] | None:
        wanted = _slot(address)
        if wanted is None:
            return None
        return _matching(wanted, {gpu.uuid: _slot(gpu.pci_bus_id or "") for gpu in self._gpus})


def _matching(wanted: Hashable, known: Mapping[str, Hashable]) -> tuple[str, ...] | None:
    """The UUID of the GPU with a value; none if all GPUs have others; ``None``: not known."""
    found = tuple(uuid for uuid, value in known.items() if value == wanted)
    return found if found or None not in known.values() else None


def _slot(address: str) -> tuple[int, str] | None:
    """The place on the PCI bus, however many digits the domain is written with."""
    found = _PCI.fullmatch(address)
    return None if found is None else (int(found[1], 16), found[2].lower())


_HEX = "[0-9a-f]"
_Rules = tuple[tuple[str, str, "Callable[[DeviceFinder, re.Match[str]], FoundDevice | None]"], ...]
_OF_PLUGINS: _Rules = (
    (
        r"nvidia\.com/.*",
        rf"((?:MIG-)?GPU-{_UUID}(?:/[0-9]+/[0-9]+)?|MIG-{_UUID})(::[0-9]+)?",
        DeviceFinder.by_uuid,
    ),
    (
        r"nvidia\.com/.*",
        r"nvidia([0-9]{1,4})(?:/gi([0-9]{1,4}))?(/vgpu[0-9]+)?",
        DeviceFinder.by_nvidia_file,
    ),
    (
        r"amd\.com/.*",
        rf"({_HEX}{{4}}):({_HEX}{{2}}):({_HEX}{{2}})\.([0-7])",
        DeviceFinder.by_address,
    ),
    (r"amd\.com/.*", "amdgpu_xcp_.*", DeviceFinder.of_partition),
    (r"gpu\.intel\.com/(?:i915|xe)", r"card([0-9]{1,4})-([0-9]{1,4})", DeviceFinder.by_card),
)
_OF_DRIVERS: _Rules = (
    (r"gpu\.nvidia\.com", r"gpu-vfio-[0-9]+", DeviceFinder.outside),
    (r"gpu\.nvidia\.com", r"gpu-([0-9]{1,4})(-mig-[0-9-]+)?", DeviceFinder.by_nvidia_claim),
    (r"gpu\.amd\.com", r"gpu-[0-9]{1,4}-([0-9]{1,4})", DeviceFinder.by_render_node),
    (
        r"gpu\.intel\.com",
        rf"({_HEX}{{4}})-({_HEX}{{2}})-({_HEX}{{2}})-([0-7])-0x{_HEX}{{4}}",
        DeviceFinder.by_address,
    ),
)
"""Of each rule: the source, the name, and how the GPU is found. The first that fits counts."""
