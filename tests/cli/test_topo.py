"""``gpumon topo`` prints what the driver and the kernel say of the links between devices."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server
from tests.command import GPUMON
from tests.driver import Driver, a100, h100, rtx4090
from tests.driver.models import Model
from tests.makers.amd.machines import NAMES, add, add_kfd_node
from tests.makers.amd.test_links import add_link
from tests.tree_machine import COMMAND, live_tree


def topo(
    *arguments: str, env: Mapping[str, str] | None = None, command: Sequence[str] = GPUMON
) -> subprocess.CompletedProcess[str]:
    return fork_server.run([*command, "topo", *arguments], env or os.environ, timeout=60)


def matrix(text: str) -> dict[str, list[str]]:
    """The cells of each GPU behind its name, without the adapters of the machine that tests."""
    found = {}
    for line in text.splitlines():
        if line.startswith("GPU "):
            name, *cells = line.replace("GPU ", "GPU").split()
            found[name] = cells
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "first"),
    [
        ([h100()] * 8, ["X", *["NV18"] * 7]),
        ([a100(nvlink_peers=0b1111)] * 4, ["X", *["NV4"] * 3]),
        ([rtx4090()] * 5, ["X", "PIX", "PHB", "PHB", "SYS"]),
        ([rtx4090()], ["X"]),
    ],
)
def test_the_matrix_has_what_the_driver_reports(models: list[Model], first: list[str]) -> None:
    with Driver(models) as driver:
        ran = topo(env=driver.env())
    assert ran.stderr == ""
    rows = matrix(ran.stdout)
    assert list(rows) == [f"GPU{index}" for index in range(len(models))]
    assert rows["GPU0"][: len(models)] == first


def test_json_has_each_pair_once_and_no_number_for_what_is_unknown() -> None:
    with Driver([h100(), h100(), rtx4090()]) as driver:
        ran = topo("--format", "json", "--gpus", "0-2", env=driver.env())
        uuids = [str(card.uuid) for card in driver.cards]
    told: dict[str, Any] = json.loads(ran.stdout)
    assert told["schema"] == "gpumon.topology/1"
    gpus = [device for device in told["devices"] if device["kind"] == "gpu"]
    assert [gpu["uuid"] for gpu in gpus] == uuids
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2]
    # The simulated cards are on no bus of this machine.
    assert {(gpu["numa_node"], gpu["cpus"]) for gpu in gpus} == {(None, None)}
    count = len(told["devices"])
    assert len(told["connections"]) == count * (count - 1) // 2
    by_pair = {tuple(link["devices"]): link for link in told["connections"]}
    assert by_pair[0, 1] == {
        "devices": [0, 1],
        "nearest": "NVLINK",
        "bus": "PIX",
        "nvlinks": 18,
        "xgmi_hops": None,
    }
    assert by_pair[1, 2]["nearest"] == by_pair[1, 2]["bus"] == "PHB"
    assert by_pair[1, 2]["nvlinks"] is None


def test_amd_gpus_have_xgmi_and_the_bus(tmp_path: Path) -> None:
    tree = live_tree(tmp_path)
    for number, bus_id in enumerate(("0000:03:00.0", "0000:43:00.0", "0000:44:00.0")):
        changes = {"unique_id": f"{number + 1:016x}\n", "numa_node": "0\n"}
        parents = (f"0000:00:0{number + 1}.0",)
        add(tree, NAMES[0], changes, bus_id=bus_id, number=number, parents=parents)
        add_kfd_node(tree, number + 1, 1000 + number, bus_id, 90402)
    add_link(tree, 1, 2)
    ran = topo("--backend", "amdgpu", command=(*COMMAND, str(tmp_path)))
    assert ran.stderr == ""
    assert matrix(ran.stdout) == {
        "GPU0": ["X", "XGMI", "PHB", "0"],
        "GPU1": ["XGMI", "X", "PHB", "0"],
        "GPU2": ["PHB", "PHB", "X", "0"],
    }
    assert "NUMA 0  processors –" in ran.stdout


def test_the_demo_has_adapters_beside_gpus_and_a_lost_one() -> None:
    ran = topo("--demo", "--gpus", "0,5-6")
    assert matrix(ran.stdout) == {
        "GPU0": ["X", "NV18", "SYS", "PIX", "SYS", "0"],
        "GPU5": ["NV18", "X", "NODE", "SYS", "NODE", "1"],
        "GPU6": ["SYS", "NODE", "X", "SYS", "NODE", "1"],
    }
    assert "NUMA 1  processors 48-95" in ran.stdout
