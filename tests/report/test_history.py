"""``gpumon report`` without a file: the history of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Snapshot
from gpumon.model.time_shift import TimeShift
from gpumon.recording.archive import Archive
from gpumon.report.figures import BY
from tests.command import GPUMON, run_program
from tests.recording.archive.archives import archived, demo_samples, segments
from tests.report.logs import about, refused, report, write_log
from tests.report.test_parallel import count_in_parts

pytestmark = pytest.mark.slow

FOREVER = "1970-01-02"
AS_EXACT_AS_A_LOG = {"rel": 1e-3, "least": 1e-5}


@pytest.fixture(scope="module")
def samples() -> Sequence[Snapshot]:
    """An hour of the demo with a gap of half an hour."""
    hour = demo_samples(900, step=2.0)
    return [*hour[:400], *map(TimeShift(1800).snapshot, hour[400:])]


@pytest.fixture(scope="module")
def both(samples: Sequence[Snapshot], tmp_path_factory: Any) -> tuple[Path, Archive]:
    """A log and a history of the same samples."""
    folder = tmp_path_factory.mktemp("both")
    log = write_log(folder / "a.csv", [(one, one.time - samples[0].time) for one in samples])
    return log, Archive(archived(folder / "history", samples))


@pytest.mark.parametrize("by", BY)
def test_a_history_has_the_figures_of_a_log(both: tuple[Path, Archive], by: str) -> None:
    log, archive = both
    told = report(history=archive, by=by, first=FOREVER)
    expected = report(log, by=by, first=FOREVER)
    for line in told["lines"] + expected["lines"]:
        # Logs do not have it.
        line.pop("serial", None)
    assert told["lines"]
    assert told["lines"] == about(expected["lines"], **AS_EXACT_AS_A_LOG)
    assert told["total"] == about(expected["total"], **AS_EXACT_AS_A_LOG)
    assert told["notes"][1:] == expected["notes"]


def test_a_part_of_the_time_has_the_figures_of_that_of_a_log(
    both: tuple[Path, Archive], samples: Sequence[Snapshot]
) -> None:
    log, archive = both
    span: dict[str, Any] = {"first": "-40m", "last": "-5m", "now": samples[-1].time, "by": "user"}
    expected = about(report(log, **span)["lines"], **AS_EXACT_AS_A_LOG)
    assert report(history=archive, **span)["lines"] == expected


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of an hour."""
    return archived(tmp_path_factory.mktemp("hour") / "history", demo_samples(1200, step=3.0))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, where it is not known for 40 minutes where processes run."""
    samples = demo_samples(1200, step=3.0)
    unknown = [
        replace(one, processes=tuple([replace(each, place=None) for each in one.processes]))
        for one in samples[:800]
    ]
    return archived(tmp_path_factory.mktemp("late") / "history", [*unknown, *samples[800:]])


def test_jobs_that_are_known_late_are_the_same_in_several_processes(
    hour: Path, late: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jobs(folder: Path) -> list[dict[str, Any]]:
        return list(report(history=Archive(folder), by="job", first=FOREVER)["lines"])

    expected = jobs(late)
    assert {line["job"] for line in jobs(hour)} & {line["job"] for line in expected}
    counted = count_in_parts(monkeypatch, 10_000)
    assert jobs(late) == about(expected)
    assert counted == [True]


@pytest.mark.parametrize("by", BY)
def test_counted_in_several_processes_the_figures_are_the_same(
    hour: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    archive = Archive(hour)
    alone = report(history=archive, by=by, first=FOREVER)
    counted = count_in_parts(monkeypatch, 10_000)
    assert report(history=archive, by=by, first=FOREVER)["lines"] == about(alone["lines"])
    assert counted == [True]


def test_without_a_time_it_is_the_last_day(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    day_before = [TimeShift(-86400 * 1.5).snapshot(one) for one in samples[:60]]
    archive = Archive(archived(tmp_path / "history", [*day_before, *samples[:120]]))
    told = report(history=archive, now=samples[119].time)
    assert told["lines"][0]["covered_hours"] == pytest.approx(238 / 3600, rel=0.05)
    assert told["notes"][0].startswith(f"From the history of ada-07, {archive.folder}: ")
    assert told["notes"][0].endswith(" to now.")


def test_a_day_without_samples_is_said(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    archive = Archive(archived(tmp_path / "history", samples[:60]))
    said = refused(history=archive, now=samples[0].time + 90_000 * 2)
    assert "The history has no sample of the last day: it goes from" in said


def flip_byte(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 0xFF
    path.write_bytes(data)


def test_what_is_damaged_is_left_out_and_said(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    folder = archived(tmp_path / "history", samples[:400])
    [path] = segments(folder)
    flip_byte(path, 1 / 2)
    told = report(history=Archive(folder), now=samples[399].time)
    assert "A part of the history is damaged, and left out." in told["notes"]
    assert 0.8 < told["lines"][0]["covered_hours"] / (798 / 3600) < 1


def test_damage_that_another_process_meets_is_said(
    hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "history"
    shutil.copytree(hour, folder)
    flip_byte(segments(folder)[0], 5 / 6)
    counted = count_in_parts(monkeypatch, 10_000)
    told = report(history=Archive(folder), first=FOREVER)
    assert counted
    assert "A part of the history is damaged, and left out." in told["notes"]


def run(folder: Path, settings: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``gpumon report`` of a user with this ``[history]``."""
    config = folder / "config/gpumon/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[history]\n{settings}\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    return run_program([*GPUMON, "report", *arguments], env)


def test_the_command_without_a_file_reads_the_history_of_the_machine(
    tmp_path: Path, samples: Sequence[Snapshot]
) -> None:
    recent = TimeShift(time.time() - samples[119].time)
    archived(tmp_path / "history", map(recent.snapshot, samples[:120]))
    done = run(tmp_path, f'folder = "{tmp_path}/history"', "--by", "user")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        rf"\n *From the history of ada-07,\s+{tmp_path}/history: .* to now\.\n", done.stdout
    )
    assert re.search(r"^dara +0,1", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ('folder = "/nonexistent"', "No history of this machine is kept"),
        ("use = false", "The configuration turns off the history of this machine."),
    ],
)
def test_why_there_is_no_history_is_said(tmp_path: Path, settings: str, why: str) -> None:
    done = run(tmp_path, settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"gpumon: {why}")
    assert done.stderr.count("\n") == 1
