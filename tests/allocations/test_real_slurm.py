"""A GPU that Slurm gave to a job is not free: with a real Slurm of one node."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import slurm
from tests.command import GPUMON, run_program, write_program
from tests.driver import Driver, Owner, h100
from tests.known import known
from tests.screen import Screen
from tests.slurm import SlurmCluster

pytestmark = [
    pytest.mark.skipif(bool(slurm.MISSING), reason=f"{', '.join(slurm.MISSING)} not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm.slurm() as made:
        yield made


@pytest.fixture
def driver(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driver]:
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    slurm.use(cluster, monkeypatch)
    with Driver([h100() for _ in range(4)]) as made:
        yield made
    cluster.clear()


def told(driver: Driver, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program([*GPUMON, *arguments], {**driver.env(), **variables})


def allocations(driver: Driver) -> list[dict[str, Any]]:
    """What is known, once nothing is unknown: a busy machine may not ask Slurm in time."""
    for _ in range(10):
        found: list[dict[str, Any]] = json.loads(
            told(driver, "snapshot", "--format", "json").stdout
        )["allocations"]
        if all(each["unplaced"] == 0 for each in found):
            break
    return found


def state(screen: Screen, index: int) -> str:
    return next((line for line in screen.rows() if re.match(rf"[ ▸]*{index} +H100", line)), "")


@contextmanager
def dashboard(driver: Driver) -> Iterator[Screen]:
    """A screen that samples often; it is left with q."""
    with Screen([*GPUMON, "-n", "0.2"], driver.env(), 160, 30) as screen:
        yield screen
        screen.type("q")
        assert screen.wait_end() == 0


def test_a_gpu_of_a_job_is_never_free_and_is_free_again_soon_after_its_end(
    cluster: SlurmCluster, driver: Driver
) -> None:
    job = cluster.submit("--gres=gpu:1", "-t", "2:00:00")
    with dashboard(driver) as screen:
        seen: list[str] = []

        def is_told(drawn: Screen) -> bool:
            seen.append(state(drawn, 0))
            return re.search(rf"slurm {job} .*, no process", seen[-1]) is not None

        screen.wait(is_told, "the job of GPU 0")
        assert not [row for row in seen if " free" in row]
        screen.wait_for("3 of 4 free")
        # The line may be written after the header.
        screen.wait(lambda drawn: " free " in state(drawn, 1), "the other GPUs")
        screen.type("\t\r")
        screen.wait_for(rf"slurm {job} of \S+ has had it for \S+, (2h00|1h5\d)m left at most")
        screen.type("\x1b")
        cluster.cancel(job)
        ended = time.monotonic()
        screen.wait_for("4 of 4 free")
        assert time.monotonic() - ended < 30


def test_who_only_has_an_allocation_is_in_the_lists(cluster: SlurmCluster, driver: Driver) -> None:
    job = cluster.submit("--gres=gpu:2", "-t", "2:00:00")
    user = cluster.call("id", "-un").strip()
    with dashboard(driver) as screen:
        screen.wait_for(rf"slurm {job} .*, no process")
        screen.type("u")
        # Processes, the GPUs that they are on, what Slurm has given, what of it is not used.
        # A long name is cut.
        screen.wait_for(rf"\n {user[:12]}\S* +0 +0,1 +2 ")
        screen.type("g")
        screen.wait_for(rf"slurm {job} · no process · 2 GPUs unused · free in ≤ (2h00|1h5\d)m")
        screen.type("/alloc:none\r")
        screen.wait_for("no process is on a GPU")
        screen.type(f"/\x15alloc:{job}\r")
        screen.wait_for(rf"slurm {job} · no process")
        screen.type("\x1b[B\r")
        screen.wait_for(r"allocated +GPU 0,1 +2 without a computing process")
        screen.type("k")
        screen.wait_for(rf"no process of slurm {job} is on a GPU")
        screen.type("\x1b")
        screen.wait_for(rf"slurm {job} · no process")
        cluster.cancel(job)
        screen.wait_for("no process is on a GPU")


def test_select_in_a_job_stays_within_it_and_leaves_those_of_others(
    cluster: SlurmCluster, driver: Driver
) -> None:
    first = cluster.submit("--gres=gpu:2", "-J", "x UserId=root(0)")
    second = cluster.submit("--gres=gpu:1")
    inside = told(driver, "select", "--format", "index", SLURM_JOB_ID=second)
    more = told(driver, "select", "-n", "2", SLURM_JOB_ID=second)
    known = allocations(driver)
    for job in (first, second):
        cluster.cancel(job)
    assert inside.stdout.strip() == "2"
    assert more.returncode == 1
    assert f"slurm {first} of " in more.stderr
    assert f"it is not one of this job's GPUs (slurm {second})" in more.stderr
    me = cluster.call("id", "-un").strip()
    assert [(each["job"], each["user"], len(each["devices"])) for each in known] == [
        (first, me, 2),
        (second, me, 1),
    ]


def test_a_job_without_a_step_is_seen_too(cluster: SlurmCluster, driver: Driver) -> None:
    told_of = cluster.call("sh", "-c", "salloc --no-shell --gres=gpu:3 -t 10 2>&1")
    job = known(re.search(r"Granted job allocation (\d+)", told_of))
    (found,) = allocations(driver)
    two = told(driver, "select", "-n", "2", SLURM_JOB_ID="999999")
    cluster.cancel(job[1])
    assert (found["job"], found["user"], len(found["devices"])) == (None, None, 3)
    assert two.returncode == 1
    assert "a slurm job has it" in two.stderr


def test_a_log_has_each_gpus_job(cluster: SlurmCluster, driver: Driver, tmp_path: Path) -> None:
    job = cluster.submit("--gres=gpu:1")
    path = tmp_path / "run.csv"
    assert told(driver, "log", str(path), "-n", "0.5", "--for", "5s").returncode == 0
    cluster.cancel(job)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            (row["allocations"], row["allocated.jobs"], row["allocated.users"])
            for row in csv.DictReader(file)
        ]
    # Nothing is known before Slurm has answered.
    assert ("0", "", "") not in rows[:1]
    me = cluster.call("id", "-un").strip()
    assert rows[-4:] == [("1", f"slurm {job}", me), *[("0", "", "")] * 3]
    report = told(driver, "report", str(path), "--job", job, "--ascii")
    assert report.returncode == 0
    assert report.stdout.startswith(f"slurm {job} of {me}  ")
    assert re.search(r"\nGPU-hours: (\ds) allocated, \1 unused\n", report.stdout)


def test_a_task_of_an_array_is_ended_as_a_whole_whatever_a_filter_hides(
    cluster: SlurmCluster, driver: Driver
) -> None:
    job = cluster.submit("--gres=gpu:1", "--array=3-3")
    named = {"SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": "3"}
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    with ExitStack() as ending:
        pids = []
        for _ in range(2):
            worker = ending.enter_context(
                subprocess.Popen(sleeping, env={**os.environ, **named}, start_new_session=True)
            )
            ending.callback(worker.kill)
            pids.append(worker.pid)
        driver.cards[0].processes = [Owner(pid, memory=2**30) for pid in pids]
        with dashboard(driver) as screen:
            screen.type("g")
            screen.wait_for(rf"slurm {job}_3 · 2 processes")
            screen.type(f"/not pid={pids[0]}\r")
            screen.wait_for(rf"slurm {job}_3 · 1 process")
            screen.type("\x1b[B\x1b[A")
            screen.type("k")
            screen.wait_for(rf"End job slurm {job}_3: 2 processes")
            screen.type("\x1b")
            screen.wait_gone("End job")
    cluster.cancel(job)


def test_the_order_of_the_files_decides_which_gpu_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    with slurm.slurm(order=(2, 0, 3, 1)) as other, Driver([h100() for _ in range(4)]) as driver:
        slurm.use(other, monkeypatch)
        number = other.submit("--gres=gpu:1", script="echo $CUDA_VISIBLE_DEVICES; sleep 600")
        (known,) = allocations(driver)
        index = other.call("scontrol", "show", "job", "-d", number)
        assert "IDX:0)" in index
        assert known["devices"] == [driver.cards[2].uuid]


def test_without_a_controller_nothing_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    with slurm.slurm() as other, Driver([h100()]) as driver:
        slurm.use(other, monkeypatch)
        job = other.submit()
        other.stop("slurmctld")
        began = time.monotonic()
        chosen = told(driver, "select", SLURM_JOB_ID="999999")
        assert time.monotonic() - began < 15
        assert chosen.returncode == 1
        said = rf"whether slurm {job} has GPUs of this machine is|which GPUs slurm has given to"
        assert re.search(rf"({said}).* not known", chosen.stderr)


def test_a_job_in_the_list_of_hosts_stands_for_its_nodes(
    cluster: SlurmCluster, driver: Driver, tmp_path: Path
) -> None:
    # A client that runs the command here, whatever the host, with this gpumon.
    client = write_program(
        tmp_path / "ssh",
        f'#!/bin/sh\nPATH="{tmp_path}:$PATH"\nfor last; do :; done\nexec sh -c "$last"\n',
    )
    write_program(tmp_path / "gpumon", f'#!/bin/sh\nexec {sys.executable} -m gpumon "$@"\n')
    options = ("--ssh", str(client), "--format", "json")

    def on(hosts: str) -> subprocess.CompletedProcess[str]:
        return told(driver, "snapshot", *options, "--hosts", hosts)

    job = cluster.submit("--gres=gpu:1", "--array=3-3")
    for name in (job, f"{job}_3"):
        found = json.loads(on(f"slurm:{name}").stdout)["hosts"]
        assert [host["name"] for host in found] == [slurm.NODE]
        assert found[0]["status"] == "live", found[0]["sentence"]
        # Of its four GPUs only that of the job.
        assert [gpu["index"] for gpu in found[0]["snapshot"]["gpus"]] == [0]
        assert [each["job"] for each in found[0]["snapshot"]["allocations"]] == [f"{job}_3"]
    both = json.loads(on(f"slurm:{job},{slurm.NODE}").stdout)["hosts"]
    assert [len(host["snapshot"]["gpus"]) for host in both] == [4]
    log = ("log", str(tmp_path / "job.csv"), "--hosts", f"slurm:{job}", "--ssh", str(client))
    logged = told(driver, *log, "-n", "0.2", "--for", "1s")
    assert logged.returncode == 0, logged.stderr
    with (tmp_path / "job.csv").open() as file:
        rows = {(row["hostname"], row["index"]) for row in csv.DictReader(file)}
    assert rows == {(slurm.NODE, "0")}
    cluster.cancel(job)
    waiting = cluster.submit("--begin=now+1hour", starts=False)
    assert f"Slurm job {waiting} has not started yet" in on(f"slurm:{waiting}").stderr
    assert f"Slurm job {job} has ended" in on(f"slurm:{job}").stderr
    missing = on("slurm:99999")
    assert "Slurm has no job 99999" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1
    assert missing.returncode == 2


@pytest.mark.root
def test_select_refuses_gpus_of_another_users_job(cluster: SlurmCluster, driver: Driver) -> None:
    assert os.geteuid() == 0
    job = cluster.submit("--uid=nobody", "--gres=gpu:3", "-t", "2:00:00", "-D", "/tmp")
    one, two = (told(driver, "select", "-n", number) for number in ("1", "2"))
    cluster.cancel(job)
    assert one.stdout.strip() == driver.cards[3].uuid
    assert two.returncode == 1
    assert f"slurm {job} of nobody has had it for" in two.stderr
    assert "left at most" in two.stderr
