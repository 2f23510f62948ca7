"""Joins the links that drivers report with what the kernel knows of the PCI bus and NUMA nodes."""

from __future__ import annotations

import os
import re
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.network_ports import find_ports
from gpumon.host.pci import kernel_name, read_word
from gpumon.host.procfs import read_file
from gpumon.model.topology import DeviceKind, Joint, Link, Topology, TopologyDevice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu
    from gpumon.model.topology import Links

_PCI_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_CPU_LIST = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
_CPU_LIST_BYTES = 4096
_NUMA_NODE = re.compile(r"[0-9]{1,4}")
_BELOW_ONE_SWITCH = 2
"""Folders below a PCIe switch on the way to a device: the port of the switch, and the device."""


class PciPlace(NamedTuple):
    """Where a device is. ``None`` is unknown."""

    # The root of its bus, the bridges below it, and the device, as the kernel names them.
    path: tuple[str, ...] | None = None
    numa_node: int | None = None


def proximity(one: PciPlace, other: PciPlace) -> Link:
    """How near two devices are by the PCI bus.

    As in NCCL (``ncclTopoPciPathDistance``, github.com/NVIDIA/nccl/issues/1866), but unknown where
    it takes a node of -1 for a node.
    """
    if one.path is not None and other.path is not None and one.path[0] == other.path[0]:
        steps = zip(one.path, other.path, strict=False)
        shared = sum(1 for _ in takewhile(lambda step: step[0] == step[1], steps))
        if shared == 1:
            return Link.HOST
        below = max(len(one.path), len(other.path)) - shared
        return Link.SWITCH if below <= _BELOW_ONE_SWITCH else Link.SWITCHES
    if one.numa_node is None or other.numa_node is None:
        return Link.UNKNOWN
    if one.numa_node != other.numa_node:
        return Link.SYSTEM
    return Link.UNKNOWN if one.path is None or other.path is None else Link.NODE


def read_topology(gpus: Sequence[Gpu], links: Links, sys: str) -> Topology:
    """The topology of a machine, read now. The kernel has all of it in memory: no GPU wakes.

    Args:
        gpus: The GPUs to show.
        links: What their drivers report.
        sys: Where the sysfs file system is mounted.
    """
    found = [
        _device(
            DeviceKind.GPU,
            f"GPU {gpu.index}",
            None if gpu.pci_bus_id is None else kernel_name(gpu.pci_bus_id),
            sys,
            gpu,
        )
        for gpu in gpus
    ]
    found += [_device(DeviceKind.NIC, name, bus_id, sys) for name, bus_id in _nics(sys)]
    return join(found, links)


def join(found: Sequence[tuple[TopologyDevice, PciPlace]], links: Links) -> Topology:
    """The topology of devices whose places are known."""
    joints = tuple(
        tuple(
            None if one is other else _joint(one, at, other, elsewhere, links)
            for other, elsewhere in found
        )
        for one, at in found
    )
    return Topology(tuple(device for device, _ in found), joints)


def _joint(
    one: TopologyDevice,
    at: PciPlace,
    other: TopologyDevice,
    elsewhere: PciPlace,
    links: Links,
) -> Joint:
    """What the driver reports of two devices, and the kernel's view of the bus if it does not."""
    known = Joint()
    if one.uuid is not None and other.uuid is not None:
        known = links.of(one.uuid, other.uuid)
    return known if known.bus is not Link.UNKNOWN else known._replace(bus=proximity(at, elsewhere))


def _device(
    kind: DeviceKind, name: str, bus_id: str | None, sys: str, gpu: Gpu | None = None
) -> tuple[TopologyDevice, PciPlace]:
    place = PciPlace() if bus_id is None else pci_place(bus_id, sys)
    device = TopologyDevice(
        kind,
        name,
        bus_id,
        place.numa_node,
        _cpus(place.numa_node, sys),
        None if gpu is None else gpu.index,
        None if gpu is None else gpu.uuid,
    )
    return device, place


def pci_place(bus_id: str, sys: str) -> PciPlace:
    """Where a PCI device is. A node of -1 means that the firmware does not say it."""
    folder = f"{sys}/bus/pci/devices/{bus_id}"
    node = read_word(f"{folder}/numa_node") or ""
    parts = os.path.realpath(folder).split("/")
    roots = [at for at, part in enumerate(parts) if _PCI_ROOT.fullmatch(part)]
    return PciPlace(
        tuple(parts[roots[-1] :]) if roots else None,
        int(node) if _NUMA_NODE.fullmatch(node) else None,
    )


def _cpus(node: int | None, sys: str) -> str | None:
    """The processors of a NUMA node, as the kernel writes them."""
    if node is None:
        return None
    try:
        text = read_file(f"{sys}/devices/system/node/node{node}/cpulist", _CPU_LIST_BYTES)
    except OSError:
        return None
    cpus = text.decode("ascii", "replace").strip()
    return cpus if _CPU_LIST.fullmatch(cpus) else None


def _nics(sys: str) -> list[tuple[str, str]]:
    """Names and PCI bus IDs of the network adapters, by name: that of RDMA before that of Linux."""
    found: dict[str, str] = {}
    for port in find_ports(sys):
        if port.pci_bus_id is not None:
            found.setdefault(port.pci_bus_id, port.name)
    return sorted((name, bus_id) for bus_id, name in found.items())
