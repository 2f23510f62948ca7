"""Where a log does not name all who were on the cards, the screen says so and counts nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.findings import conditions
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.recording.history import History
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_table import Listing
from tests.build import NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot


def lines_of(
    shown: Snapshot, view: View | None = None, size: tuple[int, int] = (80, 24)
) -> list[str]:
    history = History(conditions())
    history.add(shown)
    rows = Dashboard(history).rows(shown, view or View(interval=0.5), *size).all()
    return ["".join(text for text, _ in row).rstrip() for row in rows]


def rule_of(lines: list[str]) -> tuple[str, str]:
    """The rule without its line, and the first line of the table."""
    place = next(number for number, line in enumerate(lines) if line.startswith("── "))
    return lines[place].strip("─ "), lines[place + 2].strip()


def last_of(path: Path) -> Snapshot:
    with opened(path) as tape:
        shown = tape.at(2 * NOON)
    assert shown is not None
    return shown


def torn_log(folder: Path, kept: int) -> Path:
    """A log of two cards with two processes each; so many rows of their list are left."""
    processes = tuple(process(100 + number, gpus=(number % 2,)) for number in range(4))
    taken = snapshot(NOON, gpu(index=0), gpu(index=1), processes=processes)
    path = write_log(folder / "run.csv", [taken])
    lists = path.with_suffix(".processes.csv")
    lists.write_bytes(b"".join(lists.read_bytes().splitlines(keepends=True)[: 1 + kept]))
    return path


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (4, "4 processes · 1 user · 1.0 of 160.0G used"),
        (3, "3 processes listed, lists incomplete · 1.0 of 160.0G used"),
        (1, "1 process listed, lists incomplete · 1.0 of 160.0G used"),
        (0, "0 processes listed, lists incomplete · 1.0 of 160.0G used"),
    ],
)
def test_a_torn_list_is_called_incomplete(tmp_path: Path, kept: int, said: str) -> None:
    assert rule_of(lines_of(last_of(torn_log(tmp_path, kept))))[0] == said


def test_a_lost_card_whose_processes_nobody_could_list_makes_no_list_incomplete(
    tmp_path: Path,
) -> None:
    lost = gpu(
        index=1, status=GpuStatus.LOST, memory_used=None, unknown={"processes": Unknown.GPU_LOST}
    )
    taken = snapshot(NOON, gpu(index=0), lost, processes=(process(gpus=(0,)),))
    shown = last_of(write_log(tmp_path / "run.csv", [taken]))
    assert shown.gpus[1].unknown["processes"] is Unknown.NOT_RECORDED, "else this tests nothing"
    assert rule_of(lines_of(shown))[0] == "1 process · 1 user · ≥ 0.5 of 160.0G used"


@pytest.mark.parametrize("listing", list(Listing))
def test_a_log_without_processes_says_so_in_place_of_an_empty_table(
    tmp_path: Path, listing: Listing
) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, index, memory.used [MiB], memory.total [MiB]\n"
        "2026/11/21 15:22:34.123, 0, 40960 MiB, 81559 MiB\n"
    )
    rule, first = rule_of(lines_of(last_of(path), View(interval=0.5, listing=listing)))
    assert rule.startswith("processes: not in this log")
    assert first == "This log does not record who was on the GPUs."
