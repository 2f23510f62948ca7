"""Which GPUs a host has whose exporter no longer lists all of them."""

from __future__ import annotations

import pytest

from gpumon.model.snapshot import GpuStatus
from gpumon.prometheus.hosts import KnownHost
from gpumon.prometheus.readings import GpuReading, HostReading
from tests.known import known

NOON = 1_763_700_000.0


def take(host: KnownHost, time: float, *indices: int, before: str = "GPU-") -> dict[int, GpuStatus]:
    """The status of each GPU after a scrape that has these."""
    reading = HostReading("Hostname", "a")
    for index in indices:
        gpu = reading.gpus[f"{before}{index}"] = GpuReading()
        gpu.put("index", float(index), time)
        gpu.put("memory_used", 2.0**30, time)
    host.take(reading, time, 0.0, {}, whole=True)
    return {gpu.index: gpu.status for gpu in known(host.state.snapshot).gpus}


@pytest.fixture
def host() -> KnownHost:
    host = KnownHost("a", "Hostname", "a")
    assert take(host, NOON, 0, 1, 2) == dict.fromkeys((0, 1, 2), GpuStatus.OK)
    return host


def test_a_gpu_that_is_left_out_does_not_answer_for_an_hour(host: KnownHost) -> None:
    failing = {0: GpuStatus.OK, 1: GpuStatus.NO_ANSWER, 2: GpuStatus.OK}
    assert take(host, NOON + 30, 0, 2) == failing
    assert take(host, NOON + 3500, 0, 2) == failing
    assert take(host, NOON + 3630, 0, 2) == {0: GpuStatus.OK, 2: GpuStatus.OK}


def test_a_machine_of_the_same_name_has_its_own_gpus(host: KnownHost) -> None:
    assert take(host, NOON + 30, 0, 1, before="GPU-new-") == {0: GpuStatus.OK, 1: GpuStatus.OK}
