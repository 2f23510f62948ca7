"""What is shown of a GPU in the words of its maker, and what is left out."""

from __future__ import annotations

import pytest

from gpumon.makers.amd.gpu import AmdGpu
from gpumon.makers.intel.gpu import IntelGpu
from gpumon.model.makers import maker_of, metric_label, short_name
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS


def is_for(field: str, name: str) -> bool:
    return field not in GPU_METRIC or GPU_METRIC[field].is_for(maker_of(name))


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("AMD Instinct MI300X", AmdGpu), ("Intel Arc B580", IntelGpu)],
    ids=("amd", "intel"),
)
def test_what_a_driver_tells_is_never_left_out(
    name: str, gpu: type[AmdGpu] | type[IntelGpu]
) -> None:
    assert [field for field in gpu.fields if not is_for(field, name)] == []


def test_features_of_one_maker_are_left_out_for_another() -> None:
    fields = {metric.field for metric in GPU_METRICS}
    for name, absent in (
        ("AMD Instinct MI300X", {"xid", "nvlink_active", "mig_mode", "sm_active"}),
        ("NVIDIA H100", {"fan_rpm", "temperature_hotspot"}),
    ):
        assert {field for field in fields if not is_for(field, name)} >= absent


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Intel Arc A770", "Arc A770"),
        ("Intel Data Center GPU Max 1550", "Max 1550"),
        ("AMD GPU 0x744c", "GPU 0x744c"),
    ],
)
def test_a_short_name_has_neither_maker_nor_brand(name: str, short: str) -> None:
    assert short_name(name) == short


def test_clocks_bear_the_makers_words() -> None:
    assert metric_label("SM clock, highest", "NVIDIA H100") == "SM clock, highest"
    assert metric_label("SM clock", "AMD Instinct MI300X") == "Shader clock"
    assert metric_label("SM clock, highest", "Intel Arc A770") == "GT clock, highest"
    assert metric_label("Fan speed", "Intel Arc A770") == "Fan speed"
