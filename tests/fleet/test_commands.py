"""``gpumon snapshot`` and ``gpumon select`` with ``--hosts``, on real sshds."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpumon.scheduling.locks import Locks
from tests import fork_server
from tests.command import GPUMON, run_here, write_config, write_program
from tests.driver import GIB, Driver, Owner, h100, owners, rtx4090
from tests.fleet.conftest import ROOT, environment
from tests.fleet.sshd import Lab, fault
from tests.screen import PATIENCE

LOG = ("log", "x.csv")


class Site(NamedTuple):
    """Three hosts: ``gpu-01`` has two H100 with a job, ``gpu-02`` an RTX 4090, ``gpu-03`` four.

    ``gpu-04`` is off.
    """

    lab: Lab
    drivers: list[Driver]
    pid: int

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [*GPUMON, *arguments]
        return fork_server.run(command, {**os.environ, **env}, cwd=ROOT, timeout=PATIENCE)

    def on(self, hosts: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command on hosts; the time limit is no matter of the test."""
        more = ("--hosts", hosts, "--ssh", self.lab.ssh, "--timeout", f"{PATIENCE}s")
        return self.run(*arguments, *more, **env)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if fault():
        pytest.skip(fault())
    with ExitStack() as ending:
        lab = ending.enter_context(Lab(tmp_path_factory.mktemp("lab")))
        (owner,) = ending.enter_context(owners(1, ["python", "train.py"]))
        cards = ([h100(), h100()], [rtx4090()], [h100()] * 4)
        drivers = [ending.enter_context(Driver(one)) for one in cards]
        for card in drivers[0].cards:
            card.memory_used = 40 * GIB
            card.processes = [Owner(owner.pid, memory=40 * GIB, sm=90)]
        for number, driver in enumerate(drivers, 1):
            lab.host(f"gpu-0{number}", environment(driver))
        lab.host("gpu-04", running=False)
        yield Site(lab, drivers, owner.pid)


@pytest.mark.slow
def test_json_has_an_object_for_each_host_and_says_who_did_not_answer(site: Site) -> None:
    done = site.on("gpu-[01-04]", "snapshot", "--format", "json")
    assert done.returncode == 1
    assert done.stderr.startswith("gpumon: gpu-04: it refuses connections")
    told = json.loads(done.stdout)
    assert told["schema"] == "gpumon.fleet/1"
    names = [(host["name"], host["status"], host["origin"]) for host in told["hosts"]]
    assert names == [
        *((f"gpu-0{number}", "live", "gpumon") for number in (1, 2, 3)),
        ("gpu-04", "down", None),
    ]
    assert told["hosts"][3]["snapshot"] is None
    assert "refuses" in told["hosts"][3]["sentence"]
    first = told["hosts"][0]["snapshot"]
    assert first["schema"] == "gpumon.snapshot/1"
    assert [gpu["memory_used_bytes"] for gpu in first["gpus"]] == [40 * GIB] * 2
    (process,) = first["processes"]
    assert process["pid"] == site.pid
    # Where it runs was looked up there. A session of another PID namespace has no number here.
    assert process["place"]["parent_pid"] == os.getpid()
    assert process["place"]["session"] == (os.getsid(site.pid) or None)


@pytest.mark.slow
def test_csv_and_prometheus_name_the_host_of_each_value(site: Site) -> None:
    done = site.on("gpu-[01-02]", "snapshot", "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["hostname"], row["index"]) for row in rows] == [
        *(("gpu-01", str(index)) for index in range(2)),
        ("gpu-02", "0"),
    ]
    done = site.on("gpu-[01-02]", "snapshot", "--format", "csv", "--processes")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["hostname"], row["pid"]) for row in rows] == [("gpu-01", str(site.pid))] * 2

    done = site.on("gpu-[01-02]", "snapshot", "--format", "prometheus")
    families = {one.name: one for one in text_string_to_metric_families(done.stdout)}
    used = [
        (sample.labels["Hostname"], sample.value)
        for sample in families["DCGM_FI_DEV_FB_USED"].samples
    ]
    assert used == [("gpu-01", 40960.0)] * 2 + [("gpu-02", 0.0)]
    assert {sample.labels["Hostname"] for sample in families["gpumon_user_gpus"].samples} == {
        "gpu-01"
    }


@pytest.mark.slow
def test_the_table_has_one_part_for_each_host(site: Site) -> None:
    done = site.on("gpu-02,gpu-01", "snapshot")
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line.split()[1] for line in done.stdout.splitlines() if " gpumon " in line]
    assert heads == ["gpu-02", "gpu-01"]
    assert "train.py" in done.stdout
    done = site.on("gpu-01", "snapshot", "--filter", "nobody")
    assert "train.py" not in done.stdout


