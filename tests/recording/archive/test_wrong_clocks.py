"""A clock that was wrong for a while displaces and removes no other samples."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.recording.archive import Archive
from tests.build import NOON, gpu, snapshot
from tests.recording.archive.archives import samples_of, segments, writer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot

DAY, YEAR = 86400, 365 * 86400


def run(folder: Path, *times: float) -> None:
    """One run of the writer with samples at these times, and files that were written then."""
    log = writer(folder)
    for number, time in enumerate(times):
        log.write({None: at(time)}, number * 60)
        os.utime(segments(folder)[-1], (time, time))
    log.close()


def at(time: float) -> Snapshot:
    return replace(snapshot(0, gpu(memory_used=int(time) % 1000)), time=time)


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


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_ahead_for_a_while_removes_nothing(tmp_path: Path, restarted: bool) -> None:
    run(tmp_path, *NIGHT)
    ahead = NOON + 10 * YEAR
    if restarted:
        run(tmp_path, ahead, ahead + 60)
        run(tmp_path, NOON + 600)
    else:
        run(tmp_path, NOON + 180, ahead, ahead + 60, NOON + 600)
    assert Archive(tmp_path).first == NOON


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


@pytest.mark.slow
def test_a_clock_that_was_ahead_for_a_while_does_not_keep_what_is_old(tmp_path: Path) -> None:
    run(tmp_path, *NIGHT)
    run(tmp_path, NOON + 10 * YEAR)
    hours = [NOON + 3600 * number for number in range(1, 10 * 24)]
    run(tmp_path, *hours)
    assert Archive(tmp_path).first == pytest.approx(hours[-1] - 7 * DAY, abs=2 * 3600)


def test_days_count_although_the_machine_was_off(tmp_path: Path) -> None:
    run(tmp_path, *NIGHT)
    later = NOON + 20 * DAY
    run(tmp_path, later, later + 3600)
    assert Archive(tmp_path).first == later
