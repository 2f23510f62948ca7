"""The usual keys of each preset, in a real terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.demo import COARSE_DEMO
from tests.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

READY = r"18 processes[\s\S]*\n q quit"


@pytest.fixture
def vim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text('[keys]\npreset = "vim"\n', encoding="utf-8")


def marked(screen: Screen) -> str:
    """The PID of the line under the cursor."""
    return next((row.split()[2] for row in screen.rows() if row.startswith("▸")), "")


@pytest.mark.slow
@pytest.mark.usefixtures("vim")
def test_vim_scrolls_the_help_page_and_a_slash_begins_a_search() -> None:
    def begins(screen: Screen) -> str:
        return screen.rows()[2][:20].strip()

    with Screen(COARSE_DEMO, columns=80) as screen:
        screen.wait_for(READY)
        screen.type("?")
        screen.wait_for(r"↑↓ G g j k scroll[\s\S]*/ and words to search[\s\S]*\n  Find")
        screen.type("j")
        screen.wait(lambda it: begins(it).startswith("/"), "waiting for the second line")
        screen.type("k")
        screen.wait(lambda it: begins(it) == "Find", "waiting for the first line")
        screen.type("G")
        screen.wait_for("gpumon itself takes|still measuring")
        screen.type("g")
        screen.wait(lambda it: begins(it) == "Find", "waiting for the first line")
        screen.type("/kill")
        screen.wait_for(r"\n +kill\n +End\b.*\n +K F9 Del +End the process")
        screen.type("\x1b")
        screen.wait_for("and words to search")
        screen.type("j")
        screen.wait(lambda it: begins(it).startswith("/"), "waiting for the second line")
        screen.type("q")
        screen.wait_for(READY)


@pytest.mark.slow
@pytest.mark.usefixtures("vim")
def test_vim_moves_on_the_dashboard_and_in_the_dialog_and_ends_with_shift() -> None:
    with Screen(COARSE_DEMO, lines=40) as screen:
        screen.wait_for(READY)
        screen.type("j")
        screen.wait_for("▸")
        first = marked(screen)
        screen.type("j")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the second line")
        screen.type("k")
        screen.wait(lambda it: marked(it) == first, "waiting for the first line")
        screen.type("G")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the last line")
        screen.type("g")
        screen.wait(lambda it: marked(it) == first, "waiting for the first line")
        screen.type("l")
        screen.wait_for("‹")
        screen.type("h")
        screen.wait_gone("‹")
        screen.type("J")
        screen.wait_for(r"J\[jobs\]")
        screen.type("J#")
        screen.wait_for("#▲")
        screen.type("H")
        screen.wait_for(r"load +[\d.]+ +[\d.]+")
        screen.wait_for("K end…")
        screen.type("K")
        screen.wait_for("Send TERM to ")
        # To the other button, back to Cancel, and over it to the other one again.
        screen.type("lhl\r")
        screen.wait_for(r"SIGTERM|TERM")
        screen.wait_gone("Send TERM")
        screen.type("T")
        screen.wait_for("Enter keep")
        screen.type("Gg\x1b")
        screen.wait_gone("Enter keep")


@pytest.mark.usefixtures("vim")
def test_vim_scrolls_pages_and_types_where_one_types() -> None:
    with Screen(COARSE_DEMO, lines=15) as screen:
        screen.wait_for(r"\n q quit")
        screen.type("\t\r")
        screen.wait_for(r" 1–13 of ")
        screen.type("j")
        screen.wait_for(r" 2–14 of ")
        screen.type("k")
        screen.wait_for(r" 1–13 of ")
        screen.type("G")
        screen.wait_gone(r" 1–13 of ")
        screen.type("g")
        screen.wait_for(r" 1–13 of ")
        screen.type("q")
        screen.wait_for(r"\n q quit")
        screen.type("/hjklgG")
        screen.wait_for("/hjklgG")


def test_j_does_nothing_in_the_usual_keys() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait_for(READY)
        # Hands that know vim go down first, then up: nothing may ask to end a process.
        screen.type("jjk")
        screen.wait_for("choose a process first")
        assert not marked(screen)
        screen.type("\x1b[B")
        screen.wait_for("▸")
        first = marked(screen)
        screen.type("jjP")
        screen.wait_for("PID▲")
        screen.wait(lambda it: marked(it) == first, "waiting for the same line")
        screen.type("k")
        screen.wait_for("Send TERM to 8")
        screen.type("j")
        screen.type("q")
        screen.wait_gone("Send TERM")
        screen.type("\x1b[B")
        screen.wait(lambda it: marked(it) not in {"", first}, "waiting for the second line")
