"""The bench of what watching costs: it runs here without a card, and says so."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.bench.line import Line
from tests.bench.machine import machine
from tests.bench.programs import gpumon
from tests.bench.watching import (
    NO_CARD,
    ROOT,
    UNWATCHED,
    Failed,
    NoTrainingError,
    Training,
    Turn,
    Watcher,
    lines,
    read,
    shortened,
    turn_seconds,
    turns,
    watchers,
    written,
)
from tests.driver import Driver, h100
from tests.gpu.card import HAS_CARD

pytestmark = pytest.mark.slow


@pytest.mark.skipif(HAS_CARD, reason="there is a card here")
def test_without_a_card_it_measures_a_loop_on_the_cpu_and_says_so() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.watching"),
            *("--rounds", "1", "--seconds", "0.2", "--settle", "0.5"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, _, *table = done.stdout.splitlines()
    assert NO_CARD in head
    rows = [row.split("|")[1:-1] for row in table if row.startswith("| ")]
    names = [row[0].strip() for row in rows[1:]]
    assert names == [watcher.name for watcher in watchers()]
    for row in rows[1:]:
        assert float(row[1]) > 0
        assert re.fullmatch(r" (1|[+-]\d+\.\d\d %) ", row[4])


def test_the_page_of_a_gpu_is_open_while_it_is_measured() -> None:
    (page,) = (watcher for watcher in watchers() if watcher.keys)
    with machine(cards=1, processes=2) as on, Line(page.command, on.env()) as line:
        deadline = time.monotonic() + 60
        for key, shown in zip(
            (*page.keys, b""), (b"PID", b"on GPU", b"CUDA_VISIBLE_DEVICES"), strict=True
        ):
            while shown not in b"".join(one.data for one in line.output):
                assert time.monotonic() < deadline, shown
                line.read_until(line.now + 0.5)
            if key:
                line.press(key)


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    for name in ("torch", "jax"):
        (tmp_path / f"{name}.py").write_text("raise ImportError\n")
    env: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(NoTrainingError, match=r"^PyTorch is not installed in .*; JAX is not ins"):
        Training(sys.executable, "gpu", env)
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: broken\\nmore')\n")
    with pytest.raises(NoTrainingError, match=r"^PyTorch: libcudart.so: broken; JAX"):
        Training(sys.executable, "gpu", env)
    with pytest.raises(NoTrainingError, match="cannot be run: No such file"):
        Training(str(tmp_path / "python"), "gpu", env)


def test_a_loop_that_ends_is_said() -> None:
    training = Training(sys.executable, "cpu", os.environ)
    assert training.steps(0.01)
    training.close()
    with pytest.raises(NoTrainingError, match="ended"):
        training.steps(1)


def turn(number: int, monitor: str, p50: float, cpu: float | None) -> Turn:
    return Turn(number, monitor, 10, p50, 2 * p50, p50, 3 * p50, cpu)


def test_ratios_are_those_within_each_round_and_a_failure_is_said(tmp_path: Path) -> None:
    seen: list[Turn | Failed] = [
        turn(1, UNWATCHED, 10.0, None),
        turn(1, "slow", 11.0, 1.0),
        Failed(1, "gone", "it ended"),
        turn(2, "slow", 22.0, 3.0),
        turn(2, UNWATCHED, 20.0, None),
    ]
    file = tmp_path / "watching.csv"
    assert written(seen, file) == read(file) == seen
    assert lines(read(file))[2:] == [
        "| no monitor | 15.000 | 10.000–20.000 | 30.000 | 1 | – |",
        "| slow | 16.500 | 11.000–22.000 | 33.000 | +10.00 % | 2.0 |",
        "| gone | – | – | – | – | – |",
        "",
        "gone failed: it ended.",
    ]


def test_a_monitor_that_ends_is_said_and_the_others_go_on() -> None:
    found = [Watcher("gone", ("true",)), Watcher(UNWATCHED)]
    options = argparse.Namespace(rounds=1, seconds=0.05, settle=0.3)
    training = Training(sys.executable, "cpu", os.environ)
    try:
        gone, there = turns(found, training, os.environ, options, time.monotonic() + 60)
        none = list(turns(found, training, os.environ, options, time.monotonic() + 0.01))
    finally:
        training.close()
    assert gone == Failed(1, "gone", "it ended while it was measured")
    assert isinstance(there, Turn)
    assert there.steps > 0
    assert none == []


def test_a_round_is_shortened_to_its_budget() -> None:
    found = [Watcher(UNWATCHED), Watcher("one", ("true",), (b"j",))]
    options = argparse.Namespace(rounds=7, seconds=10.0, settle=4.0)
    fitting = shortened(options, found, 20.0)
    assert sum(turn_seconds(each, fitting) for each in found) == pytest.approx(18.0)
    assert shortened(options, found, 100.0) is options


def test_gpm_is_all_that_gpumon_without_it_leaves_out() -> None:
    (without,) = (each.command for each in watchers() if "without GPM" in each.name)
    usual = _called(gpumon("-n", "0.1").command, set())
    assert any("Gpm" in name for name in usual)
    rest = {name for name in usual if "Gpm" not in name}
    # Some are called seconds after the start, as the wait for events is.
    assert not any("Gpm" in name for name in _called(without, rest))


def _called(command: Sequence[str], awaited: set[str]) -> set[str]:
    """The functions of the driver that a command calls in some samples, and until these are."""
    with Driver([h100()]) as driver:
        with Line(command, {**driver.env(), "PYTHONPATH": str(ROOT)}) as line:
            deadline = time.monotonic() + 60
            called: set[str] = set()
            while not awaited <= called or all(it.calls <= 20 for it in driver.calls().values()):
                assert time.monotonic() < deadline, awaited - called
                line.read_until(line.now + 0.5)
                called = {name for name, spent in driver.calls().items() if spent.calls}
        return {name for name, spent in driver.calls().items() if spent.calls}
