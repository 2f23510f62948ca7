"""One cursor for GPUs, processes and jobs in a real terminal, with keys and with the mouse."""

from __future__ import annotations

import re

import pytest

from tests.e2e.demo import demo
from tests.screen import Screen


def line_of(screen: Screen, word: str) -> int:
    """The line of the table that has a word."""
    rows = screen.rows()
    heading = next(y for y, row in enumerate(rows) if "COMMAND" in row)
    return next(y for y, row in enumerate(rows) if y > heading and word in row)


@pytest.mark.slow
def test_the_cursor_on_a_gpu_brings_its_processes_up_and_one_key_leaves_them_alone() -> None:
    with demo() as screen:
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
    with demo() as screen:
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
    with demo() as screen:
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
    with demo(columns=100, lines=24) as screen:
        screen.press("\t  \r", "GPU 0-1 compared")
        screen.wait_for("utilisation  0–100 %")
        screen.press("\x1b", "2 GPUs tagged: Enter compares them")
        screen.press("y", r"CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]{36},GPU-[0-9a-f-]{30}")
        screen.press("k", "only processes can be ended, and only GPUs are tagged")
        screen.press("[", "paused")
        screen.press("\r", "GPU 0-1 compared +REWIND")


def test_my_own_process_is_chosen_by_the_key_that_shows_mine() -> None:
    with demo(columns=100, lines=40) as screen:
        screen.press("m", r"▸ *0,1 +51022 ann")
        screen.press("k", r"51022 +ann")
        screen.wait_for("Send TERM")


@pytest.mark.slow
def test_escape_leaves_each_list_and_the_time_that_was_not_chosen() -> None:
    with demo(columns=100, lines=24) as screen:
        for key, word in (("u", r"u\[users\]"), ("g", r"g\[jobs\]"), ("t", r"t\[tree\]")):
            screen.press(key, word)
            screen.press_away("\x1b", word)
        screen.press("@", "Go to a time")
        screen.press_away("\x1b", "Go to a time")
        screen.wait_gone("paused")
        screen.wait_for(r"u users[^\n]*\Z")


def test_the_tree_of_the_past_says_what_it_lacks() -> None:
    with demo(columns=100, lines=24) as screen:
        screen.press("[", "paused")
        screen.press("t", "parents and children are not recorded")


def test_the_cursor_follows_to_the_gpu_whose_page_was_shown_last() -> None:
    with demo(columns=100, lines=24) as screen:
        screen.press("\t\r", r"^ GPU 0 [\s\S]*Esc back")
        screen.press("..", r"^ GPU 2 ")
        screen.press("\x1b", "▸2 H100")


DOWN, LEFT = "\x1b[B", "\x1b[D"


@pytest.mark.slow
def test_a_job_is_selected_folded_tagged_and_opened_by_its_heading() -> None:
    with demo() as screen:
        screen.press("g", r"slurm 88117 · 2 p")
        screen.type(DOWN + DOWN)
        screen.wait_for(r"▸ *2 +erin [^\n]*slurm 88117 · 2 p[\s\S]*Enter details.*←→ fold")
        screen.type(LEFT)
        screen.wait_for(r"▸ *2 +erin [^\n]*\+ slurm 88117 · 2 [^\n]*\n +5 +chen [\s\S]*←→ unfold")
        screen.press(" ", r"2 tagged[\s\S]*● *2 +erin [^\n]*\n▸ *5 +chen ")
        text = screen.press("\r", r"job slurm 88123[\s\S]*Esc back  k end…")
        for words in ("chen   74.2 GiB on GPU 5", r"for 2h1\dm", "2 on GPUs", r"2h1\dm ago"):
            assert re.search(words, text)
        assert len(re.findall(r"\n +5 +412\d\d chen ", text)) == 2, "a line for each process"
        screen.press("k", r"End job slurm 88123: 2 processes[\s\S]*41233 +chen[\s\S]*41240 +chen")
        screen.type("\x1b")
        # The footer stands below the dialog too, and two Esc in one packet are one.
        screen.wait(lambda it: "End job" not in it.text(), "waiting for the page of the job")
        screen.press("\x1b", r"2 tagged[\s\S]*▸ *5 +chen [^\n]*slurm 88123 · 2 p")
        screen.quit()


def test_the_page_of_a_job_shows_the_past_it_was_opened_in_and_ends_nothing_there() -> None:
    with demo() as screen:
        screen.press("g[", r"paused[\s\S]*slurm 88117 · 2 p|slurm 88117 · 2 p[\s\S]*paused")
        text = screen.press(DOWN + DOWN + "\r", r"job slurm 88117[\s\S]*Esc back")
        assert "k end" not in text
        assert "REWIND" in text
