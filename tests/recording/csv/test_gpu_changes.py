"""What the reader of one sample after the other promises: the same GPUs as of each row alone."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from gpumon.makers.demo.source import DemoSource
from gpumon.model.allocations import Allocation
from gpumon.recording.csv.gpu_changes import SequentialGpuReader
from gpumon.recording.csv.gpus import GpuReader
from gpumon.recording.csv.headings import first_header
from tests.clock import HandClock
from tests.log_headers import GPU_HEADER
from tests.recording.csv.reading import lines_of


@pytest.mark.slow
def test_cells_that_change_in_any_way_are_read_as_in_a_row_of_its_own() -> None:
    chance = random.Random(7)
    clock = HandClock()
    source = DemoSource(clock=clock)
    _, header = first_header(GPU_HEADER, "run.csv", processes=False)
    reader = SequentialGpuReader(header)
    changed = flawed = 0
    for number in range(200):
        clock.now = 1000.0 + number
        jobs = (Allocation("slurm", "7", f"user {number // 20}", ("GPU-0",), 1),)
        sample = replace(source.sample(), allocations=jobs if number % 40 else None)
        lines = lines_of([sample])[0].splitlines()
        if number % 3 == 0:
            place = chance.randrange(len(lines))
            cells = lines[place].split(b",")
            # The first cell is the timestamp.
            shared = header.places["host.cpu [%]"]
            cell = chance.choice([1 + chance.randrange(len(cells) - 1)] * 3 + [shared])
            cells[cell] = chance.choice([b"", b"7", b"99999999", b"x", b"[N/A]", cells[cell]])
            lines[place] = b",".join(cells[: chance.choice([cell + 1, None, None])])
        wall = sample.time - chance.choice([0.0, 0.0, 0.0, 3.0])
        listed = chance.random() < 0.9
        alone = GpuReader(header)
        rows, host = reader.read(lines, sample.time, wall)
        expected, its_host = alone.read(lines, sample.time, wall)
        assert host == its_host
        assert [row.flaw for row in rows] == [row.flaw for row in expected]
        assert [row.allocated for row in rows] == [row.allocated for row in expected]
        flawed += sum(row.flaw is not None for row in rows)
        changed += sum(getattr(row, "changes", None) is not None for row in rows)
        # Some are not made, as of a list that nobody asks for.
        if chance.random() < 0.9:
            assert [reader.gpu(row, listed=listed) for row in rows] == [
                alone.gpu(row, listed=listed) for row in expected
            ]
    assert changed > 400
    assert flawed > 5
