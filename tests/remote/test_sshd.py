"""Processes of another machine through a real sshd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.host.process_host import Refusal, Refused
from gpumon.remote.client import RemoteHost
from tests import lives
from tests.command import run_program
from tests.driver import GIB
from tests.fleet.conftest import environment
from tests.fleet.sshd import Lab, fault
from tests.lives import Family
from tests.remote.conftest import training
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow

END = [sys.executable, "-m", "gpumon", "end"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A host behind a real sshd."""
    if fault():
        pytest.skip(fault())
    with Lab(tmp_path) as made:
        yield made


@contextmanager
def reached(lab: Lab) -> Iterator[RemoteHost]:
    """The processes of the host ``gpu-04``."""
    host = RemoteHost("gpu-04", lab.client.remote("gpu-04", readonly=False))
    try:
        yield host
    finally:
        host.close()


def test_a_process_is_ended_and_no_argument_of_ssh_names_it(lab: Lab, family: Family) -> None:
    lab.host("gpu-04", environment())
    process = family.python("print(1, flush=True); input()", "--api-key", "hush")
    with reached(lab) as host:
        handle = host.open_handle(lives.target(process.pid))
        assert host.details(handle.target.id) is not None
        commands = [" ".join(one.cmdline()) for one in lab.hosts["gpu-04"].sessions()]
        commands += [
            Path(f"/proc/{pid}/cmdline").read_text()
            for pid in lives.children(os.getpid())
            if pid != process.pid
        ]
        assert any(
            "gpumon remote" in command or "gpumon\0remote" in command for command in commands
        )
        assert not any("hush" in command for command in commands)
        handle.send(signal.SIGTERM)
        host.wait([handle], lives.PATIENCE)
        assert handle.ended()
    assert process.wait(lives.PATIENCE) == -signal.SIGTERM
    lives.until(lambda: not lab.hosts["gpu-04"].running("remote"), "the end of the server")


def test_an_sshd_that_is_killed_leaves_nothing_known(lab: Lab, family: Family) -> None:
    sshd = lab.host("gpu-04", environment())
    process = family.sleeper()
    with reached(lab) as host:
        handle = host.open_handle(lives.target(process.pid))
        sshd.stop()
        with pytest.raises(Refused) as refused:
            handle.send(signal.SIGTERM)
        assert refused.value.reason in {Refusal.UNREACHABLE, Refusal.UNANSWERED}
        assert "the connection to gpu-04 ended" in refused.value.sentence
        assert not handle.ended()


def test_a_host_that_is_down_says_so(lab: Lab, family: Family) -> None:
    lab.host("gpu-04", running=False)
    with reached(lab) as host, pytest.raises(Refused) as refused:
        host.relatives([lives.target(family.sleeper().pid).id])
    assert "Connection refused" in refused.value.sentence


@contextmanager
def trained(lab: Lab) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """A process on a GPU of the host: its PID, the command that ends it, and its environment."""
    with training() as (driver, process):
        lab.host("gpu-04", environment(driver))
        env = {**os.environ, "XDG_STATE_HOME": str(lab.folder / "here")}
        command = [*END, "--hosts", "gpu-04", "--ssh", lab.ssh, str(process.pid)]
        yield process.pid, command, env


def test_a_shell_ends_a_process_of_another_machine(lab: Lab) -> None:
    with trained(lab) as (pid, command, env):
        planned = run_program([*command, "--dry-run"], env)
        assert planned.stderr == ""
        assert "TERM would reach 1 process on gpu-04, which holds 30.0 GiB on GPU 1." in (
            planned.stdout
        )
        done = subprocess.run(
            [*command, "--yes", "--format", "json"],
            env=env,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        told = json.loads(done.stdout)
        assert told["machine"] == "gpu-04"
        assert told["processes"][0]["outcome"] == "ended"
        assert told["memory"][0]["returned_bytes"] == 30 * GIB
        log = (lab.folder / "here/gpumon/signals.jsonl").read_text().splitlines()
        assert [json.loads(line)["machine"] for line in log] == ["gpu-04", "gpu-04"]
        assert {json.loads(line)["pid"] for line in log} == {pid}


def test_the_question_names_the_machine(lab: Lab) -> None:
    with trained(lab) as (pid, command, env):
        with Screen(command, env, 100, 20) as screen:
            screen.wait_for(r"Send TERM to 1 process on gpu-04\? \[y/N\]")
            screen.type("n\r")
            assert screen.wait_end() == 1
        assert lives.look(pid) is not None


def test_pids_are_of_one_machine(lab: Lab) -> None:
    done = run_program([*END, "--hosts", "gpu-[04-05]", "--ssh", lab.ssh, "4711", "--yes"])
    assert done.returncode == 2
    assert done.stderr == "gpumon: PIDs are of one machine: name one with --hosts.\n"
