"""Hosts for the tests of a fleet, and how to wait for what becomes of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpumon.fleet.fleet import FleetSnapshot, HostState, HostStatus
from gpumon.fleet.ssh import SshClient
from gpumon.fleet.ssh_fleet import SshFleet
from tests.driver import Driver
from tests.fleet.sshd import PATIENCE, Lab, fault

ROOT = str(Path(__file__).parents[2])
STREAMER = f"{sys.executable} -m tests.fleet.streamer"
"""The command of a host that streams invented GPUs."""


def faulty(name: str) -> str:
    """The command of a host that misbehaves; see ``tests.fleet.streamer``."""
    return f"env STREAMER_FAULT={name} {STREAMER}"


def environment(driver: Driver | None = None) -> dict[str, str]:
    """The environment of the commands of a host, with a simulated driver or without any."""
    programs = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ROOT,
        "GPUMON_LOCK_DIR": os.environ["GPUMON_LOCK_DIR"],
    }
    if driver is None:
        return programs
    kept = ("LD_LIBRARY_PATH", "NVML_SIM_STATE")
    return programs | {name: value for name, value in driver.env().items() if name in kept}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if fault():
        pytest.skip(fault())
    with Lab(tmp_path) as made:
        yield made


@contextmanager
def reading(
    client: SshClient, *hosts: str, interval: float = 0.2, commands: Mapping[str, str] | None = None
) -> Iterator[SshFleet]:
    """A fleet that is read until the end of the block."""
    fleet = SshFleet(hosts, interval, client._replace(commands=commands or {}))
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.close()


def wait_until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def wait_for(fleet: SshFleet, condition: Callable[[FleetSnapshot], bool]) -> FleetSnapshot:
    """Wait for a state of the hosts, and return it."""
    wait_until(lambda: condition(fleet.latest()), lambda: brief(fleet.latest().hosts))
    return fleet.latest()


def wait_down(fleet: SshFleet, place: int = 0) -> HostState:
    """Wait until a host is down, and return it."""
    return wait_for(fleet, lambda now: now.hosts[place].status is HostStatus.DOWN).hosts[place]


def state(fleet: SshFleet, name: str) -> HostState:
    return next(host for host in fleet.latest().hosts if host.name == name)


def brief(hosts: Sequence[HostState]) -> list[tuple[str, str, str]]:
    return [(host.name, host.status.value, host.sentence) for host in hosts]


def all_live(hosts: FleetSnapshot) -> bool:
    return all(host.status is HostStatus.LIVE for host in hosts.hosts)


def children() -> list[psutil.Process]:
    """The ssh clients of this test."""
    own = psutil.Process().children(recursive=True)
    return [one for one in own if one.name() == "ssh"]
