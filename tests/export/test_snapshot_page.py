"""``docs/snapshot.md`` says what the exports do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpumon.export.as_json import SCHEMA, to_json
from gpumon.model.accidents import AccidentKind
from gpumon.model.metrics import PROCESS_METRICS
from gpumon.model.processes import (
    HoldReason,
)
from gpumon.model.snapshot import (
    GPU_METRICS,
    GpuStatus,
    Unknown,
)
from tests.export.hostile import whole_snapshot
from tests.export.snapshot_page import PAGE, with_tables

TEXT = PAGE.read_text(encoding="utf-8")

TOLD: Any = json.loads(to_json(whole_snapshot("x")))
GPU, PROCESS = TOLD["gpus"][0], TOLD["processes"][0]
METRICS = {metric.json_key for metric in GPU_METRICS}
FACTS = {metric.json_key for metric in PROCESS_METRICS if not metric.in_load}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("snapshot", TOLD.keys()),
        ("host", TOLD["host"].keys()),
        ("nics", TOLD["host"]["nics"][0].keys()),
        ("cost", TOLD["cost"].keys()),
        ("gpu", GPU.keys() - METRICS),
        ("mig", GPU["mig"][0].keys()),
        ("process", PROCESS.keys() - FACTS),
        ("use", PROCESS["uses"][0].keys()),
        ("place", PROCESS["place"].keys()),
        ("container", PROCESS["place"]["container"].keys()),
        ("server", PROCESS["place"]["server"].keys()),
        ("load", PROCESS["load"].keys()),
        ("cgroup_memory", PROCESS["cgroup_memory"].keys()),
        ("holders", TOLD["holders"].keys()),
        ("reserved", TOLD["reserved"][0].keys()),
        ("allocations", TOLD["allocations"][0].keys()),
        ("accidents", TOLD["accidents"][0].keys()),
        ("suspect", TOLD["holders"]["suspects"][0].keys()),
    ],
)
def test_the_page_explains_every_key_and_no_other(name: str, told: set[str]) -> None:
    table = TEXT.partition(f"<!-- keys: {name} -->\n")[2].partition("\n\n")[0]
    keys = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.MULTILINE)
    explained = re.findall(r"\w+", " ".join(keys))
    assert sorted(explained) == sorted(told)


def test_the_tables_of_the_page_are_those_of_the_metrics() -> None:
    assert with_tables(TEXT) == TEXT, "run: python -m tests.export.snapshot_page"


def test_the_page_names_the_schema_and_every_word_of_a_list_of_words() -> None:
    assert f"`{SCHEMA}`" in TEXT
    for word in (*GpuStatus, *Unknown, *HoldReason, *AccidentKind):
        assert f"`{word.value}`" in TEXT
