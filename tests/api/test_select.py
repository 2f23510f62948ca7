"""``gpumon.select()``: the GPUs that ``gpumon select`` would print."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import gpumon
from gpumon.scheduling.allocation import UncertainAllocationError
from gpumon.sources.source import NoSuchGpuError
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from tests.driver import Driver


def command(driver: Driver, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "select", *arguments],
        env=driver.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


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
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"],
        env=chosen.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().split(",") == list(chosen.uuids)


@pytest.mark.usefixtures("driver")
def test_too_few_are_an_error_that_says_why_gpu_by_gpu() -> None:
    with pytest.raises(gpumon.NoGpuFitsError) as raised:
        gpumon.select(3)
    assert raised.value.sentence == "only 2 GPUs fit; 3 GPUs asked."
    assert list(raised.value.reasons) == ["GPU 0"]
    assert "10.0 GiB" in raised.value.reasons["GPU 0"] or "20.0 GiB" in str(raised.value)
    with pytest.raises(gpumon.NoGpuFitsError, match="this machine has 3 GPUs"):
        gpumon.select(4, wait=PATIENCE)


def test_it_waits_until_a_gpu_is_free(driver: Driver) -> None:
    def free() -> None:
        time.sleep(0.5)
        driver.cards[0].processes = []
        driver.cards[0].memory_used = 0

    thread = threading.Thread(target=free)
    thread.start()
    try:
        assert len(gpumon.select(3, wait=PATIENCE).uuids) == 3
    finally:
        thread.join()


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
    ],
)
def test_a_value_that_is_none_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be|cannot read"):
        gpumon.select(**{name: value})  # type: ignore[arg-type] # that is the test


def test_errors_come_through_from_a_worker() -> None:
    errors = [
        gpumon.NoGpuFitsError("no GPU fits; 1 GPU asked.", {"GPU 0": "it is busy"}),
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
