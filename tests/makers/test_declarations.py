"""The declarations of makers, what they refer to, and what is shown in the words of a maker."""

from __future__ import annotations

import pytest

from gpumon.doctor import MakerChecks
from gpumon.host.kernel_log import LineParser
from gpumon.makers.amd.gpu import AmdGpu
from gpumon.makers.backend import GpuBackend
from gpumon.makers.intel.gpu import IntelGpu
from gpumon.makers.visible_devices import VisibleDevices
from gpumon.model.makers import Maker, load, maker_of, makers, metric_label, short_name
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS


@pytest.mark.parametrize("maker", makers(), ids=lambda maker: maker.name)
def test_what_a_maker_refers_to_is_there(maker: Maker) -> None:
    assert issubclass(load(maker.backend_class), GpuBackend)
    assert load(maker.backend_class).maker is maker
    assert issubclass(load(maker.visible_devices), VisibleDevices)
    assert maker.checks is None or isinstance(load(maker.checks), MakerChecks)
    for function in (maker.integrated, maker.version):
        assert function is None or callable(load(function))
    assert maker.error_table is None or isinstance(load(maker.error_table), dict)
    assert maker.error_details is None or load(maker.error_details)(0, "") is None
    assert maker.log_parser is None or issubclass(load(maker.log_parser), LineParser)


def test_no_two_makers_share_what_tells_them_apart() -> None:
    for name in ("name", "backend", "pci_vendor", "device", "main_variable"):
        assert len({getattr(maker, name) for maker in makers()}) == len(makers()), name


def test_a_declaration_that_lacks_something_or_has_something_unknown_fails() -> None:
    own = {"name": "X", "backend": "x", "pci_vendor": "0x1", "kernel_drivers": ()}
    with pytest.raises(TypeError, match="lacks backend_class"):
        type("Lacking", (Maker,), own)
    with pytest.raises(TypeError, match="has no use for vendor"):
        type("Unknown", (Maker,), {**own, "backend_class": "x:X", "vendor": "x"})


def is_for(field: str, name: str) -> bool:
    return field not in GPU_METRIC or GPU_METRIC[field].is_for(maker_of(name))


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("AMD Instinct MI300X", AmdGpu), ("Intel Arc B580", IntelGpu)],
    ids=("amd", "intel"),
)
def test_what_a_driver_tells_is_not_left_out(name: str, gpu: type[AmdGpu] | type[IntelGpu]) -> None:
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
