"""What inference servers did, in a report."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.text.csv_cells import iso_time
from tests.build import NOON, gpu, process, snapshot
from tests.report.logs import printed, report, write_log

BUSY = ServerLoad(2, 1, 0.5, 40.0, 100.0, 60.0)
IDLE = ServerLoad(0, 0, 0.0, 0.0, 0.0, 0.0)
NOT_TOLD = ServerLoad(problem="it needs a key")


def worker(
    pid: int, load: ServerLoad | None, *, server: int = 7, gpus: tuple[int, ...] = (0,)
) -> GpuProcess:
    of_server = InferenceServer("vllm", "Qwen/Qwen2.5-14B", server, 1)
    place = Workload(slurm_job=f"88{server}", server=of_server)
    return replace(process(pid, sm=0, gpus=gpus), place=place, load=load)


def log(
    path: Path, seconds: int, processes: Callable[[int], tuple[GpuProcess, ...]], start: int = 0
) -> Path:
    """A log of two GPUs with these processes at each second."""
    cards = (gpu(power_draw=100.0), gpu(index=1, power_draw=100.0))
    samples = (
        (snapshot(NOON + second, *cards, processes=processes(second)), float(second - start))
        for second in range(start, start + seconds + 1)
    )
    return write_log(path, samples)


def lines(*paths: Path, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report(*paths, **options)["lines"]
    return found


def served(line: dict[str, Any]) -> tuple[object, ...]:
    idle = line["server_idle_hours"]
    return line["tokens"], line["requests"], None if idle is None else round(3600 * idle)


def test_the_workers_of_a_server_without_a_job_are_one_job(tmp_path: Path) -> None:
    def unplaced(one: GpuProcess) -> GpuProcess:
        assert one.place is not None
        return replace(one, place=replace(one.place, slurm_job=None))

    some = worker(100, BUSY), worker(101, BUSY, gpus=(1,)), worker(200, IDLE, server=8)
    path = log(tmp_path / "run.csv", 100, lambda _: tuple(map(unplaced, some)))
    first, second = lines(path, by="job")
    assert first["job"] == second["job"] == "vllm Qwen2.5-14B"
    assert (first["processes"], served(first)) == (2, (4000, 50, 0))
    assert (second["processes"], served(second)) == (1, (0, 0, 100))


@pytest.mark.parametrize("by", ["user", "job"])
def test_a_server_counts_once_however_many_workers_it_has(tmp_path: Path, by: str) -> None:
    def processes(second: int) -> tuple[GpuProcess, ...]:
        # Lists are written every 4 s.
        load = BUSY if second < 100 else IDLE
        return (worker(100, load), worker(101, load, gpus=(1,)), worker(102, load, gpus=(0, 1)))

    (line,) = lines(log(tmp_path / "run.csv", 160, processes), by=by)
    assert served(line) == (4000, 50, 60)
    known = (line["tokens_known"], line["requests_known"], line["server_idle_known"])
    assert known == (1, 1, 1)
    each = lines(tmp_path / "run.csv", by="process")
    assert [served(one) for one in each] == [(4000, 50, 60)] * 3


def test_servers_of_a_user_are_added_up(tmp_path: Path) -> None:
    both = worker(100, BUSY), worker(200, IDLE, server=8, gpus=(1,))
    path = log(tmp_path / "run.csv", 100, lambda _: both)
    (ann,) = lines(path, by="user")
    assert served(ann) == (4000, 50, 100)
    first, second = sorted(lines(path, by="job"), key=lambda line: str(line["job"]))
    assert (served(first), served(second)) == ((4000, 50, 0), (0, 0, 100))


def test_what_is_not_known_is_not_0(tmp_path: Path) -> None:
    def processes(second: int) -> tuple[GpuProcess, ...]:
        return (worker(100, BUSY if second < 40 else NOT_TOLD if second < 80 else None),)

    (line,) = lines(log(tmp_path / "run.csv", 100, processes), by="user")
    assert served(line) == (1600, 20, 0)
    assert line["tokens_known"] == line["server_idle_known"] == pytest.approx(0.4)
    assert "tokens" not in lines(tmp_path / "run.csv", by="gpu")[0]
    (silent,) = lines(log(tmp_path / "b.csv", 100, lambda _: (worker(1, None),)), by="user")
    (plain,) = lines(log(tmp_path / "c.csv", 100, lambda _: (process(sm=50),)), by="user")
    assert served(silent) == served(plain) == (None, None, None)
    assert plain["tokens_known"] is None


def test_adjoining_time_ranges_add_up(tmp_path: Path) -> None:
    path = log(
        tmp_path / "run.csv", 120, lambda second: (worker(1, BUSY if second < 60 else IDLE),)
    )
    ends = (None, iso_time(NOON + 30.5), iso_time(NOON + 90), None)
    ranges = [lines(path, by="user", first=first, last=last)[0] for first, last in pairwise(ends)]
    (whole,) = lines(path, by="user")
    for key in ("tokens", "requests", "server_idle_hours"):
        assert sum(part[key] for part in ranges) == pytest.approx(whole[key], abs=1)


def test_logs_that_overlap_count_a_server_once(tmp_path: Path) -> None:
    first = log(tmp_path / "a.csv", 100, lambda _: (worker(1, BUSY),))
    second = log(tmp_path / "b.csv", 100, lambda _: (worker(1, BUSY),), start=50)
    (line,) = lines(first, second, by="user")
    assert served(line) == (6000, 75, 0)


@pytest.mark.slow
def test_the_table_shows_it_and_marks_what_is_known_for_a_part(tmp_path: Path) -> None:
    def table(seconds: int, process_at: Callable[[int], GpuProcess]) -> str:
        path = log(tmp_path / "run.csv", seconds, lambda second: (process_at(second),))
        return printed(path, by="job")

    whole = table(3600, lambda _: worker(1, BUSY))
    assert "TOKENS" in whole
    assert "144,000 " in whole
    assert "40s*" in table(100, lambda second: worker(1, IDLE if second < 40 else None))
    assert "TOKENS" not in table(9, lambda _: process(sm=50))
