"""Cells written past Textual's compositor: the terminal shows what a whole repaint would show.

Also on a slow line that answers, where frames are sent in parts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.system.terminal_replies import MODE_QUERY
from tests.bench.line import COLUMNS, LINES, Line
from tests.bench.sight import Sight
from tests.screen import PATIENCE, Screen

PROGRAM = """
import gpumon.ui.app as app
from gpumon.cli import main
from textual.binding import Binding

class TestApp(app.GpumonApp):
    BINDINGS = [Binding("f5", "toast"), Binding("f6", "whole"), Binding("f7", "no_toast")]

    def action_toast(self):
        self.notify("a toast", timeout=3600)

    def action_no_toast(self):
        self.clear_notifications()

    def action_whole(self):
        for view in self.screen.query("CellView"):
            view.refresh()

app.GpumonApp = TestApp
raise SystemExit(main(["--demo", "-n", "0.1"]))
"""
MESSAGE = b"paused; p resumes"
F5, F6, F7 = "\x1b[15~", "\x1b[17~", "\x1b[18~"


def settle(screen: Screen) -> None:
    """Pause, and wait until the last of it has been drawn."""
    seen = len(screen.output)
    screen.type("p")
    # The last line is drawn last; there a message tells of the pause, then gives way to the keys.
    screen.wait(
        lambda it: MESSAGE in it.output[seen:] and it.rows()[-1].startswith(" q quit"),
        "waiting for the message and then the last line",
    )


def hold_equal(screen: Screen, what: str) -> None:
    """The screen is the same, colours and all, once everything has been painted anew."""
    settle(screen)
    patched = screen.cells()
    written = len(screen.output)
    screen.type(F6)
    screen.wait(lambda it: len(it.output) > written + 3000, f"waiting for the repaint after {what}")
    screen.wait(lambda it: it.cells() == patched, f"waiting for the same picture after {what}")


def wait_for_frames(screen: Screen, number: int) -> None:
    """Wait until so many more frames have been written."""
    goal = screen.frames() + number
    screen.wait(lambda it: it.frames() >= goal, "waiting for frames")


def wait_for_line(screen: Screen, line: int, seen: int) -> None:
    """Wait until a line, counted from 1, has been written from its beginning once more."""
    place = f"\x1b[{line};1H".encode()
    screen.wait(lambda it: place in it.output[seen:], f"waiting for line {line}")


@pytest.mark.slow
def test_in_the_end_the_terminal_shows_what_a_repaint_shows() -> None:
    with Screen([sys.executable, "-c", PROGRAM], columns=110, lines=30) as screen:
        screen.wait_for(r"\n q quit")
        for step in (a_toast, the_palette, a_line_that_is_held, many_frames_and_keys, resizes):
            step(screen)
            hold_equal(screen, step.__name__)
            screen.press_away("p", "PAUSED")


def a_toast(screen: Screen) -> None:
    """Frames go on under a toast, and leave it alone."""
    screen.press(F5, "a toast")
    count = len(screen.output)
    screen.wait(lambda it: len(it.output) > count + 3000, "waiting for frames")
    assert "a toast" in screen.text()
    screen.press_away(F7, "a toast")


def the_palette(screen: Screen) -> None:
    """A dialog lies over the dashboard and is closed."""
    screen.press("\x10", "Search for commands")
    screen.press("q", r"Quit\n +key q")
    screen.press_away("\x1b", "▔▔▔")


def a_line_that_is_held(screen: Screen) -> None:
    """A terminal that falls behind gets fewer frames, and the newest."""
    # From the first line ↑ would go on among the GPUs.
    screen.press("\x1b[B\x1b[B", r"▸ *2 +38470 erin")
    screen.hold()
    for _ in range(30):
        screen.type("\x1b[B\x1b[A")
    screen.release()
    # Keys are taken in their order: with the last of them all have been.
    screen.press("\x1b[H", r"▸ *0,1 +51022 ann")


def many_frames_and_keys(screen: Screen) -> None:
    """Rows change their order, and columns theirs."""
    for key in (*["\x1b[B"] * 3, *"CPSMr", *["\x1b[B"] * 2, ">"):
        screen.type(key)
    screen.wait_for(r"USER")
    wait_for_frames(screen, 15)


def resizes(screen: Screen) -> None:
    """The size changes in the middle of frames."""
    for width, height in ((90, 20), (70, 28), (110, 30), (60, 15), (58, 12), (110, 30)):
        seen = len(screen.output)
        screen.resize(width, height)
        wait_for_frames(screen, 3)
    wait_for_line(screen, 30, seen)


SLOW = """
import pathlib, sys
import gpumon.ui.screens.list_screen as screens
from gpumon.ui.terminal.renderer import TerminalRenderer

screens.MESSAGE_SECONDS = 0.5
TerminalRenderer.behind = lambda _: pathlib.Path(sys.argv[1]).exists()
"""


@pytest.mark.slow
def test_a_message_lasts_from_when_it_can_be_seen(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    with Screen([sys.executable, "-c", SLOW + PROGRAM, str(slow)], columns=110, lines=30) as screen:
        screen.wait_for(r"\n q quit")
        slow.touch()
        seen = len(screen.output)
        screen.type("p")
        # Longer than a message lasts, and nothing can be drawn meanwhile.
        time.sleep(1.0)
        assert MESSAGE not in screen.output[seen:]
        slow.unlink()
        screen.wait(lambda it: MESSAGE in it.output[seen:], "waiting for the message")
        screen.wait_for(r"PAUSED[\s\S]*\n q quit")


RATE = 15_000
QUIET = 1.5


class Watched:
    """A line, and what stands on the screen at its end."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.sight = Sight()
        self._drawn = 0

    def read(self, seconds: float) -> bool:
        """Take what comes, and draw it; returns whether anything came."""
        self.line.read_until(self.line.now + seconds)
        new = self.line.output[self._drawn :]
        self._drawn += len(new)
        for _ in self.sight.watch(new):
            pass
        return bool(new)

    def wait(self, holds: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds(self.sight.text()):
            assert time.monotonic() < deadline, self.sight.text()
            self.read(0.1)

    def wait_for_silence(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.read(QUIET):
            assert time.monotonic() < deadline, "it never is silent"


@pytest.mark.slow
def test_pending_rows_are_sent_until_the_screen_equals_a_repaint() -> None:
    with Line([sys.executable, "-c", PROGRAM], dict(os.environ), RATE) as line:
        watched = Watched(line)
        watched.wait(lambda text: "\n q quit" in text)
        for _ in range(12):
            line.press(b"\x1b[B")
            watched.read(0.1)
        line.press(b"p")
        watched.wait(lambda text: "PAUSED" in text and text.splitlines()[-1].startswith(" q quit"))
        watched.wait_for_silence()
        patched = watched.sight.cells()
        line.press(F6.encode())
        watched.wait_for_silence()
    questions = b"".join(one.data for one in line.output).count(MODE_QUERY.encode())
    assert questions > 3
    assert len(patched) == COLUMNS * LINES
    assert watched.sight.cells() == patched
