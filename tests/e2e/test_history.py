"""A machine that was logged over night opens in the morning with its night."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpumon.model.time_shift import TimeShift
from tests.command import GPUMON, run_program, write_config
from tests.driver import Driver, h100
from tests.recording.archive.archives import archived, demo_samples
from tests.recording.csv.command import wait_until
from tests.screen import PATIENCE, Screen

HOME, END = "\x1b[H", "\x1b[F"


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver([h100()], driver_version="570.124.06") as driver:
        yield driver


def environment(driver: Driver, folder: Path) -> dict[str, str]:
    """The environment of a user who keeps the history in a folder of this test."""
    write_config(folder / "config", f'[history]\nfolder = "{folder / "history"}"\n')
    return {**driver.env(), "XDG_CONFIG_HOME": str(folder / "config")}


@contextmanager
def keeping(env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A ``gpumon log --local`` that is running."""
    command = [*GPUMON, "log", "--local", "-n", "0.1", *arguments]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.gpumon")) if folder.is_dir() else 0


def wait_for_bytes(folder: Path, size: int) -> None:
    wait_until(lambda: size_of(folder) >= size, f"{size} bytes")


def go_to_the_first(screen: Screen, expected: str) -> None:
    """Go back, and to the first sample once the history has been opened."""
    screen.wait_for("q quit")
    screen.press("[", "REWIND|HISTORY")
    deadline = time.monotonic() + PATIENCE
    while not re.search(expected, screen.text()):
        assert time.monotonic() < deadline, screen.text()
        screen.type(HOME)
        with suppress(AssertionError):
            screen.wait_for(expected, 1)
    # It may have been open at the first step back, without Home.
    screen.type(HOME)


def test_the_night_is_there_in_the_morning(driver: Driver, tmp_path: Path) -> None:
    env = environment(driver, tmp_path)
    night = demo_samples(90)
    to_last_night = TimeShift(time.time() - 3600 - night[0].time)
    archived(tmp_path / "history", [to_last_night.snapshot(one) for one in night])
    with Screen([*GPUMON, "-n", "0.1"], env, 250, 50) as screen:
        go_to_the_first(screen, r"HISTORY +ada-07")
        screen.wait_for(rf"history in {tmp_path}/history")
        screen.wait_for(r"llama_70b")
        screen.press("[", r"nothing older is known")
        screen.press_away(END, "HISTORY")
        screen.press("@", "03:00")
        screen.press("-59m\r", r"HISTORY +ada-07")


@pytest.mark.slow
def test_a_copy_of_it_is_replayed(tmp_path: Path) -> None:
    folder = archived(tmp_path / "copy", demo_samples(90))
    with Screen([*GPUMON, "replay", str(folder), "--paused"], dict(os.environ), 160, 40) as screen:
        screen.wait_for(r"REPLAY +ada-07")
        screen.wait_for("llama_70b")
        screen.press(END, r"3 +H100.*idle ≥1m")
        screen.press("x", "fell off the bus")


def test_it_is_not_used_if_it_is_not_wanted(driver: Driver, tmp_path: Path) -> None:
    env = environment(driver, tmp_path)
    archived(tmp_path / "history", demo_samples(10))
    with Screen([*GPUMON, "-n", "0.1", "--no-history"], env, 160, 40) as screen:
        screen.wait_for(r"q quit")
        screen.press("[", "REWIND")
        screen.type(HOME)
        screen.press("[", r"nothing older is known")
        assert "HISTORY" not in screen.text()


def test_without_one_the_dashboard_says_how_to_keep_it(driver: Driver, tmp_path: Path) -> None:
    env = environment(driver, tmp_path)
    with Screen([*GPUMON, "-n", "0.1"], env, 160, 40) as screen:
        screen.wait_for(r"q quit")
        screen.press("[", "REWIND")
        screen.type(HOME)
        screen.press("[", r"No history of this machine is kept: see gpumon log --local")


@pytest.mark.slow
def test_what_a_killed_log_wrote_is_shown(driver: Driver, tmp_path: Path) -> None:
    env = environment(driver, tmp_path)
    folder = tmp_path / "history"
    with keeping(env) as running:
        wait_for_bytes(folder, 8000)
        again = run_program([*GPUMON, "log", "--local"], env)
        assert again.returncode == 1
        assert f"(PID {running.pid}) already" in again.stderr
        running.send_signal(signal.SIGKILL)
        running.wait(PATIENCE)
    with Screen([*GPUMON, "-n", "0.1"], env, 160, 40) as screen:
        go_to_the_first(screen, "HISTORY")
    with keeping(env, "--for", "1s") as running:
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert "the dashboard shows it" in said
    assert len(list(folder.glob("*.gpumon"))) == 2
