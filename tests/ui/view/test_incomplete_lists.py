"""Where a log does not name all who were on the cards, the screen says so and counts nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_table import Listing
from tests.build import NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, write_log
from tests.ui.view.drawing import dashboard_of, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot


def rule_of(shown: Snapshot, listing: Listing = Listing.PROCESSES) -> tuple[str, str]:
    """The rule without its line, and the first line of the table."""
    parts = dashboard_of(shown, 80, 24, View(interval=0.5, listing=listing))
    return text_of(parts.rule[0]).strip("─ "), text_of(parts.processes[1]).strip()


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
    assert rule_of(last_of(torn_log(tmp_path, kept)))[0] == said


def test_a_lost_card_whose_processes_nobody_could_list_makes_no_list_incomplete(
    tmp_path: Path,
) -> None:
    lost = gpu(
        index=1, status=GpuStatus.LOST, memory_used=None, unknown={"processes": Unknown.GPU_LOST}
    )
    taken = snapshot(NOON, gpu(index=0), lost, processes=(process(gpus=(0,)),))
    shown = last_of(write_log(tmp_path / "run.csv", [taken]))
    assert shown.gpus[1].unknown["processes"] is Unknown.NOT_RECORDED, "else this tests nothing"
    assert rule_of(shown)[0] == "1 process · 1 user · ≥ 0.5 of 160.0G used"


@pytest.mark.parametrize("listing", list(Listing))
def test_a_log_without_processes_says_so_in_place_of_an_empty_table(
    tmp_path: Path, listing: Listing
) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, index, memory.used [MiB], memory.total [MiB]\n"
        "2026/11/21 15:22:34.123, 0, 40960 MiB, 81559 MiB\n"
    )
    rule, first = rule_of(last_of(path), listing)
    assert rule.startswith("processes: not in this log")
    assert first == "This log does not record who was on the GPUs."
