"""False alarms: how many verdicts half a simulated day of the demo's healthy GPUs has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.findings import FindingKind, conditions, gpu_findings
from gpumon.makers.demo.source import DemoSource
from gpumon.recording.history import History
from tests.clock import HandClock

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

VERDICTS = {
    FindingKind.NVLINK_ERRORS,
    FindingKind.IDLE_IN_JOB,
    FindingKind.SLOW_LINK,
    FindingKind.BUSY_EMPTY,
    FindingKind.STARVED,
    FindingKind.SHARED,
    FindingKind.FILLING,
    FindingKind.MEMORY_BOUND,
}
HEALTHY = (0, 4)
"""GPUs of the demo that have no other part to play than to work, and to be free."""
KEPT = {*HEALTHY, 1}
"""The job on GPU 0 runs on GPU 1 too."""
STEP = 10.0
HALF_A_DAY = 43_200.0
"""The longest period in the demo is five hours."""


def with_few_gpus(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the healthy GPUs and the others of their jobs only."""
    gpus = tuple(gpu for gpu in snapshot.gpus if gpu.index in KEPT)
    processes = tuple(one for one in snapshot.processes if not KEPT.isdisjoint(one.gpu_indices))
    return replace(snapshot, gpus=gpus, processes=processes)


@pytest.mark.slow
@pytest.mark.usefixtures("utc")
def test_half_a_day_of_healthy_gpus_has_no_verdict() -> None:
    clock = HandClock()
    source = DemoSource(clock=clock)
    source.open()
    history = History(conditions())
    for snapshot in source.past():
        history.add(with_few_gpus(snapshot))
    counted: Counter[FindingKind] = Counter()
    for number in range(int(HALF_A_DAY / STEP)):
        clock.now += STEP
        snapshot = with_few_gpus(source.sample())
        history.add(snapshot)
        if number % 6 == 0:
            for gpu in snapshot.gpus:
                if gpu.index in HEALTHY:
                    counted.update(finding.kind for finding in gpu_findings(history, gpu))
    source.close()
    assert counted.keys() <= {
        *(FindingKind.WORKING, FindingKind.FREE, FindingKind.ALLOCATED),
        FindingKind.SLOWED_LATELY,
    }
    assert sum(counted.values()) >= 2 * HALF_A_DAY / STEP / 6
    assert not VERDICTS & counted.keys()
