"""The network adapters, read from made trees of files and from this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpumon.export.as_json import to_json
from gpumon.host.machine import MachineReader
from gpumon.host.network import NetworkReader
from gpumon.host.network_watch import READ_SECONDS, NetworkWatch
from gpumon.model.codec import encode
from gpumon.model.network import MOST_NICS, Nic, NicKind
from gpumon.model.snapshot import Host, Snapshot
from gpumon.system.system import System
from tests.clock import HandClock
from tests.host.test_topology import ROOT, SWITCH, add_device, add_interface
from tests.known import known
from tests.lives import until

NIC = (*SWITCH, "0000:17:01.0", "0000:19:00.0")
GPU = (*SWITCH, "0000:17:00.0", "0000:18:00.0")
FAR_GPU = ("pci0000:80", "0000:80:01.0", "0000:81:00.0")
COUNTERS = {
    "port_rcv_data": 1000,
    "port_xmit_data": 500,
    "symbol_error": 1,
    "port_rcv_errors": 2,
    "link_downed": 3,
    "port_xmit_wait": 10,
}


class Tree:
    """A system file system with network adapters, and a reader of it."""

    def __init__(self, root: Path) -> None:
        self.sys = root
        self.clock = HandClock(now=100.0, epoch=1e9)
        self.system = System(sys=str(root), clock=self.clock)
        self.reader = NetworkReader(self.system)

    def interface(
        self, name: str, device: Path | None = None, files: Mapping[str, object] | None = None
    ) -> Path:
        """A network interface; without a device it is a virtual one."""
        if device is None:
            folder = self.sys / "devices/virtual/net" / name
            folder.mkdir(parents=True)
            parent = self.sys / "class/net"
            parent.mkdir(parents=True, exist_ok=True)
            (parent / name).symlink_to(folder)
        else:
            add_interface(self.sys, "net", name, device)
        here = self.sys / "class/net" / name
        given = {"type": 1, "operstate": "up", "speed": 25_000, "carrier_down_count": 2}
        write(here, {**given, **(files or {})})
        write(here / "statistics", {"rx_bytes": 1, "tx_bytes": 2, "rx_errors": 3, "tx_errors": 4})
        return here

    def rdma(self, name: str, device: Path, link: str = "InfiniBand", port: str = "1") -> Path:
        """A port of an RDMA device."""
        if not (device / "infiniband" / name).exists():
            add_interface(self.sys, "infiniband", name, device)
        here = self.sys / "class/infiniband" / name / "ports" / port
        write(here, {"link_layer": link, "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"})
        write(here / "counters", COUNTERS)
        return here

    def read(self, after: float = 2.0) -> dict[str, Nic]:
        """The adapters by name, seconds after the reading before."""
        self.clock.now += after
        return {nic.name: nic for nic in self.reader.read()}


def write(folder: Path, files: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def device(tree: Tree) -> Path:
    return add_device(tree.sys, NIC)


@pytest.fixture
def port(tree: Tree, device: Path) -> Path:
    """Of InfiniBand, mlx5_0."""
    return tree.rdma("mlx5_0", device)


def test_an_infiniband_port_has_its_rates_in_bytes(tree: Tree, port: Path) -> None:
    nic = tree.read()["mlx5_0"]
    assert nic.kind is NicKind.INFINIBAND
    assert nic.up
    assert (nic.speed, nic.received, nic.transmitted) == (50_000_000_000, 4000, 2000)
    assert (nic.receive_rate, nic.transmit_rate) == (None, None)
    assert (nic.errors, nic.link_losses, nic.congested) == (3, 3, None)
    write(port / "counters", {"port_rcv_data": 2000, "port_xmit_wait": 11})
    nic = tree.read()["mlx5_0"]
    assert (nic.receive_rate, nic.transmit_rate) == (2000.0, 0.0)
    assert nic.congested
    assert (nic.errors_at, nic.link_lost_at) == (None, None)


def test_errors_and_lost_links_are_dated_when_they_are_seen(tree: Tree, port: Path) -> None:
    tree.read()
    write(port / "counters", {"symbol_error": 2})
    nic = tree.read()["mlx5_0"]
    seen = nic.errors_at
    assert seen == tree.clock.time()
    assert nic.link_lost_at is None
    write(port / "counters", {"link_downed": 4})
    nic = tree.read()["mlx5_0"]
    assert (nic.link_lost_at, nic.errors_at) == (tree.clock.time(), seen)


def test_a_link_that_goes_down_is_lost_without_a_counter(tree: Tree, port: Path) -> None:
    (port / "counters/link_downed").unlink()
    assert tree.read()["mlx5_0"].link_lost_at is None
    write(port, {"state": "1: DOWN"})
    nic = tree.read()["mlx5_0"]
    assert nic.up is False
    assert nic.link_lost_at == tree.clock.time()


def test_a_port_that_is_down_from_the_start_has_lost_nothing(tree: Tree, device: Path) -> None:
    tree.interface("ens1", device, {"operstate": "down"})
    tree.read()
    nic = tree.read()["ens1"]
    assert nic.up is False
    assert nic.link_lost_at is None


def test_counters_that_are_set_back_give_no_rate_and_no_error(tree: Tree, port: Path) -> None:
    tree.read()
    write(port / "counters", dict.fromkeys(COUNTERS, 0))
    nic = tree.read()["mlx5_0"]
    assert (nic.receive_rate, nic.transmit_rate, nic.congested) == (None, None, None)
    assert (nic.errors_at, nic.link_lost_at) == (None, None)
    write(port / "counters", {"port_rcv_data": 500})
    assert tree.read()["mlx5_0"].receive_rate == 1000.0


def test_an_error_counter_that_appears_is_no_error(tree: Tree, port: Path) -> None:
    write(port / "counters", {"port_rcv_errors": "N/A (no PMA)"})
    assert tree.read()["mlx5_0"].errors == 1
    write(port / "counters", {"port_rcv_errors": 7})
    nic = tree.read()["mlx5_0"]
    assert (nic.errors, nic.errors_at) == (8, None)


@pytest.mark.parametrize("text", ["N/A (no PMA)", "-1", "", "\x1b[31m7", "1e9", "9" * 70, "0x10"])
def test_what_is_no_number_is_unknown_and_never_0(
    tree: Tree, device: Path, port: Path, text: str
) -> None:
    write(port / "counters", dict.fromkeys(COUNTERS, text))
    write(port, {"rate": text, "state": text})
    here = tree.interface("ens1", device, {"speed": text, "carrier_down_count": text})
    write(here / "statistics", dict.fromkeys(("rx_bytes", "tx_bytes", "rx_errors"), text))
    (here / "statistics/tx_errors").unlink()
    for _ in range(2):
        for nic in tree.read().values():
            assert nic.received is nic.transmitted is nic.errors is nic.link_losses is None
            assert nic.receive_rate is nic.speed is nic.congested is None


def test_totals_beyond_all_hardware_are_unknown(tree: Tree, port: Path) -> None:
    tree.read()
    write(port / "counters", {"port_rcv_data": 2**64 - 1})
    nic = tree.read()["mlx5_0"]
    assert (nic.received, nic.receive_rate) == (None, None)
    encode(Snapshot(1.0, Host("ada", nics=(nic,))))


def test_roce_and_its_interface_are_counted_apart_but_infiniband_once(
    tree: Tree, device: Path
) -> None:
    tree.rdma("mlx5_0", device, "Ethernet")
    tree.interface("ens1", device)
    found = tree.read()
    assert {name: nic.kind for name, nic in found.items()} == {
        "ens1": NicKind.ETHERNET,
        "mlx5_0": NicKind.ROCE,
    }
    tree.rdma("mlx5_1", add_device(tree.sys, (ROOT, "0000:15:02.0", "0000:20:00.0")))
    tree.interface("ib0", device, {"type": 32})
    assert tree.read().keys() == {"ens1", "mlx5_0", "mlx5_1"}


def test_an_ip_interface_stands_for_an_infiniband_port_that_is_hidden(
    tree: Tree, device: Path
) -> None:
    tree.interface("ib0", device, {"type": 32})
    nic = tree.read()["ib0"]
    assert (nic.kind, nic.received) == (NicKind.INFINIBAND, 1)


def test_several_ports_of_a_device_have_their_numbers(tree: Tree, device: Path) -> None:
    for port in ("1", "2"):
        tree.rdma("mlx4_0", device, port=port)
    assert tree.read().keys() == {"mlx4_0/1", "mlx4_0/2"}


@pytest.mark.slow
def test_virtual_interfaces_are_left_out_in_bounded_time(tree: Tree, device: Path) -> None:
    for number in range(1000):
        tree.interface(f"veth{number}")
    for name in ("lo", "docker0", "bond0"):
        tree.interface(name)
    tree.interface("ens1", device)
    function = add_device(tree.sys, (*SWITCH, "0000:17:01.0", "0000:19:00.1"))
    (function / "physfn").symlink_to(device)
    tree.interface("ens1v0", function)
    tree.interface("ens1_0", device, {"phys_port_name": "c1pf0vf12"})
    tree.read()
    began = time.perf_counter()
    assert tree.read().keys() == {"ens1"}
    assert time.perf_counter() - began < 0.5


def test_the_number_of_adapters_is_bounded(tree: Tree, device: Path) -> None:
    for number in range(MOST_NICS + 10):
        tree.interface(f"ens{number}", device)
    assert len(tree.read()) == MOST_NICS


def test_an_adapter_that_is_removed_and_comes_back_starts_anew(tree: Tree, device: Path) -> None:
    tree.interface("ens1", device)
    tree.read()
    link = tree.sys / "class/net/ens1"
    target = link.readlink()
    link.unlink()
    assert tree.read() == {}
    link.symlink_to(target)
    assert tree.read()["ens1"].receive_rate is None
    assert tree.read()["ens1"].receive_rate == 0.0


def test_a_hostile_name_stays_data(tree: Tree, device: Path) -> None:
    names = ["\x1b]0;x\x07", os.fsdecode(b"\xff\xfe"), "[red]x[", "٣" * 5, "a" * 200]
    for name in names:
        tree.interface(name, device)
    nics = tuple(tree.read().values())
    assert {nic.name for nic in nics} == set(names)
    snapshot = Snapshot(1.0, Host("ada", nics=nics))
    encode(snapshot)
    assert "\x1b" not in to_json(snapshot)


@pytest.mark.parametrize(
    ("gpus", "near", "nearness"),
    [
        ((GPU, FAR_GPU), (GPU[-1],), "PIX"),
        (((ROOT, "0000:15:03.0", "0000:21:00.0"), FAR_GPU), ("0000:21:00.0",), "PHB"),
        ((FAR_GPU,), (), None),
        ((), (), None),
    ],
)
def test_the_nearest_gpus_stand_beside_an_adapter(
    tree: Tree,
    device: Path,
    gpus: tuple[tuple[str, ...], ...],
    near: tuple[str, ...],
    nearness: str | None,
) -> None:
    for path in gpus:
        folder = add_device(tree.sys, path, "1" if path is FAR_GPU else "0")
        write(folder, {"vendor": "0x10de", "class": "0x030200"})
    tree.interface("ens1", device)
    nic = tree.read()["ens1"]
    assert (nic.numa_node, nic.near, nic.nearness, nic.pci_bus_id) == (0, near, nearness, NIC[-1])


def test_amd_gpus_are_found_by_their_nodes(tree: Tree, device: Path) -> None:
    add_interface(tree.sys, "drm", "renderD128", add_device(tree.sys, GPU))
    tree.interface("ens1", device)
    assert tree.read()["ens1"].near == (GPU[-1],)


def test_a_node_of_minus_1_is_unknown(tree: Tree) -> None:
    tree.interface("ens1", add_device(tree.sys, NIC, "-1"))
    assert tree.read()["ens1"].numa_node is None


def test_without_a_tree_there_are_no_adapters(tree: Tree) -> None:
    assert tree.read() == {}


def test_an_adapter_that_does_not_answer_delays_no_sample(tree: Tree, device: Path) -> None:
    here = tree.interface("ens1", device)
    watch = NetworkWatch(tree.system)
    until(lambda: watch.newest() is not None, "the adapters")
    (here / "operstate").unlink()
    os.mkfifo(here / "operstate")  # a read of it hangs
    tree.clock.now += 3
    began = time.perf_counter()
    (nic,) = watch.newest() or ()
    tree.clock.now += 11
    assert watch.newest() is None
    assert time.perf_counter() - began < 0.5
    (here / "speed").unlink()
    write(here, {"speed": 100_000})
    descriptor = os.open(here / "operstate", os.O_WRONLY)
    os.write(descriptor, b"up\n")
    os.close(descriptor)
    until(lambda: (watch.newest() or (nic,))[0].speed == 12_500_000_000, "the new speed")


def test_who_has_one_sample_waits_for_the_adapters(tree: Tree, device: Path) -> None:
    tree.interface("ens1", device)
    nics = known(NetworkWatch(tree.system).first())
    assert [nic.name for nic in nics] == ["ens1"]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_what_cannot_be_read_for_want_of_files_is_tried_again(
    tree: Tree, device: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.interface("ens1", device)
    watch = NetworkWatch(tree.system)
    with monkeypatch.context() as patch:
        patch.setattr(NetworkReader, "read", Mock(side_effect=error))
        assert watch.first() is None
    tree.clock.now += READ_SECONDS
    assert watch.first()


def test_the_adapters_of_this_machine_are_read() -> None:
    real = {
        folder.name: int((folder / "statistics/rx_bytes").read_text())
        for folder in Path("/sys/class/net").glob("*")
        if (folder / "device").exists()
    }
    if not real:
        pytest.skip("this machine has no network adapter")
    reader = MachineReader()
    until(lambda: reader.read().nics is not None, "the adapters")
    found = {nic.name: nic for nic in reader.read().nics or ()}
    for name in found.keys() & real.keys():
        assert (found[name].received or 0) >= real[name]
    assert found.keys() & real.keys()
