"""``gpumon log --hosts`` on real sshds, and what reads its files."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from tests.command import GPUMON, run_here, write_config
from tests.driver import GIB, Driver, Owner, h100, owners, rtx4090
from tests.fleet.conftest import STREAMER, environment
from tests.fleet.sshd import Lab, Sshd
from tests.recording.csv.command import Log, logging, run_log, wait_until
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow


class Site(NamedTuple):
    """Two hosts: ``gpu-01`` has two H100 with a job of 40 GiB, ``gpu-02`` an RTX 4090.

    Their first GPUs have one UUID.
    """

    lab: Lab
    hosts: list[Sshd]
    pid: int

    @property
    def options(self) -> list[str]:
        """What ``gpumon log`` gets, for both hosts."""
        return ["--hosts", "gpu-[01-02]", "--ssh", self.lab.ssh, "-n", "0.2"]


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    with ExitStack() as ending:
        (owner,) = ending.enter_context(owners(1, ["python", "train.py"]))
        cards = ([h100(), h100()], [rtx4090()])
        drivers = [ending.enter_context(Driver(one)) for one in cards]
        for card in drivers[0].cards:
            card.memory_used = 40 * GIB
            card.utilization_gpu = 90
            card.processes = [Owner(owner.pid, memory=40 * GIB, sm=90)]
        drivers[1].cards[0].utilization_gpu = 30
        drivers[1].cards[0].uuid = drivers[0].cards[0].uuid
        hosts = [
            lab.host(f"gpu-0{number}", environment(driver))
            for number, driver in enumerate(drivers, 1)
        ]
        yield Site(lab, hosts, owner.pid)


def lines(path: Path) -> list[dict[str, str]]:
    """The whole rows of a file, as far as it is written."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines(), strict=True))


def samples(path: Path, host: str) -> int:
    """The number of samples of a host."""
    return len({row["timestamp"] for row in lines(path) if row["hostname"] == host})


def wait_for(log: Log, path: Path, host: str, more: int) -> None:
    """Wait until a host has so many samples more than now."""
    wanted = samples(path, host) + more

    def are_there() -> bool:
        assert log.process.poll() is None, log.said
        return samples(path, host) >= wanted

    wait_until(are_there, f"{wanted} samples of {host}: {log.said}")


def test_rows_of_both_hosts_are_in_order_of_time_and_one_is_replayed(
    site: Site, tmp_path: Path
) -> None:
    path, lists = tmp_path / "run.csv", tmp_path / "run.processes.csv"
    with logging(path, *site.options) as log:
        for host in ("gpu-01", "gpu-02"):
            wait_for(log, path, host, 10)
        wait_for(log, lists, "gpu-01", 3)
        assert log.end() == 0
        assert f"gpumon replay {shlex.quote(str(path))} --host NAME" in log.said
        assert "was never logged" not in log.said
    for file in (path, lists):
        assert file.stat().st_mode & 0o777 == 0o600
    cards = pd.read_csv(path, parse_dates=["timestamp"])
    assert list(cards.columns)[-1] == "hostname"
    assert cards["timestamp"].is_monotonic_increasing
    # One UUID is of both hosts.
    assert cards["uuid"].nunique() == 2
    means = cards.groupby(["hostname", "index"])["utilization.gpu [%]"].mean()
    assert dict(means) == {("gpu-01", 0): 90, ("gpu-01", 1): 90, ("gpu-02", 0): 30}
    # All hosts have the same moments, so they can be added up.
    together = cards.groupby("timestamp")["hostname"].nunique()
    assert (together == 2).sum() >= 5
    # What a machine calls itself is kept too.
    assert set(cards["host"]) == {os.uname().nodename}
    processes = pd.read_csv(lists, parse_dates=["timestamp", "start_time"])
    assert set(processes["hostname"]) == {"gpu-01"}
    assert set(processes["pid"]) == {site.pid}
    joined = processes.merge(cards, on=["timestamp", "hostname", "uuid"])
    assert len(joined) == len(processes)
    replay_one_of_two_hosts(path)


