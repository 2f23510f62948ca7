"""The ssh clients of a fleet: how many run, what they hold, and that none remains."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpumon.fleet.fleet import HostStatus
from gpumon.fleet.ssh import SshClient
from gpumon.remote.client import RemoteHost
from tests.command import write_program
from tests.fleet.conftest import (
    STREAMER,
    all_live,
    children,
    environment,
    reading,
    wait_down,
    wait_for,
    wait_until,
)
from tests.fleet.sshd import Lab

pytestmark = pytest.mark.slow


def test_a_crash_of_gpumon_leaves_nothing_behind(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment())
    program = (
        "import sys, time; from gpumon.fleet.ssh_fleet import SshFleet;"
        "from gpumon.fleet.ssh import SshClient;"
        f"SshFleet(['gpu-01'], 0.2, SshClient({lab.client.client!r}, {STREAMER!r})).start();"
        "time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL) as crashing:
        wait_until(lambda: bool(sshd.running("stream")))
        (client,) = psutil.Process(crashing.pid).children()
        crashing.kill()
    wait_until(lambda: not client.is_running() or client.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: sshd.sessions() == [], sshd.sessions)


def test_clients_that_ended_hold_no_descriptor_and_no_process() -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    # What earlier tests left to the collector would be closed meanwhile.
    gc.collect()
    before = held()
    hosts = [f"gpu-{number}" for number in range(30)]
    with reading(SshClient(("false",)), *hosts) as fleet:
        wait_for(fleet, lambda now: all(one.status is HostStatus.DOWN for one in now.hosts))
        # The selector, the pipe that wakes it, and those clients that are just tried again.
        wait_until(lambda: held() < before + 10)
    assert held() <= before
    assert not [one for one in psutil.Process().children() if one.name() == "false"]


def test_closing_while_it_connects_to_processes_leaves_nothing() -> None:
    def clients() -> list[psutil.Process]:
        return [one for one in psutil.Process().children() if one.name() == "sleep"]

    host = RemoteHost("gpu-01", ("sleep", "3600"))
    host.connect()
    wait_until(lambda: bool(clients()))
    host.close()
    assert clients() == []


_MANY_HOSTS = """
import resource, sys, time
from gpumon.fleet.ssh import SshClient
from gpumon.fleet.ssh_fleet import SshFleet
hard = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
fleet = SshFleet([f"gpu-{number}" for number in range(40)], 1.0, SshClient((sys.argv[1],)))
fleet.start()
while hard == 64 and not any(one.sentence for one in fleet.latest().hosts):
    time.sleep(0.05)
sys.stdin.read()
print(*{one.sentence for one in fleet.latest().hosts}, sep="\\n")
fleet.close()
"""


@pytest.mark.parametrize("hard", [64, 1024])
def test_the_limit_of_open_files_is_raised_or_told(tmp_path: Path, hard: int) -> None:
    starts = f'#!/bin/sh\necho x >> "{tmp_path}/started"\nexec sleep 3600\n'
    client = write_program(tmp_path / "client", starts)
    with subprocess.Popen(
        [sys.executable, "-c", _MANY_HOSTS, str(client), str(hard)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        wait_until((tmp_path / "started").exists)
        started = (tmp_path / "started").read_text
        wait_until(lambda: started().count("x") >= (40 if hard == 1024 else 10))
        told, _ = running.communicate("", timeout=60)
    assert running.returncode == 0
    assert ("Too many open files" in told) is (hard == 64)


def test_a_missing_client_is_told() -> None:
    with reading(SshClient(("no-such-ssh",)), "gpu-01") as fleet:
        assert "no-such-ssh was not found on this machine" in wait_down(fleet).sentence


def test_twelve_hosts_behind_one_sshd_are_live_and_leave_no_process(lab: Lab) -> None:
    # sshd refuses at random from ten unfinished logins on.
    sshd = lab.host("gpu", environment(), also="gpu-*")
    names = [f"gpu-{number:02}" for number in range(12)]
    with reading(
        lab.client, *names, interval=1.0, commands=dict.fromkeys(names, STREAMER)
    ) as fleet:
        wait_for(fleet, all_live)
        # One that was refused may just have ended.
        wait_until(lambda: len(children()) == 12)
    assert children() == []
    wait_until(lambda: sshd.sessions() == [], sshd.sessions)


def test_a_client_that_does_not_end_is_killed(tmp_path: Path) -> None:
    script = "#!/bin/sh\ntrap '' TERM HUP INT\nsleep 3600 & while :; do wait; done\n"
    stubborn = write_program(tmp_path / "stubborn", script)
    with reading(SshClient((str(stubborn),)), "gpu-01", "gpu-02"):
        wait_until(lambda: len(_running(str(stubborn))) == 2)
    assert _running(str(stubborn)) == []


def _running(program: str) -> list[psutil.Process]:
    return [
        one for one in psutil.process_iter(["cmdline"]) if program in (one.info["cmdline"] or [])
    ]


def test_ctrl_c_in_the_terminal_does_not_reach_the_clients(lab: Lab) -> None:
    lab.host("gpu-01", environment())
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        wait_for(fleet, all_live)
        (client,) = children()
        assert os.getpgid(client.pid) != os.getpgid(0)
        assert os.getsid(client.pid) != os.getsid(0)
