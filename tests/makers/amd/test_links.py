"""XGMI between AMD's GPUs, from the topology of the kernel's compute driver."""

from __future__ import annotations

from itertools import combinations

import pytest

from gpumon.makers.amd.backend import AmdBackend
from gpumon.model.topology import Joint, Link
from tests.makers.amd.machines import NAMES, add, add_kfd_node
from tests.makers.drm.trees import SampledTree, Tree, write


@pytest.fixture
def three(tree: SampledTree) -> SampledTree:
    """A machine with three GPUs; the nodes 1 to 3 are theirs."""
    for number, bus_id in enumerate(("0000:03:00.0", "0000:43:00.0", "0000:83:00.0")):
        changes = {"unique_id": f"{number + 1:016x}\n"}
        add(tree, NAMES[0], changes, bus_id=bus_id, number=number)
        add_kfd_node(tree, number + 1, 1000 + number, bus_id, 90402)
    return tree


def add_link(tree: Tree, one: int, other: int, kind: int = 11, weight: str = "15") -> None:
    folder = tree.sys / f"class/kfd/kfd/topology/nodes/{one}/io_links"
    number = len(list(folder.iterdir())) if folder.exists() else 0
    write(
        folder / f"{number}/properties",
        f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {one}\nnode_to {other}\n"
        f"weight {weight}\nmin_latency 0\nmax_bandwidth 64000\n",
    )


def joints(tree: SampledTree) -> list[Joint]:
    """Between the GPUs 0 and 1, 0 and 2, 1 and 2."""
    uuids = [gpu.uuid for gpu in tree.read().gpus]
    return [tree.opened().links().of(*pair) for pair in combinations(uuids, 2)]


def test_xgmi_and_its_hops_are_read(three: SampledTree) -> None:
    add_link(three, 1, 0, kind=2, weight="20")  # PCIe to the processor
    add_link(three, 1, 2)
    add_link(three, 2, 1)
    add_link(three, 1, 3, weight="30")
    add_link(three, 2, 3, kind=2, weight="40")
    found = joints(three)
    assert found == [*(Joint(fabric=Link.XGMI, xgmi_hops=hops) for hops in (1, 2)), Joint()]
    assert [joint.label for joint in found] == ["XGMI", "XGMI-2", "–"]


@pytest.mark.parametrize("weight", ["0", "17", "-15", "x", ""])
def test_hops_of_an_odd_weight_are_unknown(three: SampledTree, weight: str) -> None:
    add_link(three, 1, 2, weight=weight)
    (joint, *_) = joints(three)
    assert joint == Joint(fabric=Link.XGMI, xgmi_hops=None)
    assert joint.label == "XGMI"


def test_links_to_nothing_known_are_left_out(three: SampledTree) -> None:
    for other in (0, 1, 99):  # XGMI to the processor, to itself, and to no node
        add_link(three, 1, other)
    write(three.sys / "class/kfd/kfd/topology/nodes/1/io_links/x/properties", "\x00\xff type")
    assert joints(three) == [Joint()] * 3


def test_without_compute_driver_no_link_is_known(tree: SampledTree) -> None:
    add(tree, NAMES[0])
    assert tree.backend(AmdBackend).links().between == {}
