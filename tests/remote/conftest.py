"""A server on this machine, which stands for another one."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gpumon.remote.client import RemoteHost
from tests import lives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SERVER = [sys.executable, "-m", "gpumon", "remote"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what the server remembers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpumon"


@pytest.fixture
def connect(state: Path) -> Iterator[Callable[..., RemoteHost]]:  # noqa: ARG001 - for the server
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
def host(connect: Callable[..., RemoteHost]) -> RemoteHost:
    """The processes of this machine, as another one's; after a loss it does not connect anew."""
    return connect()


def servers() -> list[int]:
    """The PIDs of the servers that run."""
    children = [lives.look(child.pid) for child in psutil.Process().children()]
    return [
        child.id.pid
        for child in children
        if child is not None and child.state != "Z" and list(child.command) == SERVER
    ]


def kill_server() -> None:
    """Kill the only server."""
    (pid,) = servers()
    os.kill(pid, signal.SIGKILL)
