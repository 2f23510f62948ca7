"""One cursor for GPUs and processes in a real terminal, with keys and with the mouse."""

from __future__ import annotations

import re

import pytest

from tests.demo import COARSE_DEMO
from tests.e2e.test_terminal import READY
from tests.screen import Screen


def line_of(screen: Screen, word: str) -> int:
    """The line of the table that has a word."""
    rows = screen.rows()
    heading = next(y for y, row in enumerate(rows) if "COMMAND" in row)
    return next(y for y, row in enumerate(rows) if y > heading and word in row)


@pytest.mark.slow
def test_the_cursor_on_a_gpu_brings_its_processes_up_and_one_key_leaves_them_alone() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
        screen.type("\t\x1b[B\x1b[B\x1b[B")
        screen.wait_for(r"▸3 H100[\s\S]*2 on GPU 3[\s\S]*COMMAND *\n +3 +20991 [^\n]*\n +3 +23377 ")
        text = screen.press(
            "d", r"── GPU 3 · 2 of 18 processes · Esc shows all ─[\s\S]*d\[only this GPU\]"
        )
        assert "51022" not in text
        screen.press("\x1b", r"2 on GPU 3[\s\S]*51022[\s\S]*d only this GPU")
        screen.press("\tk", r"20991 +bo +43\.\d GiB on GPU 3[\s\S]*Send TERM")
        screen.press("\x1b", r"COMMAND *\n +0,1 +51022 [\s\S]*▸ *3 +20991 ")
        screen.quit()


def test_what_else_a_user_runs_is_shown_by_one_key_on_a_process_or_a_gpu() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
        screen.type("\x1b[Bf")
        text = screen.wait_for(
            r"── 3 of 18 processes · only ann · Esc shows all ─[\s\S]*f\[only this user\]"
        )
        assert "20991" not in text
        screen.press("f", r"── 18 processes [\s\S]* f only this user")
        screen.type("\t\x1b[B\x1b[B\x1b[Bf")
        screen.wait_for(r"▸3 H100[\s\S]*only bo · Esc[\s\S]*COMMAND *\n +3 +20991 ")
        screen.press("\x1b", r"▸3 H100[\s\S]*── 18 processes ")


def test_a_double_click_opens_the_process_that_was_clicked_though_the_click_moves_it() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
        # The past of the demo shows that Textual reads the mouse.
        screen.wait_for(r"idle ≥?3h3\dm")
        screen.click(4, 2 + 7)
        screen.wait_for(r"▸7 H100[\s\S]*COMMAND *\n +7 +9188 ")
        at = line_of(screen, " 61544 ")
        click = f"\x1b[<0;21;{at + 1}M\x1b[<0;21;{at + 1}m"
        # In one piece: two reads may be further apart than the clicks of a double click.
        screen.press(click * 2, r"61544[\s\S]*Esc back")
        text = screen.press("\x1b", r"COMMAND *\n +0,1 +51022 [\s\S]*▸ *7 +61544 ")
        assert not re.search(r"▸\d", text)
        assert line_of(screen, " 61544 ") != at


def test_two_gpus_are_compared_by_four_keys_also_in_the_past() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        screen.press("\t  \r", "GPU 0-1 compared")
        screen.wait_for("utilisation  0–100 %")
        screen.press("\x1b", "2 GPUs tagged: Enter compares them")
        screen.press("y", r"CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]{36},GPU-[0-9a-f-]{30}")
        screen.press("k", "only processes can be ended, and only GPUs are tagged")
        screen.press("[", "paused")
        screen.press("\r", "GPU 0-1 compared +REWIND")


def test_my_own_process_is_chosen_by_the_key_that_shows_mine() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=40) as screen:
        screen.wait_for(READY)
        screen.press("m", r"▸ *0,1 +51022 ann")
        screen.press("k", r"51022 +ann")
        screen.wait_for("Send TERM")


@pytest.mark.slow
def test_escape_leaves_each_list_and_the_time_that_was_not_chosen() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        for key, word in (("u", r"u\[users\]"), ("g", r"g\[jobs\]"), ("t", r"t\[tree\]")):
            screen.press(key, word)
            screen.press_away("\x1b", word)
        screen.press("@", "Go to a time")
        screen.press_away("\x1b", "Go to a time")
        screen.wait_gone("paused")
        screen.wait_for(r"u users[^\n]*\Z")


def test_the_tree_of_the_past_says_what_it_lacks() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        screen.press("[", "paused")
        screen.press("t", "parents and children are not recorded")


def test_the_cursor_follows_to_the_gpu_whose_page_was_shown_last() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        screen.press("\t\r", r"^ GPU 0 [\s\S]*Esc back")
        screen.press("..", r"^ GPU 2 ")
        screen.press("\x1b", "▸2 H100")
