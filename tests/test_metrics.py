"""The metric table against the model: a line for every field, one name for each thing."""

from __future__ import annotations

from collections import Counter

from gpumon.metrics import (
    CLOCK_EVENT_REASONS,
    GPU_METRICS,
    PROCESS_METRICS,
    Unit,
    clock_event_names,
)
from gpumon.model import Gpu

STRUCTURE = {"status", "status_since", "sampled_at", "unknown", "mig", "fan_speeds"}
"""Fields that are no metrics: how the card answers, and what is itself made of several."""


def test_every_field_of_a_card_has_its_line_and_every_line_its_field() -> None:
    assert {metric.field for metric in GPU_METRICS} == set(Gpu.__struct_fields__) - STRUCTURE


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


def test_reasons_are_named_and_unknown_bits_are_not_lost() -> None:
    assert clock_event_names(0x4 | 0x20) == ["SW power cap", "SW thermal"]
    assert clock_event_names(0x1000) == ["reason 0x1000"]
    assert clock_event_names(0) == []
    assert all(bit & (bit - 1) == 0 for bit in CLOCK_EVENT_REASONS)
