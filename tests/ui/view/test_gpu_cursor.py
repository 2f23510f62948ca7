"""One cursor for GPUs and processes: what the table shows while it is on a GPU, and tagged GPUs."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import GpuStatus, MigInstance, Snapshot
from gpumon.ui.view import dashboard_view
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.key_names import footer_keys
from gpumon.ui.view.process_table import Listing
from tests.build import NOON, gpu, process, snapshot
from tests.ui.view.drawing import history_of, lines_of, of_gpus, text_of
from tests.ui.view.test_update import KEYS, course


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

    def press(self, key: Callable[..., View | tuple[View, str]], *arguments: object) -> str:
        """Press a key; returns what it says."""
        after = key(self.view, self.parts.layout, *arguments)
        self.view, said = after if isinstance(after, tuple) else (after, "")
        self.parts = self._draw()
        return said

    def type(self, keys: str, times: int = 1) -> str:
        """Press keys by their names, some times over; returns what the last of them says."""
        return [self.press(KEYS[key]) for key in keys.split() * times][-1]

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

    def signs(self) -> str:
        """The first cell of each GPU's line or panel."""
        rows = lines_of(self.parts.gpus)
        return "".join(row[0] for row in rows if row[1:2].isdigit() or row[0] in "▸◉●")


@functools.cache
def demo() -> Snapshot:
    return course()[0]


def on_gpu(index: int = 0, width: int = 100, height: int = 24) -> Hand:
    """A dashboard of the demo with the cursor on a GPU."""
    hand = Hand(demo(), width, height)
    hand.type("tab")
    hand.press(dashboard_view.move, index)
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
    hand.type("tab")
    hand.press(dashboard_view.move, index)
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
    hand.type("escape")
    assert hand.table() == [(line, False) for line in before]


def test_the_table_is_as_before_when_the_cursor_has_been_on_gpus() -> None:
    hand = Hand(demo(), 80, 24)
    hand.type("down", times=14)
    before, cursor = hand.table(), hand.cursor
    hand.type("tab down down down")
    hand.press(lambda view, _: view.scrolled(4))
    assert hand.table() != before
    hand.type("escape")
    assert hand.table() == before
    assert hand.cursor == cursor


def test_tab_goes_to_the_gpu_of_the_process_and_back_to_it() -> None:
    hand = Hand(demo())
    while not hand.cursor.startswith("5 "):
        hand.type("down")
    process = hand.cursor
    hand.type("tab")
    assert hand.cursor.startswith("5 H100")
    hand.type("tab")
    assert hand.cursor == process


def test_tab_goes_from_a_gpu_to_its_first_process() -> None:
    hand = Hand(demo())
    hand.type("down tab down down down")
    first = hand.table()[0][0].strip()
    hand.type("tab")
    assert hand.cursor == first
    assert hand.cursor.startswith("3 ")
    assert not any(dimmed for _, dimmed in hand.table())


def test_the_arrows_go_from_the_first_process_to_the_last_gpu_and_back() -> None:
    hand = Hand(demo())
    hand.type("down")
    first = hand.cursor
    for key, times, line in (
        *(("up", 1, "7 H100"), ("down", 1, first), ("up", 8, "0 H100"), ("up", 1, "0 H100")),
        ("pagedown", 1, "7 H100"),  # A page does not leave the GPUs.
    ):
        hand.type(key, times)
        assert hand.cursor.startswith(line), key


def test_down_from_the_last_gpu_goes_to_its_first_process_if_none_was_chosen() -> None:
    hand = on_gpu()
    hand.type("end")
    first = hand.table()[0][0].strip()
    hand.type("down")
    assert hand.cursor == first


def test_one_key_shows_the_processes_of_one_gpu_alone_and_goes_on_with_the_next() -> None:
    hand = on_gpu(3)
    hand.type("d")
    assert "── GPU 3 · 2 of 18 processes · Esc shows all ──" in hand.rule
    assert [line.split()[0] for line, _ in hand.table()] == ["3", "3"]
    only, every = "── GPU 7 · 7 of 18 processes · Esc shows all ──", "── 18 processes · "
    hand.type("down", times=4)
    assert only in hand.rule
    assert {line.split()[0] for line, _ in hand.table()} == {"7"}
    hand.type("tab down")
    assert only in hand.rule
    cursor = hand.view.cursor
    for key, shown in (("d", every), ("d", only), ("escape", every)):
        hand.type(key)
        assert shown in hand.rule
        assert hand.view.cursor == cursor


