"""Jobs in a real terminal: one line to select, to open and to tag."""

from __future__ import annotations

import re

import pytest

from tests.demo import COARSE_DEMO
from tests.e2e.test_terminal import READY
from tests.screen import Screen

DOWN, LEFT = "\x1b[B", "\x1b[D"


@pytest.mark.slow
def test_a_job_is_selected_folded_tagged_and_opened_by_its_heading() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
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
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
        screen.press("g[", r"paused[\s\S]*slurm 88117 · 2 p|slurm 88117 · 2 p[\s\S]*paused")
        text = screen.press(DOWN + DOWN + "\r", r"job slurm 88117[\s\S]*Esc back")
        assert "k end" not in text
        assert "REWIND" in text
