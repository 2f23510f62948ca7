"""A server on this machine, which stands for another one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import psutil
import pytest

from gpumon.remote.client import RemoteHost
from tests import lives
from tests.driver import GIB, Driver, Owner, buried, h100, owners

Connect = Callable[..., RemoteHost]
"""Opens a host by a command, see ``connect``."""

SERVER = [sys.executable, "-m", "gpumon", "remote"]


def forking(children: int, before: str = "") -> str:
    """A Python program that has so many children, which do nothing."""
    return (
        f"import os, signal\n{before}\nfor _ in range({children}):\n"
        "    if not os.fork(): signal.pause()\nprint('ready', flush=True)\nsignal.pause()"
    )


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what the server remembers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpumon"


@pytest.fixture
def connect(state: Path) -> Iterator[Connect]:  # noqa: ARG001 - for the server
    """Opens hosts, and closes them after the test."""
    opened: list[RemoteHost] = []

    def connect(
        command: Sequence[str] = SERVER, *, readonly: bool = False, retry_after: float = 3600.0
    ) -> RemoteHost:
        opened.append(RemoteHost("gpu-04", command, readonly=readonly, retry_after=retry_after))
        return opened[-1]

    yield connect
    for host in opened:
        host.close()
    lives.until(lambda: not servers(), "the end of the servers")


@pytest.fixture
def host(connect: Connect) -> RemoteHost:
    """The processes of this machine, as another one's; after a loss it does not connect anew."""
    return connect()


@contextmanager
def training(**how: bool) -> Iterator[tuple[Driver, Popen[bytes]]]:
    """A simulated machine, and a process with 30 GiB on one of its GPUs."""
    with (
        Driver([h100(), h100()], driver_version="570.124.06") as driver,
        owners(1, ["python", "train.py"], **how) as (process,),  # type: ignore[arg-type]  # keywords pass through
        buried(driver),
    ):
        driver.cards[1].processes = [Owner(process.pid, memory=30 * GIB, sm=20)]
        driver.cards[1].memory_used = 30 * GIB + GIB // 4
        yield driver, process


def servers() -> list[int]:
    children = [lives.look(child.pid) for child in psutil.Process().children()]
    return [
        child.id.pid
        for child in children
        if child is not None and child.state != "Z" and list(child.command) == SERVER
    ]


def kill_server() -> None:
    (pid,) = servers()
    os.kill(pid, signal.SIGKILL)
