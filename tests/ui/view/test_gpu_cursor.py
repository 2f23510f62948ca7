"""One cursor for GPUs and processes: what the table shows while it is on a GPU."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import GpuStatus, MigInstance
from gpumon.ui.view import dashboard_view
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_table import Listing
from tests.build import NOON, gpu, process, snapshot
from tests.ui.view.drawing import history_of, lines_of, text_of
from tests.ui.view.test_update import course

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Snapshot


class Hand:
    """Presses keys on a dashboard, as on the screen: each refers to the last drawing."""

    def __init__(self, shown: Snapshot, width: int = 100, height: int = 24) -> None:
        self.shown = shown
        self.size = width, height
        self._dashboard = Dashboard(history_of(shown))
        self.view = View(interval=0.5)
        self.parts = self._draw()

    def _draw(self) -> Parts:
        parts = self._dashboard.rows(self.shown, self.view, *self.size)
        self.view = parts.layout.view
        return parts

    def press(self, key: Callable[..., View | tuple[View, str]], *arguments: object) -> None:
        after = key(self.view, self.parts.layout, *arguments)
        self.view = after[0] if isinstance(after, tuple) else after
        self.parts = self._draw()

    def down(self, lines: int = 1) -> None:
        for _ in range(abs(lines)):
            self.press(dashboard_view.move, 1 if lines > 0 else -1)

    def tab(self) -> None:
        self.press(dashboard_view.change_side)

    def escape(self) -> None:
        self.press(lambda view, _: dashboard_view.clear_choice(view))

    @property
    def cursor(self) -> str:
        """The one line under the cursor, without the sign."""
        rows = [row for row in self.parts.all() if any("▸" in text for text, _ in row)]
        lines = lines_of(rows)
        assert len(lines) <= 1, lines
        return lines[0].partition("▸")[2].strip() if lines else ""

    @property
    def rule(self) -> str:
        return text_of(self.parts.rule[0])

    def table(self) -> list[tuple[str, bool]]:
        """The lines of the table, without the charts below it, and whether each is wholly dim."""
        rows = self.parts.processes[1:]
        lines = [(text_of(row).rstrip(), row) for row in rows]
        return [
            (line, all(style == "dim" for text, style in row if text.strip()))
            for line, row in itertools.takewhile(lambda one: not one[0].startswith("── "), lines)
            if line
        ]


@functools.cache
def demo() -> Snapshot:
    return course()[0]


def on_gpu(index: int = 0) -> Hand:
    """A dashboard of the demo with the cursor on a GPU."""
    hand = Hand(demo())
    hand.tab()
    hand.down(index)
    return hand


@pytest.mark.parametrize("listing", [*Listing])
@pytest.mark.parametrize("index", [1, 3, 7])
def test_what_is_on_the_gpu_under_the_cursor_comes_first_and_the_rest_is_dim(
    listing: Listing, index: int
) -> None:
    hand = Hand(demo(), 120, 50)
    if listing is not Listing.PROCESSES:
        hand.press(dashboard_view.switch_listing, listing.value)
    before = [line for line, _ in hand.table()]
    hand.tab()
    hand.down(index)
    assert hand.cursor.startswith(f"{index} ")
    table = hand.table()
    dim = [dimmed for _, dimmed in table]
    count = sum(index in one.gpu_indices for one in demo().processes)
    assert (dim[0], dim[-1]) == (False, True)
    if listing is not Listing.JOBS:
        # A job has processes on other GPUs too: they are dim below its heading.
        assert dim == sorted(dim)
    if listing in {Listing.PROCESSES, Listing.TREE}:
        # The tree has no ancestors here: they are looked up for the screen.
        assert dim.count(False) == count
    assert f" · {count} on GPU {index} · " in hand.rule
    if listing is Listing.PROCESSES:
        first = [line for line, dimmed in table if not dimmed]
        assert first == [line for line in before if line in first], "sorted as before"
        assert sorted(before) == sorted(line for line, _ in table)
    hand.escape()
    assert hand.table() == [(line, False) for line in before]


def test_a_gpu_without_processes_says_so_and_dims_all() -> None:
    hand = on_gpu(4)
    assert "none on GPU 4" in hand.rule
    assert all(dimmed for _, dimmed in hand.table())


def test_the_table_is_as_before_when_the_cursor_has_been_on_gpus() -> None:
    hand = Hand(demo(), 80, 24)
    hand.down(14)
    before, cursor = hand.table(), hand.cursor
    hand.tab()
    hand.down(3)
    hand.press(lambda view, _: view.scrolled(4))
    assert hand.table() != before
    hand.escape()
    assert hand.table() == before
    assert hand.cursor == cursor


def test_tab_goes_to_the_gpu_of_the_process_and_back_to_it() -> None:
    hand = Hand(demo())
    while not hand.cursor.startswith("5 "):
        hand.down()
    process = hand.cursor
    hand.tab()
    assert hand.cursor.startswith("5 H100")
    hand.tab()
    assert hand.cursor == process


def test_tab_goes_from_a_gpu_to_its_first_process() -> None:
    hand = Hand(demo())
    hand.down()
    hand.tab()
    hand.down(3)
    first = hand.table()[0][0].strip()
    hand.tab()
    assert hand.cursor == first
    assert hand.cursor.startswith("3 ")
    assert not any(dimmed for _, dimmed in hand.table())


def test_the_arrows_go_from_the_first_process_to_the_last_gpu_and_back() -> None:
    hand = Hand(demo())
    hand.down()
    first = hand.cursor
    hand.down(-1)
    assert hand.cursor.startswith("7 H100")
    hand.down()
    assert hand.cursor == first
    hand.down(-8)
    assert hand.cursor.startswith("0 H100")
    hand.down(-1)
    assert hand.cursor.startswith("0 H100")
    hand.press(dashboard_view.page, 1)
    assert hand.cursor.startswith("7 H100"), "a page does not leave the GPUs"


def test_down_from_the_last_gpu_goes_to_its_first_process_if_none_was_chosen() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.move_to_end, 1)
    first = hand.table()[0][0].strip()
    hand.down()
    assert hand.cursor == first


def test_one_key_shows_the_processes_of_one_gpu_alone_and_goes_on_with_the_next() -> None:
    hand = on_gpu(3)
    hand.press(dashboard_view.toggle_only_gpu)
    assert "── GPU 3 · 2 of 18 processes · Esc shows all ──" in hand.rule
    assert [line.split()[0] for line, _ in hand.table()] == ["3", "3"]
    hand.down(4)
    assert "── GPU 7 · 7 of 18 processes · Esc shows all ──" in hand.rule
    assert {line.split()[0] for line, _ in hand.table()} == {"7"}
    hand.tab()
    hand.down()
    assert "── GPU 7 · 7 of 18 processes · Esc shows all ──" in hand.rule
    cursor = hand.view.cursor
    hand.press(dashboard_view.toggle_only_gpu)
    assert "── 18 processes · " in hand.rule
    assert hand.view.cursor == cursor
    hand.press(dashboard_view.toggle_only_gpu)
    assert "── GPU 7 · 7 of 18 processes · Esc shows all ──" in hand.rule
    hand.escape()
    assert "── 18 processes · " in hand.rule
    assert hand.view.cursor == cursor


def users_in(hand: Hand) -> set[str]:
    return {line.removeprefix("▸").split()[2] for line, _ in hand.table()}


def test_one_key_shows_what_else_the_user_under_the_cursor_runs() -> None:
    hand = Hand(demo(), 120, 50)
    hand.down()
    assert " ann " in hand.cursor
    cursor = hand.view.cursor
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert "── 3 of 18 processes · only ann · Esc shows all ──" in hand.rule
    assert users_in(hand) == {"ann"}
    assert hand.view.cursor == cursor
    # The key ends it wherever the cursor is.
    hand.tab()
    hand.down(3)
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert "── 18 processes · " in hand.rule
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert "only bo · Esc shows all ──" in hand.rule
    assert users_in(hand) == {"bo"}
    hand.escape()
    assert "── 18 processes · " in hand.rule


def test_the_user_of_a_gpu_is_who_its_line_names_whatever_a_filter_hides() -> None:
    hand = Hand(demo(), 120, 50)
    hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
    hand.tab()
    hand.down(7)
    assert re.search("svc-llm  +69.7", hand.cursor)
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert " · only svc-llm · " in hand.rule
    assert "mine" not in hand.rule
    assert users_in(hand) == {"svc-llm"}
    hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
    assert users_in(hand) == {"ann"}


@pytest.mark.parametrize("listing", [Listing.USERS, Listing.JOBS, Listing.TREE])
def test_the_user_of_a_line_of_any_list_is_known(listing: Listing) -> None:
    hand = Hand(demo(), 120, 50)
    hand.press(dashboard_view.switch_listing, listing.value)
    hand.down()
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert " · only ann · " in hand.rule


def test_a_key_that_finds_no_user_says_why() -> None:
    hidden = replace(process(100, user=None), visible=False)
    hand = Hand(snapshot(NOON, gpu(), gpu(index=1, uuid="GPU-1"), processes=(hidden,)))

    def message() -> str:
        after = dashboard_view.toggle_only_user(hand.view, hand.parts.layout, hand.shown.processes)
        assert isinstance(after, tuple)
        view, message = after
        assert view == hand.view
        return message

    assert message() == "choose a process first: ↑↓, or a GPU: Tab"
    hand.down()
    assert message() == "the owner of these is not visible here"
    hand.tab()
    hand.down()
    assert hand.cursor.startswith("1 ")
    assert message() == "no process is listed here"


@pytest.mark.parametrize("key", ["tab", "up"])
def test_a_table_of_one_gpu_stays_with_it_when_the_cursor_goes_to_the_gpus(key: str) -> None:
    hand = on_gpu(1)
    hand.press(dashboard_view.toggle_only_gpu)
    hand.tab()
    # This process is on GPU 0 too.
    assert hand.cursor.startswith("0,1 ")
    if key == "tab":
        hand.tab()
    else:
        hand.down(-1)
    assert hand.cursor.startswith("1 H100")
    assert "── GPU 1 · " in hand.rule


def test_escape_is_not_promised_to_show_all_while_it_takes_tags_away() -> None:
    hand = Hand(demo())
    hand.down()
    hand.press(dashboard_view.tag)
    hand.press(dashboard_view.toggle_only_gpu)
    assert "1 tagged" in hand.rule
    assert "shows all" not in hand.rule
    hand.escape()
    assert "Esc shows all" in hand.rule


def test_a_gpu_that_is_gone_from_the_picture_has_no_cursor_and_no_processes() -> None:
    hand = on_gpu(3)
    hand.press(dashboard_view.toggle_only_gpu)
    others = tuple(one for one in demo().gpus if one.index != 3)
    hand.shown = replace(demo(), gpus=others, processes=demo().processes[:2])
    hand.press(lambda view, _: view)
    assert hand.cursor == ""
    assert "── GPU – · 0 of 2 processes · Esc shows all ──" in hand.rule


def test_left_and_right_move_between_gpus_that_stand_side_by_side() -> None:
    hand = Hand(snapshot(NOON, *(gpu(index=index) for index in range(16))), 120, 24)
    hand.tab()
    hand.down(2)
    assert hand.cursor.startswith("2 ")
    hand.press(dashboard_view.fold_or_scroll, 1)
    assert hand.cursor.startswith("10 ")
    hand.press(dashboard_view.fold_or_scroll, 1)
    assert hand.cursor.startswith("10 ")
    hand.press(dashboard_view.fold_or_scroll, -1)
    assert hand.cursor.startswith("2 ")
    hand.press(dashboard_view.fold_or_scroll, -1)
    assert hand.cursor.startswith("2 ")


def test_the_wheel_over_gpus_that_are_all_in_sight_leaves_the_cursor() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.scroll_gpus, 3)
    assert hand.cursor.startswith("0 H100")


def test_processes_of_a_mig_instance_come_with_its_gpu() -> None:
    device = MigInstance("MIG-1", 0, 7, 0, "1g.10gb")
    sliced = process(200, gpus=(1,))
    sliced = replace(sliced, uses=(replace(sliced.uses[0], instance=(7, 0)),))
    gpus = (gpu(), gpu(index=1, mig=(device,)))
    hand = Hand(snapshot(NOON, *gpus, processes=(process(100), sliced)))
    hand.tab()
    hand.down()
    assert [(line.split()[:2], dim) for line, dim in hand.table()] == [
        (["1:0", "200"], False),
        (["0", "100"], True),
    ]


def test_a_lost_gpu_can_be_gone_over_and_is_of_no_process() -> None:
    lost = gpu(index=1, status=GpuStatus.LOST)
    hand = Hand(snapshot(NOON, gpu(), lost, processes=(process(100),)))
    hand.tab()
    hand.down()
    assert "none on GPU 1" in hand.rule


@pytest.mark.parametrize("cards", [1, 2])
def test_the_cursor_is_seen_without_colours_on_tall_panels_too(cards: int) -> None:
    shown = [gpu(index=index) for index in range(cards)]
    hand = Hand(snapshot(NOON, *shown, processes=(process(100),)))
    hand.tab()
    hand.press(dashboard_view.move_to_end, 1)
    assert hand.parts.layout.line_columns is None
    assert hand.cursor.startswith(f"{cards - 1}  H100")
