"""Values that no hardware has are unknown, with that reason, on other hosts as on this one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpumon.fleet.ssh import SshClient
from gpumon.model.snapshot import Unknown
from gpumon.prometheus.client import Labels
from gpumon.prometheus.hosts import snapshot as metrics_snapshot
from gpumon.prometheus.readings import Readings
from gpumon.stream import StreamWriter
from tests.build import gpu, process, snapshot
from tests.command import write_program
from tests.fleet.conftest import reading, state, wait_for
from tests.known import known

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot

ALL_32 = 2**32 - 1
HEADING = (
    "timestamp, index, uuid, name, pci.bus_id, driver_version, memory.total [MiB], "
    "memory.used [MiB], utilization.gpu [%], temperature.gpu, power.draw [W], pstate"
)
STAMP = "2026/11/26 18:00:00.123"
ROWS = (
    f"{STAMP}, 0, GPU-0, A40, 00000000:01:00.0, 580, 49140, {2**44}, {ALL_32}, 255, 4294967.2, P8",
    f"{STAMP}, 1, GPU-1, A40, 00000000:02:00.0, 580, 49140, 49141, 0, -1, 25.02, P99",
)


def read(tmp_path: Path, program: str, text: str) -> Snapshot:
    """The first snapshot of a host that has only one program."""
    run_here = f'for last; do :; done\nPATH="{tmp_path}:/usr/bin:/bin" exec sh -c "$last"\n'
    client = write_program(tmp_path / "ssh", f"#!/bin/sh\n{run_here}")
    write_program(tmp_path / program, text)
    with reading(SshClient((str(client),)), "box") as fleet:
        wait_for(fleet, lambda now: now.hosts[0].snapshot is not None)
        found = state(fleet, "box").snapshot
    return known(found)


def test_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text("\n".join((HEADING, *ROWS, "")))
    (tmp_path / "processes").write_text(f"GPU-0, 7, {2**40}, python\nGPU-1, 8, 6, python\n")
    shown = f'*compute-apps*) cat "{tmp_path}/processes";; *) cat "{tmp_path}/gpus";;'
    found = read(tmp_path, "nvidia-smi", f'#!/bin/sh\ncase "$*" in {shown} esac\n')
    first, second = found.gpus
    for field in ("memory_used", "utilization_gpu", "temperature_gpu", "power_draw"):
        assert getattr(first, field) is None
        assert first.unknown[field] is Unknown.IMPOSSIBLE
    assert first.pstate == 8
    assert (second.memory_used, second.temperature_gpu, second.pstate) == (None, None, None)
    assert second.unknown["memory_used"] is Unknown.IMPOSSIBLE
    assert (second.power_draw, second.utilization_gpu) == (25.02, 0)
    assert [one.memory_used for one in found.processes] == [None, 6 * 2**20]


def test_the_stream_of_another_gpumon(tmp_path: Path) -> None:
    values: dict[str, Any] = {"utilization_gpu": ALL_32, "temperature_gpu": -1, "power_draw": 4e9}
    wrong = gpu(memory_used=17 * 10**12, **values)
    told = snapshot(time.time(), wrong, processes=(process(8, memory_used=17 * 10**12),))
    (tmp_path / "sent").write_bytes(StreamWriter(1.0).write(told, time.time()))
    found = read(tmp_path, "gpumon", f'#!/bin/sh\ncat "{tmp_path}/sent"\nexec sleep 600\n')
    (only,) = found.gpus
    for field in ("memory_used", "utilization_gpu", "temperature_gpu", "power_draw"):
        assert getattr(only, field) is None
        assert only.unknown[field] is Unknown.IMPOSSIBLE
    assert only.memory_free == gpu().memory_free
    assert found.processes[0].memory_used is None


def test_metrics_of_prometheus() -> None:
    readings = Readings()
    labels = {"UUID": "GPU-0", "gpu": "0", "Hostname": "box", "modelName": "A40"}
    for name, value in (
        ("DCGM_FI_DEV_FB_TOTAL", "49140"),
        ("DCGM_FI_DEV_FB_USED", "16777216"),
        ("DCGM_FI_DEV_FB_FREE", "48000"),
        ("DCGM_FI_DEV_GPU_UTIL", str(ALL_32)),
        ("DCGM_FI_DEV_GPU_TEMP", "255"),
        ("DCGM_FI_DEV_POWER_USAGE", "4294967.295"),
        ("DCGM_FI_DEV_SM_CLOCK", "210"),
    ):
        readings.put(Labels(metric=name, pod="p", **labels), 1.0, value)
    box = readings.hosts["box"]
    (only,) = metrics_snapshot("box", box, 1.0, whole=True).gpus
    for field in ("memory_used", "utilization_gpu", "temperature_gpu", "power_draw"):
        assert getattr(only, field) is None
        assert only.unknown[field] is Unknown.IMPOSSIBLE
    assert (only.memory_total, only.clock_sm) == (49140 * 2**20, 210)
    assert [owner.memory for owner in box.owners()] == [None]
