"""A log has the accidents of a machine, and a replay shows them."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.accidents import ACCIDENTS_KEPT, TEXT_BYTES, Accident, AccidentKind
from gpumon.recording.csv.accident_cells import accidents_cell, parse_accidents
from gpumon.recording.recording import EventKind
from tests.build import NOON, gpu, snapshot
from tests.recording.csv.reading import change_cells, opened, read_whole, sample_at, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot

XID = Accident(NOON + 0.5, AccidentKind.ERROR_CODE, "GPU-1", 31, 41233, "python", "00000008", "MMU")
KILL = Accident(
    NOON + 0.75, AccidentKind.OUT_OF_MEMORY, None, None, 7, "a,b", cgroup="/job", memory=2**35
)
HOSTILE = replace(XID, process_name="=1+1\x1b[2J\u202e\x9b\x7f", text='",\n\r\0' + "é" * TEXT_BYTES)


def sample(time: float, *accidents: Accident) -> Snapshot:
    taken = snapshot(time, gpu(index=0), gpu(index=1))
    return replace(taken, accidents=accidents)


def test_accidents_stand_in_the_row_of_their_gpu_and_come_back(tmp_path: Path) -> None:
    both = (XID, KILL)
    samples = [sample(NOON), sample(NOON + 1, *both), sample(NOON + 2, *both), sample(NOON + 3)]
    path = write_log(tmp_path / "run.csv", samples)

    with path.open(encoding="utf-8", newline="") as file:
        cells = [row["accidents"] for row in csv.DictReader(file)]
    assert [cell != "[]" for cell in cells] == [False] * 2 + [True] * 4 + [False] * 2
    assert "python" in cells[3]
    with opened(path) as log:
        read = [log.at(NOON + second) for second in range(4)]
        read_whole(log)
        events = [event for event in log.events(NOON, NOON + 9) if event.accident]
    assert [each.accidents for each in read if each] == [(), both, both, ()]
    assert [(event.kind, event.accident) for event in events] == [
        (EventKind.ACCIDENT, XID),
        (EventKind.ACCIDENT, KILL),
    ]


def test_hostile_texts_are_the_same_afterwards_and_act_on_nothing() -> None:
    cell = accidents_cell((HOSTILE,))
    assert cell.isascii()
    assert cell.isprintable()
    assert parse_accidents(cell) == (HOSTILE,)


def test_a_cell_is_bounded_and_keeps_the_newest() -> None:
    many = [replace(HOSTILE, time=NOON + index) for index in range(100)]
    cell = accidents_cell(many)
    assert len(cell) <= 8000
    assert parse_accidents(cell)[-1] == many[-1]
    assert len(parse_accidents(accidents_cell([Accident(NOON, AccidentKind.RESET)] * 99))) == (
        ACCIDENTS_KEPT
    )


@pytest.mark.parametrize(
    "cell",
    ["x", "[", "[[]]", "{}", '[["now","reset"]]', '[[1e99,"reset"]]', "[" * 9999, '["\\ud800"]'],
)
def test_a_damaged_cell_is_no_accident(cell: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_accidents(cell)
    path = write_log(tmp_path / "run.csv", [sample(NOON + 1, XID)])
    change_cells(path, (1, "accidents", cell))
    read = sample_at(path, NOON + 1)
    assert (read.accidents, len(read.gpus)) == ((), 2)
