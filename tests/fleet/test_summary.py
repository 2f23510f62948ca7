"""What is said of a host: free GPUs, room, users, the worst state; and the sums over all hosts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.findings import FindingKind, Severity
from gpumon.findings.groups import UserUse
from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.fleet.summary import HostJudge, totals
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import GpuStatus
from tests.build import GIB, NOON, gpu, process
from tests.clock import HandClock
from tests.hosts import demo_hosts, host, host_state, with_snapshot
from tests.known import known

FULL = gpu(index=1, memory_used=79 * GIB, memory_free=GIB, utilization_gpu=90)
LOST = gpu(index=2, status=GpuStatus.LOST, memory_used=None, memory_free=None, utilization_gpu=None)
ON_FULL = (process(7, memory_used=79 * GIB, sm=90, gpus=(1,), user="bo"),)


def test_free_gpus_and_the_most_free_memory_are_those_of_sound_gpus() -> None:
    made = host(host_state("a", gpu(), FULL, LOST, processes=ON_FULL))
    assert (made.free, made.most_free) == (1, 79 * GIB)
    assert [one.free for one in made.gpus] == [True, False, False]
    assert [use.user for use in made.users] == ["bo"]
    worst = known(made.worst)
    assert (worst.index, worst.state.kind) == (2, FindingKind.LOST)
    assert made.severity is Severity.CRITICAL


def test_memory_is_unknown_while_that_of_a_gpu_is() -> None:
    made = host(host_state("a", gpu(), LOST))
    assert made.memory_used is None
    assert host(host_state("a", gpu(), FULL, processes=ON_FULL)).memory_used == 79.5 * GIB


def test_full_gpus_are_in_use_and_no_reason_to_look() -> None:
    made = host(host_state("a", FULL, processes=ON_FULL))
    assert made.gpus[0].state.kind is FindingKind.FULL
    assert made.worst is None


def test_a_gpu_is_called_idle_only_after_a_while() -> None:
    idle = gpu(memory_used=40 * GIB, memory_free=40 * GIB)
    held = (process(7, memory_used=40 * GIB),)
    states = [
        host_state("a", idle, processes=held, time=NOON + second) for second in range(0, 90, 5)
    ]
    assert host(*states[:3]).worst is None
    worst = known(host(*states).worst)
    assert worst.state.kind is FindingKind.IDLE


@pytest.mark.parametrize("status", [HostStatus.DOWN, HostStatus.SILENT, HostStatus.CONNECTING])
def test_nobody_knows_what_is_free_on_a_host_that_does_not_answer(status: HostStatus) -> None:
    live = host_state("a", gpu(), FULL, processes=ON_FULL)
    made = host(live, replace(live, status=status))
    assert (made.free, made.most_free, made.memory_used, made.memory_total) == (None,) * 4
    assert len(made.gpus) == 2, "the last picture stays"


def test_a_host_without_news_keeps_its_object() -> None:
    judge, state = HostJudge(0), host_state("a")
    first = judge.judge(state)
    assert judge.judge(state) is first
    assert judge.judge(host_state("a", time=NOON + 1)) is not first


def test_sums_say_when_a_host_or_a_value_is_missing() -> None:
    sound = host(host_state("a", gpu(), FULL, processes=ON_FULL))
    down = host(host_state("b", status=HostStatus.DOWN))
    sick = host(host_state("c", gpu(), LOST))
    assert totals([sound]).complete
    both = totals([sound, down])
    assert (both.hosts, both.live, both.gpus, both.free, both.complete) == (2, 1, 2, 1, False)
    assert not totals([sound, sick]).complete
    assert totals([sound, sick]).memory_used == 80 * GIB


def test_a_clock_that_steps_back_is_followed() -> None:
    made = host(host_state("a"), host_state("a", time=NOON - 3600))
    assert made.free == 1


def test_who_only_has_an_allocation_is_a_user_of_the_host() -> None:
    given = (Allocation("slurm", "7", "ann", ("GPU-1",)),)
    (ann,) = host(with_snapshot(host_state("a", gpu(), gpu(index=1)), allocations=given)).users
    assert isinstance(ann, UserUse)
    assert (ann.user, ann.processes, ann.memory) == ("ann", 0, 0)
    assert [(job.gpus, job.unused) for job in ann.allocated] == [((1,), 1)]


# The simulated fleet: hosts that are sound, sick, down, and that come back


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
