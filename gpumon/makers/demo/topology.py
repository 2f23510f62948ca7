"""How the demo's GPUs are connected: by NVSwitch, four of them at each of two processors."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from gpumon.host.pci import kernel_name
from gpumon.host.topology import PciPlace, join
from gpumon.makers.demo.network import NIC_BESIDE, bus_of
from gpumon.model.snapshot import GpuStatus
from gpumon.model.topology import DeviceKind, Joint, Link, Links, TopologyDevice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu
    from gpumon.model.topology import Topology

_GPUS_OF_NODE = 4
_CPUS = ("0-47", "48-95")


def demo_topology(gpus: Sequence[Gpu]) -> Topology:
    """The topology of these GPUs and the adapters; the driver reports nothing of a lost GPU."""
    found = [_device(DeviceKind.GPU, f"GPU {gpu.index}", gpu.index, 0, gpu) for gpu in gpus]
    found += [_device(DeviceKind.NIC, name, beside, 1) for beside, name in NIC_BESIDE.items()]
    present = [gpu for gpu in gpus if gpu.status is not GpuStatus.LOST]
    return join(
        found,
        Links(
            {
                frozenset((one.uuid, other.uuid)): Joint(
                    fabric=Link.NVLINK, nvlinks=one.nvlink_active
                )
                for one, other in combinations(present, 2)
            }
        ),
    )


def _device(
    kind: DeviceKind, name: str, beside: int, port: int, gpu: Gpu | None = None
) -> tuple[TopologyDevice, PciPlace]:
    """A device at a port of a PCIe switch; each GPU has a switch of its own."""
    node = beside // _GPUS_OF_NODE
    root = f"{16 * (2 * beside + 1):02x}"
    bus_id = f"0000:{bus_of(beside, port)}:00.0"
    if gpu is not None and gpu.pci_bus_id is not None:
        bus_id = kernel_name(gpu.pci_bus_id) or bus_id
    path = (f"pci0000:{root}", f"0000:{root}:01.0", f"0000:{root}:02.{port}", bus_id)
    index, uuid = (None, None) if gpu is None else (gpu.index, gpu.uuid)
    return TopologyDevice(kind, name, bus_id, node, _CPUS[node], index, uuid), PciPlace(path, node)
