"""The matrix of a topology fits every width, and says what its words mean."""

from __future__ import annotations

import pytest

from gpumon.model.topology import DeviceKind, Joint, Link, Topology, TopologyDevice
from gpumon.ui.view.topology_page import topology_rows
from tests.ui.view.drawing import lines_of

HOSTILE = "eth\x1b[31m[red]\n" + "x" * 300


def topology(count: int, joint: Joint, *nics: str, node: int | None = 0) -> Topology:
    devices = [
        TopologyDevice(DeviceKind.GPU, f"GPU {index}", numa_node=node, cpus="0-47", index=index)
        for index in range(count)
    ]
    devices += [TopologyDevice(DeviceKind.NIC, name) for name in nics]
    joints = tuple(
        tuple(None if one == other else joint for other in range(len(devices)))
        for one in range(len(devices))
    )
    return Topology(tuple(devices), joints)


def lines(shown: Topology, width: int = 100) -> list[str]:
    rows = topology_rows(shown, width)
    texts = lines_of(rows)
    assert {len(text) for text in texts} == {width}
    return [text.rstrip() for text in texts]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200, 1000])
def test_each_cell_is_shown_at_every_width(width: int) -> None:
    shown = lines(topology(16, Joint(Link.SYSTEM, Link.NVLINK, 18)), width)
    for index in range(16):
        own = [line for line in shown if line.startswith(f"GPU {index} ")]
        cells = " ".join(line[6:] for line in own).split()
        assert cells.count("NV18") == 15
        assert cells.count("X") == 1
        assert cells[-1] == "0"


def test_only_words_of_the_matrix_are_explained() -> None:
    shown = lines(topology(2, Joint(Link.SWITCH)))
    assert shown[:3] == [
        "       GPU0  GPU1  NUMA",
        "GPU 0     X   PIX     0",
        "GPU 1   PIX     X     0",
    ]
    assert shown[4:] == [
        "NUMA 0  processors 0-47",
        "PIX     through at most one PCIe switch",
    ]


def test_unknown_is_a_dash() -> None:
    shown = lines(topology(2, Joint(), node=None))
    assert shown[1].split() == ["GPU", "0", "X", "–", "–"]
    assert shown[-1].split() == ["–", "unknown"]
    assert not any("processors" in line for line in shown)


def test_names_cannot_act_and_are_short() -> None:
    shown = "\n".join(lines(topology(1, Joint(Link.NODE), HOSTILE)))
    assert "\x1b" not in shown
    assert "x" * 20 not in shown


def test_no_device_is_said() -> None:
    assert lines(Topology((), ())) == ["There are no GPUs and no network adapters."]
