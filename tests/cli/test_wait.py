"""``gpumon wait``, as it is run: on the simulated driver, with real processes and terminals."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sampling.gpu_sampler import PATIENCE as PATIENCE_OF_A_LOOK
from tests.command import GPUMON, run_gpumon
from tests.driver import GIB, Driver, Owner, h100
from tests.scheduling.holding import holder
from tests.screen import Screen

ME = str(os.getpid())
WAIT = [*GPUMON, "wait"]
RUN = [*GPUMON, "run", "--wait", "--", "true"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    """Two cards, both taken by somebody who is not visible here."""
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    with Driver([h100(), h100()]) as simulated:
        for card in simulated.cards:
            occupy(simulated, card.index)
        yield simulated


def occupy(driver: Driver, index: int) -> None:
    card = driver.cards[index]
    card.memory_used = 30 * GIB
    card.processes = [Owner(3_999_990 + index, memory=30 * GIB)]


def release(driver: Driver, index: int) -> None:
    card = driver.cards[index]
    card.processes = []
    card.memory_used = 0


def test_a_free_card_is_not_waited_for(driver: Driver) -> None:
    release(driver, 1)
    done = run_gpumon("wait", env=driver.env())
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "gpumon: GPU 1 is free.\n"


def test_the_line_says_who_is_there_and_goes_when_a_card_is_free(driver: Driver) -> None:
    with Screen([*WAIT, "--bell"], env=driver.env(), columns=80, lines=10) as screen:
        screen.wait_for(
            r"○ waiting \d+s for 1 free GPU  GPU 0: 3999990 30\.0G  GPU 1: 3999991 30\.0G"
        )
        release(driver, 0)
        screen.wait_for(r"gpumon: GPU 0 is free after \d+s of waiting\.")
        assert screen.wait_end() == 0
        assert b"\a" in screen.output
        assert "○" not in screen.text()


def test_the_line_counts_the_gpus_that_are_free(driver: Driver) -> None:
    release(driver, 0)
    with Screen([*WAIT, "-n", "2"], env=driver.env(), columns=80, lines=10) as screen:
        screen.wait_for(r"○ waiting \d+s for 2 free GPUs, 1 of 2 free  GPU 1: 3999991 30\.0G")


def test_the_line_of_run_counts_them_too(driver: Driver) -> None:
    release(driver, 0)
    command = [*GPUMON, "run", "-n", "2", "--wait", "--", "true"]
    with Screen(command, env=driver.env(), columns=160, lines=10) as screen:
        screen.wait_for(r"○ waiting for 2 GPUs, \d+s, 1 of 2 free  GPU 1: ")
        release(driver, 1)
        assert screen.wait_end() == 0


def test_the_desktop_is_told_by_the_terminal(driver: Driver) -> None:
    release(driver, 0)
    outside = ["env", "-u", "TMUX", "-u", "STY", "-u", "VTE_VERSION"]
    with Screen([*outside, *WAIT, "--notify"], env=driver.env()) as screen:
        screen.wait_end()
        assert b"\x1b]9;gpumon: GPU 0 is free.\a" in screen.output


def test_a_reservation_is_waited_for(driver: Driver, tmp_path: Path) -> None:
    for index in (0, 1):
        release(driver, index)
    with (
        holder(tmp_path / "locks", driver.cards[0].uuid) as other,
        Screen([*WAIT, "--gpus", "0"], env=driver.env(), columns=120) as screen,
    ):
        screen.wait_for(r"GPU 0: reserved by .* for \d")
        other.kill()
        assert screen.wait_end() == 0


def test_the_time_may_be_over_before_and_then_every_card_is_told(driver: Driver) -> None:
    done = run_gpumon("wait", "-n", "2", "--timeout", "0.2", env=driver.env())
    assert done.returncode == 124
    assert "gave up after" in done.stderr
    assert "waiting for 2 free GPUs" in done.stderr
    table = done.stderr.partition("gave up")[2]
    assert table.count("holds 30.0 GiB") == 2


def test_what_waiting_cannot_bring_is_refused_at_once(driver: Driver) -> None:
    done = run_gpumon("wait", "-n", "3", env=driver.env())
    assert done.returncode == 1
    first = "gpumon: this machine has 2 GPUs; 3 GPUs requested. Waiting does not change that.\n"
    assert done.stderr.startswith(first)


# Which of the two it says depends on whether the limit or the GPU's patience ends first.
HUNG = "(The driver has not answered|it does not answer|no GPU fits)"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(
            ["wait", "--timeout", "2"], rf"gave up after 2s[\s\S]*{HUNG}", marks=pytest.mark.slow
        ),
        pytest.param(
            ["wait", "--timeout", "2", "--pid", ME], "gave up after 2s", marks=pytest.mark.slow
        ),
        (["run", "--wait=2", "--", "true"], f"gave up waiting after 2s: {HUNG}"),
    ],
    ids=["wait", "wait --pid", "run"],
)
def test_a_card_that_hangs_does_not_stretch_the_time(
    driver: Driver, command: list[str], said: str
) -> None:
    driver.cards[0].hang()
    began = time.monotonic()
    done = run_gpumon(*command, env=driver.env())
    assert done.returncode == 124
    assert re.search(said, done.stderr), done.stderr
    assert time.monotonic() - began < PATIENCE_OF_A_LOOK


def test_a_card_that_hangs_at_first_is_waited_for(driver: Driver) -> None:
    driver.cards[0].hang()
    with Screen(WAIT, env=driver.env(), columns=120) as screen:
        screen.wait_for("GPU 0: it does not answer")
        release(driver, 0)
        driver.cards[0].release()
        screen.wait_for("GPU 0 is free")
        assert screen.wait_end() == 0


@pytest.mark.parametrize("command", [WAIT, RUN], ids=["wait", "run"])
def test_a_driver_that_goes_and_comes_back_does_not_end_the_waiting(
    driver: Driver, command: list[str]
) -> None:
    with Screen(command, env=driver.env(), columns=150) as screen:
        screen.wait_for("GPU 0:")
        driver.unload()
        screen.wait_for("The NVIDIA driver is not loaded")
        release(driver, 0)
        driver.reload()
        screen.wait_for("GPU 0 is free|running on GPU 0")
        assert screen.wait_end() == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["idle", "--stable", "1s"], "GPU 0 is idle"), (["cool", "--temp", "90"], "is cool")],
)
def test_a_card_may_be_idle_or_cool_while_somebody_is_on_it(
    driver: Driver, arguments: list[str], told: str
) -> None:
    driver.cards[0].utilization_gpu = 0
    driver.cards[1].utilization_gpu = 90
    done = run_gpumon("wait", *arguments, env=driver.env())
    assert done.returncode == 0, done.stderr
    assert told in done.stderr


def test_a_process_is_waited_for_to_its_end_without_a_driver() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            with Screen([*WAIT, "--pid", str(sleeper.pid)], columns=120) as screen:
                screen.wait_for(rf"waiting \d+s for .*'s sleep \({sleeper.pid}\) to end  runs \d+s")
                sleeper.terminate()
                screen.wait_for(rf"sleep \({sleeper.pid}\) ended after \d+s of waiting")
                assert screen.wait_end() == 0
        finally:
            sleeper.kill()


def test_a_process_that_is_not_there_is_told_and_not_waited_for() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    done = run_gpumon("wait", "--pid", str(process.pid))
    assert done.returncode == 0
    assert f"there is no process {process.pid}" in done.stderr


def test_a_process_may_outlast_the_time() -> None:
    done = run_gpumon("wait", "--pid", ME, "--timeout", "0.2")
    assert done.returncode == 124


def test_a_command_takes_its_place_as_a_shell_would_start_it(driver: Driver) -> None:
    release(driver, 0)
    done = run_gpumon(
        "wait", "--exec", "grep -h SigIgn /proc/self/status; exit 7", env=driver.env()
    )
    assert done.returncode == 7
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & (1 << (13 - 1)), "SIGPIPE is not ignored"
