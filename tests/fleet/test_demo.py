"""The simulated fleet: hosts that are sound, sick, down, and that come back."""

from __future__ import annotations

from gpumon.findings import Severity
from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.fleet.summary import HostJudge
from tests.clock import HandClock
from tests.hosts import demo_hosts

NAMES = [f"gpu-{number:02}" for number in range(1, 17)]


def test_the_hosts_differ() -> None:
    hosts = demo_hosts(16)
    assert [one.name for one in hosts if one.state.status is HostStatus.DOWN] == ["gpu-07"]
    sick = [one.name for one in hosts if one.is_live and one.severity is Severity.CRITICAL]
    assert sick == ["gpu-04"]
    assert [one.name for one in hosts if one.state.origin is HostOrigin.NVIDIA_SMI] == ["gpu-08"]
    assert len({one.free for one in hosts}) > 4


def test_a_connection_ends_and_comes_back() -> None:
    clock = HandClock()
    fleet = DemoFleet(NAMES, clock=clock)

    def status() -> HostStatus:
        fleet.sample("gpu-12")
        return fleet.latest().hosts[11].status

    assert fleet.latest().hosts[11].status is HostStatus.CONNECTING
    assert status() is HostStatus.LIVE
    clock.now += 241
    assert status() is HostStatus.DOWN
    kept = fleet.latest().hosts[11]
    assert kept.snapshot is not None
    clock.now += 20
    assert status() is HostStatus.LIVE


def test_nothing_is_signalled_where_there_is_no_gpumon() -> None:
    fleet = DemoFleet(NAMES)
    assert fleet.machine("gpu-08", readonly=False).processes.readonly
    assert not fleet.machine("gpu-01", readonly=False).processes.readonly
    assert fleet.machine("gpu-01", readonly=True).processes.readonly


def test_every_host_is_sampled_and_the_thread_ends() -> None:
    fleet = DemoFleet(NAMES[:4], interval=0.1)
    heard = []
    fleet.subscribe(lambda: heard.append(1))
    fleet.start()
    judges = [HostJudge(place) for place in range(4)]
    while len(heard) < 12:
        made = [judge.judge(one) for judge, one in zip(judges, fleet.latest().hosts, strict=True)]
    fleet.close()
    assert all(one.gpus for one in made)
