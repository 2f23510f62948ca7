"""``gpumon select`` on a simulated machine: what it prints is what may be used."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.model.time_shift import TimeShift
from gpumon.recording.archive import Archive
from gpumon.scheduling.locks import Locks
from tests.command import GPUMON, run_gpumon, run_program, write_config
from tests.driver import GIB, Driver, Owner, h100, h100_mig, owners, rtx4090
from tests.known import known
from tests.lives import NEEDS_ALL_PIDS
from tests.recording.archive.archives import archived
from tests.recording.csv.command import logging, wait_for_samples, wait_until
from tests.screen import PATIENCE


@pytest.fixture
def locks(tmp_path: Path) -> str:
    return str(tmp_path / "locks")


@pytest.fixture
def driver(locks: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Four cards: a large busy one, a small one, a large one, one that is cut up."""
    monkeypatch.setenv("GPUMON_LOCK_DIR", locks)
    with (
        owners(1, ["python", "train.py"]) as (owner,),
        Driver([h100(), rtx4090(), h100(), h100_mig()]) as made,
    ):
        made.cards[0].memory_used = 40 * GIB
        made.cards[0].processes = [Owner(owner.pid, memory=40 * GIB, sm=90)]
        yield made


def select(
    driver: Driver, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_gpumon("select", *arguments, env={**driver.env(), **(env or {})})


def printed(driver: Driver, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    done = select(driver, *arguments, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_free_card_is_printed_and_the_small_ones_go_first(driver: Driver) -> None:
    assert printed(driver) == f"{driver.cards[1].uuid}\n"
    assert printed(driver, "--total", "50G") == f"{driver.cards[2].uuid}\n"
    assert printed(driver, "-n", "1-9") == f"{driver.cards[1].uuid},{driver.cards[2].uuid}\n"
    shared = printed(driver, "--free", "30G", "--model", "H100", "-n", "2")
    assert shared == f"{driver.cards[0].uuid},{driver.cards[2].uuid}\n"


@pytest.mark.slow
def test_indices_come_with_the_order_in_which_they_are_true(driver: Driver) -> None:
    done = select(driver, "--format", "env", "--total", "50G")
    assert done.stdout == "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=2\n"
    assert "where a GPU has MIG on, CUDA may number the GPUs differently" in done.stderr
    assert select(driver, "--format", "index", "--total", "50G").stdout == "2\n"


def test_where_nothing_fits_each_card_has_one_reason(driver: Driver) -> None:
    done = select(driver, "-n", "2", "--total", "50G")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[0] == "gpumon: only 1 GPU fits; 2 GPUs requested."
    assert [line.split()[:2] for line in lines[1:]] == [["GPU", str(n)] for n in range(4)]
    assert lines[1].endswith(f"'s python ({driver.cards[0].processes[0].pid}) holds 40.0 GiB")
    assert lines[2].endswith("24.0 GiB in all, 50.0 GiB required")
    assert lines[3].endswith("fits")
    assert lines[4].endswith("it is cut into MIG devices: --mig chooses among those")


@pytest.mark.parametrize("more", [[], ["--stable", "1h"]])
def test_more_cards_than_there_are_is_said_at_once(driver: Driver, more: list[str]) -> None:
    done = select(driver, "-n", "9", *more)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpumon: this machine has 4 GPUs; 9 GPUs requested.\n")


@pytest.mark.slow
def test_json_tells_all_of_it(driver: Driver) -> None:
    told = json.loads(printed(driver, "--format", "json"))
    assert told["schema"] == "gpumon.select/1"
    assert told["cuda_visible_devices"] == driver.cards[1].uuid
    assert [one["index"] for one in told["chosen"]] == [1]
    assert [one["index"] for one in told["fitting"]] == [2]
    assert {one["index"]: one["kind"] for one in told["refused"]} == {0: "processes", 3: "mig"}
    none = select(driver, "-n", "4", "--format", "json")
    assert none.returncode == 1
    assert json.loads(none.stdout)["cuda_visible_devices"] is None


@pytest.mark.slow
def test_mig_devices_are_chosen_where_they_are_asked_for(driver: Driver) -> None:
    told = json.loads(printed(driver, "--mig", "--free", "5G", "--format", "json"))
    assert told["cuda_visible_devices"].startswith("MIG-")
    assert told["chosen"][0]["gpu_uuid"] == driver.cards[3].uuid
    assert "the first of several MIG devices alone" in select(driver, "--mig", "-n", "2").stderr
    assert select(driver, "--mig").stderr == ""


@pytest.mark.slow
def test_an_allocation_is_respected(driver: Driver) -> None:
    uuids = [card.uuid for card in driver.cards]
    chosen = {"CUDA_VISIBLE_DEVICES": f"{uuids[0]},{uuids[2]}"}
    assert printed(driver, env=chosen) == f"{uuids[2]}\n"
    by_index = {"CUDA_VISIBLE_DEVICES": "0,2"}
    done = select(driver, env=by_index)
    assert done.returncode == 1
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID too" in done.stderr
    empty = select(driver, env={"CUDA_VISIBLE_DEVICES": ""})
    assert empty.returncode == 1
    assert "CUDA_VISIBLE_DEVICES leaves it out (CUDA_VISIBLE_DEVICES is empty)" in empty.stderr


@pytest.mark.slow
def test_what_is_reserved_is_not_chosen(driver: Driver, locks: str) -> None:
    small, large = driver.cards[1].uuid, driver.cards[2].uuid
    command = [*GPUMON, "run", "--gpus", "1", "--", "sleep", "60"]
    job = subprocess.Popen(command, env=driver.env(), stderr=subprocess.DEVNULL)
    try:
        seen = Locks(locks, os.environ)
        wait_until(lambda: bool(seen.holders([small])), "it is reserved")
        seen.close()
        done = select(driver, "-v")
        assert done.stdout == f"{large}\n"
        assert "gpumon: GPU 2: nothing else fits" in done.stderr
        assert "  GPU 2  NVIDIA H100 80GB HBM3    chosen\n" in done.stderr
        assert f", gpumon run {job.pid}: sleep\n" in done.stderr
    finally:
        job.terminate()
        job.wait(PATIENCE)


@pytest.mark.slow
def test_cards_are_watched_or_a_log_tells_how_they_were(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with logging(path, "-n", "0.1", env=driver.env()) as log:
        wait_for_samples(path, 15)
        done = select(driver, "--stable", "1s", "--from", str(path), "-v")
        assert done.returncode == 0
        assert done.stdout == f"{driver.cards[1].uuid}\n"
        assert log.end() == 0
    assert printed(driver, "--stable", "0.4") == f"{driver.cards[1].uuid}\n"
    none = select(driver, "--stable", "1s", "--from", str(tmp_path / "none.csv"))
    assert none.returncode == 1
    assert "none.csv" in none.stderr


@pytest.mark.slow
def test_a_history_that_goes_on_says_how_the_gpus_were(driver: Driver, tmp_path: Path) -> None:
    write_config(tmp_path, f'[history]\nfolder = "{tmp_path / "now"}"\n')
    env = {**driver.env(), "XDG_CONFIG_HOME": str(tmp_path)}
    run_program([*GPUMON, "log", "--local", "-n", "0.1", "--for", "3s"], env, check=True)
    sample = known(Archive(tmp_path / "now").at(math.inf))
    # There are newer ones than the first sample of select.
    ages = [*range(3600, 0, -5), *(number * -0.05 for number in range(160))]
    samples = [TimeShift(time.time() - age - sample.time).snapshot(sample) for age in ages]
    folder = archived(tmp_path / "hour", samples)
    assert printed(driver, "--stable", "50m", "--from", str(folder)) == f"{driver.cards[1].uuid}\n"


def test_cards_that_are_left_out_are_sampled_too(driver: Driver) -> None:
    assert printed(driver, "--gpus", "2") == f"{driver.cards[2].uuid}\n"
    done = select(driver, "--gpus", "2", "--free", "900G")
    assert re.search(r"^  GPU 1 .* it is not among --gpus$", done.stderr, re.MULTILINE)


MIB = 2**20


def state_on_screen(driver: Driver, index: int) -> str:
    """What the table says of a card."""
    env = {**driver.env(), "COLUMNS": "150"}
    gpus = run_gpumon("snapshot", env=env).stdout.partition("──")[0].splitlines()
    (line,) = [line for line in gpus if line.startswith(f" {index} ")]
    return known(re.search(r"[^\w\s] .*?(?=  )", line))[0]


@pytest.mark.slow
@NEEDS_ALL_PIDS
@pytest.mark.parametrize(
    ("used", "busy", "state", "reason"),
    [
        (250 * MIB, 0, "○ free", None),
        (500 * MIB, 0, "▚ 0.5G unattributed", "0.5 GiB held by no process that the driver lists"),
        (0, 60, "◎ busy, by nobody listed", "60 % busy, by nobody that the driver lists"),
    ],
)
def test_the_table_and_select_agree_whether_a_card_is_free(
    locks: str, used: int, busy: int, state: str, reason: str | None
) -> None:
    with Driver([h100()]) as driver:
        driver.cards[0].memory_used, driver.cards[0].utilization_gpu = used, busy
        assert state_on_screen(driver, 0) == state
        done = select(driver, env={"GPUMON_LOCK_DIR": locks})
        env = {**driver.env(), "GPUMON_LOCK_DIR": locks}
        waited = run_gpumon("wait", "--timeout", "1", env=env)
    assert (done.returncode, waited.returncode) == ((0, 0) if reason is None else (1, 124))
    for told in (done.stderr, waited.stderr):
        assert reason is None or reason in told


def test_a_desktop_leaves_its_card_free(locks: str) -> None:
    with (
        owners(1, ["Xorg"]) as (owner,),
        Driver([rtx4090(display_active=1, memory_used=900 * MIB, utilization_gpu=6)]) as driver,
    ):
        driver.cards[0].processes = [Owner(owner.pid, memory=600 * MIB, type="G")]
        assert state_on_screen(driver, 0) == "○ free"
        assert printed(driver, env={"GPUMON_LOCK_DIR": locks}) == f"{driver.cards[0].uuid}\n"