@pytest.mark.slow
def test_select_prints_the_host_with_the_tightest_fit(site: Site) -> None:
    done = site.on("gpu-[01-03]", "select", "--format", "index")
    assert (done.returncode, done.stdout, done.stderr) == (0, "gpu-02 0\n", "")
    done = site.on("gpu-[03-04]", "select", "-n", "3")
    host, uuids = done.stdout.split()
    assert host == "gpu-03"
    assert uuids.split(",") == [card.uuid for card in site.drivers[2].cards[:3]]
    assert "gpu-04: it refuses connections" in done.stderr
    done = site.on("gpu-01,gpu-03", "select", "--free", "30G", "-n", "2", "--format", "env")
    assert done.stdout.splitlines() == [
        "GPUMON_HOST=gpu-03",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=0,1",
    ]


@pytest.mark.slow
def test_select_says_of_every_host_why_it_has_no_gpu(site: Site) -> None:
    done = site.on("gpu-[01-04]", "select", "-n", "5", "--format", "json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["schema"], told["host"], told["selection"]) == (
        "gpumon.select_hosts/1",
        None,
        None,
    )
    assert [host["fitting"] for host in told["hosts"]] == [0, 1, 4, 0]
    for number in range(1, 5):
        assert f"gpu-0{number}: " in done.stderr


def test_select_as_json_has_the_selection_of_one_machine(site: Site) -> None:
    done = site.on("gpu-[02-03]", "select", "--model", "h100", "--format", "json")
    told = json.loads(done.stdout)
    assert told["host"] == "gpu-03"
    assert told["selection"]["schema"] == "gpumon.select/1"
    assert [one["index"] for one in told["selection"]["chosen"]] == [0]


@pytest.mark.slow
def test_reservations_there_matter_and_what_is_allowed_here_does_not(
    site: Site, tmp_path: Path
) -> None:
    done = site.on("gpu-02", "select", "--format", "index", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (0, "gpu-02 0\n")
    folder = tmp_path / "locks"
    site.lab.host("reserving", environment(site.drivers[1]) | {"GPUMON_LOCK_DIR": str(folder)})
    locks = Locks(str(folder), os.environ)
    held = locks.take([site.drivers[1].cards[0].uuid], "train.py")
    done = site.on("reserving", "select", "--verbose")
    held.close()
    assert done.returncode == 1
    assert "train.py" in done.stderr


@pytest.mark.slow
def test_the_configuration_has_groups_a_client_and_commands(site: Site, tmp_path: Path) -> None:
    env = write_config(
        tmp_path,
        f"""
[hosts]
ssh = "{site.lab.ssh}"
[hosts.groups]
lab = "gpu-[01-02]"
[hosts.commands]
"gpu-02" = "{sys.executable} -m tests.fleet.streamer"
""",
    )
    done = site.run("snapshot", "--hosts", "group:lab", "--format", "json", **env)
    assert (done.returncode, done.stderr) == (0, "")
    hosts = json.loads(done.stdout)["hosts"]
    assert [len(host["snapshot"]["gpus"]) for host in hosts] == [2, 8]
    assert site.run("config", "check", **env).returncode == 0
    with (tmp_path / "gpumon/config.toml").open("a") as file:
        file.write('"gpu-[9-1]" = "x"\n')
    done = site.run("config", "check", **env)
    assert done.returncode == 1
    assert "backwards" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["snapshot", "--hosts", "a b"], "no name of a host"),
        (["snapshot", "--hosts", "-oProxyCommand=x"], "--hosts"),
        (["snapshot", "--hosts=-oProxyCommand=x"], "option"),
        (["select", "--hosts", "group:x"], "no groups"),
        (["select", "--hosts", "a", "--mine-is-free"], "--mine-is-free"),
        (["select", "--timeout", "5s"], "--timeout needs --hosts"),
        (["snapshot", "--ssh", "ssh"], "--ssh needs --hosts"),
        (["snapshot", "--hosts", "a", "--ssh", "ssh '"], "quote"),
        (["snapshot", "--hosts", "a", "--ssh", ""], "is empty"),
        (["snapshot", "--hosts", "a", "--gpus", "0"], "--gpus"),
        (["--hosts", "a", "report", "x.csv"], "--hosts has no effect"),
        ([*LOG, "--hosts", "gpu-[01"], "gpu-[01"),
        ([*LOG, "--hosts", "a", "--gpus", "0"], "--gpus means this machine: leave out --hosts."),
        ([*LOG, "--hosts", "a", "--demo"], "simulated machines are shown on a terminal only"),
        ([*LOG, "--ssh", "ssh"], "--ssh needs --hosts, which names the machines to connect to."),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_host_without_answer_is_not_waited_for_longer_than_the_limit(tmp_path: Path) -> None:
    ssh = shlex.quote(str(write_program(tmp_path / "client", "#!/bin/sh\nexec sleep 3600\n")))
    for command in ("snapshot", "select"):
        done = fork_server.run(
            [*GPUMON, command, "--hosts", "gpu-01", "--ssh", ssh, "--timeout", "0.3s"],
            os.environ,
            timeout=PATIENCE,
        )
        assert done.returncode == 1
        assert "gpu-01: no answer within 0.3s" in done.stderr
