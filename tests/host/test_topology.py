"""How near devices are, and their NUMA nodes and processors, from a system file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.host.pci import graphics_devices, runtime_status
from gpumon.host.topology import PciPlace, proximity, read_topology
from gpumon.model.snapshot import Gpu
from gpumon.model.topology import NO_KNOWN_LINKS, DeviceKind, Joint, Link, Links
from tests import build

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


# Whether a card sleeps.

VENDOR = "0x10de"


def add_card(
    sys: Path,
    name: str,
    vendor: str = VENDOR,
    class_: str = "0x030200",
    status: str | None = "active",
) -> None:
    device = sys / "bus/pci/devices" / name
    (device / "power").mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(class_ + "\n")
    if status is not None:
        (device / "power/runtime_status").write_text(status + "\n")


@pytest.mark.parametrize("bus_id", ["00000000:1B:00.0", "0000:1b:00.0", "0000:1B:00.0"])
def test_a_sleeping_card_is_found_under_either_spelling(tmp_path: Path, bus_id: str) -> None:
    add_card(tmp_path, "0000:1b:00.0", status="suspended")
    add_card(tmp_path, "0000:1c:00.0", status="active")
    assert runtime_status(bus_id, str(tmp_path)) == "suspended"


def test_a_domain_of_more_than_four_digits_is_found(tmp_path: Path) -> None:
    add_card(tmp_path, "10000:01:00.0")
    assert runtime_status("00010000:01:00.0", str(tmp_path)) == "active"


@pytest.mark.parametrize(
    "bus_id",
    [
        *("00000000:1B:00.0", "00000000:2B:00.0"),  # it does not say, and there is none
        *("", "N/A", "../../../../etc", "0000:1b:00.0/../x", "\x1b[31m"),
    ],
)
def test_what_is_not_there_or_says_nothing_is_unknown(tmp_path: Path, bus_id: str) -> None:
    add_card(tmp_path, "0000:1b:00.0", status=None)
    assert runtime_status(bus_id, str(tmp_path)) is None


def test_only_graphics_cards_of_the_maker_are_listed(tmp_path: Path) -> None:
    assert graphics_devices(VENDOR, str(tmp_path)) == [], "there is no bus"
    add_card(tmp_path, "0000:c1:00.0", class_="0x030000")
    add_card(tmp_path, "0000:1b:00.0", class_="0x030200", status="suspended")
    add_card(tmp_path, "0000:1b:00.1", class_="0x040300")  # its sound
    add_card(tmp_path, "0000:1b:00.2", class_="0x0c0330")  # its USB
    add_card(tmp_path, "0000:05:00.0", class_="0x068000")  # an NVSwitch
    add_card(tmp_path, "0000:00:02.0", vendor="0x8086", class_="0x030000")
    assert graphics_devices(VENDOR, str(tmp_path)) == ["0000:1b:00.0", "0000:c1:00.0"]


def test_the_real_bus_can_be_read() -> None:
    for name in graphics_devices(VENDOR):
        assert Path("/sys/bus/pci/devices", name).exists()
