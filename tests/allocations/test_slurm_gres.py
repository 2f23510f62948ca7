"""The GPUs in what Slurm prints."""

from __future__ import annotations

import re
import time

import pytest

from gpumon.allocations.slurm_output import Gres, gres_in_use
from tests.allocations.outputs import NONE, SLURM, TOO_LONG, UNKNOWN, of_json, of_text, text
from tests.known import known


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:h100:2(IDX:0,3),gpu:a100_1g.10gb:2(IDX:5-6)", Gres(4, (0, 3, 5, 6))),
        ("gpu(CNT:2)", Gres(2)),
        ("gpu:h100(CNT:2),gpu:l4:1(IDX:4)", Gres(3)),
        ("gpu:2", Gres(2)),
        ("gpu:h100:4(S:0-1)", Gres(4)),
        ("gpu:h100:0(IDX:N/A)", NONE),
        ("gpu:h100:0(IDX:N/A),shard:0", NONE),
        ("", NONE),
        ("(null)", NONE),
        ("nic:mlx:2(IDX:0-1),gpu:1(IDX:2),license:1", Gres(1, (2,))),
        ("shard:3(3/4,0/4)", Gres(1, (0,), is_share=True)),
        ("shard:l4:5(0/4,1/4,4/4)", Gres(2, (1, 2), is_share=True)),
        ("shard:l4:1(IDX:0)", Gres(1, (0,), is_share=True)),
        ("mps:50(50/100,0/100)", Gres(1, (0,), is_share=True)),
        ("shard:3", Gres(None, is_share=True)),
        ("gpu:l4:1(IDX:1),shard:l4:3(3/4,0/4)", Gres(2, (0, 1))),
        # Contradictions, too large numbers, and other junk.
        ("gpu:h100:2(IDX:0)", UNKNOWN),
        ("gpu:h100:0(IDX:1)", UNKNOWN),
        ("gpu:a:1(IDX:0),gpu:b:1(IDX:0)", UNKNOWN),
        ("gpu:h100:2(IDX:1,0)", UNKNOWN),
        ("gpu:h100:1(IDX:4096)", UNKNOWN),
        ("gpu:h100:1(IDX:-1)", UNKNOWN),
        pytest.param("gpu:1(IDX:" + "9" * 5000 + ")", UNKNOWN, id="long index"),
        pytest.param("gpu:" + "9" * 5000, UNKNOWN, id="long count"),
        ("gpu:5000", UNKNOWN),
        ("gpu:4096,gpu:l4:1", UNKNOWN),
        ("gpu:h100:2(IDX:0-1", UNKNOWN),
        ("gpu:h100:2(IDX:0-1)x", UNKNOWN),
        ("gpu:h100:²", UNKNOWN),
        ("gpu", UNKNOWN),
        ("N/A", UNKNOWN),
        ("shard:3(5/4)", Gres(None, is_share=True)),
        pytest.param(f"shard:1({'0/1,' * 5000}1/1)", Gres(None, is_share=True), id="many parts"),
        ("shard:3(0/4)", Gres(None, is_share=True)),
        ("shard:0(1/4)", Gres(None, is_share=True)),
    ],
)
def test_forms_of_gres(gres: str, expected: Gres) -> None:
    assert known(of_json({"gres_detail": ["gpu:8", gres]}, "gpu-02")).gres == expected
    node = f"NodeName=gpu-01 Arch=x86_64\n   Gres=gpu:h100:4\n   GresUsed={gres}\n"
    assert gres_in_use(node.encode(), "gpu-01") == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"gres_detail": ["gpu:1(IDX:0)"]},
        {"nodes": "gpu-[02-03]"},
        {"nodes": "gpu-01,gpu-01"},
        {"nodes": "gpu-[01-"},
        {"nodes": 7},
        {"gres_detail": [], "tres_alloc_str": "cpu=8,gres/gpu=4,gres/gpu:h100=4"},
        {"gres_detail": [], "tres_alloc_str": None},
    ],
)
def test_gpus_that_belong_to_no_known_node_are_unknown(changed: dict[str, object]) -> None:
    assert known(of_json(changed)).gres is None


NO_GRES = (r"   JOB_GRES=.*\n     Nodes=.*\n", "")


@pytest.mark.parametrize(
    ("changes", "gres"),
    [
        ([NO_GRES], NONE),
        ([(r"JOB_GRES=.*", "JOB_GRES=(null)"), (r" GRES=.*", " GRES=")], NONE),
        ([NO_GRES, ("billing=8\n", "billing=8,gres/gpu=4\n")], None),
        ([(r"     Nodes=.*\n", "")], None),
        ([(r" GRES=.*", "")], None),
        ([NO_GRES, (r"   AllocTRES=.*\n", "")], None),
        ([(r"     Nodes=", "   Other=1\n     Nodes=")], UNKNOWN),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-02")], None),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-[01-02")], None),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-[01-02],gpu-01")], UNKNOWN),
        ([(r"(     Nodes=).*\n", r"\1gpu-02 GRES=gpu:1(IDX:3)\n\1gpu-01 GRES=\n")], NONE),
        # Cut off before the line that follows.
        ([(r"   MinCPUsNode(?s:.*)", "")], None),
    ],
)
def test_gpus_in_text(changes: list[tuple[str, str]], gres: Gres | None) -> None:
    data = text("24.05", "1")
    for pattern, replacement in changes:
        data, count = re.subn(pattern, replacement, data)
        assert count
    assert of_text(data).gres == gres


def test_many_long_lists_of_nodes_take_no_time() -> None:
    line = "     Nodes=gpu-[1-65536] GRES=gpu:1\n"
    data = re.sub(r"     Nodes=.*\n", lambda _: line * 100_000, text("26.05", "1"))
    begin = time.process_time()
    assert of_text(data).gres is None
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("version", "used"),
    [
        ("21.08", (Gres(4, (0, 1, 2, 3)), NONE)),
        ("23.02", (Gres(4, (0, 1, 2, 3)), Gres(1, (0,), is_share=True))),
        ("24.05", (Gres(4, (0, 1, 2, 3)), Gres(2, (0, 1)))),
        ("26.05", (Gres(4, (0, 1, 2, 3)), Gres(1, (0,), is_share=True))),
    ],
)
def test_gpus_of_a_node_in_use(version: str, used: tuple[Gres, Gres]) -> None:
    data = (SLURM / version / "node.txt").read_bytes()
    assert (gres_in_use(data, "gpu-01"), gres_in_use(data, "gpu-03")) == used
    assert gres_in_use(data, "gpu-02") is None
    assert gres_in_use(data * 2, "gpu-01") is None
    assert gres_in_use(data.replace(b"   GresUsed", b"   GresUsed=\n   GresUsed"), "gpu-01") is None
    assert gres_in_use(data + b"\n" * TOO_LONG, "gpu-01") is None
    cut = data.partition(b"GresUsed=gpu:h100:4")[0] + b"GresUsed=gpu:1"
    assert gres_in_use(cut, "gpu-01") is None


def test_shards_before_24_05_have_indices() -> None:
    job = of_text(text("23.02", "11"), "11", "gpu-03")
    assert job.gres == Gres(1, (0,), is_share=True)


def test_a_node_without_gpus_has_none_in_use() -> None:
    node = b"NodeName=n1 Arch=x86_64\n   CPUAlloc=0\n   Gres=%s\n   NodeAddr=n1\n"
    assert gres_in_use(node % b"(null)", "n1") == Gres(0, ())
    assert gres_in_use(node % b"gpu:4", "n1") is None
