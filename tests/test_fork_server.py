"""What a fork runs is what a fresh interpreter runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import fork_server
from tests.demo import COARSE_DEMO
from tests.screen import PATIENCE, Screen

GPUMON = [sys.executable, "-m", "gpumon"]
LINES = r"\n q quit"


@pytest.mark.parametrize(
    "environment", [{}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
@pytest.mark.parametrize("line", ["help", "--version", "snapshot --nonsense", "theme show é"])
def test_a_command_prints_the_same_and_ends_alike(line: str, environment: dict[str, str]) -> None:
    command, env = [*GPUMON, *line.split()], {**os.environ, **environment}
    forked = fork_server.run(command, env, timeout=PATIENCE)
    fresh = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert forked.stdout == fresh.stdout
    assert forked.stderr == fresh.stderr
    assert forked.returncode == fresh.returncode


@pytest.mark.parametrize("fresh", [False, True])
def test_a_terminal_is_its_own_and_its_end_is_told(fresh: bool) -> None:
    with Screen(COARSE_DEMO, fresh=fresh) as screen:
        screen.wait_for(LINES)
        pid = screen.process.pid
        assert (os.getsid(pid), screen.foreground()) == (pid, pid)
        assert screen.process.poll() is None
        screen.process.kill()
        assert screen.wait_end() == -9
        assert screen.process.poll() == -9
