"""Cards that are reserved, and cards that somebody waits for, on the real screen."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.scheduling.locks import Locks
from tests.command import run_gpumon
from tests.driver import GIB, Driver, Owner, h100
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "gpumon", "-n", "0.2"]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A free card, and one that somebody is on."""
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    with Driver([h100(), h100()]) as made:
        made.cards[1].memory_used = 20 * GIB
        made.cards[1].processes = [Owner(3_999_999, memory=20 * GIB)]
        yield made


def state(screen: Screen, index: int) -> str:
    return next((line for line in screen.rows() if re.match(rf"[ ▸]*{index} +H100", line)), "")


def wait_for_state(screen: Screen, index: int, words: str) -> None:
    screen.wait(lambda it: words in state(it, index), f"waiting for {words!r} of GPU {index}")


@pytest.mark.slow
def test_a_card_that_is_reserved_shows_by_whom_and_is_free_afterwards(
    driver: Driver, tmp_path: Path
) -> None:
    locks = Locks(str(tmp_path / "locks"), os.environ)
    with Screen(GPUMON, driver.env(), 140, 30) as screen:
        wait_for_state(screen, 0, "free")
        reservation = locks.take([driver.cards[0].uuid], "python train.py")
        wait_for_state(screen, 0, "reserved by ")
        screen.press("\t\r", rf"gpumon run {os.getpid()}: python train\.py")
        screen.type("\x1b")
        reservation.close()
        wait_for_state(screen, 0, "free")
        screen.quit()
    locks.close()


@pytest.mark.slow
def test_one_sample_tells_of_reservations_too(driver: Driver, tmp_path: Path) -> None:
    locks = Locks(str(tmp_path / "locks"), os.environ)
    reservation = locks.take([driver.cards[0].uuid], "python train.py")
    table, told = (
        run_gpumon("snapshot", "--format", form, env=driver.env()).stdout
        for form in ("table", "json")
    )
    reservation.close()
    locks.close()
    assert re.search(r"^ +0 +H100.*reserved by ", table, re.MULTILINE)
    (one,) = json.loads(told)["reserved"]
    assert (one["gpu_uuid"], one["pid"]) == (driver.cards[0].uuid, os.getpid())
    assert one["command"] == "python train.py"


def test_the_screen_rings_when_a_card_is_free_that_somebody_waits_for(driver: Driver) -> None:
    with Screen(GPUMON, driver.env(), 140, 30) as screen:
        screen.wait_for("3999999")
        screen.press("w", "choose a process first")
        screen.type("\t")
        screen.press("w", "GPU 0 is free")
        screen.press("\x1b[B", "w notify if free")
        screen.press("w", "will notify when GPU 1 is free")
        rung = screen.output.count(b"\x07")
        driver.cards[1].processes = []
        driver.cards[1].memory_used = 0
        screen.wait(lambda it: it.output.count(b"\x07") > rung, "the bell")
        screen.wait_for(r"GPU 1 \(H100[^)]*\) of \S+: free")
        screen.quit()
