"""A state that began before the start, as the history of the machine knows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpumon.alerts.engine import AlertEngine
from gpumon.alerts.watch import begun_history
from gpumon.model.thresholds import DEFAULTS
from gpumon.model.time_shift import TimeShift
from gpumon.recording.archive import find_archive
from tests.alerts.machine import alert
from tests.recording.archive.archives import archived, demo_samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.archive import FoundArchive

BEFORE = 170
"""Samples before the restart, one in ten seconds."""


@pytest.fixture(scope="module")
def samples() -> Sequence[Snapshot]:
    """Samples of the demo, of which the last one before the restart is of now."""
    taken = demo_samples(BEFORE + 40, step=10.0)
    return [*map(TimeShift(time.time() - taken[BEFORE - 1].time).snapshot, taken)]


def restarted(folder: Path, samples: Sequence[Snapshot]) -> tuple[str, list[tuple[float, str]]]:
    """What is said after the restart: the folder of the history; seconds and texts of notices."""

    def find() -> FoundArchive:
        return find_archive("ada-07", str(folder))

    history, known_from = begun_history(DEFAULTS, find)
    engine = AlertEngine([alert("idle>30m gpu:3")], DEFAULTS)
    said = []
    for sample in samples[BEFORE:]:
        history.add(sample)
        for _, notice in engine.check(history, sample):
            said.append((sample.time - samples[0].time, notice.sentence))
    return known_from, said


def test_a_state_goes_on_after_a_restart(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    folder = archived(tmp_path / "history", samples[:BEFORE])
    known_from, said = restarted(folder, samples)
    assert known_from == str(folder)
    # Two processes on the GPU have been idle since the first sample.
    assert [seconds for seconds, _ in said] == [pytest.approx(1800, abs=30)] * 2
    assert all("30m" in sentence for _, sentence in said)


def test_a_history_that_ended_before_says_nothing(
    tmp_path: Path, samples: Sequence[Snapshot]
) -> None:
    earlier = TimeShift(-600).snapshot
    folder = archived(tmp_path / "history", map(earlier, samples[:BEFORE]))
    assert restarted(folder, samples) == ("", [])


@pytest.mark.parametrize(("interval", "is_used"), [(1.0, False), (60.0, True), (1e9, True)])
def test_it_goes_on_by_the_pace_of_the_history(
    tmp_path: Path, samples: Sequence[Snapshot], interval: float, is_used: bool
) -> None:
    earlier = TimeShift(-100).snapshot
    before = [earlier(sample) for sample in samples[12:BEFORE:6]]
    folder = archived(tmp_path / "history", before, interval=interval)
    known_from, said = restarted(folder, samples)
    assert bool(known_from) is is_used
    assert bool(said) is is_used


def test_without_a_history_it_counts_from_the_start(
    tmp_path: Path, samples: Sequence[Snapshot]
) -> None:
    assert restarted(tmp_path / "none", samples) == ("", [])
    assert begun_history(DEFAULTS, None)[1] == ""
