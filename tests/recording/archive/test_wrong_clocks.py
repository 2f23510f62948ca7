"""A clock that was wrong for a while displaces and removes no other samples."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpumon.recording.archive import Archive
from tests.build import NOON
from tests.recording.archive.archives import plain, samples_of, segments, writer

DAY, YEAR = 86400, 365 * 86400


def run(folder: Path, *times: float) -> None:
    """One run of the writer with samples at these times, and files that were written then."""
    log = writer(folder)
    for number, time in enumerate(times):
        log.write({None: plain(time - NOON, int(time) % 1000)}, number * 60)
        os.utime(segments(folder)[-1], (time, time))
    log.close()


def times_and_values(folder: Path) -> Iterable[tuple[float, int]]:
    found = samples_of(Archive(folder))
    return [(sample.time, sample.gpus[0].memory_used or 0) for sample in found]


NIGHT = (NOON, NOON + 60, NOON + 120)


@pytest.mark.parametrize("wrong", [40.0, NOON + 10 * YEAR], ids=["1970", "in ten years"])
def test_a_boot_with_a_wrong_clock_displaces_its_own_samples_only(
    tmp_path: Path, wrong: float
) -> None:
    run(tmp_path, *NIGHT)
    run(tmp_path, wrong)
    run(tmp_path, NOON + 600, NOON + 660)
    found = times_and_values(tmp_path)
    assert [value for _, value in found] == [
        int(time) % 1000 for time in (*NIGHT, wrong, NOON + 600, NOON + 660)
    ]
    times = [time for time, _ in found]
    assert times[:3] == list(NIGHT)
    assert NOON + 120 < times[3] <= NOON + 600
    assert times[4:] == [NOON + 600, NOON + 660]


def test_what_overlaps_moves_back(tmp_path: Path) -> None:
    run(tmp_path, *NIGHT)
    run(tmp_path, NOON - 7200, NOON - 7140)
    run(tmp_path, NOON + 30, NOON + 90)
    times = [time for time, _ in times_and_values(tmp_path)]
    assert times == sorted(times)
    assert times[2] == pytest.approx(NOON - 7201)


AHEAD, LATER = NOON + 10 * YEAR, NOON + 20 * DAY
HOURS = [NOON + 3600 * number for number in range(1, 10 * 24)]


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        pytest.param([[NOON + 180, AHEAD, AHEAD + 60, NOON + 600]], NOON, id="ahead for a while"),
        pytest.param([[AHEAD, AHEAD + 60], [NOON + 600]], NOON, id="ahead until a restart"),
        pytest.param([[LATER, LATER + 3600]], LATER, id="the machine was off for weeks"),
        pytest.param(
            [[AHEAD], HOURS],
            pytest.approx(HOURS[-1] - 7 * DAY, abs=2 * 3600),
            id="ahead for a while, days ago",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_old_by_the_right_clock_is_removed_and_nothing_else(
    tmp_path: Path, runs: list[list[float]], first: float
) -> None:
    for times in (NIGHT, *runs):
        run(tmp_path, *times)
    assert Archive(tmp_path).first == first


def test_a_clock_that_is_ahead_for_hours_removes_nothing(tmp_path: Path) -> None:
    hours = [NOON + 3600 * number for number in range(6)]
    run(tmp_path, *hours)
    ahead = [NOON + 20 * DAY + 3600 * number for number in range(4)]
    run(tmp_path, *ahead)
    assert len(segments(tmp_path)) == 10
    run(tmp_path, NOON + 36000)
    assert [value for _, value in times_and_values(tmp_path)] == [
        int(time) % 1000 for time in (*hours, *ahead, NOON + 36000)
    ]
