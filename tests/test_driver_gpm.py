"""What the simulated driver promises of GPM: how much of a card works, from two samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from tests.driver import Driver, a100, h100, h100_mig

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NO_DATA, VERSION_MISMATCH = 2, 3, 4, 21, 25
SM, DRAM, FP64, NOT_SIMULATED = 2, 10, 11, 4


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver(
        [h100(sm_active=8, dram_active=60, fp64_active=None), a100(), h100_mig()]
    ) as driver:
        driver.attach()
        pynvml.nvmlInit()
        driver.set_clock(1000.0)
        yield driver


@pytest.fixture
def samples(driver: Driver) -> Iterator[tuple[Any, Any]]:
    made = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    yield made
    for sample in made:
        pynvml.nvmlGpmSampleFree(sample)
    calls = driver.calls()
    assert calls["nvmlGpmSampleAlloc"].calls == calls["nvmlGpmSampleFree"].calls


def handle(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def metrics(samples: tuple[Any, Any], *numbers: int, version: int = 1) -> list[tuple[int, float]]:
    """The code and the value of each metric between two samples."""
    get = pynvml.c_nvmlGpmMetricsGet_t(version=version, numMetrics=len(numbers))
    get.sample1, get.sample2 = samples
    for metric, number in zip(get.metrics, numbers, strict=False):
        metric.metricId = number
    pynvml.nvmlGpmMetricsGet(get)
    return [
        (get.metrics[place].nvmlReturn, get.metrics[place].value) for place in range(len(numbers))
    ]


def test_a_pair_gives_the_mean_in_percent_and_what_the_card_lacks_its_code(
    driver: Driver, samples: tuple[Any, Any]
) -> None:
    pynvml.nvmlGpmSampleGet(handle(), samples[0])
    driver.cards[0].sm_active = 10
    driver.set_clock(1000.2)
    pynvml.nvmlGpmSampleGet(handle(), samples[1])
    sm, dram, fp64, other = metrics(samples, SM, DRAM, FP64, NOT_SIMULATED)
    assert (sm, dram) == ((0, 9.0), (0, 60.0))
    assert (fp64[0], other[0]) == (NOT_SUPPORTED, NOT_SUPPORTED)


@pytest.mark.parametrize(("seconds", "code"), [(0.0, NO_DATA), (0.099, NO_DATA), (0.1, 0)])
def test_samples_that_are_too_near_have_no_value(
    driver: Driver, samples: tuple[Any, Any], seconds: float, code: int
) -> None:
    pynvml.nvmlGpmSampleGet(handle(), samples[0])
    driver.set_clock(1000.0 + seconds)
    pynvml.nvmlGpmSampleGet(handle(), samples[1])
    assert metrics(samples, SM)[0][0] == code


def test_a_pair_is_of_one_card_filled_and_in_order(
    driver: Driver, samples: tuple[Any, Any]
) -> None:
    with pytest.raises(pynvml.NVMLError) as wrong:
        metrics(samples, SM)
    assert wrong.value.value == INVALID_ARGUMENT
    pynvml.nvmlGpmSampleGet(handle(), samples[0])
    driver.set_clock(1001.0)
    pynvml.nvmlGpmSampleGet(handle(2), samples[1])
    with pytest.raises(pynvml.NVMLError) as wrong:
        metrics(samples, SM)
    assert wrong.value.value == INVALID_ARGUMENT
    pynvml.nvmlGpmSampleGet(handle(), samples[1])
    assert metrics(samples[::-1], SM)[0][0] == NO_DATA
    with pytest.raises(pynvml.NVMLError) as wrong:
        metrics(samples, SM, version=2)
    assert wrong.value.value == VERSION_MISMATCH


def test_an_instance_has_values_of_its_own_and_a_name_that_must_exist(
    driver: Driver, samples: tuple[Any, Any]
) -> None:
    card = driver.cards[2]
    card.mig[1].shares[0] = 62.0
    instance = card.mig[1].gpu_instance
    pynvml.nvmlGpmMigSampleGet(handle(2), instance, samples[0])
    driver.set_clock(1001.0)
    pynvml.nvmlGpmMigSampleGet(handle(2), instance, samples[1])
    assert metrics(samples, SM) == [(0, 62.0)]
    with pytest.raises(pynvml.NVMLError) as wrong:
        pynvml.nvmlGpmMigSampleGet(handle(2), 77, samples[1])
    assert wrong.value.value == INVALID_ARGUMENT


def test_older_cards_do_not_support_it_and_any_card_may_refuse(
    driver: Driver, samples: tuple[Any, Any]
) -> None:
    support = [
        pynvml.nvmlGpmQueryDeviceSupport(handle(index)).isSupportedDevice for index in (0, 1)
    ]
    assert support == [1, 0]
    driver.cards[0].fail("nvmlGpmSampleGet", NO_PERMISSION)
    for index, code in ((0, NO_PERMISSION), (1, NOT_SUPPORTED)):
        with pytest.raises(pynvml.NVMLError) as refused:
            pynvml.nvmlGpmSampleGet(handle(index), samples[0])
        assert refused.value.value == code
