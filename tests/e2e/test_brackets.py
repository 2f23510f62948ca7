"""No text is markup: brackets are shown as somebody typed them or as the machine has them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.app import App, ComposeResult, SystemCommand
from textual.command import CommandList
from textual.containers import Vertical
from textual.pilot import Pilot
from textual.widgets import Button, Checkbox, Input, Label, OptionList, Static

from gpumon.ui.app import BaseApp
from tests.build import NOON, gpu, process, snapshot
from tests.command import GPUMON
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.lives import NEEDS_ALL_PIDS
from tests.report.logs import write_log
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow

BRACKETS = ["[a=", "[/]", "[red]", "[link=x]y[/link]", r"\[", "$x", "[$x]", "[@click=app.quit]q"]
ALL = " ".join(BRACKETS)
ESCAPE, HOME, CONTROL_P = "\x1b", "\x1b[H", "\x10"


def literally(text: str) -> str:
    return re.escape(text)


@NEEDS_ALL_PIDS
def test_what_the_machine_is_called_and_what_is_typed_stands_there_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "gpumon"
    (config / "themes").mkdir(parents=True)
    (config / "themes" / "[a=.toml").write_text("base = '[/] [a='\n")
    (config / "config.toml").write_text("[[alerts]]\nname = '[/] [red]'\nwhen = 'temp>300'\n")
    with Driver([h100()]) as driver, owners(1, ["[a=", "[/]", "[red]", r"\[", "$x"]) as started:
        driver.cards[0].name = b"NVIDIA [a= [/] \\["
        driver.cards[0].processes = [Owner(started[0].pid, memory=GIB, sm=20)]
        env = {**driver.env(), "XDG_CONFIG_HOME": str(tmp_path)}
        with Screen([*GPUMON, "-n", "0.1"], env, 140, 40) as screen:
            command = literally(r"[a= [/] [red] \[ $x")
            screen.wait_for(rf"{literally('[a= [/]')}[\s\S]*{command}[\s\S]*\n q quit")
            # The filter and its error.
            screen.press(f"/{BRACKETS[0]}", r"\n / *\[a=")
            screen.press_away(ESCAPE, r"\n / *\[a=")
            # The pages of the GPU and of the process, and the dialog that ends it.
            screen.press("\t\r", rf"GPU 0 +{literally('[a= [/]')}|{literally('NVIDIA [a= [/]')}")
            screen.press("q", r"\n q quit")
            screen.press("\tk", rf"{command}[\s\S]*Send TERM")
            screen.press_away(ESCAPE, "Send TERM")
            # The list of alerts.
            screen.press("!", literally("[/] [red]: temp>300"))
            screen.press("q", r"\n q quit")
            # The themes: the name, and what is wrong with the file.
            screen.press("T", rf"{literally('[a=')} +yours")
            screen.type(HOME)
            # The path may be wrapped.
            screen.wait_for(literally("base is '[/] [a=', which"))
            screen.press_away(ESCAPE, "yours")
            # The searches.
            screen.press(f"?{ALL}", literally(ALL))
            screen.press_away(f"{ESCAPE}", literally(ALL))
            screen.press(ESCAPE, r"\n q quit")
            screen.press(CONTROL_P, "Search for commands")
            screen.press(ALL, literally(ALL))
            screen.press(ESCAPE, r"\n q quit")
            screen.quit()
            assert b"Traceback" not in screen.output


def test_a_log_of_any_name_and_any_time_to_go_to_are_text(tmp_path: Path) -> None:
    taken = snapshot(
        NOON, gpu(name="NVIDIA [a="), processes=(replace(process(), command=tuple(BRACKETS)),)
    )
    log = write_log(
        tmp_path / "[a= [red].csv", [(replace(taken, time=NOON + at), at) for at in range(60)]
    )
    with Screen([*GPUMON, "replay", str(log)], dict(os.environ), 200, 30) as screen:
        screen.wait_for(rf"{literally('[a=')}[\s\S]*{literally('[a= [/] [red]')}[\s\S]*\n q quit")
        for text in BRACKETS:
            screen.press("@", "Go to a time")
            screen.type(f"{text}\r")
            # The message quotes it, as Python would.
            screen.wait_for(rf"{literally(text)}[\s\S]*{literally(repr(text))} is not a time")
            screen.press_away(ESCAPE, "Go to a time")
        screen.quit()
        assert b"Traceback" not in screen.output


class Everything(App[None]):
    """A text in each place of a screen in which Textual shows one."""

    COMMANDS = BaseApp.COMMANDS

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        text = self._text
        yield Static(text)
        yield Static(id="updated")
        yield Label(text)
        yield Button(text)
        yield Checkbox(text)
        yield OptionList(text)
        yield Input(text)
        yield Input(placeholder=text)
        with Vertical() as box:
            box.styles.border, box.styles.height = ("solid", "red"), 3
            box.border_title = box.border_subtitle = text

    def on_mount(self) -> None:
        self.query_one("#updated", Static).update(self._text)
        self.notify(self._text, title=self._text, timeout=3600)

    def get_system_commands(self, screen: object) -> list[SystemCommand]:  # noqa: ARG002 - Textual's signature
        return [SystemCommand(self._text, self._text, self.bell)]

    def shown(self, text: str = "") -> int:
        """How often a text stands on the screen, by default its own."""
        rows = self.screen._compositor.render_strips()
        return "\n".join(row.text for row in rows).count(text or self._text)


async def until(holds: Callable[[], bool], pilot: Pilot[None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


@pytest.mark.parametrize("text", [*BRACKETS, "key [", "key ]"])
async def test_no_widget_of_textuals_takes_a_text_for_markup(text: str) -> None:
    async with Everything(text).run_test(size=(100, 60), notifications=True) as pilot:
        app = pilot.app
        assert isinstance(app, Everything)
        await until(lambda: app.shown() == 12, pilot)
        app.action_command_palette()
        await until(lambda: app.shown("🔎") == 1, pilot)
        await pilot.press(*(text.replace(" ", "")[:1]))
        # What is found has the text as its name and as its help, over the other widgets.
        found = app.screen.query_one(CommandList)
        await until(lambda: app.shown("🔎 " + text[:1]) == 1 and found.option_count > 0, pilot)
        await until(lambda: app.shown() >= 2, pilot)
        # Textual's search does not expect the end of the application.
        await pilot.press("escape")
        await until(lambda: app.shown("🔎") == 0, pilot)
