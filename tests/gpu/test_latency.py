"""The times of NVML's calls, on the simulated driver: made, and what is refused is said."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver import Driver, h100, settle
from tests.driver.cuda import serving
from tests.gpu.latency import FILE, Run, rows, rows_for_readme
from tests.gpu.work import ROOT

pytestmark = pytest.mark.slow

REFUSED = "nvmlDeviceGetPerformanceState"


def measure(driver: Driver, out: Path) -> tuple[int, list[dict[str, str]]]:
    with serving(driver):
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.latency", str(out), "--pace", "0.03"],
            cwd=ROOT,
            env=driver.env(),
            timeout=200,
            check=False,
        )
    with (out / FILE).open(newline="") as file:
        return done.returncode, list(csv.DictReader(file))


def test_each_call_has_its_times_idle_and_under_load(tmp_path: Path) -> None:
    with Driver([h100(), h100()]) as driver:
        settle(driver, [os.getpid()])
        _, found = measure(driver, tmp_path)
        counted = driver.calls()
    mine = [row for row in found if row["user"] == found[0]["user"] and row["calls"]]
    assert {row["load"] for row in mine} == {"idle", "tensor"}
    assert {row["function"] for row in mine} <= set(counted)
    for row in mine:
        assert int(row["calls"]) > 0
        assert 0 < float(row["p50_us"]) <= float(row["p99_us"]) <= float(row["longest_us"])
        assert row["card"] == "NVIDIA H100 80GB HBM3"
    assert "nvmlGpmSampleGet" in {row["function"] for row in mine}
    head, _, *table = rows_for_readme(tmp_path / FILE)
    assert len(table) == len({row["function"] for row in mine})
    assert {row.count("|") for row in table} == {head.count("|")}


def test_a_refused_call_and_the_value_it_was_for_are_named(tmp_path: Path) -> None:
    with Driver([h100(), h100()]) as driver:
        driver.cards[0].fail(REFUSED, 4)
        _, found = measure(driver, tmp_path)
    first = (found[0]["user"], "idle")
    mine = [row for row in found if (row["user"], row["load"]) == first]
    refused = {row["function"]: row["refused"] for row in mine}
    assert refused[REFUSED].startswith("NO_PERMISSION ")
    assert refused["Gpu.pstate"] == "no permission, GPUs: 1"


def test_a_driver_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Driver([h100()]) as driver:
        driver.fail_init(9)
        code, found = measure(driver, tmp_path)
    assert code == 1
    assert found
    assert all(row["refused"].startswith("not measured: ") for row in found)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_is_refused_what_the_driver_keeps_from_it(tmp_path: Path) -> None:
    with Driver([h100()]) as driver:
        code, found = measure(driver, tmp_path)
    assert code == 1
    said = [row["refused"] for row in found if row["user"] == "ordinary"]
    assert len(said) == 2
    assert all(each.startswith("not measured: ") for each in said)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_is_measured_beside_root(tmp_path: Path) -> None:
    with Driver([h100()]) as driver:
        driver.open_to_all()
        code, found = measure(driver, tmp_path)
    assert code == 0, [row for row in found if not row["calls"]]
    assert {(row["user"], row["load"]) for row in found} == {
        (user, load) for user in ("root", "ordinary") for load in ("idle", "tensor")
    }


def test_the_dearest_call_comes_first_and_codes_are_counted() -> None:
    run = Run(
        {"nvmlCheap": [1e-6, 2e-6, 3e-6], "nvmlDear": [0.02] * 100},
        {"nvmlDear": [3, 4, 4]},
        {},
        "NVIDIA H100",
        "570.124.06",
    )
    dear, cheap = rows(run, "root", "idle", "2025-02-01")
    assert (dear["function"], dear["p50_us"], dear["calls"]) == ("nvmlDear", "20000.0", "100")
    assert dear["refused"] == "NO_PERMISSION 2; NOT_SUPPORTED 1"
    assert (cheap["p50_us"], cheap["p99_us"], cheap["refused"]) == ("2.0", "3.0", "")
