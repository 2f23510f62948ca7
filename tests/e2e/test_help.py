"""The help page and the list of commands in a real terminal: their groups and their search."""

from __future__ import annotations

import pytest

from tests.demo import COARSE_DEMO
from tests.e2e.demo import demo
from tests.screen import Screen

pytestmark = pytest.mark.slow

READY = r"\n q quit"
SEARCH = "type to search"
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "pgup": "\x1b[5~",
    "pgdn": "\x1b[6~",
    "home": "\x1b[H",
    "end": "\x1b[F",
}


def wait_for_page(screen: Screen) -> None:
    """Wait until all of the page is drawn, and nothing is searched for."""
    screen.wait_for(SEARCH)
    screen.wait_gone(READY)


def test_the_groups_of_keys_fill_the_width_and_the_first_screen_has_what_is_used_most() -> None:
    with demo(columns=200, lines=24) as screen:
        screen.type("?")
        for columns, beside in ((200, 5), (80, 2), (120, 3), (100, 2), (60, 1)):
            screen.resize(columns, 24)
            titles = ["Find", "Look", "End", "Log", "Time"][:beside]
            screen.wait(
                lambda it, titles=titles: it.rows()[2].split() == titles,  # type: ignore[misc]  # a default binds the value
                f"waiting for {beside} beside each other",
            )
            screen.wait_for(r"Find[\s\S]*Esc +Clear in turn")
            if columns == 100:
                screen.wait_for(r"Find[\s\S]*\[ +Back in time")
                for title in ("Find", "Look", "End", "Log", "Time", "Move"):
                    screen.wait_for(rf"(?m)(^|  ){title}(  |$)")
                for key in (
                    *("/    Filter", "u      Users", "k F9 Del  End", "L  Log", "p        Pause"),
                ):
                    screen.wait_for(key)


def test_typing_searches_and_keys_clear_scroll_and_close() -> None:
    with demo(columns=100, lines=24) as screen:
        screen.type("?")
        wait_for_page(screen)
        screen.press("memory", r"Change what the graphs show[\s\S]*31G unattributed")
        assert "Show only my processes" not in screen.text()
        screen.type("\x7f" * 6 + "k")
        # A single letter is a key first.
        screen.wait_for(
            r"\n +k\n +End\n +k F9 Del +End the process or job, or the tagged processes …\n\n"
        )
        screen.press("qqq", "Nothing here has these words: Esc shows all")
        screen.press("\x1b", rf"{SEARCH}[\s\S]*Show only my processes")
        screen.press("\x1b", READY)
        # What is typed together with its key is searched for.
        for _ in range(3):
            screen.press("?sq?", r"sq\?")
            screen.type("\x1b")
            wait_for_page(screen)
            screen.press("q", READY)
        # What closes the page closes it until something is typed.
        for key in ("q", "?"):
            screen.type("?")
            wait_for_page(screen)
            screen.press(key, READY)
        screen.type("?")
        wait_for_page(screen)
        screen.press("sq?", r"sq\?")
        screen.type("\x1b")
        wait_for_page(screen)


@pytest.mark.parametrize(("columns", "lines", "search"), [(80, 24, ""), (60, 15, "mem")])
def test_the_keys_that_move_scroll_the_page_and_not_the_line(
    columns: int, lines: int, search: str
) -> None:
    with Screen(COARSE_DEMO, columns=columns, lines=lines) as screen:
        screen.wait_for(READY)
        screen.type("?")
        wait_for_page(screen)
        screen.type(search)
        title = "Look" if search else "Find"
        screen.wait(lambda it: begins(it).startswith(title), "waiting for what is found")
        screen.wait_for(r"/ +Filter" if not search else r"c +Change")
        first, second = begins(screen), begins(screen, 1)
        screen.type(KEYS["down"])
        screen.wait(lambda it: begins(it) == second, "waiting for the next line")
        screen.type(KEYS["up"])
        screen.wait(lambda it: begins(it) == first, "waiting for the line before")
        screen.type(KEYS["pgdn"])
        screen.wait(lambda it: begins(it) not in {first, second}, "waiting for a page")
        screen.type(KEYS["pgup"])
        screen.wait(lambda it: begins(it) == first, "waiting for the page before")
        screen.press(KEYS["end"], "gpumon itself takes|still measuring")
        screen.type(KEYS["home"])
        screen.wait(lambda it: begins(it) == first, "waiting for the beginning")
        screen.wheel(10, 8)
        screen.wait(lambda it: begins(it) != first, "waiting for the wheel")
        screen.wheel(10, 8, down=False)
        screen.wait(lambda it: begins(it) == first, "waiting for the beginning again")


def begins(screen: Screen, line: int = 0) -> str:
    """A line of the page, without the scroll bar; the title and the search are above."""
    return screen.rows()[2 + line][:50].strip()


def test_a_key_is_found_by_other_words_for_it() -> None:
    with demo(columns=100, lines=40) as screen:
        screen.type("?")
        wait_for_page(screen)
        for typed, about in FOUND:
            screen.press(typed, rf"{typed}[\s\S]*{about}")
            screen.press("\x1b[27u", SEARCH)


def test_what_a_page_can_do_is_found_by_its_name_there_and_what_is_typed_is_bounded() -> None:
    with demo(columns=180, lines=30) as screen:
        screen.press("\x10", "Search for commands")
        text = screen.press("x" * 150, "x{100}")
        assert "x" * 101 not in text
        screen.press_away("\x1b", "x{100}")
        screen.press("\t\r", r"2\[5m\]")
        screen.press("\x10", "Search for commands")
        screen.press("last minute", r"Charts: the last minute\n +key 1")
        screen.press("\r", r"1\[1m\]")


def test_it_opens_with_what_is_used_most_and_then_the_groups() -> None:
    with demo(columns=100, lines=60) as screen:
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
    with demo(columns=100, lines=40) as screen:
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
