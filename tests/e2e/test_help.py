"""The help page in a real terminal: its groups, its columns and its search."""

from __future__ import annotations

import re

import pytest

from tests.demo import COARSE_DEMO
from tests.screen import Screen

READY = r"\n q quit"
SEARCH = "type to search"


@pytest.mark.parametrize(("columns", "beside"), [(200, 5), (120, 3), (100, 2), (80, 2), (60, 1)])
def test_the_groups_of_keys_fill_the_width(columns: int, beside: int) -> None:
    with Screen(COARSE_DEMO, columns=columns, lines=24) as screen:
        screen.wait_for(READY)
        screen.type("?")
        screen.wait_for(r"Find[\s\S]*Esc +Clear in turn")
        titles = screen.rows()[2].split()
        assert titles == ["Find", "Look", "End", "Log", "Time"][:beside]


def test_the_first_screen_has_what_is_used_most() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        screen.type("?")
        screen.wait_gone(" q quit")
        screen.wait_for(r"Find[\s\S]*\[ +Back in time")
        titles = {word for row in screen.rows() for word in re.split("  +", row)}
        assert titles >= {"Find", "Look", "End", "Log", "Time", "Move"}
        for words in ("/    Filter", "u      Users", "k F9 Del  End", "L  Log", "p        Hold"):
            assert words in screen.text()


def test_typing_searches_and_escape_clears_then_closes() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        screen.type("?")
        screen.wait_for(SEARCH)
        screen.type("memory")
        screen.wait_for(r"Change the small graph[\s\S]*31G unattributed")
        assert "Show only my processes" not in screen.text()
        screen.type("\x7f" * 6 + "k")
        # A single letter is a key first.
        screen.wait_for(
            r"\n +k\n +End\n +k F9 Del +End the process or job, or the tagged ones …\n\n"
        )
        screen.type("qqq")
        screen.wait_for("Nothing here has these words: Esc shows all")
        screen.type("\x1b")
        screen.wait_for(rf"{SEARCH}[\s\S]*Show only my processes")
        screen.type("\x1b")
        screen.wait_for(READY)


def test_what_is_typed_together_with_its_key_is_searched_for() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        for _ in range(5):
            screen.type("?sq?")
            screen.wait_for(r"sq\?")
            screen.type("\x1b")
            screen.wait_for(SEARCH)
            screen.type("q")
            screen.wait_for(READY)


def test_what_closes_the_page_closes_it_until_something_is_typed() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=24) as screen:
        screen.wait_for(READY)
        for key in ("q", "?"):
            screen.type("?")
            screen.wait_for(SEARCH)
            screen.type(key)
            screen.wait_for(READY)
        screen.type("?")
        screen.wait_for(SEARCH)
        screen.type("sq?")
        screen.wait_for(r"sq\?")
        screen.type("\x1b")
        screen.wait_for(SEARCH)
        # Home and End are of the page, not of the line that is typed in.
        screen.type("\x1b[F")
        screen.wait_for("gpumon itself takes|still measuring")
        screen.type("\x1b[H")
        screen.wait_for("Find +Look")
