"""A table says why it is empty, which key changes that, and whom a log does not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.filters.terms import parse_filter
from gpumon.model.snapshot import GpuStatus, Snapshot, Unknown
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, write_log
from tests.ui.view.drawing import VIEW, dashboard_of, text_of


def first_line(now: Snapshot, view: View = VIEW, width: int = 80) -> str:
    """The line below the table's heading."""
    return text_of(dashboard_of(now, width, 24, view).processes[1]).strip()


def rule(now: Snapshot) -> str:
    return text_of(dashboard_of(now, 80).rule[0])


TWO = snapshot(NOON, gpu(), processes=(process(1, user="ann"), process(2, user="bo")))


@pytest.mark.parametrize("listing", list(Listing))
@pytest.mark.parametrize(
    ("narrowing", "words"),
    [
        (ProcessFilter(filter=parse_filter("gpu:9")), "no process matches gpu:9 · Esc shows all"),
        (ProcessFilter(mine="me"), "none of 2 processes is yours · m shows all"),
        (ProcessFilter(only_user="eve"), "no process of eve · Esc shows all"),
        (ProcessFilter(gpu="GPU-9"), "no process on this GPU · Esc shows all"),
        (
            ProcessFilter(gpu="GPU-9", mine="ann"),
            "no process of yours on this GPU · Esc shows all",
        ),
        (ProcessFilter(kind="G"), "no graphics process · Esc shows all"),
        (
            ProcessFilter(mine="me", filter=parse_filter("mem>1G")),
            "no process of yours matches mem>1G · Esc shows all",
        ),
        (
            ProcessFilter(user="ann", filter=parse_filter("gpu:9")),
            "no process matches gpu:9 · Esc shows all of ann",
        ),
        (
            ProcessFilter(user="eve"),
            "no process of eve: start gpumon without --user to see all",
        ),
    ],
)
def test_a_filter_without_matches_says_what_shows_all(
    narrowing: ProcessFilter, words: str, listing: Listing
) -> None:
    assert first_line(TWO, View(interval=0.5, narrowing=narrowing, listing=listing)) == words


def test_a_long_filter_is_cut_and_not_the_key() -> None:
    narrowing = ProcessFilter(filter=parse_filter("x" * 200))
    line = first_line(TWO, View(interval=0.5, narrowing=narrowing), 60)
    assert line.startswith("no process matches xxxx")
    assert line.endswith("… · Esc shows all")


@pytest.mark.parametrize("listing", list(Listing))
def test_a_machine_without_processes_says_so(listing: Listing) -> None:
    view = View(interval=0.5, listing=listing)
    assert first_line(snapshot(NOON, gpu()), view) == "no process is on a GPU"
    inside = snapshot(NOON, gpu(), in_container=True)
    assert first_line(inside, view).startswith("no process of this container is on a GPU")


def test_lists_that_nobody_could_read_are_not_called_empty() -> None:
    denied = gpu(unknown={"processes": Unknown.NO_PERMISSION})
    assert first_line(snapshot(NOON, denied)) == (
        "no permission to list the processes · `gpumon doctor` shows what to do"
    )
    hung = gpu(index=1, status=GpuStatus.NO_ANSWER, unknown={"processes": Unknown.NO_ANSWER})
    assert first_line(snapshot(NOON, gpu(), hung)) == (
        "no process is listed, but the list of a GPU is unknown"
    )
    unread = snapshot(NOON, gpu(), processes_at=None)
    assert first_line(unread) == "the processes have not been read yet"


@pytest.mark.parametrize("status", [GpuStatus.LOST, GpuStatus.NO_ANSWER])
def test_a_total_without_a_gpu_that_does_not_answer_is_a_lower_bound(status: GpuStatus) -> None:
    sick = gpu(index=1, status=status, memory_used=30 * GIB)
    now = snapshot(NOON, gpu(memory_used=40 * GIB), sick, processes=(process(memory_used=8 * GIB),))
    assert "≥ 40.0 of 160.0G used" in rule(now)
    assert "≥5%" in first_line(now, View(interval=0.5, listing=Listing.USERS))
    unsized = snapshot(
        NOON, gpu(memory_used=40 * GIB), gpu(index=1, status=status, memory_total=None)
    )
    assert "≥ 40.0 of ≥ 80.0G used" in rule(unsized)


def test_the_total_of_gpus_that_answer_is_exact() -> None:
    now = snapshot(NOON, gpu(memory_used=40 * GIB), gpu(index=1, memory_used=GIB))
    assert " 41.0 of 160.0G used" in rule(now)
    assert "≥" not in rule(now)


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
