"""What KILL has stopped does not stay stopped, whatever ends gpumon between STOP and KILL."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import lives
from tests.driver import GIB, Driver, Owner, h100
from tests.host.programs import state, until_state
from tests.kill.hung_gpumon import COMMAND
from tests.lives import Family
from tests.screen import Screen

pytestmark = pytest.mark.slow

RIGHT, DOWN = "\x1b[C", "\x1b[B"


@contextmanager
def machine(pid: int, tmp_path: Path, **env: str) -> Iterator[dict[str, str]]:
    """The environment of gpumon on a machine where a process holds the GPU."""
    with Driver([h100()], driver_version="570.124.06") as driver:
        driver.cards[0].processes = [Owner(pid, memory=10 * GIB)]
        yield {**driver.env(), "XDG_STATE_HOME": str(tmp_path), **env}


ENDS: dict[str, Callable[[Screen], object]] = {
    "q": lambda screen: screen.type("q"),
    "ctrl+c": lambda screen: screen.type("\x03"),
    "term": lambda screen: screen.signal(signal.SIGTERM),
    "hangup": lambda screen: screen.hang_up(),
}


@pytest.mark.parametrize("way", ENDS)
def test_the_screen_ends_between_stop_and_kill(way: str, family: Family, tmp_path: Path) -> None:
    shell = family.start("sh", "-c", "sleep 1000 & echo ready; wait")
    pid = shell.pid
    (child,) = lives.children(pid)
    with machine(pid, tmp_path) as env, Screen([*COMMAND, "-n", "0.1"], env) as screen:
        screen.wait_for(str(pid))
        screen.type(DOWN)
        screen.wait_for("▸")
        screen.type("k")
        screen.wait_for("1 child")
        screen.type("9")
        screen.wait_for("Send KILL")
        screen.type(RIGHT)
        screen.type("\r")
        until_state(child, "T")
        ENDS[way](screen)
        until_state(child, "S")
        screen.process.wait(lives.PATIENCE)
        assert [state(pid), state(child)] == ["S", "S"]


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP", "QUIT"])
def test_gpumon_end_is_ended_between_stop_and_kill(
    number: str, family: Family, tmp_path: Path
) -> None:
    pid = family.sleeper().pid
    with machine(pid, tmp_path) as env, ended(pid, env) as process:
        until_state(pid, "T")
        process.send_signal(signal.Signals[f"SIG{number}"])
        until_state(pid, "S")
        assert process.wait(lives.PATIENCE) == 128 + signal.Signals[f"SIG{number}"]


@contextmanager
def ended(pid: int, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """``gpumon end`` that hangs once it has stopped the process."""
    command = [*COMMAND, "end", str(pid), "--signal", "KILL", "--children", "--yes"]
    process = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_gpumon_end_that_is_suspended_keeps_nothing_stopped(family: Family, tmp_path: Path) -> None:
    pid = family.sleeper().pid
    with machine(pid, tmp_path) as env, ended(pid, env) as process:
        until_state(pid, "T")
        process.send_signal(signal.SIGTSTP)
        until_state(pid, "S")


CONTINUED = """
import signal
signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_thread_that_hangs_keeps_nothing_stopped(family: Family, tmp_path: Path) -> None:
    target = family.python(CONTINUED)
    assert target.stdout is not None
    with (
        machine(target.pid, tmp_path, MOST_SECONDS="0.2") as env,
        ended(target.pid, env) as process,
    ):
        assert target.stdout.readline() == "continued\n"
        assert process.poll() is None


CRASHING = """
import sys, threading
from gpumon.kill.signals import open_handle
from tests import lives
handle = open_handle(lives.target(int(sys.argv[1])))
worker = threading.Thread(target=handle.freeze)
worker.start()
worker.join()
print("stopped", flush=True)
sys.stdin.readline()
exec(sys.argv[2])
"""


@pytest.mark.parametrize("end", ["raise RuntimeError", "sys.exit(3)", "pass"])
def test_a_program_that_ends_continues_what_it_has_stopped(family: Family, end: str) -> None:
    pid = family.sleeper().pid
    program = family.start(sys.executable, "-c", CRASHING, str(pid), end, stderr=subprocess.DEVNULL)
    until_state(pid, "T")
    program.communicate("\n")
    until_state(pid, "S")
