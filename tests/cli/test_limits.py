"""``--for`` and ``--timeout`` bound a command, whatever does not answer."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.makers.demo import DemoSource
from gpumon.sampling.gpu_sampler import take_one
from tests.command import run_program
from tests.driver import Driver, Owner, h100
from tests.known import known

pytestmark = pytest.mark.slow

LIMIT, ME = "0.3s", str(os.getpid())

IMPATIENT = """
import sys
from gpumon.fleet import log_feed as hosts
from gpumon.recording.csv import log_feed as machine
hosts.PATIENCE = machine.PATIENCE = 0.3
from gpumon.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""gpumon that does not wait ten seconds for the first answer."""

CLIENTS = {
    "refuses": "exit 255",
    "hangs": "exec sleep 3600",
    "ignores signals": "trap '' TERM HUP INT PIPE; while :; do sleep 1; done",
    "says something and hangs": "echo Welcome; printf partial; exec sleep 3600",
    "leaves its pipe open": "sleep 3600 & exit 0",
}
"""What stands for ssh to a host that does not answer."""


def run(
    folder: Path, *words: str, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends sooner than ``PATIENCE`` only if its limit bounds it."""
    environment = {**env, "XDG_CONFIG_HOME": str(folder)}
    return run_program([sys.executable, "-c", IMPATIENT, *words], environment, cwd=folder)


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return shlex.quote(str(path))


@pytest.mark.parametrize("silence", CLIENTS)
def test_a_log_of_hosts_that_do_not_answer_ends(silence: str, tmp_path: Path) -> None:
    ssh = script(tmp_path / "client", CLIENTS[silence])
    done = run(tmp_path, "log", "run.csv", "--for", LIMIT, "--hosts", "box", "--ssh", ssh)
    assert (done.returncode, done.stdout) == (1, "")
    assert "box was never logged: " in done.stderr
    assert not (tmp_path / "run.csv").exists()


@pytest.mark.parametrize("silence", CLIENTS)
@pytest.mark.parametrize(
    "command", [["snapshot"], ["select"], ["end", "4711", "--yes"]], ids=lambda words: words[0]
)
def test_a_host_that_does_not_answer_is_waited_for_until_the_timeout(
    command: list[str], silence: str, tmp_path: Path
) -> None:
    ssh = script(tmp_path / "client", CLIENTS[silence])
    done = run(tmp_path, *command, "--timeout", LIMIT, "--hosts", "box", "--ssh", ssh)
    assert (done.returncode, done.stdout) == (1, "")
    # It may have been seen to refuse before.
    assert re.search(r"box: (no answer within 0\.3s|.*ssh ended)", done.stderr), done.stderr


SAMPLES = 6
HALF_SILENT = """
PATH="{folder}:$PATH"
for last; do :; done
exec sh -c "$last"
"""


THERE = """
[ "$1" = remote ] && exec sleep 3600
for each in "{folder}"/sample*; do cat "$each"; sleep 0.1; done
exec sleep 3600
"""


def test_a_host_whose_processes_do_not_answer_is_waited_for_until_the_timeout(
    tmp_path: Path,
) -> None:
    ssh = script(tmp_path / "client", HALF_SILENT.format(folder=tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "gpumon", "--demo", "stream", "-n", "0.1"], stdout=subprocess.PIPE
    ) as stream:
        for number in range(SAMPLES):
            # Samples are flushed one by one; where their bytes are cut does not matter.
            data = os.read(known(stream.stdout).fileno(), 2**16)
            (tmp_path / f"sample{number}").write_bytes(data)
        stream.terminate()
    script(tmp_path / "gpumon", THERE.format(folder=tmp_path))
    pid = take_one(DemoSource()).processes[0].id.pid
    named = ["--hosts", "box", "--ssh", ssh, "--timeout", "2s"]
    done = run(tmp_path, "end", str(pid), "--yes", *named)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gpumon: box has not answered for 2 s\n"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("command", ["snapshot", "select"])
def test_a_prometheus_that_does_not_answer_is_waited_for_until_the_timeout(
    command: str, silent_server: str, tmp_path: Path
) -> None:
    done = run(tmp_path, command, "--prometheus", silent_server, "--timeout", LIMIT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no answer within 0.3s" in done.stderr


@pytest.fixture
def hung() -> Iterator[Driver]:
    """A driver that does not answer; its process is this one."""
    with Driver([h100(), h100()]) as driver:
        driver.cards[0].processes = [Owner(os.getpid(), memory=2**30)]
        driver.system.hang("nvmlInit_v2")
        yield driver


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["log", "run.csv", "--for", LIMIT], 1, "nothing was logged"),
        (["wait", "--timeout", LIMIT], 124, "gave up after "),
        (["wait", "--pid", ME, "--timeout", LIMIT], 124, "gave up after "),
        (["run", f"--wait={LIMIT}", "--", "true"], 124, "gave up waiting after 0"),
        # The signal would end this test.
        (["end", ME, "--dry-run", "--timeout", LIMIT], 1, "The driver has not answered for [0-4]s"),
    ],
    ids=["log", "wait", "wait --pid", "run", "end"],
)
def test_a_driver_that_hangs_is_waited_for_until_the_limit(
    words: list[str], status: int, said: str, hung: Driver, tmp_path: Path
) -> None:
    done = run(tmp_path, *words, env=hung.env())
    assert (done.returncode, done.stdout) == (status, "")
    assert re.search(said, done.stderr), done.stderr
    assert not (tmp_path / "run.csv").exists()
