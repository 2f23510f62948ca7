"""False alarms: how many verdicts a simulated day of the demo's healthy GPUs has."""

from __future__ import annotations

from collections import Counter

import pytest

from gpumon.findings import FindingKind, conditions, gpu_findings
from gpumon.recording.history import History
from gpumon.sources.demo.source import DemoSource
from tests.clock import HandClock

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
STEP = 10.0
DAY = 86_400.0


@pytest.mark.usefixtures("utc")
def test_a_day_of_healthy_gpus_has_no_verdict() -> None:
    clock = HandClock()
    source = DemoSource(clock=clock)
    source.open()
    history = History(conditions())
    for snapshot in source.past():
        history.add(snapshot)
    counted: Counter[FindingKind] = Counter()
    for number in range(int(DAY / STEP)):
        clock.now += STEP
        snapshot = source.sample()
        history.add(snapshot)
        if number % 6 == 0:
            for gpu in snapshot.gpus:
                if gpu.index in HEALTHY:
                    counted.update(finding.kind for finding in gpu_findings(history, gpu))
    source.close()
    assert counted.keys() <= {FindingKind.WORKING, FindingKind.FREE, FindingKind.SLOWED_LATELY}
    assert sum(counted.values()) >= 2 * DAY / STEP / 6
    assert not VERDICTS & counted.keys()
