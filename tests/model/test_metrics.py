"""The metrics of the model: one for each field, one name for each thing."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import defstruct
from msgspec.structs import replace

from gpumon.model.makers import makers
from gpumon.model.metrics import (
    CLOCK_EVENT_REASONS,
    PROCESS_METRIC,
    PROCESS_METRICS,
    Unit,
    clock_event_names,
)
from gpumon.model.processes import Container, GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, Gpu, metrics_of

STRUCTURE = {"status", "status_since", "sampled_at", "unknown", "mig", "fan_speeds"}
"""Fields that are no metrics: how the card answers, and what is itself made of several."""


def test_every_field_of_a_card_has_its_line_and_every_line_its_field() -> None:
    assert {metric.field for metric in GPU_METRICS} == set(Gpu.__struct_fields__) - STRUCTURE


def test_a_value_without_a_metric_is_refused_at_import() -> None:
    row = defstruct("Gpu", [("mig", "tuple", ()), ("nvlink_crc", "int | None", None)])
    with pytest.raises(TypeError, match="the field nvlink_crc of Gpu needs a Metric"):
        metrics_of(row)


def test_a_heading_without_space_in_the_list_is_refused_at_import() -> None:
    metric = replace(GPU_METRIC["pstate"], column="CRC err")
    row = defstruct("Gpu", [("mig", "tuple", ()), ("nvlink_crc", "int | None", None)])
    row.__annotations__["nvlink_crc"] = ("int | None", metric)
    with pytest.raises(TypeError, match="CRC err is too long for a column"):
        metrics_of(row)


def test_a_metric_names_makers_and_fields_that_exist() -> None:
    for metric in GPU_METRICS:
        assert {metric.only, metric.never} <= {None, *(maker.name for maker in makers())}
        assert metric.at_most is None or metric.at_most in GPU_METRIC


def test_no_two_metrics_share_a_name_anywhere() -> None:
    for names in (
        [metric.json_key for metric in GPU_METRICS],
        [metric.smi for metric in GPU_METRICS if metric.smi],
        [metric.dcgm for metric in GPU_METRICS if metric.dcgm],
        [metric.json_key for metric in PROCESS_METRICS],
    ):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_metric_is_explained_in_a_sentence() -> None:
    explained = [(metric.label, metric.about) for metric in GPU_METRICS]
    explained += [(metric.label, metric.about) for metric in PROCESS_METRICS]
    for label, about in explained:
        assert label
        assert about[0].isupper()
        assert about.endswith(".")


def test_a_json_key_names_its_unit() -> None:
    keys = {metric.field: metric.json_key for metric in GPU_METRICS}
    assert keys["memory_used"] == "memory_used_bytes"
    assert keys["power_draw"] == "power_draw_watts"
    assert keys["clock_sm"] == "clock_sm_mhz"
    assert keys["name"] == "name"
    assert len({unit.value for unit in Unit}) == len(Unit)


def read(key: str, place: Workload | None) -> object:
    process = GpuProcess(ProcessId(7, 8), "C", (GpuUse("GPU-0", 0),), place=place)
    return PROCESS_METRIC[key].read(process, 0.0)


def test_nothing_is_said_of_a_place_that_was_not_looked_up_or_tells_nothing() -> None:
    for key in ("where", "container", "job"):
        assert read(key, None) is None
        assert read(key, Workload(session=3)) is None


def test_where_is_the_most_telling_part_of_a_place() -> None:
    environment = Workload(environment="torch")
    assert read("where", environment) == "env torch"
    assert read("where", replace(environment, container=Container("lxc", name="web"))) == "lxc web"


def test_a_job_is_slurms_or_else_that_of_whoever_launched_it() -> None:
    launched = Workload(launcher=ProcessId(41200, 5), launcher_name="torchrun")
    assert read("job", launched) == "torchrun 41200"
    assert read("job", replace(launched, slurm_job="88123_4")) == "88123_4"
    assert read("job", Workload(launcher=ProcessId(41200, 5))) == "launcher 41200"


def test_reasons_are_named_and_unknown_bits_are_not_lost() -> None:
    assert clock_event_names(0x4 | 0x20) == ["SW power cap", "SW thermal"]
    assert clock_event_names(0x1000) == ["reason 0x1000"]
    assert clock_event_names(0) == []
    assert all(bit & (bit - 1) == 0 for bit in CLOCK_EVENT_REASONS)
