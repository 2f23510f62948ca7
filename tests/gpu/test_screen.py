"""The screens under load, on the simulated driver: measured, shown, and what ends is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.driver import Driver, h100, owners, settle
from tests.driver.cuda import serving
from tests.gpu.screen import FILE, PAGES
from tests.gpu.work import ROOT


@contextmanager
def two_gpus() -> Iterator[Driver]:
    with Driver([h100(), h100()]) as driver, owners(2) as started:
        settle(driver, [process.pid for process in started])
        with serving(driver):
            yield driver


def screens(env: Mapping[str, str], out: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.screen", str(out), "--pace", "0.5"],
        cwd=ROOT,
        env=env,
        timeout=250,
        check=False,
    )
    return done.returncode, (out / FILE).read_text(encoding="utf-8").splitlines()


def rows(lines: list[str]) -> dict[str, list[str]]:
    """Program -> its cells."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:2] == "| "]
    return {name: numbers for name, *numbers in cells if name}


@pytest.mark.slow
def test_gpumon_is_measured_and_its_screens_are_shown(tmp_path: Path) -> None:
    with two_gpus() as driver:
        code, lines = screens(driver.env(), tmp_path)
    assert code == 0
    for name in ("gpumon -n 0.1", "gpumon -n 0.5"):
        _, *numbers = rows(lines)[name]
        assert all(float(number) > 0 for number in numbers), numbers
    assert [line[3:] for line in lines if line.startswith("## ")] == [page.name for page in PAGES]
    text = "\n".join(lines)
    for shown in ("H100 80GB HBM3", "CUDA_VISIBLE_DEVICES", "On the GPUs", "Find a command"):
        assert shown in text


@pytest.mark.slow
def test_a_program_that_ends_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    nvtop = folder / "nvtop"
    nvtop.write_text("#!/bin/sh\nexit 3\n")
    nvtop.chmod(0o755)
    with two_gpus() as driver:
        env = driver.env()
        path = f"{folder}{os.pathsep}{env['PATH']}"
        code, lines = screens({**env, "PATH": path}, tmp_path)
    assert code == 1
    assert "ended while it was measured" in rows(lines)["nvtop -d 1"][0]
    assert "## Help" in lines
