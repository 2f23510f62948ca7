"""The order of a report, and what stands in it only where it says something."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Host
from gpumon.text.time_parsing import day_and_time
from tests.build import NOON, gpu, snapshot
from tests.report.logs import printed, report, write_log
from tests.report.test_command import busy


def test_gpus_are_in_the_order_of_their_indices(tmp_path: Path) -> None:
    cards = [gpu(index=index) for index in (2, 0, 1)]
    samples = [
        (replace(snapshot(NOON + second, *cards), host=Host(name="ada-07")), float(second))
        for second in (0, 10)
    ]
    told = report(write_log(tmp_path / "a.csv", samples))
    assert [line["index"] for line in told["lines"]] == [0, 1, 2]


def test_a_gap_that_began_before_the_time_range_has_its_length_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.csv", busy([*range(0, 100, 10), *range(1000, 1110, 10)]))
    when = {"first": day_and_time(NOON + 200), "last": day_and_time(NOON + 1020)}
    [line] = report(log, **when)["lines"]
    assert (line["gaps"], line["gap_hours"]) == (0, pytest.approx(800 / 3600, abs=0.001))
    heads, row = printed(log, width=200, **when).splitlines()[1:3]
    place = heads.index("GAPS")
    assert row[place - 2 : place + 4].strip() == "13m"
