"""``gpumon.select()``: the GPUs that ``gpumon select`` would print."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import gpumon
from gpumon.makers.source import NoSuchGpuError
from gpumon.scheduling.choose import UncertainAllocationError
from tests.command import run_gpumon, run_program
from tests.driver import Driver
from tests.screen import PATIENCE


def command(driver: Driver, *arguments: str) -> str:
    return run_gpumon("select", *arguments, env=driver.env()).stdout.strip()


def test_it_selects_what_the_command_selects(driver: Driver) -> None:
    chosen = gpumon.select()
    assert chosen.cuda_visible_devices == command(driver)
    assert [gpu.index for gpu in chosen.gpus] == [1]
    several = gpumon.select((1, 8), free="10G", exclude=1)
    assert several.cuda_visible_devices == command(
        driver, "-n", "1-8", "--free", "10G", "--not", "1"
    )
    assert [gpu.index for gpu in several.gpus] == [0, 2]


@pytest.mark.usefixtures("driver")
def test_a_program_gets_the_gpus_by_its_environment() -> None:
    chosen = gpumon.select(2)
    done = run_program(
        [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"],
        chosen.env,
        check=True,
    )
    assert done.stdout.strip().split(",") == list(chosen.uuids)


@pytest.mark.usefixtures("driver")
def test_too_few_are_an_error_that_says_why_gpu_by_gpu() -> None:
    with pytest.raises(gpumon.NoGpuFitsError) as raised:
        gpumon.select(3)
    assert raised.value.sentence == "only 2 GPUs fit; 3 GPUs requested."
    assert list(raised.value.reasons) == ["GPU 0"]
    assert "10.0 GiB" in raised.value.reasons["GPU 0"] or "20.0 GiB" in str(raised.value)
    with pytest.raises(gpumon.NoGpuFitsError, match="this machine has 3 GPUs"):
        gpumon.select(4, wait=PATIENCE)


@contextmanager
def half_a_second_later(change: Callable[[], None]) -> Iterator[None]:
    """Change something while the block runs."""
    timer = threading.Timer(0.5, change)
    timer.start()
    yield
    timer.join()


def test_it_waits_until_a_gpu_is_free(driver: Driver) -> None:
    def free() -> None:
        driver.cards[0].processes = []
        driver.cards[0].memory_used = 0

    with half_a_second_later(free):
        assert len(gpumon.select(3, wait=PATIENCE).uuids) == 3


@pytest.mark.usefixtures("driver")
def test_the_environment_of_this_program_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpumon.select(gpus=2).cuda_visible_devices)
    assert [gpu.index for gpu in gpumon.select().gpus] == [2]
    with pytest.raises(gpumon.NoGpuFitsError, match="CUDA_VISIBLE_DEVICES leaves it out"):
        gpumon.select(2)


@pytest.mark.parametrize("n", [0, -1, (2, 1), (0, 2), True, "2", (1,)])
def test_a_number_that_is_none_is_refused(n: Any) -> None:
    with pytest.raises(ValueError, match="n must be 1 or more"):
        gpumon.select(n)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("free", -1), ("free", float("nan")), ("wait", float("nan")), ("stable", float("inf"))),
        *(("capability", (8,)), ("capability", 8), ("util", "90"), ("gpus", b"0")),
        *(("capability", "12"), ("capability", (True, 0)), ("processes", "2"), ("processes", -1)),
        *(("processes", 1.5), ("model", ""), ("model", ["h100", 3]), ("arch", ","), ("arch", b"x")),
        *(("wait", -1), ("wait", [20]), ("free", True), ("util", True), ("exclude", b"0")),
        *(("exclude", 0.0), ("exclude", [True]), ("gpus", []), ("gpus", True)),
        *(("arch", 0), ("model", 5), ("free", 10**400), ("wait", 10**400), ("stable", 1e300)),
        *(("mig", "no"), ("mine_is_free", "x"), ("capability", (8, -1))),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be|cannot read"):
        gpumon.select(**{name: value})  # type: ignore[arg-type] # that is the test


@pytest.mark.parametrize("text", ["20X", "", "-1s", "inf", "1e3"])
@pytest.mark.parametrize("name", ["wait", "stable"])
def test_a_time_that_cannot_be_read_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be '{text}': write seconds, or a time"):
        gpumon.select(**{name: text})  # type: ignore[arg-type] # that is the test


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        *((0, [1, 2]), (1, [0, 2]), ("0", [1, 2]), ([0], [1, 2]), ((0, "1"), [2]), ({0, 2}, [1])),
        *((range(2), [2]), (iter([0]), [1, 2]), (numpy.int64(0), [1, 2])),
        *((numpy.arange(2), [2]), (None, [0, 1, 2]), ([], [0, 1, 2]), ("", [0, 1, 2])),
    ],
)
@pytest.mark.usefixtures("driver")
def test_each_way_to_name_gpus_excludes_these(exclude: Any, left: list[int]) -> None:
    chosen = gpumon.select((1, 3), free=0, exclude=exclude)
    assert [gpu.index for gpu in chosen.gpus] == left


@pytest.mark.usefixtures("driver")
def test_numbers_of_numpy_and_zeros_mean_what_they_say() -> None:
    def chosen(**named: Any) -> list[int]:
        return [gpu.index for gpu in gpumon.select(**named).gpus]

    for zero in (0, numpy.int64(0), numpy.float32(0)):
        assert chosen(gpus=numpy.int64(1), free=zero, util=100, temp=numpy.int64(200)) == [1]
        # 0 is a condition: it does not mean that there is none.
        assert chosen(n=(1, 3), free="1G", processes=int(zero)) == [1, 2]
        with pytest.raises(gpumon.NoGpuFitsError):
            gpumon.select(temp=zero, wait=zero, stable=zero)
    assert chosen(n=(numpy.int64(1), numpy.int64(2)), capability=numpy.array([9, 0])) == [1, 2]
    now = gpumon.snapshot(gpus=numpy.int64(2))
    assert [gpu.index for gpu in now.gpus] == [2]
    with gpumon.measure(gpus=numpy.arange(2)) as measured:
        pass
    assert [gpu.index for gpu in measured.gpus] == [0, 1]


@pytest.mark.parametrize("wait", [0.6, "0.6s", numpy.float64(0.6), True, numpy.True_])
def test_it_waits_as_gpumon_run_does_for_what_is_not_known_yet(
    wait: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the names of the GPUs nobody knows which one CUDA_VISIBLE_DEVICES means."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    for card in driver.cards:
        card.fail("nvmlDeviceGetName", 999)
    if wait not in (True, numpy.True_):
        began = time.monotonic()
        with pytest.raises(UncertainAllocationError):
            gpumon.select(wait=wait)
        assert time.monotonic() - began >= 0.6
    with pytest.raises(UncertainAllocationError):
        gpumon.select(wait=False)

    def heal() -> None:
        for card in driver.cards:
            card.heal()

    with half_a_second_later(heal):
        chosen = gpumon.select(wait=True if wait in (True, numpy.True_) else PATIENCE)
    assert [gpu.index for gpu in chosen.gpus] == [1]


def test_a_driver_that_hangs_is_waited_for_until_the_limit(driver: Driver) -> None:
    driver.system.hang("nvmlInit_v2")
    try:
        with pytest.raises(gpumon.GpuError, match="The driver has not answered"):
            gpumon.select(wait=0.2)
    finally:
        driver.system.release()


def test_errors_come_through_from_a_worker() -> None:
    errors = [
        gpumon.NoGpuFitsError("no GPU fits; 1 GPU requested.", {"GPU 0": "it is busy"}),
        gpumon.GpuError("There is no driver.", "Install it."),
        NoSuchGpuError(["7"], 2),
        UncertainAllocationError("It is uncertain.", passing=True),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_size_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="free cannot be '20X': write a number with K"):
        gpumon.select(free="20X")
