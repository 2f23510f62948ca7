"""Each limit of a finding at its edge: a value there counts, from its time on; one beyond does not.

The numbers stand here once more, so that none is changed by mistake.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpumon.findings import FindingKind, conditions, gpu_findings, process_findings
from gpumon.findings.lag import lags
from gpumon.model.processes import Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Snapshot
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

MIB = 2**20
VLLM = Workload(server=InferenceServer("vllm", "qwen", 100, 1))


class Limit(NamedTuple):
    kind: FindingKind
    after: int  # seconds
    at: Snapshot  # with a value that just counts
    beyond: Snapshot  # with one that does not


def work(**changes: object) -> Snapshot:
    """A busy GPU with a process."""
    values = {"utilization_gpu": 95, "power_draw": 400.0, **changes}
    return snapshot(NOON, gpu(**values), processes=(process(memory_used=GIB, sm=90),))


def link(**changes: object) -> Snapshot:
    full = {"pcie_generation": 5, "pcie_width": 16, "pcie_generation_max": 5, "pcie_width_max": 16}
    return work(**{**full, **changes})


def memory(unlisted: int, **changes: object) -> Snapshot:
    """A GPU with memory that its process does not hold."""
    return work(memory_used=GIB + unlisted, **changes)


def two_jobs(sm: int) -> Snapshot:
    """A GPU on which the kernels of a second job take so many percent."""
    processes = (
        replace(process(pid, sm=percent), place=Workload(session=pid))
        for pid, percent in ((1, 50), (2, sm))
    )
    return replace(work(), processes=tuple(processes))


def idle(utilization: int) -> Snapshot:
    return snapshot(NOON, gpu(utilization_gpu=utilization), processes=(process(sm=0),))


def alone(utilization: int) -> Snapshot:
    return snapshot(NOON, gpu(utilization_gpu=utilization))


def empty(**changes: object) -> Snapshot:
    return work(**{"sm_active": 20.0, "utilization_gpu": 90, **changes})


def bound(dram: float, tensor: float) -> Snapshot:
    return work(dram_active=dram, tensor_active=tensor)


def stuck(**changes: object) -> Snapshot:
    return work(**{"power_draw": 209.9, "power_limit": 700.0, **changes})


LARGE = {"memory_total": 180 * GIB, "memory_free": 170 * GIB}
LIMITS = {
    "link, load": Limit(
        FindingKind.SLOW_LINK,
        120,
        link(pcie_width=8, utilization_gpu=50),
        link(pcie_width=8, utilization_gpu=49),
    ),
    "link, lanes": Limit(FindingKind.SLOW_LINK, 120, link(pcie_width=15), link()),
    "link, generation": Limit(FindingKind.SLOW_LINK, 120, link(pcie_generation=4), link()),
    "empty, load": Limit(FindingKind.BUSY_EMPTY, 300, empty(), empty(utilization_gpu=89)),
    "empty, SMs": Limit(FindingKind.BUSY_EMPTY, 300, empty(), empty(sm_active=20.1)),
    "memory-bound, DRAM": Limit(FindingKind.MEMORY_BOUND, 180, bound(80, 25), bound(79.9, 25)),
    "memory-bound, cores": Limit(FindingKind.MEMORY_BOUND, 180, bound(80, 25), bound(80, 25.1)),
    "stuck, load": Limit(FindingKind.STUCK, 600, stuck(), stuck(utilization_gpu=94)),
    "stuck, power": Limit(FindingKind.STUCK, 600, stuck(), stuck(power_draw=210.0)),
    "shared": Limit(FindingKind.SHARED, 120, two_jobs(20), two_jobs(19)),
    "idle": Limit(FindingKind.IDLE, 60, idle(0), idle(1)),
    "busy, by nobody": Limit(FindingKind.BUSY_UNLISTED, 10, alone(1), alone(0)),
    "memory of nobody": Limit(
        FindingKind.UNATTRIBUTED,
        10,
        memory(256 * MIB + 1, memory_reserved=0),
        memory(256 * MIB, memory_reserved=0),
    ),
    "memory of nobody, with the driver's": Limit(
        FindingKind.UNATTRIBUTED, 10, memory(8 * GIB // 10 + 1), memory(8 * GIB // 10)
    ),
    "memory of nobody, with a display's": Limit(
        FindingKind.UNATTRIBUTED,
        10,
        memory(8 * GIB // 10 + 1, memory_reserved=0, display_active=True),
        memory(8 * GIB // 10, memory_reserved=0, display_active=True),
    ),
    "memory of nobody, small GPU": Limit(
        FindingKind.UNATTRIBUTED,
        10,
        memory(768 * MIB + 1, memory_total=16 * GIB),
        memory(768 * MIB, memory_total=16 * GIB),
    ),
    "slowed by heat": Limit(
        FindingKind.HOT, 2, work(clock_event_reasons=0x40), work(clock_event_reasons=0)
    ),
    "slowed": Limit(
        FindingKind.THROTTLED, 2, work(clock_event_reasons=0x80), work(clock_event_reasons=4)
    ),
}


def kinds(history: History) -> set[FindingKind]:
    return {finding.kind for finding in gpu_findings(history, known(history.latest).gpus[0])}


def add(history: History, seen: Snapshot, seconds: float) -> None:
    history.add(replace(seen, time=NOON + seconds, processes_at=NOON + seconds))


def seen_for(seen: Snapshot, seconds: float) -> History:
    """A GPU that was well, and then like this for so long, in ten samples."""
    history = History(conditions())
    well = snapshot(NOON, gpu(utilization_gpu=40), processes=(process(sm=40),))
    for sample, each in enumerate([well] + [seen] * 10):
        add(history, each, seconds * sample / 9)
    return history


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_value_at_its_limit_is_found_from_its_time_on(limit: Limit) -> None:
    assert limit.kind not in kinds(seen_for(limit.at, limit.after - 0.5))
    assert limit.kind in kinds(seen_for(limit.at, limit.after))


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_value_beyond_its_limit_is_never_found(limit: Limit) -> None:
    assert limit.kind not in kinds(seen_for(limit.beyond, 2 * limit.after))


@pytest.mark.parametrize(
    ("cpu", "low", "high", "found"),
    [
        (90.0, 30, 50, True),
        (115.0, 30, 50, True),
        (89.9, 30, 50, False),
        (115.1, 30, 50, False),
        (100.0, 31, 50, False),
        (100.0, 30, 49, False),
    ],
)
def test_a_load_that_comes_and_goes_is_starved_within_its_limits(
    cpu: float, low: int, high: int, *, found: bool
) -> None:
    history = History(conditions())
    for sample in range(20):
        load = low if sample % 2 else high
        seen = replace(work(utilization_gpu=load), processes=(replace(process(), cpu_percent=cpu),))
        add(history, seen, 10.0 * sample)
        # The first low load came 10 s after the start: it has lasted for 180 s with the last.
        assert (FindingKind.STARVED in kinds(history)) is (found and sample == 19)


WAITING = ServerLoad(running=40, waiting=1, tokens=900.0, prompt_tokens=500.0, kv_cache=95.0)
HANGING = ServerLoad(running=1, waiting=0, tokens=5.0, prompt_tokens=50.0, kv_cache=12.0)


@pytest.mark.parametrize(
    ("kind", "after", "load", "sm", "beyond"),
    [
        (FindingKind.REQUESTS_WAIT, 30, WAITING, 95, replace(WAITING, waiting=0)),
        (FindingKind.REQUESTS_WAIT, 30, WAITING, 95, replace(WAITING, kv_cache=94.9)),
        (FindingKind.SLOW_SERVER, 60, HANGING, 95, replace(HANGING, running=0)),
        (FindingKind.SLOW_SERVER, 60, HANGING, 95, replace(HANGING, tokens=5.1)),
        (FindingKind.SLOW_SERVER, 60, HANGING, 95, replace(HANGING, prompt_tokens=50.1)),
        (FindingKind.SLOW_SERVER, 60, HANGING, 95, 94),
    ],
    ids=["waiting", "cache", "running", "tokens", "prompts", "SMs"],
)
def test_a_server_at_its_limit_is_found_from_its_time_on(
    kind: FindingKind, after: int, load: ServerLoad, sm: int, beyond: ServerLoad | int
) -> None:
    def found(load: ServerLoad, sm: int, seconds: float) -> bool:
        history = History(conditions())
        served = replace(process(sm=sm), place=VLLM, load=load)
        well = replace(served, load=ServerLoad(1, 0, 0.5, 900.0, 500.0, 12.0))
        for sample, each in enumerate([well] + [served] * 10):
            add(history, snapshot(NOON, gpu(), processes=(each,)), seconds * sample / 9)
        return kind in {finding.kind for finding in process_findings(history, served)}

    assert not found(load, sm, after - 0.5)
    assert found(load, sm, after)
    if isinstance(beyond, int):
        assert not found(load, beyond, 2 * after)
    else:
        assert not found(beyond, sm, 2 * after)


@pytest.mark.parametrize(
    ("load", "usual", "lagging"),
    [(49.9, 100.0, True), (50.0, 100.0, False), (10.0, 30.0, True), (10.1, 30.0, False)],
)
def test_a_machine_lags_below_half_the_usual_load_and_by_twenty_percent(
    load: float, usual: float, *, lagging: bool
) -> None:
    assert lags(load, usual) is lagging
