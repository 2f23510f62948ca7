"""One host of a fleet as the source of a dashboard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import pytest

from gpumon.fleet.fleet import FleetSnapshot, HostSource, HostState, HostStatus
from tests.build import gpu, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.fleet.fleet import Fleet


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
def test_a_sample_that_arrives_late_does_not_run_back_but_a_clock_may_be_set(
    late: float, runs_back: bool
) -> None:
    host = _OneHost()
    source = HostSource(cast("Fleet", host), "gpu-01")
    source.open()
    first, repeated = source.sample(), source.sample()
    assert first.time < repeated.time
    host.newest = snapshot(repeated.time - late, gpu())
    arrived = source.sample()
    assert arrived.time == (host.newest.time if runs_back else repeated.time)
    source.close()
