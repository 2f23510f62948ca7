"""Several schedulers on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.allocations import Allocations
from gpumon.model.allocations import Allocation
from tests.build import gpu, snapshot
from tests.clock import HandClock

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

SEEN = snapshot(0.0, gpu())


class FakeScheduler:
    """Has one job, answers after some looks, each of which takes a second."""

    def __init__(self, name: str, clock: HandClock, looks: int, pause: float) -> None:
        self.name, self.clock, self.looks, self.pause = name, clock, looks, pause
        self.patience: list[float] = []

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        assert snapshot is SEEN
        self.patience.append(patience)
        self.clock.now += 1.0
        self.looks -= 1
        if self.looks > 0:
            return (Allocation(self.name, unplaced=None),), 0.0
        return (Allocation(self.name, "7"),), self.pause


def test_what_all_of_them_have_given_away_counts() -> None:
    clock = HandClock(0.0)
    slow, fast = FakeScheduler("slow", clock, 3, 60.0), FakeScheduler("fast", clock, 1, 5.0)
    allocations = Allocations({"slow": lambda: slow, "fast": lambda: fast}, clock)
    assert allocations.unknown == (
        Allocation("slow", unplaced=None),
        Allocation("fast", unplaced=None),
    )
    assert allocations.find(SEEN) == (
        (Allocation("slow", unplaced=None), Allocation("fast", "7")),
        0.0,
    )
    assert allocations.settle(SEEN, 10.0) == (Allocation("slow", "7"), Allocation("fast", "7"))
    assert allocations.find(SEEN)[1] == 5.0


@pytest.mark.parametrize(("seconds", "patience"), [(2.5, [2.5, 1.5, 1.0]), (0.0, [1.0])])
def test_waiting_for_them_ends(seconds: float, patience: list[float]) -> None:
    clock = HandClock(0.0)
    slow = FakeScheduler("slow", clock, 99, 5.0)
    found = Allocations({"slow": lambda: slow}, clock).settle(SEEN, seconds)
    assert found == (Allocation("slow", unplaced=None),)
    assert slow.patience == patience