def users_in(hand: Hand) -> set[str]:
    return {line.removeprefix("▸").split()[2] for line, _ in hand.table()}


def test_one_key_shows_what_else_the_user_under_the_cursor_runs() -> None:
    hand = Hand(demo(), 120, 50)
    hand.type("down")
    assert " ann " in hand.cursor
    cursor = hand.view.cursor
    hand.type("f")
    assert "── 3 of 18 processes · only ann · Esc shows all ──" in hand.rule
    assert users_in(hand) == {"ann"}
    assert hand.view.cursor == cursor
    # The key ends it wherever the cursor is.
    hand.type("tab down down down f")
    assert "── 18 processes · " in hand.rule
    hand.type("f")
    assert "only bo · Esc shows all ──" in hand.rule
    assert users_in(hand) == {"bo"}
    hand.type("escape")
    assert "── 18 processes · " in hand.rule


def test_the_user_of_a_gpu_is_who_its_line_names_whatever_a_filter_hides() -> None:
    hand = Hand(demo(), 120, 50)
    hand.type("m tab")
    hand.press(dashboard_view.move, 7)
    assert re.search("svc-llm  +69.7", hand.cursor)
    hand.press(dashboard_view.toggle_only_user, demo().processes)
    assert " · only svc-llm · " in hand.rule
    assert "mine" not in hand.rule
    assert users_in(hand) == {"svc-llm"}
    hand.type("m")
    assert users_in(hand) == {"ann"}


@pytest.mark.parametrize("listing", [Listing.USERS, Listing.JOBS, Listing.TREE])
def test_the_user_of_a_line_of_any_list_is_known(listing: Listing) -> None:
    hand = Hand(demo(), 120, 50)
    hand.press(dashboard_view.switch_listing, listing.value)
    hand.type("down f")
    assert " · only ann · " in hand.rule


def test_a_key_that_finds_no_user_says_why() -> None:
    hidden = replace(process(100, user=None), visible=False)
    hand = Hand(snapshot(NOON, gpu(), gpu(index=1), processes=(hidden,)))
    for keys, said in (
        ("f", "choose a process first: ↑↓, or a GPU: Tab"),
        ("down f", "the owner of these is not visible here"),
        ("tab down f", "no process is listed here"),
    ):
        before = hand.view.narrowing
        assert hand.type(keys) == said
        assert hand.view.narrowing == before
    assert hand.cursor.startswith("1 ")


@pytest.mark.parametrize("key", ["tab", "up"])
def test_a_table_of_one_gpu_stays_with_it_when_the_cursor_goes_to_the_gpus(key: str) -> None:
    hand = on_gpu(1)
    hand.type("d tab")
    # This process is on GPU 0 too.
    assert hand.cursor.startswith("0,1 ")
    hand.type(key)
    assert hand.cursor.startswith("1 H100")
    assert "── GPU 1 · " in hand.rule


def test_escape_is_not_promised_to_show_all_while_it_takes_tags_away() -> None:
    hand = Hand(demo())
    hand.type("down space d")
    assert "1 tagged" in hand.rule
    assert "shows all" not in hand.rule
    hand.type("escape")
    assert "Esc shows all" in hand.rule


def test_a_gpu_that_is_gone_from_the_picture_has_no_cursor_and_no_processes() -> None:
    hand = on_gpu(3)
    hand.type("d")
    others = tuple(one for one in demo().gpus if one.index != 3)
    hand.shown = replace(demo(), gpus=others, processes=demo().processes[:2])
    hand.press(lambda view, _: view)
    assert hand.cursor == ""
    assert "── GPU – · 0 of 2 processes · Esc shows all ──" in hand.rule


def test_left_and_right_move_between_gpus_that_stand_side_by_side() -> None:
    hand = Hand(snapshot(NOON, *(gpu(index=index) for index in range(16))), 120, 24)
    hand.type("tab down down")
    assert hand.cursor.startswith("2 ")
    for key, index in (("right", 10), ("right", 10), ("left", 2), ("left", 2)):
        hand.type(key)
        assert hand.cursor.startswith(f"{index} ")


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
    hand.type("tab down")
    assert [(line.split()[:2], dim) for line, dim in hand.table()] == [
        (["1:0", "200"], False),
        (["0", "100"], True),
    ]


