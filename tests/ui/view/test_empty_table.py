"""An empty process table says why it is empty, and which key changes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.filters.terms import parse_filter
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import VIEW, dashboard_of, text_of

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot


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
