"""Values that no hardware has are unknown, with that reason, on other hosts as on this one."""

from __future__ import annotations

import time
from pathlib import Path

from gpumon.fleet.ssh import SshClient
from gpumon.model.snapshot import Gpu, Snapshot, Unknown
from gpumon.prometheus.client import Labels
from gpumon.prometheus.hosts import snapshot as metrics_snapshot
from gpumon.prometheus.readings import Readings
from gpumon.stream import StreamWriter
from tests.build import gpu, process, snapshot
from tests.command import write_program
from tests.fleet.conftest import reading, state, wait_for
from tests.fleet.test_failing_gpus import HEADING, SSH, row
from tests.known import known

ALL_32 = 2**32 - 1
FOUR = {"memory_used", "utilization_gpu", "temperature_gpu", "power_draw"}


def impossible(gpu: Gpu) -> set[str]:
    """The values of a GPU that are unknown for this reason."""
    found = {name for name, reason in gpu.unknown.items() if reason is Unknown.IMPOSSIBLE}
    assert {getattr(gpu, name) for name in found} <= {None}
    return found


def read(tmp_path: Path, program: str, text: str) -> Snapshot:
    """The first snapshot of a host that has only one program."""
    client = write_program(tmp_path / "ssh", SSH.format(folder=tmp_path))
    write_program(tmp_path / program, text)
    with reading(SshClient((str(client),)), "box") as fleet:
        wait_for(fleet, lambda now: now.hosts[0].snapshot is not None)
        return known(state(fleet, "box").snapshot)


def test_nvidia_smi(tmp_path: Path) -> None:
    wrong = {"memory.used": str(2**44), "utilization.gpu": str(ALL_32), "temperature.gpu": "255"}
    first = row(0, words={**wrong, "power.draw": "4294967.2"})
    second = row(1, words={"memory.used": "49141", "temperature.gpu": "-1", "pstate": "P99"})
    (tmp_path / "gpus").write_text("\n".join((HEADING, first, second, "")))
    (tmp_path / "processes").write_text(f"GPU-0, 7, {2**40}, python\nGPU-1, 8, 6, python\n")
    shown = f'*compute-apps*) cat "{tmp_path}/processes";; *) cat "{tmp_path}/gpus";;'
    found = read(tmp_path, "nvidia-smi", f'#!/bin/sh\ncase "$*" in {shown} esac\n')
    assert [impossible(gpu) for gpu in found.gpus] == [
        FOUR,
        {"memory_used", "temperature_gpu", "pstate"},
    ]
    assert [gpu.pstate for gpu in found.gpus] == [8, None]
    assert (found.gpus[1].power_draw, found.gpus[1].utilization_gpu) == (25.02, 0)
    assert [one.memory_used for one in found.processes] == [None, 6 * 2**20]


def test_the_stream_of_another_gpumon(tmp_path: Path) -> None:
    terabytes = 17 * 10**12
    wrong = {"utilization_gpu": ALL_32, "temperature_gpu": -1, "power_draw": 4e9}
    sent = snapshot(
        time.time(),
        gpu(memory_used=terabytes, **wrong),
        processes=(process(8, memory_used=terabytes),),
    )
    (tmp_path / "sent").write_bytes(StreamWriter(1.0).write(sent, time.time()))
    found = read(tmp_path, "gpumon", f'#!/bin/sh\ncat "{tmp_path}/sent"\nexec sleep 600\n')
    (only,) = found.gpus
    assert impossible(only) == FOUR
    assert only.memory_free == gpu().memory_free
    assert found.processes[0].memory_used is None


def test_metrics_of_prometheus() -> None:
    readings = Readings()
    labels = {"UUID": "GPU-0", "gpu": "0", "Hostname": "box", "modelName": "A40"}
    for name, value in (
        ("FB_TOTAL", "49140"),
        ("FB_USED", "16777216"),
        ("FB_FREE", "48000"),
        ("GPU_UTIL", str(ALL_32)),
        ("GPU_TEMP", "255"),
        ("POWER_USAGE", "4294967.295"),
        ("SM_CLOCK", "210"),
    ):
        readings.put(Labels(metric=f"DCGM_FI_DEV_{name}", pod="p", **labels), 1.0, value)
    box = readings.hosts["box"]
    (only,) = metrics_snapshot("box", box, 1.0, whole=True).gpus
    assert impossible(only) == FOUR
    assert (only.memory_total, only.clock_sm) == (49140 * 2**20, 210)
    assert [owner.memory for owner in box.owners()] == [None]
