"""What is closed in the moment it is opened: two keys that a slow line delivers together."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from textual import events
from textual.app import App
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.screen import Screen as TextualScreen
from textual.strip import Strip
from textual.widgets import Button, OptionList

from gpumon.config.themes import ThemeLibrary
from gpumon.findings import conditions
from gpumon.host.process_host import Target
from gpumon.model.processes import ProcessId
from gpumon.recording.history import History
from gpumon.recording.playback.replay import Playing
from gpumon.ui import kill_controller as cases
from gpumon.ui.app import GpumonApp
from gpumon.ui.dialogs.choices import ColumnsDialog, MomentDialog, ThemesDialog, TimespanDialog
from gpumon.ui.dialogs.end import EndDialog
from gpumon.ui.screens.help import HelpScreen
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.e2e.test_terminal import GPUMON
from tests.fuzz.machine import Guard, machine
from tests.fuzz.test_screen import settled
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow

OPENED: dict[str, Callable[[], TextualScreen[Any]]] = {
    "end": lambda: EndDialog([Target(ProcessId(4711, 1), 0, user="ann")], 0),
    "columns": lambda: ColumnsDialog(("pid", "user")),
    "timespan": lambda: TimespanDialog("Log to a file for a length of time", "log"),
    "moment": lambda: MomentDialog(Playing(0, 0, 60, playing=False, speed=1.0, at_end=False)),
    "themes": lambda: ThemesDialog(cast("Any", Themes()), "gpumon"),
    "help": lambda: HelpScreen((), History(conditions())),
}


_OPENED, _ROWS = 2, 50
"""How often a page is opened, and rows that may be left of all of them: one has more."""


AT_ONCE = ("T\x1b[B", "e \x1b[B\x1b[1;2B", "\x1b[Bkq", "\x10\x1b[6~", "\x10x\r")
"""A key that opens something, and more keys in the same packet."""
ESCAPE = "\x1b[27u"
"""As terminals with the keyboard protocol send it: not the beginning of another key."""


class Themes:
    """What the dialog asks for."""

    shelf = ThemeLibrary()

    def use(self, _: str) -> None:
        """Nothing is wrong with any."""


def test_what_comes_together_with_the_key_that_opens_does_no_harm() -> None:
    with Driver([h100()]) as driver, owners(1) as (owner,):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB)]
        with Screen(GPUMON, driver.env()) as screen:
            screen.wait_for(rf" {owner.pid} [\s\S]*\n q quit")
            # A second click beside the palette closes nothing more.
            screen.press("\x10", "Search for commands")
            for _ in range(4):
                # Not on the last line, whose words are keys.
                screen.click(0, 0)
            screen.wait_gone("Search for commands")
            screen.press("P", r"PID▲[\s\S]*\n q quit")
            for keys in AT_ONCE:
                for _ in range(5):
                    screen.type(keys)
                    screen.type("\x1b")
                # No longer the beginning of another key, and out of whatever is still open.
                screen.type(ESCAPE * 4)
                screen.wait(is_dashboard, f"waiting for the dashboard after {keys!r}")
            screen.signal(signal.SIGTERM)
            assert screen.wait_end() in (-signal.SIGTERM, 128 + signal.SIGTERM)
            _, traceback, told = bytes(screen.output).partition(b"Traceback")
            assert not traceback, told[-3000:].decode(errors="replace")
        assert owner.poll() is None


def is_dashboard(screen: Screen) -> bool:
    """Whether nothing lies over the dashboard."""
    return "\n q quit" in screen.text()


@pytest.mark.parametrize("name", OPENED)
async def test_it_closes_without_an_error(name: str) -> None:
    app: App[None] = App()
    async with app.run_test() as pilot:
        screen = OPENED[name]()
        app.push_screen(screen)
        app.pop_screen()
        await pilot.pause()
        if isinstance(screen, EndDialog):
            screen.add_children(())
        await pilot.pause()
        assert app.screen is not screen


async def test_a_palette_opened_during_the_exit_raises_nothing(
    tmp_path: Path,
) -> None:
    with machine(tmp_path) as made, made.session(replay=False) as session:
        for turns in range(6):
            app = GpumonApp(session)
            async with app.run_test():
                app.action_command_palette()
                for _ in range(turns):
                    await asyncio.sleep(0)
                app.exit()


async def test_a_palette_closed_before_its_start_raises_nothing(tmp_path: Path) -> None:
    async with shown(tmp_path) as (app, pilot):
        for turns in range(25):
            app.action_command_palette()
            for _ in range(turns):
                await asyncio.sleep(0)
            app.pop_screen()
            await settled(pilot)
            assert app.screen is app.workspace.dashboard
        await press(pilot, "ctrl+p")
        assert isinstance(app.screen, CommandPalette)
        app.action_command_palette()
        assert app.screen_stack[:-1] == [app.workspace.dashboard], "it is open already"


@pytest.mark.parametrize("kind", [events.AppBlur, events.AppFocus, lambda: events.Paste("j")])
async def test_input_after_the_end_is_ignored(
    kind: Callable[[], events.Event], tmp_path: Path
) -> None:
    with machine(tmp_path) as made, made.session(replay=False) as session:
        app = GpumonApp(session)
        async with app.run_test():
            assert app._driver is not None
            for _ in range(5):
                app._driver.process_message(kind())


@pytest.mark.parametrize("name", ["end", "columns"])
async def test_a_key_for_an_empty_or_closed_dialog_does_nothing(name: str, tmp_path: Path) -> None:
    action = {"end": "choose('KILL')", "columns": "turn"}[name]
    async with shown(tmp_path) as (app, pilot):
        dialog = OPENED[name]()
        app.push_screen(dialog)
        assert not dialog.children
        assert await app.run_action(action, dialog)
        await settled(pilot)
        assert dialog.children
        app.pop_screen()
        await settled(pilot)
        assert not dialog.children
        assert await app.run_action(action, dialog)


@pytest.mark.parametrize("made", [OPENED["columns"], CommandPalette], ids=["columns", "palette"])
async def test_a_page_down_in_a_list_before_its_layout_does_nothing(
    made: Callable[[], TextualScreen[Any]], tmp_path: Path
) -> None:
    async with shown(tmp_path) as (app, pilot):
        dialog = made()
        app.push_screen(dialog)
        # In the very moment in which it is filled: the layout comes after that.
        deadline = time.monotonic() + PATIENCE
        while not (lists := dialog.query(OptionList)) or not lists.first().option_count:
            assert time.monotonic() < deadline, "it is never filled"
            await asyncio.sleep(0)
        listed = lists.first()
        if isinstance(dialog, CommandPalette):
            assert await app.run_action("command_list('page_down')", dialog)
        else:
            assert await app.run_action("page_down", listed)
        await settled(pilot)
        assert app.screen is dialog
        assert listed.option_count


async def test_a_bug_in_a_key_action_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown(tmp_path) as (app, _):

        def lost() -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(app, "action_help", lost)
        with pytest.raises(KeyError, match="a bug"):
            await app.run_action("help")


async def test_keys_of_one_packet_that_follow_the_opening_key_confirm_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(monkeypatch)
    # Not even where nobody has to wait for the children.
    monkeypatch.setattr(cases, "run_in_thread", at_once)
    async with shown(tmp_path) as (app, pilot):
        await pilot.press("down")
        for keys in ("right", "right enter", "right enter right enter", "enter", "down tab enter"):
            for key in ("k", *keys.split()):
                app.post_message(events.Key(key, None))
            await settled(pilot)
            assert not app.workspace.kill_controller.reports, keys
            if not isinstance(app.screen, EndDialog):
                await press(pilot, "k")
            assert str(app.screen.query_one("#send", Button).label) == "Send TERM", keys
            await press(pilot, "escape")
    assert not guard.sent


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys one after the other, each once the screen stands still."""
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def at_once(
    app: App[Any], work: Callable[[], object], done: Callable[[object], None], *_: object, **__: str
) -> None:
    """An errand that takes no time at all."""
    app.call_later(done, work())


@asynccontextmanager
async def shown(folder: Path) -> AsyncIterator[tuple[GpumonApp, Pilot[int]]]:
    """The dashboard of a machine, once it stands still."""
    with machine(folder) as made, made.session(replay=False) as session:
        app = GpumonApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await settled(pilot)
            yield app, pilot


async def test_closed_screens_are_not_kept_in_memory(tmp_path: Path) -> None:
    async with shown(tmp_path) as (app, pilot):
        # Others of this process have rows too.
        before = _rows()
        for _ in range(_OPENED):
            app.action_help()
            await settled(pilot)
            app.pop_screen()
            await settled(pilot)
        # Some are kept until what is under way has been drawn.
        deadline = time.monotonic() + PATIENCE
        while (kept := _rows() - before) > _ROWS:
            assert time.monotonic() < deadline, kept
            await settled(pilot)


def _rows() -> int:
    """How many there are, whoever holds them."""
    gc.collect()
    return sum(isinstance(one, Strip) for one in gc.get_objects())
