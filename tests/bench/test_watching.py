"""The bench of what watching costs: it runs here without a card, and says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.line import Line
from tests.bench.machine import machine
from tests.bench.watching import NO_CARD, NoTrainingError, Training, Watched, lines, watchers

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a card here")
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


def test_ratios_are_those_within_each_round() -> None:
    table = lines(
        {
            "no monitor": [Watched([10.0, 10.0, 99.0], None), Watched([20.0], None)],
            "slow": [Watched([11.0], 1.0), Watched([22.0], 3.0)],
        }
    )
    assert table[2:] == [
        "| no monitor | 15.000 | 10.000–20.000 | 59.500 | 1 | – |",
        "| slow | 16.500 | 11.000–22.000 | 16.500 | +10.00 % | 2.0 |",
    ]
