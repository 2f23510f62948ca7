"""Hosts of a fleet for tests: what is not named is unremarkable."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.fleet import HostOrigin, HostState, HostStatus
from gpumon.fleet.summary import HostJudge, HostSummary
from tests.build import NOON, gpu
from tests.build import snapshot as build_snapshot
from tests.known import known

if TYPE_CHECKING:
    from threading import Event

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu


class Frozen:
    """A clock that stands at noon."""

    def time(self) -> float:
        return NOON

    def monotonic(self) -> float:
        return 0.0

    def wait(self, event: Event, timeout: float) -> bool:
        return event.wait(timeout)


@functools.cache
def demo_hosts(count: int) -> tuple[HostSummary, ...]:
    """The simulated fleet at noon."""
    digits = len(str(count))
    fleet = DemoFleet([f"gpu-{n:0{digits}}" for n in range(1, count + 1)], clock=Frozen())
    for state in fleet.latest().hosts:
        fleet.sample(state.name)
    return tuple(HostJudge(place).judge(state) for place, state in enumerate(fleet.latest().hosts))


def host_state(
    name: str = "gpu-01",
    *gpus: Gpu,
    processes: tuple[GpuProcess, ...] = (),
    time: float = NOON,
    **changes: object,
) -> HostState:
    """A live host with one free GPU unless others are given."""
    named = [msgspec.structs.replace(one, sampled_at=time) for one in gpus or (gpu(),)]
    state = HostState(
        name,
        HostStatus.LIVE,
        NOON - 60,
        "",
        HostOrigin.GPUMON,
        build_snapshot(time, *named, processes=processes),
        time,
    )
    return msgspec.structs.replace(state, **changes)


def with_snapshot(state: HostState, **changes: object) -> HostState:
    """The state of a host whose snapshot is changed so."""
    snapshot = msgspec.structs.replace(known(state.snapshot), **changes)
    return msgspec.structs.replace(state, snapshot=snapshot)


def host(*states: HostState, place: int = 0) -> HostSummary:
    """The summary of a host after these states, one after the other."""
    judge = HostJudge(place)
    for state in states:
        summary = judge.judge(state)
    return summary
