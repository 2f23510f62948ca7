"""Tagged GPUs: their marks, what the keys do with them, and the way back."""

from __future__ import annotations

import pytest

from gpumon.ui.view import dashboard_view
from gpumon.ui.view.key_names import footer_keys
from gpumon.ui.view.process_table import Listing
from tests.ui.view.drawing import lines_of, of_gpus
from tests.ui.view.test_gpu_cursor import Hand, demo, on_gpu


def signs(hand: Hand) -> str:
    """The first cell of each GPU's line or panel."""
    rows = lines_of(hand.parts.gpus)
    return "".join(row[0] for row in rows if row[1:2].isdigit() or row[0] in "▸◉●")


def footer(hand: Hand) -> list[str]:
    return [key.label for key in footer_keys(hand.view, hand.parts.layout.entry)]


def test_space_tags_the_gpu_under_the_cursor_and_goes_to_the_next() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.tag)
    assert signs(hand) == "●▸      "
    hand.press(dashboard_view.tag)
    assert signs(hand) == "●●▸     "
    hand.down(-1)
    assert signs(hand) == "●◉      "
    hand.press(dashboard_view.tag)
    assert signs(hand) == "● ▸     "
    assert hand.view.tags == frozenset(), "no process is tagged"


def test_a_tag_on_the_last_gpu_stays_there() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.move_to_end, 1)
    hand.press(dashboard_view.tag)
    assert signs(hand) == "       ◉"


@pytest.mark.parametrize("count", [2, 16])
def test_panels_and_indices_of_two_digits_have_the_mark_too(count: int) -> None:
    hand = Hand(of_gpus(count), 120, 50)
    hand.tab()
    hand.press(dashboard_view.move_to_end, 1)
    hand.press(dashboard_view.tag)
    hand.down(-1)
    rows = lines_of(hand.parts.gpus)
    # With two columns the line may begin in the middle.
    marked = [row for row in rows if f"●{count - 1} " in row]
    assert len(marked) == 1, rows


def test_two_tagged_gpus_are_compared_and_the_screen_says_so() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.tag)
    assert "1 GPU tagged" in hand.rule
    assert not hand.view.compares
    assert footer(hand)[2] == "details"
    hand.press(dashboard_view.tag)
    assert "2 GPUs tagged: Enter compares them" in hand.rule
    assert footer(hand)[2] == "compare"
    hand.tab()
    assert not hand.view.compares, "in the table the key opens a process"
    assert "2 GPUs tagged" in hand.rule


def test_escape_clears_the_tags_of_gpus_first() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.tag)
    hand.press(dashboard_view.tag)
    hand.escape()
    assert hand.view.gpu_tags == frozenset()
    assert hand.view.gpu is not None
    hand.escape()
    assert hand.view.gpu is None


def test_the_tag_of_a_gpu_goes_with_it() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.tag)
    hand.press(dashboard_view.tag)
    hand.shown = of_gpus(1)
    hand.press(dashboard_view.show_cost)
    assert hand.view.gpu_tags == {hand.shown.gpus[0].uuid}


def test_the_end_key_says_that_it_ends_processes_only() -> None:
    hand = on_gpu()
    hand.press(dashboard_view.tag)
    said = dashboard_view.no_process(hand.view, hand.parts.layout)
    assert said == "only processes can be ended, and only GPUs are tagged: Tab goes to processes"


@pytest.mark.parametrize("listing", [Listing.USERS, Listing.JOBS, Listing.TREE])
def test_escape_leaves_a_list_after_tags_filters_and_the_gpu(listing: Listing) -> None:
    hand = Hand(demo())
    hand.press(dashboard_view.switch_listing, listing.value)
    hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
    hand.tab()
    hand.press(dashboard_view.tag)
    left = []
    for _ in range(4):
        hand.escape()
        view = hand.view
        left.append((view.gpu_tags, view.narrowing.mine, view.gpu, view.listing))
    assert left[-1] == (frozenset(), None, None, Listing.PROCESSES)
    assert left[-2][-1] is listing


def test_only_mine_selects_the_first_of_my_processes() -> None:
    hand = Hand(demo())
    hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
    hand.press(dashboard_view.point_at_own, "ann")
    assert hand.parts.layout.entry is hand.parts.layout.entries[0]
    assert [*hand.parts.layout.entry.users] == ["ann"]
    hand.down()
    chosen = hand.cursor
    for _ in range(2):
        hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
        hand.press(dashboard_view.point_at_own, "ann")
    assert hand.cursor == chosen, "a line of mine keeps the cursor"


def test_only_mine_leaves_the_cursor_on_a_gpu() -> None:
    hand = on_gpu()
    before = hand.view.gpu
    hand.press(lambda view, _: dashboard_view.toggle_mine(view, "ann"))
    hand.press(dashboard_view.point_at_own, "ann")
    assert hand.view.gpu == before