def test_a_host_that_goes_leaves_a_gap_and_a_sentence(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with logging(path, *site.options) as log:
        for host in ("gpu-01", "gpu-02"):
            wait_for(log, path, host, 3)
        site.hosts[1].stop()
        log.wait_said(r"gpu-02: .*\n")
        # What came before that may be written only now.
        wait_for(log, path, "gpu-01", 5)
        gone = samples(path, "gpu-02")
        wait_for(log, path, "gpu-01", 10)
        assert samples(path, "gpu-02") == gone, "the last values are not repeated"
        site.hosts[1].start()
        log.wait_said(r"gpu-02: answers again\n")
        wait_for(log, path, "gpu-02", 5)
        assert log.end() == 0
        assert "gpu-01: " not in log.said
    status, told = run_report(path, "--by", "host")
    assert status == 0
    found = {line["host"]: line for line in told["lines"]}
    # A busy machine may make more.
    assert found["gpu-02"]["gaps"] >= 1
    assert found["gpu-02"]["utilization_mean_percent"] == 30
    assert found["gpu-01"]["memory_peak_bytes"] == 80 * GIB
    status, told = run_report(path, "--by", "user", "--host", "gpu-[01-09]")
    assert [(line["host"], line["processes"]) for line in told["lines"]] == [("gpu-01", 1)]
    status, told = run_report(path, "--host", "gpu-02")
    assert [line["host"] for line in told["lines"]] == ["gpu-02"]
    assert run_report(path, "--host", "gpu-[")[0] == 2
    assert "no sample of gpu-09" in run_report(path, "--host", "gpu-09")[1]


def run_report(path: Path, *arguments: str) -> tuple[int, Any]:
    """The exit status of a report, and what it prints as JSON."""
    done = run_here("report", str(path), "--format", "json", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_a_killed_logger_leaves_whole_samples_for_the_next(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with logging(path, *site.options) as log:
        wait_for(log, path, "gpu-01", 5)
        log.process.send_signal(signal.SIGKILL)
        log.process.wait(PATIENCE)
    before = path.read_bytes()
    with logging(path, *site.options) as log:
        wait_for(log, path, "gpu-02", 3)
        assert log.end(signal.SIGINT) == 0
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    cards: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in lines(path):
        cards[row["timestamp"], row["hostname"]].add(row["index"])
    assert {(host, len(found)) for (_, host), found in cards.items()} == {
        ("gpu-01", 2),
        ("gpu-02", 1),
    }
    assert not run_report(path)[1]["notes"][0].startswith(str(path)), "no line is damaged"


def replay_one_of_two_hosts(path: Path) -> None:
    """A log of several hosts is replayed for one of them."""
    replay = [*GPUMON, "replay", str(path), "--paused"]
    with Screen([*replay, "--host", "gpu-01"], dict(os.environ), 160, 40) as screen:
        screen.wait_for("gpu-01")
        screen.wait_for(r"H100[\s\S]*90%")
        screen.wait_for("train.py")
        assert "RTX 4090" not in screen.text()
        screen.type("\x1b[F")
        screen.wait_for("train.py")
        screen.type("q")
        assert screen.wait_end() == 0
    with Screen([*replay, "--host", "gpu-02"], dict(os.environ), 160, 40) as screen:
        screen.wait_for("gpu-02")
        screen.wait_for(r"RTX 4090[\s\S]*30%")
        assert "H100" not in screen.text()
        assert "train.py" not in screen.text()
        screen.type("q")
        assert screen.wait_end() == 0
    with Screen(replay, dict(os.environ), 300, 40) as screen:
        screen.wait_for(r"several hosts: show one with gpumon replay --host, of gpu-01, gpu-02\.")
        assert screen.wait_end() == 1


def test_a_host_that_never_answers_is_told_at_the_end(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    lab.host("gpu-01", environment(), running=False)
    lab.host("gpu-02", {"STREAMER_FAULT": ""} | environment())
    options = ["--hosts", "gpu-01,gpu-02", "--ssh", lab.ssh, "-n", "0.2"]
    env = {**os.environ, **write_config(tmp_path, f'[hosts]\ncommand = "{STREAMER}"\n')}
    done = run_log(path, *options, "--for", "4", env=env)
    assert done.returncode == 0, done.stderr
    assert {row["hostname"] for row in lines(path)} == {"gpu-02"}
    assert "gpu-01 was never logged: it refuses connections" in done.stderr
    with logging(tmp_path / "no.csv", *options, "--hosts", "gpu-01", env=env) as log:
        log.wait_said("gpu-01: it refuses connections")
        assert log.end() == 0
        assert "gpu-01 was never logged: it refuses connections" in log.said
    assert not (tmp_path / "no.csv").exists()
