"""``gpumon.measure()``: what the GPUs did, whose work it was, and what is not known."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

import gpumon
from tests import lives
from tests.driver import GIB, Driver, Owner
from tests.screen import PATIENCE

SLOWED_BY_HEAT, CAPPED = 0x20, 0x04
NOT_SUPPORTED = 3


until = partial(lives.until, what="what is measured")


def test_the_energy_is_that_of_the_counter_and_the_means_are_over_time(driver: Driver) -> None:
    card = driver.cards[0]
    driver.set_clock(100.0)
    card.utilization_gpu = 50
    with gpumon.measure(interval=0.1) as m:
        until(lambda: m.gpus[0].seconds > 0.3)
        driver.set_clock(120.0)
        card.utilization_gpu = 90
        # The counter is read every few seconds; until then the power draw is integrated.
        until(lambda: (m.gpus[0].energy or 0) >= 300 * 20)
    (gpu,) = m.gpus
    assert (gpu.index, gpu.uuid, gpu.own) == (0, gpumon.snapshot().gpus[0].uuid, True)
    assert gpu.energy is not None
    assert 300 * 20 <= gpu.energy <= 300 * (20 + m.seconds)
    assert gpu.energy_source in {"counter", "counter and power"}
    assert gpu.energy_seconds == pytest.approx(gpu.seconds)
    assert m.energy == gpu.energy
    assert gpu.utilization_mean is not None
    assert 50 < gpu.utilization_mean < 90
    assert gpu.utilization_peak == 90
    assert (gpu.memory_peak, gpu.own_memory_peak) == (30 * GIB, 10 * GIB)
    assert gpu.power_mean == 300
    assert 0 < gpu.seconds <= m.seconds
    assert "own 10.0G" in str(m)


def test_mine_are_the_gpus_of_this_process_and_its_descendants(driver: Driver) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            driver.cards[2].processes = [Owner(child.pid, memory=3 * GIB)]
            driver.cards[1].processes = [Owner(1, memory=GIB)]
            with gpumon.measure() as mine, gpumon.measure("all") as every, gpumon.measure(1) as one:
                # Of a GPU where it was not seen, one list of processes says little.
                until(lambda: one.gpus[0].own is False and every.gpus[1].own is False)
                until(lambda: (mine.gpus[0].own_sm_mean or 0) > 0)
        finally:
            child.kill()
    assert [(gpu.index, gpu.own_memory_peak) for gpu in mine.gpus] == [(0, 10 * GIB), (2, 3 * GIB)]
    assert [(gpu.index, gpu.own) for gpu in every.gpus] == [(0, True), (1, False), (2, True)]
    assert [(gpu.index, gpu.own_memory_peak, gpu.memory_total is None) for gpu in one.gpus] == [
        (1, 0, False)
    ]


def test_who_is_on_no_gpu_has_those_of_the_environment(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.cards[0].processes = []
    with gpumon.measure() as m:
        pass
    assert (m.gpus, str(m)) == ((), "This process was seen on no GPU.")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with gpumon.measure() as m:
        assert [(gpu.index, gpu.own, gpu.own_memory_peak) for gpu in m.gpus] == [(1, None, None)]
        until(lambda: m.gpus[0].own is False)
    assert [(gpu.index, gpu.own_memory_peak) for gpu in m.gpus] == [(1, 0)]


def test_what_is_unknown_is_none_and_says_why(driver: Driver) -> None:
    card = driver.cards[0]
    card.power_usage = None
    card.energy_counter = None
    for version in ("", "_v2", "_v3"):
        card.fail(f"nvmlDeviceGetComputeRunningProcesses{version}", NOT_SUPPORTED)
    card.utilization_gpu = None
    with gpumon.measure(0) as m:
        pass
    (gpu,) = m.gpus
    unknown = ("energy", "power_mean", "power_peak", "own_memory_peak", "utilization_mean")
    assert [getattr(gpu, name) for name in unknown] == [None] * len(unknown)
    assert all(gpu.unknown[name] for name in unknown)
    assert gpu.unknown["utilization_mean"] == "not supported"
    assert gpu.own is None
    assert m.energy is None
    assert gpu.temperature_mean is not None
    assert json.loads(json.dumps(m.to_dict()))["gpus"][0]["energy"] is None
    assert "energy –" in str(m)


def test_a_gpu_without_a_counter_has_its_power_integrated(driver: Driver) -> None:
    driver.cards[0].energy_counter = None
    with gpumon.measure(0, 0.1) as m:
        until(lambda: m.gpus[0].energy_seconds > 0.5)
    (gpu,) = m.gpus
    assert gpu.energy_source == "power"
    assert gpu.energy == pytest.approx(300 * gpu.energy_seconds)
    assert gpu.energy_seconds <= gpu.seconds


def test_slowdown_is_not_the_power_limit(driver: Driver) -> None:
    driver.cards[0].clock_event_reasons = SLOWED_BY_HEAT
    driver.cards[1].clock_event_reasons = CAPPED
    with gpumon.measure("0,1", 0.1) as m:
        until(lambda: m.gpus[0].seconds > 0.3)
    hot, capped = m.gpus
    assert hot.throttled_seconds == pytest.approx(hot.seconds)
    assert capped.power_capped_seconds == pytest.approx(capped.seconds)
    assert (hot.power_capped_seconds, capped.throttled_seconds) == (0, 0)


def test_a_lost_gpu_and_a_lost_driver_do_not_end_what_is_measured(driver: Driver) -> None:
    with gpumon.measure("0,1", 0.1) as m:
        driver.cards[1].lost = True
        until(lambda: m.gpus[1].unknown.get("memory_total") == "GPU lost" or m.gpus[0].seconds > 1)
        driver.unload()
    assert [gpu.index for gpu in m.gpus] == [0, 1]


def test_each_call_of_a_function_is_measured(driver: Driver) -> None:
    measured: list[gpumon.Measurement] = []

    @gpumon.measured(then=measured.append)
    def train(rate: float) -> float:
        """Trains."""
        return 2 * rate

    @gpumon.measured(gpus=[0], then=measured.append)
    async def serve() -> str:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    assert train(0.5) == train(rate=0.5) == 1
    with pytest.raises(ZeroDivisionError):
        asyncio.run(serve())
    assert [[gpu.own_memory_peak for gpu in m.gpus] for m in measured] == [[10 * GIB]] * 3
    assert (train.__name__, train.__doc__) == ("train", "Trains.")
    assert driver.cards[0].processes


def test_what_cannot_be_measured_is_refused_where_it_is_written() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for generator in (numbers, more):
        with pytest.raises(TypeError, match="is a generator"):
            gpumon.measured(generator)
    with pytest.raises(ValueError, match="cannot read"):
        gpumon.measured(gpus="x")(print)
    with pytest.raises(ValueError, match=r"0\.1 to 3600"):
        gpumon.measure(interval=0.01)
    once = gpumon.measure(demo=True)
    with once:
        pass
    with pytest.raises(RuntimeError, match="used once"):
        once.__enter__()


def test_a_figure_is_there_while_the_block_runs(driver: Driver) -> None:
    with gpumon.measure(interval=0.1) as m:
        driver.cards[0].memory_used = 50 * GIB
        until(lambda: m.gpus[0].memory_peak == 50 * GIB)


def test_a_driver_that_takes_long_to_answer_is_waited_for(driver: Driver) -> None:
    # As while it wakes the GPUs; the watchdog says meanwhile that it does not answer.
    driver.cards[0].latency("nvmlDeviceGetName", 1.6)
    with gpumon.measure(0) as m:
        assert m.gpus[0].memory_peak == 30 * GIB
    assert m.trouble is None


def test_a_driver_that_is_gone_is_told_while_it_is(driver: Driver) -> None:
    with gpumon.measure(0, 0.1) as m:
        driver.unload()
        until(lambda: m.trouble is not None)
        driver.reload()
        until(lambda: m.trouble is None)
    assert m.gpus[0].memory_peak == 30 * GIB


async def test_a_call_that_is_cancelled_leaves_nothing_behind(driver: Driver) -> None:
    told: list[gpumon.Measurement] = []

    @gpumon.measured(gpus=0, then=told.append)
    async def serve() -> None:
        await asyncio.sleep(PATIENCE)

    for _ in range(3):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(serve(), 0.01)
    assert len(told) == 3
    samplers = [one for one in threading.enumerate() if one.name == "gpumon-sampler"]
    until(lambda: not any(one.is_alive() for one in samplers))
    assert driver.cards[0].memory_used == 30 * GIB


def test_what_goes_wrong_while_it_is_told_does_not_replace_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @gpumon.measured(then=lambda _: 1 / 0, demo=True)
    def train() -> int:
        return 7

    assert train() == 7
    assert "ZeroDivisionError" in capsys.readouterr().err
