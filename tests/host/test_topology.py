"""How near devices are, and their NUMA nodes and processors, from a system file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.host.topology import PciPlace, proximity, read_topology
from gpumon.model.topology import NO_KNOWN_LINKS, DeviceKind, Joint, Link, Links
from tests import build

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Gpu

ROOT = "pci0000:15"
SWITCH = (ROOT, "0000:15:01.0", "0000:16:00.0")
"""A root port, and the upper bridge of a switch."""
GPU = PciPlace((*SWITCH, "0000:17:00.0", "0000:18:00.0"), 0)


@pytest.mark.parametrize(
    ("path", "node", "link"),
    [
        ((*SWITCH, "0000:17:00.0", "0000:18:00.1"), 0, Link.SWITCH),  # a function of the device
        ((*SWITCH, "0000:17:01.0", "0000:19:00.0"), 0, Link.SWITCH),
        (
            (*SWITCH, "0000:17:01.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"),
            0,
            Link.SWITCHES,
        ),
        ((ROOT, "0000:15:02.0", "0000:20:00.0"), 0, Link.HOST),
        (("pci0000:30", "0000:30:01.0", "0000:31:00.0"), 0, Link.NODE),
        (("pci0000:80", "0000:80:01.0", "0000:81:00.0"), 1, Link.SYSTEM),
        (("pci0000:80", "0000:80:01.0", "0000:81:00.0"), None, Link.UNKNOWN),
        (None, 1, Link.SYSTEM),
        (None, 0, Link.UNKNOWN),
        (None, None, Link.UNKNOWN),
    ],
)
def test_a_device_is_as_near_as_the_bridges_between_say(
    path: tuple[str, ...] | None, node: int | None, link: Link
) -> None:
    other = PciPlace(path, node)
    assert proximity(GPU, other) is link
    assert proximity(other, GPU) is link


def add_device(sys: Path, path: tuple[str, ...], numa_node: str | None = "0") -> Path:
    folder = sys.joinpath("devices", *path)
    folder.mkdir(parents=True)
    if numa_node is not None:
        (folder / "numa_node").write_text(f"{numa_node}\n")
    devices = sys / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / path[-1]).symlink_to(folder)
    return folder


def add_interface(sys: Path, kind: str, name: str, device: Path) -> None:
    folder = device / kind / name
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)
    parent = sys / "class" / kind
    parent.mkdir(parents=True, exist_ok=True)
    (parent / name).symlink_to(folder)


def add_node(sys: Path, number: int, cpus: str) -> None:
    node = sys / f"devices/system/node/node{number}"
    node.mkdir(parents=True)
    (node / "cpulist").write_text(cpus)


def gpu(index: int, bus_id: str | None) -> Gpu:
    return build.gpu(index=index, pci_bus_id=bus_id)


def test_what_the_driver_does_not_report_is_read_from_the_bus(tmp_path: Path) -> None:
    add_device(tmp_path, SWITCH)
    add_device(tmp_path, ("pci0000:80", "0000:80:01.0", "0000:81:00.0"), "1")
    add_node(tmp_path, 0, "0-31,64-95\n")
    add_node(tmp_path, 1, "32-63\n")
    gpus = [gpu(0, "00000000:16:00.0"), gpu(1, "00000000:81:00.0")]
    links = Links({frozenset(("GPU-0", "GPU-1")): Joint(fabric=Link.XGMI, xgmi_hops=1)})
    topology = read_topology(gpus, links, str(tmp_path))
    found = [(device.numa_node, device.cpus) for device in topology.devices]
    assert found == [(0, "0-31,64-95"), (1, "32-63")]
    assert topology.joints[0] == (None, Joint(Link.SYSTEM, Link.XGMI, xgmi_hops=1))
    # The driver knows more than the bus.
    known = Links({frozenset(("GPU-0", "GPU-1")): Joint(Link.SWITCH)})
    assert read_topology(gpus, known, str(tmp_path)).joints[0][1] == Joint(Link.SWITCH)


@pytest.mark.parametrize("node", ["-1", "", "zero", "0 0", "9" * 60, None])
def test_an_unknown_numa_node_is_not_node_0(tmp_path: Path, node: str | None) -> None:
    add_node(tmp_path, 0, "0-31\n")
    add_device(tmp_path, ("pci0000:15", "0000:15:01.0", "0000:16:00.0"), node)
    add_device(tmp_path, ("pci0000:30", "0000:30:01.0", "0000:31:00.0"), node)
    gpus = [gpu(0, "0000:16:00.0"), gpu(1, "0000:31:00.0")]
    topology = read_topology(gpus, NO_KNOWN_LINKS, str(tmp_path))
    assert [(device.numa_node, device.cpus) for device in topology.devices] == [(None, None)] * 2
    assert topology.joints[0][1] == Joint(Link.UNKNOWN)


@pytest.mark.parametrize("bus_id", [None, "", "N/A", "../../../../etc", "0000:1b:00.0/../x"])
def test_a_gpu_without_a_place_is_shown(tmp_path: Path, bus_id: str | None) -> None:
    add_device(tmp_path, SWITCH)
    gpus = [gpu(0, bus_id), gpu(1, "0000:16:00.0")]
    topology = read_topology(gpus, NO_KNOWN_LINKS, str(tmp_path))
    assert topology.devices[0].bus_id is None
    assert topology.joints[0][1] == Joint(Link.UNKNOWN)


@pytest.mark.parametrize("cpus", ["", "all\x1b[31m", "0-31,", "-1", "0-3 7"])
def test_processors_that_are_no_list_are_unknown(tmp_path: Path, cpus: str) -> None:
    add_node(tmp_path, 0, cpus)
    add_device(tmp_path, SWITCH)
    topology = read_topology([gpu(0, "0000:16:00.0")], NO_KNOWN_LINKS, str(tmp_path))
    assert topology.devices[0].cpus is None


def test_an_adapter_is_listed_once_by_its_rdma_device(tmp_path: Path) -> None:
    add_device(tmp_path, (*SWITCH, "0000:17:00.0", "0000:18:00.0"))
    adapter = add_device(tmp_path, (*SWITCH, "0000:17:01.0", "0000:19:00.0"))
    add_interface(tmp_path, "infiniband", "mlx5_0", adapter)
    (adapter / "infiniband/mlx5_0/ports/1").mkdir(parents=True)
    add_interface(tmp_path, "net", "ib0", adapter)
    virtio = add_device(tmp_path, ("pci0000:00", "0000:00:03.0"), "-1") / "virtio0"
    virtio.mkdir()
    add_interface(tmp_path, "net", "eth0", virtio)
    for name in ("lo", "docker0", *(f"veth{number}" for number in range(1000))):
        (tmp_path / "class/net" / name).mkdir()
    topology = read_topology([gpu(0, "0000:18:00.0")], NO_KNOWN_LINKS, str(tmp_path))
    assert [(device.kind, device.name, device.bus_id) for device in topology.devices] == [
        (DeviceKind.GPU, "GPU 0", "0000:18:00.0"),
        (DeviceKind.NIC, "eth0", "0000:00:03.0"),
        (DeviceKind.NIC, "mlx5_0", "0000:19:00.0"),
    ]
    assert topology.joints[0] == (None, Joint(Link.UNKNOWN), Joint(Link.SWITCH))


def test_the_number_of_adapters_is_bounded(tmp_path: Path) -> None:
    for number in range(100):
        device = add_device(tmp_path, ("pci0000:00", f"0000:{number:02x}:00.0"))
        add_interface(tmp_path, "net", f"eth{number}", device)
    assert len(read_topology((), NO_KNOWN_LINKS, str(tmp_path)).devices) == 64
