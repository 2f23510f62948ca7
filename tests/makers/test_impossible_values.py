"""Values that no hardware has are unknown, with that reason, whatever says them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.model.bounds import plausible
from gpumon.model.processes import GpuUse
from gpumon.model.snapshot import MigInstance, Unknown
from tests.build import NOON, gpu, process, snapshot
from tests.command import GPUMON, run_program
from tests.driver import GIB, Driver, Owner, h100, rtx4090
from tests.makers.nvml_room import Furnish
from tests.makers.test_nvml import AS_THE_DRIVER_SAYS

ALL_32, ALL_64 = 2**32 - 1, 2**64 - 1
AT_THE_DRIVER = [
    *(("memory_used", size) for size in (2**64 - 4096, 81 * GIB, 17 * 10**12)),
    ("bar1_used", 2**50),
    *(
        (field, ALL_32)
        for field in (
            *("utilization_gpu", "utilization_memory", "temperature_memory", "power_draw"),
            *("power_instant", "power_limit", "clock_sm", "clock_sm_max", "pcie_generation"),
            *("pcie_width", "remapped_rows_correctable"),
        )
    ),
    *(("utilization_gpu", 101), ("utilization_encoder", 255), ("clock_memory", 65535)),
    *(("temperature_gpu", 255), ("temperature_gpu", -1)),
    *(("clock_event_reasons", ALL_64), ("ecc_corrected_volatile", ALL_64)),
]


@pytest.mark.parametrize(("field", "value"), AT_THE_DRIVER)
def test_what_the_driver_cannot_mean_is_unknown(opened: Furnish, field: str, value: int) -> None:
    room = opened(h100(), h100())
    metric, _ = AS_THE_DRIVER_SAYS[field]
    setattr(room.card, metric, value)
    wrong, right = room.sample().gpus
    assert getattr(wrong, field) is None
    assert wrong.unknown[field] is Unknown.IMPOSSIBLE
    assert getattr(right, field) is not None
    # Other values stay.
    assert wrong.memory_total == right.memory_total


def test_a_fan_and_its_fellows(opened: Furnish) -> None:
    found = opened(rtx4090(fan_speed=ALL_32)).gpu()
    assert (found.fan_speed, found.fan_speeds) == (None, None)
    assert found.unknown["fan_speed"] is Unknown.IMPOSSIBLE


def test_a_process_has_no_more_memory_than_the_gpu(opened: Furnish) -> None:
    wrong = Owner(os.getpid(), memory=17 * 10**12, sm=40)
    processes = opened(h100(), owners=[wrong, Owner(os.getppid(), memory=GIB)]).processes()
    assert (processes[wrong.pid].memory_used, processes[wrong.pid].sm) == (None, 40)
    assert processes[os.getppid()].memory_used == GIB


def test_its_own_log_is_not_damaged(tmp_path: Path) -> None:
    log = str(tmp_path / "a.csv")
    with Driver([h100(memory_used=2**64 - 4096, utilization_gpu=ALL_32)]) as driver:
        for arguments in (
            ["log", log, "--for", "1s", "-n", "0.2"],
            ["report", log, "--format", "json"],
        ):
            ended = run_program([*GPUMON, *arguments], driver.env(), check=True)
            assert "damaged" not in ended.stderr
    (row,) = json.loads(ended.stdout)["lines"]
    assert row["memory_mean_bytes"] is None


def test_every_part_of_a_snapshot() -> None:
    """As it arrives from another host, whose gpumon may be older."""
    instance = MigInstance("MIG-1", 0, memory_total=10 * GIB, memory_used=11 * GIB, sm_active=400.0)
    values: dict[str, Any] = {"memory_total": 48 * GIB, "memory_free": 2**63, "power_draw": 4e6}
    values |= {"energy": math.nan, "xid_at": math.inf}
    wrong = gpu(index=0, uuid="GPU-0", mig=(instance,), nvlink_active=ALL_32, **values)
    unified = gpu(index=1, memory_total=GIB, memory_free=0, memory_unified=True)
    use = GpuUse("GPU-0", 0, memory_used=49 * GIB, sm=ALL_32, encoder=20)
    # A process may have more of a shared memory than was set aside for the GPU.
    shared = GpuUse("GPU-1", 1, memory_used=2 * GIB, sm=20)
    owner = replace(process(7), uses=(use, shared))
    told = snapshot(NOON, wrong, unified, processes=(owner,))
    found = plausible(told)
    first, second = found.gpus
    assert (first.memory_total, first.memory_free, first.power_draw) == (48 * GIB, None, None)
    assert first.nvlink_active is None
    for field in ("memory_free", "power_draw", "nvlink_active", "energy", "xid_at"):
        assert getattr(first, field) is None
        assert first.unknown[field] is Unknown.IMPOSSIBLE
    assert first.mig == (MigInstance("MIG-1", 0, memory_total=10 * GIB),)
    assert second is unified
    assert found.processes[0].uses == (GpuUse("GPU-0", 0, encoder=20), shared)
    assert plausible(found) is found
