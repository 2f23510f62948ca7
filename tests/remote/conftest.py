"""A server on this machine, which stands for another one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpumon.remote.client import RemoteHost

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

    def connect(command: Sequence[str] = SERVER, *, readonly: bool = False) -> RemoteHost:
        opened.append(RemoteHost("gpu-04", command, readonly=readonly))
        return opened[-1]

    yield connect
    for host in opened:
        host.close()


@pytest.fixture
def host(connect: Callable[..., RemoteHost]) -> RemoteHost:
    """The processes of this machine, as another one's."""
    return connect()


@pytest.fixture
def no_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing connects anew during the test, however long it takes."""
    monkeypatch.setattr("gpumon.remote.client._RETRY_SECONDS", 3600.0)
