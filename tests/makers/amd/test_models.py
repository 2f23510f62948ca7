"""What stands on the screen for real cards: each number is that of the capture, in gpumon's unit.

The expected values were read off the files of ``models/`` by hand; the captures have their sources.
A field that is not listed has to be unknown, because no captured file tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpumon.makers.amd.backend import AmdBackend
from gpumon.model.snapshot import Gpu, Unknown
from tests.makers.amd.machines import NAMES, machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clock import HandClock

pytestmark = pytest.mark.slow

_NOT_OF_THE_CAPTURE = {
    *("index", "uuid", "status", "status_since", "sampled_at", "unknown", "mig", "name"),
    *("pci_bus_id", "minor_number", "memory_unified", "display_mode", "display_active"),
}


def values(used: int, free: int, total: int) -> dict[str, int]:
    return {"memory_used": used, "memory_free": free, "memory_total": total}


EXPECTED: dict[str, dict[str, Any]] = {
    "r7_240": {
        **values(495321088, 1652162560, 2147483648),
        "vbios_version": "13-C86901_216",
        "bar1_total": 268435456,
        "fan_speed": 40,
        "temperature_gpu": 52,
        "temperature_slowdown": 120,
        "clock_sm": 400,
        "clock_memory": 1150,
        "pcie_generation": 2,
        "pcie_generation_max": 3,
        "pcie_width": 4,
        "pcie_width_max": 8,
    },
    "rx_580": {
        **values(536870912, 3758096384, 4294967296),
        "vbios_version": "113-1E3871U-O4C",
        "bar1_total": 268435456,
        "fan_speed": 14,
        "utilization_gpu": 11,
        "utilization_memory": 2,
        "temperature_gpu": 44,
        "temperature_slowdown": 94,
        "power_draw": 41.045,
        "power_average": 41.045,
        "power_limit": 155.0,
        "power_limit_min": 0.0,
        "power_limit_max": 201.0,
        "clock_sm": 798,
        "clock_memory": 1750,
        "clock_sm_max": 1366,
        "clock_memory_max": 1750,
        "pcie_generation_max": 3,
        "pcie_width_max": 16,
        "fan_rpm": 595,
    },
    "vega_56": {
        **values(16613376, 8556544000, 8573157376),
        "vbios_version": "115-D050PIL-100",
        "bar1_total": 268435456,
        "fan_speed": 0,
        "utilization_gpu": 0,
        "temperature_gpu": 38,
        "temperature_memory": 39,
        "temperature_slowdown": 85,
        "temperature_shutdown": 90,
        "power_draw": 8.0,
        "power_average": 8.0,
        "power_limit": 260.0,
        "power_limit_min": 0.0,
        "power_limit_max": 390.0,
        "clock_sm": 26,
        "clock_memory": 167,
        "clock_sm_max": 1590,
        "clock_memory_max": 920,
        "pcie_generation": 3,
        "pcie_generation_max": 3,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "fan_rpm": 5,
        "temperature_hotspot": 38,
    },
    "vega_20": {
        **values(10854400, 17152237568, 17163091968),
        "utilization_gpu": 0,
        "utilization_memory": 0,
        "temperature_gpu": 33,
        "temperature_memory": 32,
        "power_draw": 19.0,
        "power_average": 19.0,
        "temperature_hotspot": 34,
    },
    "rx_5700_xt": {
        "vbios_version": "113-D1990103-O09",
        "fan_speed": 25,
        "utilization_gpu": 0,
        "temperature_gpu": 58,
        "temperature_memory": 62,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 29.0,
        "power_average": 29.0,
        "power_limit": 220.0,
        "power_limit_min": 110.0,
        "power_limit_max": 330.0,
        "clock_sm": 10,
        "clock_memory": 875,
        "clock_sm_max": 1900,
        "clock_memory_max": 875,
        "pcie_generation": 4,
        "pcie_width": 16,
        "fan_rpm": 29,
        "temperature_hotspot": 58,
    },
    "rx_6900_xt": {
        **values(668274688, 16494817280, 17163091968),
        "vbios_version": "113-D4121EXT-CO1",
        "bar1_total": 17163091968,
        "fan_speed": 0,
        "utilization_gpu": 3,
        "utilization_memory": 0,
        "temperature_gpu": 56,
        "temperature_memory": 54,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 36.0,
        "power_average": 36.0,
        "power_limit": 289.0,
        "power_limit_min": 0.0,
        "power_limit_max": 332.0,
        "clock_sm": 500,
        "clock_memory": 1000,
        "clock_video": 0,
        "clock_sm_max": 2660,
        "clock_memory_max": 1000,
        "clock_event_reasons": 0,
        "pcie_generation": 4,
        "pcie_generation_max": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "fan_rpm": 0,
        "temperature_hotspot": 59,
    },
    "rx_7800_xt": {
        "vbios_version": "113-EXT90249-100",
        "fan_speed": 35,
        "utilization_gpu": 2,
        "utilization_memory": 0,
        "temperature_gpu": 24,
        "temperature_memory": 48,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 32.0,
        "power_average": 32.0,
        "power_limit": 236.0,
        "power_limit_min": 212.0,
        "power_limit_max": 280.0,
        "clock_sm": 2011,
        "clock_memory": 456,
        "clock_video": 25,
        "clock_sm_max": 2254,
        "clock_memory_max": 1218,
        "clock_event_reasons": 0,
        "pcie_generation": 4,
        "pcie_width": 16,
        "fan_rpm": 868,
        "temperature_hotspot": 31,
    },
    "rx_7600s": {
        "vbios_version": "113-BRT112125.001",
        "utilization_gpu": 0,
        "utilization_memory": 0,
        "temperature_gpu": 53,
        "temperature_memory": 60,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 1.0,
        "power_average": 1.0,
        "power_limit": 95.0,
        "power_limit_min": 95.0,
        "power_limit_max": 95.0,
        "clock_sm": 0,
        "clock_memory": 96,
        "clock_video": 25,
        "clock_sm_max": 1841,
        "clock_memory_max": 1000,
        "clock_event_reasons": 0,
        "fan_speed": 30,
        "pcie_generation": 4,
        "pcie_width": 8,
        "fan_rpm": 0,
        "temperature_hotspot": 54,
    },
    "rx_7900_xt": {
        "temperature_gpu": 37,
        "temperature_memory": 60,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 19.0,
        "power_average": 19.0,
        "power_limit": 250.0,
        "fan_rpm": 2249,
        "temperature_hotspot": 39,
    },
    "rx_7900_xtx": {
        "vbios_version": "113-D70401XT-N11",
        "fan_speed": 0,
        "utilization_gpu": 3,
        "temperature_gpu": 53,
        "temperature_memory": 68,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 68.0,
        "power_average": 68.0,
        "power_limit": 290.0,
        "power_limit_min": 261.0,
        "power_limit_max": 333.0,
        "clock_sm": 31,
        "clock_memory": 1249,
        "clock_sm_max": 2219,
        "clock_memory_max": 1249,
        "pcie_generation": 4,
        "pcie_width": 16,
        "fan_rpm": 0,
        "temperature_hotspot": 61,
    },
    "rx_9070": {
        "vbios_version": "113-2E490TX-US2",
        "fan_speed": 46,
        "utilization_gpu": 25,
        "utilization_memory": 0,
        "temperature_gpu": 48,
        "temperature_memory": 72,
        "temperature_slowdown": 110,
        "temperature_shutdown": 115,
        "power_draw": 49.0,
        "power_average": 49.0,
        "power_limit": 200.0,
        "power_limit_min": 0.0,
        "power_limit_max": 245.0,
        "clock_sm": 900,
        "clock_memory": 1124,
        "clock_video": 25,
        "clock_sm_max": 2070,
        "clock_memory_max": 1258,
        "clock_event_reasons": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
        "fan_rpm": 1944,
        "temperature_hotspot": 52,
    },
    "rx_9070_xt": {
        "vbios_version": "113-EXT109069-101",
        "fan_speed": 32,
        "utilization_gpu": 3,
        "temperature_gpu": 42,
        "temperature_memory": 68,
        "temperature_slowdown": 110,
        "temperature_shutdown": 115,
        "power_draw": 55.0,
        "power_average": 55.0,
        "power_limit": 120.0,
        "power_limit_min": 0.0,
        "power_limit_max": 340.0,
        "clock_sm": 167,
        "clock_memory": 1258,
        "clock_sm_max": 1000,
        "clock_memory_max": 1258,
        "pcie_generation": 5,
        "pcie_width": 16,
        "fan_rpm": 896,
        "temperature_hotspot": 45,
    },
    "mi100": {
        "temperature_gpu": 53,
        "temperature_memory": 55,
        "temperature_slowdown": 100,
        "temperature_shutdown": 105,
        "power_draw": 49.0,
        "power_average": 49.0,
        "power_limit": 290.0,
        "fan_rpm": 0,
        "temperature_hotspot": 59,
    },
    "mi250": {
        "vbios_version": "113-D65209-073",
        "serial": "PCB052715-0065",
        "utilization_gpu": 10,
        "utilization_memory": 0,
        "temperature_gpu": 32,
        "temperature_memory": 43,
        "power_draw": 89.0,
        "power_average": 89.0,
        "power_limit": 560.0,
        "clock_sm": 800,
        "clock_memory": 1600,
        "temperature_hotspot": 35,
    },
    "mi300x": {
        "vbios_version": "113-MI3SRIOV-001",
        "serial": "692347006052",
        "utilization_gpu": 0,
        "utilization_memory": 0,
        "temperature_gpu": 35,
        "temperature_memory": 33,
        "power_draw": 133.0,
        "power_instant": 133.0,
        "power_limit": 750.0,
        "clock_sm": 137,
        "clock_memory": 900,
        "clock_sm_max": 2100,
        "clock_memory_max": 1300,
        "temperature_hotspot": 35,
    },
    # APUs: memory is the part that the firmware set aside and what may be taken of the rest.
    "van_gogh": {
        "vbios_version": "113-AMDAerithJ-005",
        "utilization_gpu": 0,
        "temperature_gpu": 56,
        "power_draw": 3.218,
        "power_average": 3.218,
        "power_instant": 4.057,
        "power_limit": 15.0,
        "power_limit_min": 0.0,
        "power_limit_max": 29.0,
        "clock_sm": 200,
        "clock_sm_max": 1600,
        "clock_memory_max": 687,
        "clock_memory": 687,
    },
    "phoenix": {
        **values(1272893440 + 211398656, 34244653056, 4294967296 + 31433977856),
        "vbios_version": "113-PHXGENERIC-001",
        "utilization_gpu": 0,
        "temperature_gpu": 25,
        "power_draw": 3.103,
        "power_average": 3.103,
        "power_instant": 3.142,
        "clock_sm": 800,
        "clock_sm_max": 2700,
        "clock_memory": 400,
        "clock_memory_max": 800,
    },
    "strix_point": {
        **values(4461391872, 12516483072, 16977874944),
        "vbios_version": "113-STRIXEMU-001",
        "utilization_gpu": 3,
        "temperature_gpu": 38,
        "power_draw": 9.087,
        "power_average": 9.087,
        "power_instant": 9.087,
        "clock_sm": 848,
        "clock_sm_max": 2900,
        "clock_memory": 836,
        "clock_memory_max": 1000,
        "clock_video": 800,
    },
}

INTEGRATED = {"van_gogh", "phoenix", "strix_point"}


def read_one(root: Path, model: str, clock: HandClock) -> Gpu:
    backend = machine(root, model).backend(AmdBackend, clock=clock)
    backend.open()
    (gpu,) = backend.read().gpus
    return gpu


def test_every_capture_is_tested() -> None:
    assert set(NAMES) == set(EXPECTED)


@pytest.mark.parametrize("model", NAMES)
def test_each_captured_value_is_shown_and_nothing_else(
    tmp_path: Path, clock: HandClock, model: str
) -> None:
    gpu = read_one(tmp_path, model, clock)
    shown = {
        name: getattr(gpu, name)
        for name in gpu.__struct_fields__
        if name not in _NOT_OF_THE_CAPTURE and getattr(gpu, name) is not None
    }
    assert shown == EXPECTED[model]


@pytest.mark.parametrize("model", NAMES)
def test_each_unknown_value_has_its_reason(tmp_path: Path, clock: HandClock, model: str) -> None:
    gpu = read_one(tmp_path, model, clock)
    missing = {
        name
        for name in gpu.__struct_fields__
        if name not in _NOT_OF_THE_CAPTURE and getattr(gpu, name) is None
    }
    assert missing <= set(gpu.unknown)
    assert {gpu.unknown[name] for name in missing} <= {Unknown.NOT_SUPPORTED}


@pytest.mark.parametrize("model", NAMES)
def test_an_apu_is_known_by_its_voltage_vddnb(tmp_path: Path, clock: HandClock, model: str) -> None:
    assert read_one(tmp_path, model, clock).memory_unified is (model in INTEGRATED)
