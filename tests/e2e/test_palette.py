"""The list of commands: what can be done where one is, found by its name."""

from __future__ import annotations

import pytest

from tests.demo import COARSE_DEMO
from tests.screen import Screen

pytestmark = pytest.mark.slow


def test_what_a_page_can_do_is_found_by_its_name_there_and_what_is_typed_is_bounded() -> None:
    with Screen(COARSE_DEMO, columns=180, lines=30) as screen:
        screen.wait_for(r"18 processes")
        screen.press("\x10", "Search for commands")
        text = screen.press("x" * 150, "x{100}")
        assert "x" * 101 not in text
        screen.press_away("\x1b", "x{100}")
        screen.press("\t\r", r"2\[5m\]")
        screen.press("\x10", "Search for commands")
        screen.press("last minute", r"Charts: the last minute\n +key 1")
        screen.press("\r", r"1\[1m\]")


def test_it_opens_with_what_is_used_most_and_then_the_groups() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=60) as screen:
        screen.wait_for(r"18 processes")
        screen.type("\x10")
        text = screen.wait_for(r"Filter the processes[\s\S]*Sort by GPU-MEM[\s\S]*Quit\n +key q")
        rows = [row.strip(" ▎▊▌▍│") for row in text.splitlines()]
        first = next(at for at, row in enumerate(rows) if row.startswith("Filter the processes"))
        assert rows[first + 1].split() == ["key", "/", "Find"]
        assert rows[first + 2].startswith("Open the process")
        assert rows[first + 4].startswith("End the process")
        screen.type("\x1b[A")
        # The last of the last group: a list goes round.
        screen.wait_for(r"Sort by COMMAND[^\n]*\n +key N +Sort")


def test_a_command_is_found_by_other_words_for_it() -> None:
    with Screen(COARSE_DEMO, columns=100, lines=40) as screen:
        screen.wait_for(r"18 processes")
        for typed, about in FOUND:
            screen.press("\x10", "Search for commands")
            screen.type(typed)
            # The first in the list.
            screen.wait_for(rf"{typed}\W+{about}")
            screen.press_away("\x1b[27u", typed)


FOUND = (
    ("kill", "End the process"),
    ("terminate", "End the process"),
    ("signal", "End the process"),
    ("record", "Log every sample"),
    ("save", "Log every sample"),
    ("exit", "Quit"),
    ("colours", "Choose a theme"),
)
"""What somebody types, and what is meant."""
