"""Whatever a GPU does, each transition is reported once, and a restart changes nothing.

The rules are checked on the whole course, looking back from each sample, where the engine goes
forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.alerts.instances import GONE_FOR
from gpumon.model.snapshot import Snapshot
from tests.alerts.machine import Machine, alert
from tests.build import NOON, gpu, snapshot

STEP = 5.0
_SEEN: dict[str, tuple[Snapshot, bool | None]] = {
    "hot": (snapshot(NOON, gpu(temperature_gpu=91)), True),
    "cool": (snapshot(NOON, gpu(temperature_gpu=40)), False),
    "unknown": (snapshot(NOON, gpu(temperature_gpu=None)), None),
    "vanished": (snapshot(NOON, gpu(index=1)), None),
}
_Course = list[tuple[str, int]]
"""What is seen, and in how many samples."""

courses = st.lists(
    st.tuples(st.sampled_from([*_SEEN, "hot", "cool", "cool"]), st.integers(1, 20)), max_size=25
)


class Report(NamedTuple):
    at: int
    ended: bool


def reports(machine: Machine) -> list[Report]:
    return [Report(round((notice.at - NOON) / STEP), notice.ended) for notice in machine.notices]


def follow(course: _Course, for_seconds: float, cooldown: float) -> list[Report]:
    machine = Machine(alert("temp>85", for_seconds=for_seconds, cooldown=cooldown, ended=True))
    for seen, samples in course:
        machine.show(samples * STEP, _SEEN[seen][0], STEP)
    return reports(machine)


def seconds_of(values: Sequence[bool | None], at: int, wanted: bool) -> float:
    """How long a value has been seen up to a sample, back to the last sample with the other."""
    seconds, place = 0.0, at
    while place >= 0 and values[place] is not (not wanted):
        if place and values[place] is wanted and values[place - 1] is wanted:
            seconds += STEP
        place -= 1
    return seconds


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@example([("cool", 1), ("hot", 1), ("vanished", 1), ("hot", 5)], 30.0, 0.0)
@given(courses, st.sampled_from([0.0, 30.0, 100.0]), st.sampled_from([0.0, 300.0]))
def test_each_transition_is_reported_once(
    course: _Course, for_seconds: float, cooldown: float
) -> None:
    notices = follow(course, for_seconds, cooldown)
    reported = {notice.at: notice.ended for notice in notices}
    assert len(reported) == len(notices)
    values = [_SEEN[seen][1] for seen, samples in course for _ in range(samples)]
    # Whether it holds, reported or not; what holds at the first sample counts as reported.
    known = [place for place, value in enumerate(values) if value is not None]
    holds = bool(known) and values[known[0]] is True
    reported_at: int | None = None
    is_reported = False
    for at in known:
        if holds and seconds_of(values, at, wanted=False) >= GONE_FOR and values[at] is False:
            holds = False
            assert reported.pop(at, None) is (True if is_reported else None)
            is_reported = False
        elif not holds and values[at] is True:
            long_enough = seconds_of(values, at, wanted=True) >= for_seconds
            again = reported_at is None or (at - reported_at) * STEP >= cooldown
            if long_enough and again:
                assert reported.pop(at, None) is False
                holds = is_reported = True
                reported_at = at
    assert reported == {}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    courses,
    st.sampled_from([0.0, 30.0]),
    st.sampled_from([0.0, 300.0]),
    st.sets(st.integers(0, 24), max_size=5),
)
def test_a_restart_changes_nothing(
    course: _Course, for_seconds: float, cooldown: float, restarts: set[int]
) -> None:
    expected = follow(course, for_seconds, cooldown)
    with TemporaryDirectory() as folder:
        machine = Machine(
            alert("temp>85", for_seconds=for_seconds, cooldown=cooldown, ended=True),
            state=Path(folder) / "state.json",
        )
        for number, (seen, samples) in enumerate(course):
            if number in restarts:
                machine.restart()
            machine.show(samples * STEP, _SEEN[seen][0], STEP)
        machine.engine.close()
    assert reports(machine) == expected
