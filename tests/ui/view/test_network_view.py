"""The network adapters on screen: whole at every width, unknown never 0, warnings for a while."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.model.network import Nic, NicKind
from gpumon.model.snapshot import Host
from gpumon.ui.view.network_view import (
    byte_rate,
    host_text,
    near_nics,
    nic_rows,
    nic_text,
    nic_warning,
)
from tests.build import NOON, gpu
from tests.ui.view.drawing import lines_of

NIC = Nic(
    name="mlx5_0",
    kind=NicKind.INFINIBAND,
    up=True,
    speed=50_000_000_000,
    receive_rate=23.1e9,
    transmit_rate=22.8e9,
    errors=0,
    link_losses=3,
    numa_node=0,
    pci_bus_id="0000:1a:00.0",
    near=("0000:1b:00.0",),
    nearness="PIX",
)
GPUS = (gpu(pci_bus_id="00000000:1B:00.0"), gpu(index=1, pci_bus_id="00000000:43:00.0"))
HOSTILE = Nic("\x1b]0;x\x07[red]\n" + "x" * 300, NicKind.OTHER, nearness="\x1b[2J", near=NIC.near)


def lines(*nics: Nic, width: int = 100, now: float = NOON) -> list[str]:
    rows = nic_rows(Host("ada", nics=nics), GPUS, now, width)
    texts = lines_of(rows)
    assert {len(text) for text in texts} <= {width}
    assert "\x1b" not in "".join(texts)
    return [text.rstrip() for text in texts]


def test_an_adapter_has_its_traffic_its_faults_and_its_gpus() -> None:
    assert lines(NIC) == [
        "NIC     KIND        LINK     SPEED         IN        OUT  ERRORS  LOST  NUMA  NEAR",
        "mlx5_0  InfiniBand  up    400 Gb/s  23.1 GB/s  22.8 GB/s       0     3     0  GPU 0 (PIX)",
    ]


def test_what_is_unknown_is_never_0() -> None:
    _, line = lines(Nic("eth0", NicKind.ETHERNET))
    assert line.split() == ["eth0", "Ethernet", *"––––––––"]
    assert host_text(Host("ada"), NOON)[0] == ""
    assert host_text(Host("ada", nics=(Nic("eth0", NicKind.ETHERNET),)), NOON)[0] == ""


def test_a_machine_without_adapters_says_so() -> None:
    assert lines() == ["No network adapters."]
    (row,) = nic_rows(Host("ada"), GPUS, NOON, 100)
    assert row[0][0].startswith("Network adapters are not known.")


def test_the_traffic_of_all_adapters_is_added() -> None:
    other = replace(NIC, name="mlx5_1")
    unused = Nic("ens1", NicKind.ETHERNET, up=False)
    text, style = host_text(Host("ada", nics=(NIC, other, unused)), NOON)
    assert (text, style) == ("NIC 46.2 GB/s in, 45.6 GB/s out", "dim")
    text, _ = host_text(Host("ada", nics=(NIC, replace(other, receive_rate=None))), NOON)
    assert text.split() == ["NIC", "–", "in,", "45.6", "GB/s", "out"]


@pytest.mark.parametrize(
    ("nic", "warning"),
    [
        (NIC, ""),
        (replace(NIC, link_lost_at=NOON - 180), "mlx5_0: link lost 3m ago"),
        (replace(NIC, link_lost_at=NOON - 180, up=False), "mlx5_0: link down 3m ago"),
        (replace(NIC, errors_at=NOON - 5), "mlx5_0: errors 5s ago"),
        (replace(NIC, errors_at=NOON - 601), ""),
        (replace(NIC, up=False), ""),
    ],
)
def test_what_was_seen_a_short_time_ago_is_a_warning(nic: Nic, warning: str) -> None:
    assert nic_warning(nic, NOON) == warning
    assert lines(nic)[2:] == [warning] * bool(warning)
    text, style = host_text(Host("ada", nics=(nic,)), NOON)
    assert (style == "state.warning") is bool(warning)
    assert text == warning or not warning


def test_the_page_of_a_gpu_has_the_adapters_near_it() -> None:
    host = Host("ada", nics=(NIC, replace(NIC, name="far", near=("0000:43:00.0",))))
    assert [nic_text(nic) for nic in near_nics(host, GPUS[0])] == [
        "mlx5_0 (PIX) 23.1 GB/s in, 22.8 GB/s out"
    ]
    assert nic_text(replace(NIC, up=False)) == "mlx5_0 (PIX) down"
    assert near_nics(host, gpu()) == []
    assert "\x1b" not in nic_text(HOSTILE)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "–"),
        (0.0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.9, "1.0 kB/s"),
        (999_960.0, "1.0 MB/s"),
        (23.1e9, "23.1 GB/s"),
        (1e13, "10.0 TB/s"),
    ],
)
def test_a_rate_is_short(rate: float | None, text: str) -> None:
    assert byte_rate(rate) == text
