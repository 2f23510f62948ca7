"""GPUs of a further maker are known everywhere: its folder ``tests/acme`` is all that it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fork_server
from tests.acme import FOLDER, PID
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "tests.acme"]


class Acme:
    """The machine: a process on GPU 0, and another that holds the file of GPU 1 unlisted."""

    def __init__(self, folder: Path, owner: int, holder: int) -> None:
        self.owner, self.holder = owner, holder
        self.env = {
            **os.environ,
            PID: str(owner),
            FOLDER: str(folder),
            "GPUMON_LOCK_DIR": str(folder / "locks"),
        }

    def printed(self, *arguments: str, status: int | None = 0) -> str:
        """What a command prints; to standard error, too, if it is to fail."""
        done = fork_server.run([*GPUMON, *arguments], self.env)
        assert status in (None, done.returncode), done.stderr
        return done.stdout + (done.stderr if status else "")


@pytest.fixture
def acme(tmp_path: Path) -> Iterator[Acme]:
    card = tmp_path / "render129"
    card.touch()
    with card.open() as file:
        holder = subprocess.Popen(["sleep", "601"], stdin=file)
    environment = {**os.environ, "ACME_VISIBLE_DEVICES": "0"}
    with subprocess.Popen(["sleep", "600"], env=environment) as owner, holder:
        try:
            yield Acme(tmp_path, owner.pid, holder.pid)
        finally:
            owner.kill()
            holder.kill()


def test_a_snapshot_joins_its_cards_with_the_processes_of_the_machine(acme: Acme) -> None:
    told = json.loads(acme.printed("snapshot", "--format", "json"))
    assert told["source"] == "acme"
    assert told["host"]["driver_version"] == "7.1"
    assert [card["name"] for card in told["gpus"]] == ["ACME Rocket R1"] * 2
    (process,) = told["processes"]
    assert (process["pid"], process["name"]) == (acme.owner, "sleep")
    assert process["command"] == ["sleep", "600"]
    assert [one["pid"] for one in told["holders"]["suspects"]] == [acme.holder]


def test_it_is_exported_and_chosen_like_any_other(acme: Acme) -> None:
    assert "ACME Rocket R1" in acme.printed("snapshot", "--format", "csv")
    assert 'UUID="GPU-ACE1",device="acme1"' in acme.printed("snapshot", "--format", "prometheus")


@pytest.mark.slow
def test_a_job_gets_its_gpus_by_its_variable(acme: Acme) -> None:
    assert acme.printed("select", "--free", "10G") == "GPU-ACE1\n"
    for form in ("env", "index"):
        value = {"env": "ACME_VISIBLE_DEVICES=GPU-ACE1", "index": "1"}[form]
        assert acme.printed("select", "--free", "10G", "--format", form) == f"{value}\n"
    variables = acme.printed("run", "--free", "10G", "--", "env").splitlines()
    assert "ACME_VISIBLE_DEVICES=GPU-ACE1" in variables
    assert not any(line.startswith("CUDA_VISIBLE_DEVICES=") for line in variables)
    acme.env["ACME_VISIBLE_DEVICES"] = "0"
    refused = acme.printed("select", "--free", "14G", status=1)
    assert "ACME_VISIBLE_DEVICES leaves it out" in refused


@pytest.mark.slow
def test_its_driver_is_a_backend_that_can_be_chosen(acme: Acme) -> None:
    told = json.loads(acme.printed("snapshot", "--backend", "acme", "--format", "json"))
    assert len(told["gpus"]) == 2
    for selected in ("1", "GPU-ACE1"):
        options = ("--backend", "acme", "--gpus", selected, "--format", "json")
        told = json.loads(acme.printed("snapshot", *options))
        assert [card["index"] for card in told["gpus"]] == [1]
    refused = acme.printed("snapshot", "--backend", "acme", "--gpus", "5", status=1)
    assert "There is no GPU 5. This machine has GPUs 0 to 1." in refused
    assert "amdgpu,intel,acme,all" in acme.printed("--help")


def test_doctor_and_the_versions_have_its_driver(acme: Acme) -> None:
    assert "ACME driver 7.1" in acme.printed("--version").splitlines()
    checks = json.loads(acme.printed("doctor", "--json", status=None))["checks"]
    (found,) = [check for check in checks if check["check"] == "ACME driver"]
    assert (found["section"], found["found"]) == ("Driver", "2 rockets.")
    assert "libnvidia-ml" not in json.dumps(checks), "its GPUs are no reason for another driver"


@pytest.mark.slow
def test_it_is_logged_reported_and_played(acme: Acme, tmp_path: Path) -> None:
    log = str(tmp_path / "acme.csv")
    acme.printed("log", log, "-n", "0.1", "--for", "1.5s")
    told = json.loads(acme.printed("report", log, "--by", "gpu", "--format", "json"))
    assert "GPU-ACE0" in json.dumps(told)
    with Screen([*GPUMON, "replay", log], acme.env, 120, 30) as screen:
        screen.wait_for("REPLAY")
        screen.wait_for(" R1 ")
        screen.quit()


@pytest.mark.slow
def test_the_screen_shows_its_gpus_in_its_words(acme: Acme) -> None:
    with Screen([*GPUMON, "-n", "0.2"], acme.env, 120, 100) as screen:
        screen.wait_for("clocks engine 1000")
        screen.wait_for(" R1 ")
        screen.wait_for(str(acme.owner))
        screen.wait_for("93%")
        assert "ACME" not in screen.rows()[0], "it is no demo"
        screen.press("\x1b[B\r", "which means")
        screen.wait_for("device 0 is GPU 0")
        screen.type("\x1b")
        screen.wait(lambda it: "gpumon" in it.rows()[0], "waiting for the dashboard")
        screen.press("\t\r", "ACE 3")
        screen.wait_for("a program forgot the countdown")
        screen.wait_for("ACME_VISIBLE_DEVICES=GPU-ACE0")
        screen.wait_for("Engine clock")
        screen.type("\x1b")
        screen.wait(lambda it: "gpumon" in it.rows()[0], "waiting for the dashboard")
        screen.quit()
