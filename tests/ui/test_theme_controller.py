"""What a change of theme reaches, when its file is read again; and the dialog for columns."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.color import Color
from textual.screen import ModalScreen, Screen
from textual.widgets import OptionList, Static

from gpumon.config.columns import COLUMN_SETS
from gpumon.config.themes import ThemeChoice, ThemeLibrary
from gpumon.ui.dialogs.choices import ColumnsDialog, ThemesDialog
from gpumon.ui.theme_controller import ThemeController
from tests.ui.test_closed_at_once import press, shown

MINE = 'base = "gpumon"\n[colours]\nbackground = "{}"\n'


class Plain(Screen[None]):
    CSS = "Plain { background: $background; }"

    def compose(self) -> ComposeResult:
        yield Static("beneath")


class Themed(App[int]):
    """An application with nothing but a theme of one's own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.told: list[str] = []
        self.themes = ThemeController(self, self.told.append, ThemeLibrary(own=folder))


def write(folder: Path, text: str, name: str = "mine") -> None:
    (folder / f"{name}.toml").write_text(text)


async def test_a_saved_file_reaches_the_screens_beneath_a_dialog(tmp_path: Path) -> None:
    write(tmp_path, MINE.format("#101010"))
    app = Themed(tmp_path)
    async with app.run_test() as pilot:
        plain = Plain()
        app.push_screen(plain)
        app.push_screen(ModalScreen[None]())
        app.themes.start(ThemeChoice("mine", app.themes.library.read("mine")))
        await pilot.pause()
        assert plain.styles.background == Color.parse("#101010")
        write(tmp_path, MINE.format("#202020"))
        app.themes.reload_if_changed()
        await pilot.pause()
        assert plain.styles.background == Color.parse("#202020")
        assert app.told == []


async def test_an_error_is_shown_once_until_the_file_is_saved_again(tmp_path: Path) -> None:
    write(tmp_path, 'base = "below"')
    write(tmp_path, MINE.format("#101010"), "below")
    app = Themed(tmp_path)
    async with app.run_test():
        assert app.themes.use("mine") is None
        write(tmp_path, MINE.format("#1010"), "below")
        for _ in range(3):
            app.themes.reload_if_changed()
        (sentence,) = app.told
        assert "below.toml, line 3: colours.background is '#1010'" in sentence
        assert app.current_theme.background == "#101010"
        # An editor that replaces the file: for a moment there is none.
        (tmp_path / "below.toml").unlink()
        app.themes.reload_if_changed()
        assert len(app.told) == 1
        write(tmp_path, MINE.format("#303030"), "below")
        app.themes.reload_if_changed()
        assert app.current_theme.background == "#303030"
        assert len(app.told) == 1
        # Two savings within one tick of the file system's clock.
        below = tmp_path / "below.toml"
        before = below.stat().st_mtime_ns
        write(tmp_path, MINE.format("#404040") + "# longer\n", "below")
        os.utime(below, ns=(before, before))
        app.themes.reload_if_changed()
        assert app.current_theme.background == "#404040"


async def test_gpumons_and_textuals_themes_are_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Themed(tmp_path)
    async with app.run_test():
        for name in ("amber", "nord"):
            assert app.themes.use(name) is None
            with monkeypatch.context() as patch:
                patch.setattr(os, "stat", lambda *_, **__: pytest.fail("looked"))
                app.themes.reload_if_changed()
        assert app.theme == "nord"
        assert app.themes.use("nrd") == "There is no theme 'nrd'; the nearest is 'nord'."
        assert app.theme == "nord"


async def test_a_name_is_listed_without_control_characters(tmp_path: Path) -> None:
    write(tmp_path, MINE.format("#101010"), "\x1b[2J")
    app = Themed(tmp_path)
    async with app.run_test() as pilot:
        app.push_screen(ThemesDialog(app.themes, "gpumon"))
        await pilot.pause()
        first = app.screen.query_one(OptionList).get_option_at_index(0)
        assert str(first.prompt).split() == ["\N{REPLACEMENT CHARACTER}[2J", "yours"]


async def test_an_invalid_theme_cannot_be_kept(tmp_path: Path) -> None:
    write(tmp_path, "base = 3", "a")
    app = Themed(tmp_path)
    async with app.run_test() as pilot:
        dialog = ThemesDialog(app.themes, "gpumon")
        kept: list[str | None] = []
        app.push_screen(dialog, kept.append)
        await pilot.pause()
        for place, answers in ((0, []), (1, ["gpumon"])):
            dialog.query_one(OptionList).highlighted = place
            await pilot.pause()
            await pilot.press("enter")
            await pilot.pause()
            assert kept == answers


@pytest.mark.slow
async def test_a_full_disk_is_reported_and_the_theme_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "theme").symlink_to("/dev/full")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with shown(tmp_path) as (app, pilot):
        before = app.theme
        await press(pilot, "T", "down", "enter")
        (told,) = app._notifications
        assert told.message.startswith("The theme is not saved: ")
        assert told.message.endswith("No space left on device.")
        assert app.theme != before


def chosen_after(*keys: str, shown: tuple[str, ...]) -> tuple[str, ...] | None:
    """The columns that the dialog returns after these keys and Enter."""

    async def press() -> tuple[str, ...] | None:
        taken: list[tuple[str, ...] | None] = []
        app: App[None] = App()
        async with app.run_test() as pilot:
            await app.push_screen(ColumnsDialog(shown), taken.append)
            await pilot.pause()
            await pilot.press(*keys, "enter")
            await pilot.pause()
        return taken[0]

    return asyncio.run(press())


@pytest.mark.slow
def test_a_key_goes_from_one_named_set_to_the_next() -> None:
    default, nvitop = COLUMN_SETS["default"], COLUMN_SETS["nvitop"]
    own = ("pid", "user", "command")
    assert chosen_after(shown=own) == own
    assert chosen_after("d", shown=own) == default
    assert chosen_after("d", shown=default) == nvitop
    assert chosen_after("d", "d", shown=own) == nvitop
    assert chosen_after("d", shown=nvitop) == default


@pytest.mark.slow
def test_columns_of_the_gpus_are_chosen_below_those_of_the_processes() -> None:
    own = ("pid", "user", "command")
    assert chosen_after("end", "space", shown=own) == (*own, "fan_speed")
    both = (*own, "dram_active", "pstate", "fan_speed")
    up = chosen_after("end", "space", "up", "space", "up", "space", shown=own)
    assert up == both
    # A column stays in its table, and the command the last of its own.
    moved = chosen_after("end", *["up"] * 4, *["shift+up"] * 4, shown=both)
    assert moved == (*own, "fan_speed", "dram_active", "pstate")
