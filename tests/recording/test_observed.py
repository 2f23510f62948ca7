"""What a history takes from samples: errors of links, the busiest process, where a state began."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.recording.history import History
from gpumon.recording.history.intervals import ConditionTracker
from tests.build import NOON, gpu, process, snapshot


@pytest.mark.parametrize(
    ("counts", "increases"),
    [
        ([3, 3, 3], []),
        ([3, 5, 5, 6], [(1, 2), (3, 1)]),
        ([3, None, 5], [(2, 2)]),
        ([None, 5, 6], [(2, 1)]),
        ([9, 2, 4], [(2, 2)]),
        ([0, 1], [(1, 1)]),
    ],
    ids=["none", "some", "unknown for a while", "unknown at first", "a new driver", "from zero"],
)
def test_errors_of_nvlink_count_from_the_first_number_of_a_driver(
    counts: list[int | None], increases: list[tuple[int, int]]
) -> None:
    history = History({})
    for second, errors in enumerate(counts):
        history.add(snapshot(NOON + second, gpu(nvlink_errors=errors)))
    found = history.nvlink_increases("GPU-0", 60.0)
    assert found == [(NOON + second, errors) for second, errors in increases]


@pytest.mark.parametrize(
    ("percents", "busiest"),
    [
        ([20.0, 90.0, 40.0], 90.0),
        ([90.0, 20.0], 90.0),
        ([None, 5.0, None], 5.0),
        ([0.0, None], 0.0),
        ([None], None),
    ],
)
def test_the_cpu_use_of_a_holding_is_that_of_its_busiest_process(
    percents: list[float | None], busiest: float | None
) -> None:
    history = History({})
    drawing = replace(process(9, type_="G"), cpu_percent=300.0)
    processes = [
        replace(process(pid), cpu_percent=percent) for pid, percent in enumerate(percents, 1)
    ]
    history.add(snapshot(NOON, gpu(), processes=(drawing, *processes)))
    holding = history.holding(gpu())
    assert holding is not None
    assert holding.cpu_percent == busiest


@pytest.mark.parametrize(("seconds", "observed"), [(5.0, True), (5.5, False)])
def test_a_state_was_seen_to_begin_if_it_was_denied_as_long_ago_as_patience(
    seconds: float, *, observed: bool
) -> None:
    tracker = ConditionTracker()
    tracker.see(False, NOON, 5.0)
    tracker.see(True, NOON + seconds, 5.0)
    assert tracker.start_observed is observed
