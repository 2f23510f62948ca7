"""The usual keys of each preset, in a real terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import write_config
from tests.e2e.demo import demo
from tests.screen import Screen

READY = r"18 processes[\s\S]*\n q quit"


@pytest.fixture
def vim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write_config(tmp_path, '[keys]\npreset = "vim"\n')


def marked(screen: Screen) -> str:
    """The PID of the line under the cursor."""
    return next((row.split()[2] for row in screen.rows() if row.startswith("▸")), "")


@pytest.mark.slow
@pytest.mark.usefixtures("vim")
def test_vim_scrolls_the_help_page_and_a_slash_begins_a_search() -> None:
    def begins(screen: Screen) -> str:
        return screen.rows()[2][:20].strip()

    with demo(columns=80) as screen:
        screen.press("?", r"↑↓ G g j k scroll[\s\S]*/ and words to search[\s\S]*\n  Find")
        screen.type("j")
        screen.wait(lambda it: begins(it).startswith("/"), "waiting for the second line")
        screen.type("k")
        screen.wait(lambda it: begins(it) == "Find", "waiting for the first line")
        screen.press("G", "gpumon itself takes|still measuring")
        screen.type("g")
        screen.wait(lambda it: begins(it) == "Find", "waiting for the first line")
        screen.press("/kill", r"\n +kill\n +End\b.*\n +K F9 Del +End the process")
        screen.press("\x1b", "and words to search")
        screen.type("j")
        screen.wait(lambda it: begins(it).startswith("/"), "waiting for the second line")
        screen.press("q", READY)


@pytest.mark.slow
@pytest.mark.usefixtures("vim")
def test_vim_moves_on_the_dashboard_and_in_the_dialog_and_ends_with_shift() -> None:
    with demo(lines=40) as screen:
        screen.press("j", "▸")
        first = marked(screen)
        screen.type("j")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the second line")
        screen.type("k")
        screen.wait(lambda it: marked(it) == first, "waiting for the first line")
        screen.type("G")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the last line")
        screen.type("g")
        screen.wait(lambda it: marked(it) == first, "waiting for the first line")
        screen.press("l", "‹")
        screen.press_away("h", "‹")
        screen.press("J", r"J\[jobs\]")
        screen.press("J#", "#▲")
        screen.press("H", r"load +[\d.]+ +[\d.]+")
        screen.wait_for("K end…")
        screen.press("K", "Send TERM to ")
        # To the other button, back to Cancel, and over it to the other one again.
        screen.press("lhl\r", r"SIGTERM|TERM")
        screen.wait_gone("Send TERM")
        screen.press("T", "Enter keep")
        screen.press_away("Gg\x1b", "Enter keep")


@pytest.mark.usefixtures("vim")
def test_vim_scrolls_pages_and_types_where_one_types() -> None:
    with demo(lines=15) as screen:
        screen.press("\t\r", r" 1–13 of ")
        screen.press("j", r" 2–14 of ")
        screen.press("k", r" 1–13 of ")
        screen.press_away("G", r" 1–13 of ")
        screen.press("g", r" 1–13 of ")
        screen.press("q", r"\n q quit")
        screen.press("/hjklgG", "/hjklgG")


def test_j_does_nothing_in_the_usual_keys() -> None:
    with demo() as screen:
        # Hands that know vim go down first, then up: nothing may ask to end a process.
        screen.press("jjk", "choose a process first")
        assert not marked(screen)
        screen.press("\x1b[B", "▸")
        first = marked(screen)
        screen.press("jjP", "PID▲")
        screen.wait(lambda it: marked(it) == first, "waiting for the same line")
        screen.press("k", "Send TERM to 8")
        screen.type("j")
        screen.press_away("q", "Send TERM")
        screen.type("\x1b[B")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the second line")
