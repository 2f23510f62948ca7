"""Times of another machine: exact intervals, right ages, whatever its clock says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostSource, HostState, HostStatus
from gpumon.fleet.remote_clock import RemoteClock
from gpumon.model.snapshot import Host, Snapshot
from tests.build import NOON, gpu, process, snapshot

DAY = 86400.0


def sample(at: float) -> Snapshot:
    return Snapshot(
        at, Host("x", driver_since=at - 100), (gpu(sampled_at=at),), (process(started_at=at - 60),)
    )


def test_a_clock_that_agrees_changes_nothing() -> None:
    clock, there = RemoteClock(), sample(NOON)
    clock.learn(NOON, NOON + 0.05)
    assert clock.snapshot(there) is there


def test_all_times_are_moved_and_intervals_stay_exact_whatever_the_network_delays() -> None:
    clock = RemoteClock()
    times = []
    for number, delay in enumerate((0.0, 0.3, 0.01, 0.2, 2.5, 0.0)):
        clock.learn(NOON + DAY + number, NOON + number + delay)
        ours = clock.snapshot(sample(NOON + DAY + number))
        times.append(ours.time)
        assert ours.gpus[0].sampled_at == ours.time
        assert ours.host.driver_since == ours.time - 100
        assert ours.processes[0].started_at == ours.time - 60
    assert times == [NOON + number for number in range(6)]


def test_a_row_that_did_not_change_stays_the_same_object() -> None:
    clock, there = RemoteClock(), sample(NOON + DAY)
    clock.learn(NOON + DAY, NOON)
    first = clock.snapshot(there)
    assert clock.snapshot(there) is first
    clock.learn(NOON + DAY + 1, NOON + 1)
    second = clock.snapshot(replace(there, time=NOON + DAY + 1))
    assert second.processes[0] is first.processes[0]
    assert second.gpus[0] is first.gpus[0]


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
@pytest.mark.parametrize(("there", "here"), [(True, False), (False, True)], ids=["there", "here"])
def test_a_clock_that_is_set_is_followed(jump: float, there: bool, here: bool) -> None:
    clock = RemoteClock()
    for number in range(40):
        moved = jump * (number >= 20)
        theirs, ours = NOON + DAY + number + moved * there, NOON + number + moved * here
        clock.learn(theirs, ours)
        shown = clock.snapshot(sample(theirs)).time
        # A clock there that runs backwards was set; one that jumps ahead may be a delay at first.
        is_clear = number < 20 or number >= 30 or (there and jump < 0)
        assert shown == ours or not is_clear


# The source of a dashboard


class _OneHost:
    """A fleet of one host whose samples a test makes."""

    interval = 0.05

    def __init__(self) -> None:
        self.newest = snapshot(time.time(), gpu())

    def latest(self) -> FleetSnapshot:
        now = self.newest.time
        state = HostState("gpu-01", HostStatus.LIVE, now, snapshot=self.newest)
        return FleetSnapshot(now, (state,))

    def subscribe(self, _: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


@pytest.mark.parametrize(("late", "runs_back"), [(0.01, False), (3600.0, True)])
def test_a_late_sample_does_not_run_back_but_a_set_clock(late: float, runs_back: bool) -> None:
    host = _OneHost()
    source = HostSource(cast("Fleet", host), "gpu-01")
    source.open()
    first, repeated = source.sample(), source.sample()
    assert first.time < repeated.time
    host.newest = snapshot(repeated.time - late, gpu())
    arrived = source.sample()
    assert arrived.time == (host.newest.time if runs_back else repeated.time)
    source.close()
