"""Small rules of the files of a log, each by itself."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.processes import GpuUse
from gpumon.recording.csv.columns import PROCESS_COLUMNS, columns_of
from gpumon.recording.csv.headings import Header
from gpumon.recording.csv.rows import ProcessRows
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, rows, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot


@pytest.mark.parametrize(("user", "pids"), [(None, ["1", "2", "3"]), ("ann", ["1"]), ("cy", [])])
def test_a_log_of_one_user_has_the_processes_of_that_user(
    user: str | None, pids: list[str]
) -> None:
    listed = (process(1), process(2, user="bo"), process(3, user=None))
    written = ProcessRows(user=user).of(snapshot(NOON, gpu(), processes=listed), 0.0)
    place = [column.name for column in PROCESS_COLUMNS].index("pid")
    assert [row[place] for row in csv.reader(written.decode().splitlines())] == pids


@pytest.mark.parametrize(
    ("cells", "is_same"),
    [
        (["timestamp", "index", "power.draw [W]"], True),
        ([" timestamp ", "0", "70"], True),
        (["2023-11-14", "index", "power.draw [W]"], False),
        (["timestamp", "index"], False),
    ],
)
def test_headings_that_are_written_again_are_known_by_their_time_and_number(
    cells: list[str], *, is_same: bool
) -> None:
    header = Header(["timestamp", "index", "power.draw [W]"], processes=False)
    assert header.is_same(cells) is is_same


def instances(read: Snapshot | None) -> list[tuple[int, int] | None]:
    assert read is not None
    return [use.instance for process in read.processes for use in process.uses]


@pytest.mark.parametrize("missing", ["gpu_instance", "compute_instance"])
def test_a_process_of_which_half_an_instance_is_known_is_on_the_whole_gpu(
    tmp_path: Path, missing: str
) -> None:
    use = GpuUse("GPU-0", 0, instance=(3, 0), memory_used=GIB)
    path = write_log(
        tmp_path / "run.csv", [snapshot(NOON, processes=(replace(process(), uses=(use,)),))]
    )
    with opened(path) as tape:
        assert instances(tape.at(NOON)) == [(3, 0)]
    listed = tmp_path / "run.processes.csv"
    header, row = csv.reader(listed.read_text().splitlines())
    row[header.index(columns_of([missing], processes=True)[0].name)] = ""
    with listed.open("w", newline="") as file:
        csv.writer(file).writerows([header, row])
    with opened(path) as tape:
        assert instances(tape.at(NOON)) == [None]


@pytest.mark.parametrize(
    ("field", "cells", "known"),
    [
        ("power_draw", ["70.5", "4294967", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "-1", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "nan", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "", "80"], [70.5, None, 80.0]),
        ("power_draw", ["", "", "80"], [None, None, 80.0]),
        ("power_draw", ["70.5", "0", "80"], [70.5, 0.0, 80.0]),
    ],
)
def test_an_impossible_measurement_among_others_is_unknown(
    tmp_path: Path, field: str, cells: list[str], known: list[float | None]
) -> None:
    column = columns_of([field], processes=False)[0].name
    lines = [f"2023-11-14T12:00:{second:02}+00:00,0,{cell}" for second, cell in enumerate(cells)]
    path = tmp_path / "run.csv"
    path.write_text("\n".join([f"timestamp,index,{column}", *lines, ""]))
    assert [row[1] for row in rows(path, [column], processes=False)] == known
