"""The mouse in a real terminal: the footer's words, and the bar of time."""

from __future__ import annotations

import os
import re

import pytest

from tests.demo import COARSE_DEMO
from tests.e2e.demo import READY, demo
from tests.screen import Screen

PAUSED = r"paused +((?:[\d-]+ )?[\d:]+) +"
"""Of another day a moment is told with its date: shortly after midnight of nearly all."""


def click_word(screen: Screen, word: str) -> None:
    """Click on a word of the footer."""
    screen.wait_for(rf"\b{word}[^\n]*\Z")
    screen.click(screen.rows()[-1].index(word) + 1, screen.lines - 1)


@pytest.mark.slow
@pytest.mark.parametrize("term", ["tmux-256color", "screen-256color", "rxvt"])
def test_clicks_are_taken_from_every_terminal(term: str) -> None:
    with Screen(COARSE_DEMO, columns=120, term=term) as screen:
        screen.wait_for(READY)
        click_word(screen, "select")
        screen.wait_for(r"k end…[^\n]*\Z")
        click_word(screen, "tag")
        screen.wait_for(r"1 tagged")


@pytest.mark.slow
def test_a_click_on_a_word_of_the_footer_does_what_its_key_does() -> None:
    with demo(columns=120) as screen:
        click_word(screen, "tree")
        screen.wait_for(r"t\[tree\]")
        click_word(screen, "tree")
        screen.wait_for(r"t tree")
        click_word(screen, "select")
        screen.wait_for(r"k end…[^\n]*\Z")
        click_word(screen, "tag")
        screen.wait_for(r"1 tagged")
        click_word(screen, "end…")
        screen.wait_for(r"Send TERM")
        screen.press("q", READY)
        click_word(screen, "details")
        screen.wait_for(r"Esc back")
        click_word(screen, "back")
        screen.wait_for(READY)
        click_word(screen, "rewind")
        screen.wait_for(r"paused")
        click_word(screen, "now")
        screen.wait_gone(r"paused")
        # Both footers have this word, each elsewhere.
        screen.wait_for(r"t tree[^\n]*\Z")
        click_word(screen, "filter")
        screen.wait_for(r"Enter keep")
        click_word(screen, "drop")
        screen.wait_for(r"q quit")
        click_word(screen, "help")
        screen.wait_for(r"scroll +Esc back")
        screen.type("\x03")
        assert screen.wait_end() == 0


def test_a_click_on_a_column_in_its_dialog_shows_or_hides_it() -> None:
    with demo() as screen:
        screen.press("e", r"● USER[\s\S]*Esc cancel")
        line = next(y for y, row in enumerate(screen.rows()) if "● USER" in row)
        screen.click(20, line)
        screen.wait_for(r"○ USER")
        screen.press("\r", r"# +PID +(T|GPU-MEM)")


def test_the_bar_of_time_follows_a_mouse_that_is_dragged_along_it() -> None:
    with demo() as screen:
        screen.press("[", PAUSED + r"\d+s ago")
        bar = screen.lines - 2
        screen.type(f"\x1b[<0;77;{bar + 1}M")
        screen.type(f"\x1b[<32;73;{bar + 1}M\x1b[<32;68;{bar + 1}M")
        screen.wait_for(PAUSED + r"(\d+m|\d+h)[ \d\w]* ago")
        earlier = screen.text()
        screen.type(f"\x1b[<32;60;{bar + 1}M")
        screen.wait(lambda it: when(it.text()) != when(earlier), "waiting for an earlier moment")
        screen.type(f"\x1b[<0;60;{bar + 1}m")


def when(text: str) -> str:
    found = re.search(PAUSED, text)
    return found.group(1) if found else ""


def test_in_gnu_screen_the_mouse_is_left_alone_so_that_esc_comes_through() -> None:
    with Screen(COARSE_DEMO, {**os.environ, "STY": "1.pts-0"}, term="screen-256color") as screen:
        screen.wait_for(READY)
        assert b"\x1b[?1049h" in screen.output
        assert b"\x1b[?1000h" not in screen.output
        assert b"\x1b[?1003h" not in screen.output
