"""How long GPUs were allocated to jobs, and not used, in a report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.report.logs import about, report
from tests.report.test_adding_up import START, Row, iso, logs, sample, use, write
from tests.report.test_parallel import count_in_parts

pytestmark = pytest.mark.slow


def allocated(number: int | None, jobs: str | None = None, users: str | None = None) -> Row:
    return {"allocations": number, "allocated.jobs": jobs, "allocated.users": users}


ANN = allocated(1, "slurm 88123", "ann")
NOBODY = allocated(0)


def log(path: Path, spans: Iterable[tuple[int, Row, int]]) -> Path:
    """A log of a GPU: seconds, to whom it is allocated then, and its number of processes."""
    rows, lists = [], [use(0, at=START - 1e5)]
    second = 0
    for seconds, row, processes in spans:
        for _ in range(seconds):
            own = {"processes": processes, "power.draw [W]": 100, "utilization.gpu [%]": 0}
            rows.append(sample(second) | own | row)
            lists += [use(second, user="bo", slurm_job="7")] * bool(processes)
            second += 1
    return write(path, [*rows, rows[-1] | {"at": START + second, "elapsed [s]": second}], lists)


def seconds(line: dict[str, Any]) -> tuple[int | None, int | None]:
    """For how long it was allocated, and not used then."""
    hours = line["allocated_hours"], line["unused_allocated_hours"]
    known = [None if each is None else round(3600 * each) for each in hours]
    return known[0], known[1]


def test_a_job_that_uses_nothing_has_its_hours(tmp_path: Path) -> None:
    path = log(tmp_path / "run.csv", [(10, NOBODY, 0), (40, ANN, 0), (20, ANN, 1), (30, NOBODY, 1)])
    for by in ("gpu", "host"):
        (line,) = report(path, by=by)["lines"]
        assert seconds(line) == (60, 40)
        assert line["unused_allocated_kwh"] == pytest.approx(4000 / 3.6e6, abs=1e-6)
        assert (line["allocated_known"], line["unused_allocated_known"]) == (1, 1)
    for by, name in (("user", "ann"), ("job", "slurm 88123")):
        bo, ann = report(path, by=by)["lines"]
        assert (ann[by], ann["user"], ann["gpus"], ann["gpu_hours"]) == (name, "ann", "0", None)
        assert (ann["first"], ann["last"]) == (iso(START + 10), iso(START + 69))
        assert (bo["user"], seconds(bo), seconds(ann)) == ("bo", (None, None), (60, 40))


def test_processes_of_a_job_and_its_gpus_are_one_line(tmp_path: Path) -> None:
    path = log(tmp_path / "run.csv", [(40, allocated(1, "slurm 7", "bo"), 1)])
    for by in ("user", "job"):
        (line,) = report(path, by=by)["lines"]
        assert seconds(line) == (40, 0)
        assert round(3600 * line["gpu_hours"]) == 40


def test_what_is_not_known_of_a_gpu_is_not_counted(tmp_path: Path) -> None:
    unsure = allocated(None, "slurm 88123?", "ann")
    path = log(tmp_path / "run.csv", [(30, ANN, 0), (10, unsure, 0), (60, allocated(None), 0)])
    (line,) = report(path)["lines"]
    assert seconds(line) == (30, 30)
    assert line["allocated_known"] == pytest.approx(0.3)
    (ann,) = report(path, by="user")["lines"]
    assert seconds(ann) == (30, 30)
    assert ann["allocated_known"] == pytest.approx(0.75)
    only = log(tmp_path / "only.csv", [(10, unsure, 0)])
    assert seconds(report(only)["lines"][0]) == (None, None)
    assert seconds(report(only, by="job")["lines"][0]) == (None, None)


@pytest.mark.parametrize("by", ["user", "job"])
def test_before_a_scheduler_has_answered_there_is_no_line_for_what_it_may_have_given(
    by: str, tmp_path: Path
) -> None:
    path = log(tmp_path / "run.csv", [(5, allocated(None, "slurm -?", ""), 0), (20, NOBODY, 1)])
    (bo,) = report(path, by=by)["lines"]
    assert (bo["user"], bo["processes"]) == ("bo", 1)


def test_without_a_scheduler_or_its_columns_nothing_is_known(tmp_path: Path) -> None:
    for row in ({}, allocated(None)):
        (line,) = report(log(tmp_path / "run.csv", [(10, row, 1)]))["lines"]
        assert seconds(line) == (None, None)


def test_a_gpu_whose_processes_are_not_known_is_not_called_unused(tmp_path: Path) -> None:
    path = log(tmp_path / "run.csv", [(40, ANN, 0), (20, ANN, 1)])
    path.write_text(path.read_text().replace(",0,100,0,1,", ",,100,0,1,"))
    (line,) = report(path)["lines"]
    assert seconds(line) == (60, 0)
    assert line["unused_allocated_known"] == pytest.approx(1 / 3, abs=0.001)


def test_a_gpu_of_several_jobs_counts_once_and_for_each_of_them(tmp_path: Path) -> None:
    both = allocated(2, "slurm 5;slurm 88_4", "ann;bo")
    mine = allocated(2, "slurm 5;slurm 6", "ann;ann")
    path = log(tmp_path / "run.csv", [(40, both, 0), (20, mine, 0)])
    assert seconds(report(path)["total"]) == (60, 60)
    users = {line["user"]: seconds(line) for line in report(path, by="user")["lines"]}
    assert users == {"ann": (60, 60), "bo": (40, 40)}
    jobs = {line["job"]: seconds(line) for line in report(path, by="job")["lines"]}
    assert jobs == {"slurm 5": (60, 60), "slurm 88_4": (40, 40), "slurm 6": (20, 20)}


def test_a_pod_has_the_name_that_its_processes_have(tmp_path: Path) -> None:
    path = log(tmp_path / "run.csv", [(10, allocated(1, "kubernetes ml/train-0"), 1)])
    lists = path.with_suffix(".processes.csv")
    lists.write_text(
        lists.read_text().replace("slurm_job", "container").replace(",7,", ",pod train-0,")
    )
    lines = report(path, by="job")["lines"]
    assert [line["job"] for line in lines] == ["pod train-0"]
    assert seconds(lines[0]) == (10, 0)


def test_names_from_outside_are_harmless(tmp_path: Path) -> None:
    row = allocated(1, "slurm 7\x1b[2J", "=an\x1b[2J")
    path = log(tmp_path / "run.csv", [(10, row, 0)])
    for by in ("user", "job"):
        (line,) = report(path, by=by)["lines"]
        assert "\x1b" not in "".join(map(str, line.values()))


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=logs())
def test_gpus_with_one_job_at_a_time_have_the_hours_of_all_jobs(
    tmp_path: Path, drawn: tuple[list[Row], list[Row], list[float]]
) -> None:
    rows, lists, _ = drawn
    one = [row | (ANN if row["allocations"] == 2 else {}) for row in rows]
    path = write(tmp_path / "run.csv", one, [use(0, at=START - 1e5), *lists])
    total = report(path)["total"]
    assume(total["allocated_hours"])
    for by in ("user", "job"):
        lines = report(path, by=by)["lines"]
        for figure in ("allocated_hours", "unused_allocated_hours"):
            hours = sum(line[figure] or 0 for line in lines)
            assert hours == pytest.approx(total[figure] or 0, abs=1e-5)


def test_a_long_log_that_is_read_in_parts_has_the_same_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [
        (37, (ANN, NOBODY, allocated(1, "slurm 6", "bo"))[at % 3], at // 3 % 2) for at in range(90)
    ]
    path = log(tmp_path / "run.csv", spans)
    whole = {by: report(path, by=by)["lines"] for by in ("gpu", "host", "user")}
    counted = count_in_parts(monkeypatch, 2**14)
    for by, lines in whole.items():
        assert report(path, by=by)["lines"] == about(lines)
    assert counted == [True] * 3


def test_a_part_that_cannot_know_whose_an_allocation_is_is_read_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the first part has processes of bo: alone, the last one would skip the allocation.
    spans = [(1665, NOBODY, 1), (1665, allocated(None, "slurm -?", "bo"), 0)]
    path = log(tmp_path / "run.csv", spans)
    whole = report(path, by="user")["lines"]
    counted = count_in_parts(monkeypatch, 2**14)
    (bo,) = report(path, by="user")["lines"]
    assert [bo] == about(whole)
    assert bo["allocated_known"] < 0.6
    assert counted == [False]
