"""``--hosts slurm:N``: a real Slurm of one node, which a real sshd reaches, and simulated GPUs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import slurm
from tests.driver import Driver, h100
from tests.fleet.conftest import environment
from tests.fleet.sshd import Lab
from tests.screen import PATIENCE
from tests.slurm import SlurmCluster


@pytest.fixture
def cluster(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A Slurm whose node is a host of the lab, with four GPUs."""
    if slurm.MISSING:
        pytest.skip(f"{', '.join(slurm.MISSING)} not installed")
    with slurm.slurm() as made, Driver([h100() for _ in range(4)]) as driver:
        slurm.use(made, monkeypatch)
        there = environment(driver)
        path = f"{there['PATH']}:{made.environment['PATH']}"
        lab.host(slurm.NODE, {**there, **made.environment, "PATH": path})
        yield made


def gpumon(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.slow
def test_the_gpus_of_a_job_are_sampled_and_logged_on_its_node(
    cluster: SlurmCluster, lab: Lab, tmp_path: Path
) -> None:
    other = cluster.submit("--gres=gpu:1")
    job = cluster.submit("--gres=gpu:2")
    options = ("--hosts", f"slurm:{job}", "--ssh", lab.ssh)
    sampled = gpumon("snapshot", *options, "--format", "json")
    assert sampled.returncode == 0, sampled.stderr
    (host,) = json.loads(sampled.stdout)["hosts"]
    assert host["name"] == slurm.NODE
    assert host["sentence"] == ""
    assert [gpu["index"] for gpu in host["snapshot"]["gpus"]] == [1, 2]
    assert [each["job"] for each in host["snapshot"]["allocations"]] == [job]
    logged = gpumon("log", str(tmp_path / "job.csv"), *options, "-n", "0.2", "--for", "1s")
    assert logged.returncode == 0, logged.stderr
    with (tmp_path / "job.csv").open() as file:
        rows = {(row["hostname"], row["index"]) for row in csv.DictReader(file)}
    assert rows == {(slurm.NODE, "1"), (slurm.NODE, "2")}
    cluster.cancel(other)
    cluster.cancel(job)
    ended = gpumon("snapshot", *options)
    assert ended.returncode == 2
    assert f"Slurm job {job} has ended" in ended.stderr
