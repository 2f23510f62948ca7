"""The width of each column of the table of processes: its content decides, and nothing jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.processes import Workload
from gpumon.text.process_columns import PROCESS_COLUMNS
from gpumon.text.table import Sort
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import Live, demo, demo_dashboard, text_of

if TYPE_CHECKING:
    from gpumon.model.processes import GpuProcess


def lines(parts: Parts) -> list[str]:
    """The table with its heading."""
    return [text_of(row).rstrip() for row in parts.processes]


def widths(parts: Parts) -> dict[str, int]:
    """The width of each column; the command has the rest."""
    found = {column.label: column.width for column in parts.layout.columns}
    return {label: width for label, width in found.items() if width}


class Table(Live):
    """One dashboard that draws one list of processes after the other."""

    def __init__(self, width: int = 120, **view: object) -> None:
        super().__init__(replace(View(interval=1.0), **view), width)

    def draw_list(self, seconds: float, *processes: GpuProcess) -> Parts:
        self.see(snapshot(NOON + seconds, gpu(), processes=processes))
        return self.draw()


def in_place(one: GpuProcess, session: str | None) -> GpuProcess:
    return replace(one, place=Workload(tmux=session))


@pytest.mark.parametrize(("width", "least"), [(80, 20), (100, 28), (120, 50), (200, 110)])
@pytest.mark.parametrize("listing", [Listing.PROCESSES, Listing.TREE, Listing.JOBS])
def test_the_command_has_what_the_other_columns_do_not_need(
    width: int, least: int, listing: Listing
) -> None:
    now, history = demo()
    silent = [replace(process, load=None) for process in now.processes]
    without_servers = replace(now, processes=tuple(silent))
    for shown, servers in ((without_servers, 0), (now, len("TOK/S "))):
        parts = Dashboard(history).rows(shown, View(interval=0.5, listing=listing), width, 50)
        heading = lines(parts)[0]
        assert " IDLE " in heading
        assert (" TOK/S " in heading) == (servers > 0)
        assert width - heading.index("COMMAND") >= least - servers
        assert (" WHERE " in heading) == (width >= 100)


@pytest.mark.parametrize("width", [160, 200, 300])
def test_a_wide_terminal_shows_where_processes_run_in_full(width: int) -> None:
    shown = "\n".join(lines(demo_dashboard(8, width, 50)))
    for where in ("slurm 88123.batch ", "jupyter 8a2f3c1e ", "docker vllm-qwen14b "):
        assert where in shown


def test_a_narrow_column_has_the_name_in_place_of_the_kind_of_where_a_process_runs() -> None:
    shown = "\n".join(lines(demo_dashboard(8, 120, 50)))
    for where in (" tmux llama ", " 88117.0 ", " 88123.bat… ", " vllm-qwen… "):
        assert where in shown
    assert "slurm" not in shown


def test_a_text_of_any_length_leaves_the_command_its_cells() -> None:
    table = Table()
    long = in_place(process(pid=4_194_304, user="a" * 40), "s" * 80)
    assert 120 - lines(table.draw_list(0, long))[0].index("COMMAND") >= 50
    table.size = 300, 24
    assert widths(table.draw_list(1, long))["WHERE"] == 28


def test_values_change_without_moving_a_column() -> None:
    table = Table()
    first = table.draw_list(0, process(sm=9, memory_used=512 * 2**20))
    for seconds, (sm, cpu, rss, memory) in enumerate(
        [(99, 9.0, 1, GIB // 4), (100, 99.0, 99 * GIB, GIB), (1, 3200.0, GIB, 75 * GIB)], start=1
    ):
        changed = replace(process(sm=sm, memory_used=memory), cpu_percent=cpu, rss=rss)
        parts = table.draw_list(seconds, changed)
        assert widths(parts) == widths(first)
        assert "…" not in lines(parts)[1]


def test_a_column_grows_at_once_and_shrinks_after_half_a_minute() -> None:
    table = Table(width=160)
    short, long = in_place(process(), "ft"), in_place(process(), "a-longer-session")
    before = widths(table.draw_list(0, short))
    grown = widths(table.draw_list(1, long))
    assert grown["WHERE"] == before["WHERE"] + 14
    for seconds in range(2, 32):
        assert widths(table.draw_list(seconds, short)) == grown
    assert widths(table.draw_list(32, short)) == before


def test_an_empty_column_is_not_there_and_does_not_blink() -> None:
    table = Table()
    nowhere, somewhere = in_place(process(), None), in_place(process(), "ft")
    assert "WHERE" not in lines(table.draw_list(0, nowhere))[0]
    assert "IDLE" not in lines(table.draw_list(1, nowhere))[0]
    assert "WHERE" in lines(table.draw_list(2, somewhere))[0]
    for seconds in range(3, 33):
        assert "WHERE" in lines(table.draw_list(seconds, nowhere))[0]
    assert "WHERE" not in lines(table.draw_list(33, nowhere))[0]
    unknown = replace(process(), place=None)
    assert "WHERE" not in lines(table.draw_list(34, unknown))[0], "it is looked up after the start"
    assert "  – " in lines(table.draw_list(35, unknown, somewhere))[1], "unknown is not empty"


@pytest.mark.parametrize(
    "change",
    [
        {"narrowing": ProcessFilter(user="bo")},
        {"listing": Listing.TREE, "narrowing": ProcessFilter(user="bo")},
    ],
)
def test_another_choice_of_what_is_listed_fits_the_columns_at_once(
    change: dict[str, object],
) -> None:
    table = Table()
    named = in_place(process(pid=4_000_000, user="a-long-name"), "session")
    other = in_place(process(pid=7, user="bo"), None)
    before = widths(table.draw_list(0, named, other))
    table.change(**change)
    after = widths(table.draw_list(1, named, other))
    assert "WHERE" in before
    assert "WHERE" not in after
    assert (after["PID"], after["USER"]) == (3, 4)


def test_a_jump_in_time_fits_the_columns_at_once() -> None:
    for seconds in (-5.0, 60.0):
        table = Table()
        long = in_place(process(user="a-long-name"), "session")
        table.draw_list(0, long)
        then = snapshot(NOON + seconds, gpu(), processes=(in_place(process(), None),))
        shown = table.dashboard.rows(then, table.view, 120, 24)
        assert "WHERE" not in lines(shown)[0]
        assert widths(shown)["USER"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_arrow_of_each_column_fits_its_heading(width: int, descending: bool) -> None:
    for column in PROCESS_COLUMNS:
        view = View(interval=0.5, sort=Sort(column.key, descending))
        parts = demo_dashboard(8, width, 50, view)
        heading = lines(parts)[0]
        assert "…" not in heading
        if column in [shown for shown in PROCESS_COLUMNS if shown.key in shown_keys(parts)]:
            arrow = "▼" if descending else "▲"
            assert f"{column.short or column.label}{arrow}" in heading


def shown_keys(parts: Parts) -> list[str]:
    return [column.key for column in parts.layout.columns]


def test_the_column_of_the_order_is_there_even_if_it_is_empty() -> None:
    table = Table(sort=Sort("idle"))
    assert "IDLE▼" in lines(table.draw_list(0, process(sm=50)))[0]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_click_sorts_by_the_heading_under_it(width: int) -> None:
    parts = demo_dashboard(8, width, 50)
    heading = lines(parts)[0]
    for column in parts.layout.columns:
        label = column.short or column.label
        label += "▼" * (column.key == "memory_used")
        for x in range(heading.index(f" {label}") + 1, heading.index(f" {label}") + len(label) + 1):
            assert parts.layout.column_at(x) is column


def test_columns_that_the_user_chose_are_there_even_if_they_are_empty() -> None:
    table = Table(columns=("pid", "type", "idle", "where", "command"))
    heading = lines(table.draw_list(0, in_place(process(sm=50), None)))[0]
    assert heading.split() == ["PID", "T", "IDLE", "WHERE", "COMMAND"]
