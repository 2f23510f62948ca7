"""What stands on the screen for real cards: each number is that of the capture, in gpumon's unit.

The expected values were read off the files of ``models/`` by hand; the captures have their sources.
A field that is not listed has to be unknown, because no captured file tells it.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.model.snapshot import Gpu, Unknown
from tests.makers.amd.machines import NAMES, add
from tests.makers.drm.trees import SampledTree, fields

pytestmark = pytest.mark.slow

_NOT_OF_THE_CAPTURE = {
    *("index", "uuid", "status", "status_since", "sampled_at", "unknown", "mig", "name"),
    *("pci_bus_id", "minor_number", "memory_unified", "display_mode", "display_active"),
}


EXPECTED: dict[str, dict[str, Any]] = {
    "r7_240": {
        **fields("memory", used=495321088, free=1652162560, total=2147483648),
        "vbios_version": "13-C86901_216",
        "bar1_total": 268435456,
        **fields("fan", speed=40),
        **fields("temperature", gpu=52, slowdown=120),
        **fields("clock", sm=400, memory=1150),
        **fields("pcie", generation=2, generation_max=3, width=4, width_max=8),
    },
    "rx_580": {
        **fields("memory", used=536870912, free=3758096384, total=4294967296),
        "vbios_version": "113-1E3871U-O4C",
        "bar1_total": 268435456,
        **fields("fan", speed=14, rpm=595),
        **fields("utilization", gpu=11, memory=2),
        **fields("temperature", gpu=44, slowdown=94),
        **fields("power", draw=41.045, average=41.045, limit=155.0, limit_min=0.0, limit_max=201.0),
        **fields("clock", sm=798, memory=1750, sm_max=1366, memory_max=1750),
        **fields("pcie", generation_max=3, width_max=16),
    },
    "vega_56": {
        **fields("memory", used=16613376, free=8556544000, total=8573157376),
        "vbios_version": "115-D050PIL-100",
        "bar1_total": 268435456,
        **fields("fan", speed=0, rpm=5),
        **fields("utilization", gpu=0),
        **fields("temperature", gpu=38, memory=39, slowdown=85, shutdown=90, hotspot=38),
        **fields("power", draw=8.0, average=8.0, limit=260.0, limit_min=0.0, limit_max=390.0),
        **fields("clock", sm=26, memory=167, sm_max=1590, memory_max=920),
        **fields("pcie", generation=3, generation_max=3, width=16, width_max=16),
    },
    "vega_20": {
        **fields("memory", used=10854400, free=17152237568, total=17163091968),
        **fields("utilization", gpu=0, memory=0),
        **fields("temperature", gpu=33, memory=32, hotspot=34),
        **fields("power", draw=19.0, average=19.0),
    },
    "rx_5700_xt": {
        "vbios_version": "113-D1990103-O09",
        **fields("fan", speed=25, rpm=29),
        **fields("utilization", gpu=0),
        **fields("temperature", gpu=58, memory=62, slowdown=100, shutdown=105, hotspot=58),
        **fields("power", draw=29.0, average=29.0, limit=220.0, limit_min=110.0, limit_max=330.0),
        **fields("clock", sm=10, memory=875, sm_max=1900, memory_max=875),
        **fields("pcie", generation=4, width=16),
    },
    "rx_6900_xt": {
        **fields("memory", used=668274688, free=16494817280, total=17163091968),
        "vbios_version": "113-D4121EXT-CO1",
        "bar1_total": 17163091968,
        **fields("fan", speed=0, rpm=0),
        **fields("utilization", gpu=3, memory=0),
        **fields("temperature", gpu=56, memory=54, slowdown=100, shutdown=105, hotspot=59),
        **fields("power", draw=36.0, average=36.0, limit=289.0, limit_min=0.0, limit_max=332.0),
        **fields(
            "clock", sm=500, memory=1000, video=0, sm_max=2660, memory_max=1000, event_reasons=0
        ),
        **fields("pcie", generation=4, generation_max=4, width=16, width_max=16),
    },
    "rx_7800_xt": {
        "vbios_version": "113-EXT90249-100",
        **fields("fan", speed=35, rpm=868),
        **fields("utilization", gpu=2, memory=0),
        **fields("temperature", gpu=24, memory=48, slowdown=100, shutdown=105, hotspot=31),
        **fields("power", draw=32.0, average=32.0, limit=236.0, limit_min=212.0, limit_max=280.0),
        **fields(
            "clock", sm=2011, memory=456, video=25, sm_max=2254, memory_max=1218, event_reasons=0
        ),
        **fields("pcie", generation=4, width=16),
    },
    "rx_7600s": {
        "vbios_version": "113-BRT112125.001",
        **fields("utilization", gpu=0, memory=0),
        **fields("temperature", gpu=53, memory=60, slowdown=100, shutdown=105, hotspot=54),
        **fields("power", draw=1.0, average=1.0, limit=95.0, limit_min=95.0, limit_max=95.0),
        **fields("clock", sm=0, memory=96, video=25, sm_max=1841, memory_max=1000, event_reasons=0),
        **fields("fan", speed=30, rpm=0),
        **fields("pcie", generation=4, width=8),
    },
    "rx_7900_xt": {
        **fields("temperature", gpu=37, memory=60, slowdown=100, shutdown=105, hotspot=39),
        **fields("power", draw=19.0, average=19.0, limit=250.0),
        **fields("fan", rpm=2249),
    },
    "rx_7900_xtx": {
        "vbios_version": "113-D70401XT-N11",
        **fields("fan", speed=0, rpm=0),
        **fields("utilization", gpu=3),
        **fields("temperature", gpu=53, memory=68, slowdown=100, shutdown=105, hotspot=61),
        **fields("power", draw=68.0, average=68.0, limit=290.0, limit_min=261.0, limit_max=333.0),
        **fields("clock", sm=31, memory=1249, sm_max=2219, memory_max=1249),
        **fields("pcie", generation=4, width=16),
    },
    "rx_9070": {
        "vbios_version": "113-2E490TX-US2",
        **fields("fan", speed=46, rpm=1944),
        **fields("utilization", gpu=25, memory=0),
        **fields("temperature", gpu=48, memory=72, slowdown=110, shutdown=115, hotspot=52),
        **fields("power", draw=49.0, average=49.0, limit=200.0, limit_min=0.0, limit_max=245.0),
        **fields(
            "clock", sm=900, memory=1124, video=25, sm_max=2070, memory_max=1258, event_reasons=0
        ),
        **fields("pcie", generation=5, width=16),
    },
    "rx_9070_xt": {
        "vbios_version": "113-EXT109069-101",
        **fields("fan", speed=32, rpm=896),
        **fields("utilization", gpu=3),
        **fields("temperature", gpu=42, memory=68, slowdown=110, shutdown=115, hotspot=45),
        **fields("power", draw=55.0, average=55.0, limit=120.0, limit_min=0.0, limit_max=340.0),
        **fields("clock", sm=167, memory=1258, sm_max=1000, memory_max=1258),
        **fields("pcie", generation=5, width=16),
    },
    "mi100": {
        **fields("temperature", gpu=53, memory=55, slowdown=100, shutdown=105, hotspot=59),
        **fields("power", draw=49.0, average=49.0, limit=290.0),
        **fields("fan", rpm=0),
    },
    "mi250": {
        "vbios_version": "113-D65209-073",
        "serial": "PCB052715-0065",
        **fields("utilization", gpu=10, memory=0),
        **fields("temperature", gpu=32, memory=43, hotspot=35),
        **fields("power", draw=89.0, average=89.0, limit=560.0),
        **fields("clock", sm=800, memory=1600),
    },
    "mi300x": {
        "vbios_version": "113-MI3SRIOV-001",
        "serial": "692347006052",
        **fields("utilization", gpu=0, memory=0),
        **fields("temperature", gpu=35, memory=33, hotspot=35),
        **fields("power", draw=133.0, instant=133.0, limit=750.0),
        **fields("clock", sm=137, memory=900, sm_max=2100, memory_max=1300),
    },
    # APUs: memory is the part that the firmware set aside and what may be taken of the rest.
    "van_gogh": {
        "vbios_version": "113-AMDAerithJ-005",
        **fields("utilization", gpu=0),
        **fields("temperature", gpu=56),
        **fields(
            "power",
            draw=3.218,
            average=3.218,
            instant=4.057,
            limit=15.0,
            limit_min=0.0,
            limit_max=29.0,
        ),
        **fields("clock", sm=200, sm_max=1600, memory_max=687, memory=687),
    },
    "phoenix": {
        **fields(
            "memory", used=1272893440 + 211398656, free=34244653056, total=4294967296 + 31433977856
        ),
        "vbios_version": "113-PHXGENERIC-001",
        **fields("utilization", gpu=0),
        **fields("temperature", gpu=25),
        **fields("power", draw=3.103, average=3.103, instant=3.142),
        **fields("clock", sm=800, sm_max=2700, memory=400, memory_max=800),
    },
    "strix_point": {
        **fields("memory", used=4461391872, free=12516483072, total=16977874944),
        "vbios_version": "113-STRIXEMU-001",
        **fields("utilization", gpu=3),
        **fields("temperature", gpu=38),
        **fields("power", draw=9.087, average=9.087, instant=9.087),
        **fields("clock", sm=848, sm_max=2900, memory=836, memory_max=1000, video=800),
    },
}

INTEGRATED = {"van_gogh", "phoenix", "strix_point"}


@pytest.fixture
def gpu(tree: SampledTree, model: str) -> Gpu:
    add(tree, model)
    return tree.gpu()


def missing(gpu: Gpu) -> set[str]:
    """The fields that the capture does not tell."""
    fields = set(gpu.__struct_fields__) - _NOT_OF_THE_CAPTURE
    return {name for name in fields if getattr(gpu, name) is None}


def test_every_capture_is_tested() -> None:
    assert set(NAMES) == set(EXPECTED)


@pytest.mark.parametrize("model", NAMES)
def test_each_captured_value_is_shown_and_nothing_else(gpu: Gpu, model: str) -> None:
    shown = set(gpu.__struct_fields__) - _NOT_OF_THE_CAPTURE - missing(gpu)
    assert {name: getattr(gpu, name) for name in shown} == EXPECTED[model]


@pytest.mark.parametrize("model", NAMES)
def test_each_unknown_value_has_its_reason(gpu: Gpu) -> None:
    assert {gpu.unknown.get(name) for name in missing(gpu)} == {Unknown.NOT_SUPPORTED}


@pytest.mark.parametrize("model", NAMES)
def test_an_apu_is_known_by_its_voltage_vddnb(gpu: Gpu, model: str) -> None:
    assert gpu.memory_unified is (model in INTEGRATED)
