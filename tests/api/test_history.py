"""``gpumon.history()`` reads what ``gpumon log --local`` keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gpumon
from gpumon.model.time_shift import TimeShift
from tests.command import run_program
from tests.recording.archive.archives import archived, demo_samples


@pytest.mark.slow
def test_it_has_every_snapshot_and_the_gaps(tmp_path: Path) -> None:
    taken = demo_samples(300)
    taken = [*taken[:200], *map(TimeShift(5000).snapshot, taken[200:])]
    past = gpumon.history(archived(tmp_path / "history", taken))
    assert (past.first, past.last) == (taken[0].time, taken[-1].time)
    assert [*past.between()] == [gpumon.Snapshot.of(one) for one in taken]
    assert [one.time for one in past.between(taken[50].time, taken[59].time + 0.5)] == [
        one.time for one in taken[50:60]
    ]
    assert past.at(taken[70].time + 0.4) == gpumon.Snapshot.of(taken[70])
    assert past.at(taken[0].time - 1) is None
    assert past.at(taken[199].time + 1000) == gpumon.Snapshot.of(taken[199])
    assert str(tmp_path) in repr(past)


def test_without_a_history_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(gpumon.GpuError, match="No history of this machine is kept"):
        gpumon.history(tmp_path / "none")


def test_a_relative_folder_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(tmp_path / "history", demo_samples(3))
    monkeypatch.chdir(tmp_path)
    assert gpumon.history("history").folder == str(tmp_path / "history")


def test_a_history_that_is_removed_meanwhile_ends(tmp_path: Path) -> None:
    past = gpumon.history(archived(tmp_path / "history", demo_samples(200)))
    snapshots = past.between()
    next(snapshots)
    for path in (tmp_path / "history").iterdir():
        path.unlink()
    assert len([*snapshots]) <= 199


def test_it_needs_no_driver(tmp_path: Path) -> None:
    folder = archived(tmp_path / "history", demo_samples(10))
    code = (
        "import sys, gpumon\n"
        "print(len([*gpumon.history(sys.argv[1]).between()]))\n"
        "assert not any(name.startswith('gpumon.makers.nvml') for name in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = run_program(command)
    assert (done.stdout, done.stderr) == ("10\n", "")