def test_a_gpu_without_processes_says_so_and_dims_all() -> None:
    lost = gpu(index=1, status=GpuStatus.LOST)
    gone_over = Hand(snapshot(NOON, gpu(), lost, processes=(process(100),)))
    gone_over.type("tab down")
    for hand, index in ((on_gpu(4), 4), (gone_over, 1)):
        assert f"none on GPU {index}" in hand.rule
        assert all(dimmed for _, dimmed in hand.table())


@pytest.mark.parametrize("cards", [1, 2])
def test_the_cursor_is_seen_without_colours_on_tall_panels_too(cards: int) -> None:
    shown = [gpu(index=index) for index in range(cards)]
    hand = Hand(snapshot(NOON, *shown, processes=(process(100),)))
    hand.type("tab end")
    assert hand.parts.layout.line_columns is None
    assert hand.cursor.startswith(f"{cards - 1}  H100")


def test_space_tags_the_gpu_under_the_cursor_and_goes_to_the_next() -> None:
    hand = on_gpu()
    for key, signs in (
        *(("space", "●▸      "), ("space", "●●▸     "), ("up", "●◉      ")),
        *(("space", "● ▸     "), ("end space", "●      ◉")),  # On the last GPU it stays.
    ):
        hand.type(key)
        assert hand.signs() == signs
    assert hand.view.tags == frozenset(), "no process is tagged"


@pytest.mark.parametrize("count", [2, 16])
def test_panels_and_indices_of_two_digits_have_the_mark_too(count: int) -> None:
    hand = Hand(of_gpus(count), 120, 50)
    hand.type("tab end space up")
    rows = lines_of(hand.parts.gpus)
    # With two columns the line may begin in the middle.
    marked = [row for row in rows if f"●{count - 1} " in row]
    assert len(marked) == 1, rows


def test_two_tagged_gpus_are_compared_and_the_screen_says_so() -> None:
    hand = on_gpu()
    for told, label in (("1 GPU tagged", "details"), ("2 GPUs tagged: Enter compares", "compare")):
        hand.type("space")
        assert told in hand.rule
        assert hand.view.compares is (label == "compare")
        assert footer_keys(hand.view, hand.parts.layout.entry)[2].label == label
    hand.type("tab")
    assert not hand.view.compares, "in the table the key opens a process"
    assert "2 GPUs tagged" in hand.rule


def test_the_tag_of_a_gpu_goes_with_it() -> None:
    hand = on_gpu()
    hand.type("space space")
    hand.shown = of_gpus(1)
    hand.press(dashboard_view.show_cost)
    assert hand.view.gpu_tags == {hand.shown.gpus[0].uuid}


def test_the_end_key_says_that_it_ends_processes_only() -> None:
    hand = on_gpu()
    hand.type("space")
    said = dashboard_view.no_process(hand.view, hand.parts.layout)
    assert said == "only processes can be ended, and only GPUs are tagged: Tab goes to processes"


@pytest.mark.parametrize("listing", [Listing.USERS, Listing.JOBS, Listing.TREE])
def test_escape_leaves_a_list_after_tags_filters_and_the_gpu(listing: Listing) -> None:
    hand = Hand(demo())
    hand.press(dashboard_view.switch_listing, listing.value)
    hand.type("m tab space")
    left = []
    for _ in range(4):
        hand.type("escape")
        view = hand.view
        left.append((view.gpu_tags, view.narrowing.mine, view.gpu, view.listing))
    assert left[0][0] == frozenset()
    assert left[0][2] is not None, "the tags go first"
    assert left[-1] == (frozenset(), None, None, Listing.PROCESSES)
    assert left[-2][-1] is listing


def test_only_mine_selects_the_first_of_my_processes() -> None:
    hand = Hand(demo())
    hand.type("m")
    hand.press(dashboard_view.point_at_own, "ann")
    assert hand.parts.layout.entry is hand.parts.layout.entries[0]
    assert [*hand.parts.layout.entry.users] == ["ann"]
    hand.type("down")
    chosen = hand.cursor
    for _ in range(2):
        hand.type("m")
        hand.press(dashboard_view.point_at_own, "ann")
    assert hand.cursor == chosen, "a line of mine keeps the cursor"


def test_only_mine_leaves_the_cursor_on_a_gpu() -> None:
    hand = on_gpu()
    before = hand.view.gpu
    hand.type("m")
    hand.press(dashboard_view.point_at_own, "ann")
    assert hand.view.gpu == before
