"""Keys that were typed before a dialog stood on the screen confirm nothing."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command import GPUMON
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow

RIGHT, DOWN = "\x1b[C", "\x1b[B"
CONFIRM = f"{RIGHT}{RIGHT}\r"
IGNORED = "Keys typed before this was shown are ignored"


class ReplyingTerminal(Screen):
    """Has synchronized output, and replies only while it may."""

    modes = frozenset({b"2026"})

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._replying = threading.Event()
        self._replying.set()
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through

    def mute(self) -> None:
        """Show output, and reply later."""
        self._replying.clear()

    def unmute(self) -> None:
        """Reply to what was asked meanwhile."""
        self._replying.set()
        with self._changed:
            self.reply()

    def reply(self) -> None:
        if self._replying.is_set():
            super().reply()


@contextmanager
def gpumon(
    tmp_path: Path, terminal: type[Screen] = Screen
) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Run gpumon with the cursor on the only process."""
    with Driver([h100()]) as driver, owners(1, ["python", "train.py"]) as (process,):
        driver.cards[0].processes = [Owner(process.pid, memory=10 * GIB)]
        env = {**driver.env(), "XDG_STATE_HOME": str(tmp_path)}
        with terminal(GPUMON, env, 100, 34) as screen:
            screen.wait_for(str(process.pid))
            screen.press(DOWN, "▸")
            yield screen, process


def confirm(screen: Screen, process: subprocess.Popen[bytes]) -> None:
    """Confirm the dialog as somebody who has read it: the keys from before had no effect."""
    screen.wait_for(r"no children[\s\S]*Send TERM")
    assert process.poll() is None
    # Typing that has not paused goes on being ignored.
    time.sleep(0.5)
    assert process.poll() is None
    screen.press_away(RIGHT, IGNORED)
    screen.press("\r", "1 of 1 ended")
    assert process.wait(PATIENCE) == -15


PACKETS = {
    "at once": f"k{CONFIRM}",
    "600 bytes": f"k{'z' * 600}{CONFIRM}",
    "mouse": "k" + "\x1b[<35;3;3M" * 60 + CONFIRM,
    "signal": f"k9{CONFIRM}",
    "tab": "k" + "\t" * 5 + "\r" * 5,
}


@pytest.mark.parametrize("packet", PACKETS)
def test_keys_that_come_with_that_of_the_dialog_do_not_confirm(packet: str, tmp_path: Path) -> None:
    with gpumon(tmp_path) as (screen, process):
        screen.press(PACKETS[packet], IGNORED)
        confirm(screen, process)


def test_keys_that_come_with_that_of_the_palette_do_not_confirm(tmp_path: Path) -> None:
    with gpumon(tmp_path) as (screen, process):
        screen.press("\x10", "Search for commands")
        screen.press("End the process", r"End the process[\s\S]*key k")
        screen.type(f"\r{CONFIRM}")
        confirm(screen, process)


def test_a_click_that_comes_with_the_key_of_the_dialog_does_not_confirm(tmp_path: Path) -> None:
    with gpumon(tmp_path) as (screen, process):
        screen.press("k", r"no children[\s\S]*Send TERM")
        y, row = next((y, row) for y, row in enumerate(screen.rows()) if "Send TERM" in row)
        at = f"{row.index('Send TERM') + 2};{y + 1}"
        screen.press_away("\x1b", "Send TERM")
        screen.press(f"k\x1b[<0;{at}M\x1b[<0;{at}m", IGNORED)
        confirm(screen, process)


def slowly(screen: Screen, seconds: float) -> None:
    """Type without having seen anything."""
    for key in (RIGHT, RIGHT, "\r"):
        time.sleep(seconds)
        screen.type(key)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_keys_before_the_terminal_has_shown_the_dialog_do_not_confirm(
    seconds: float, tmp_path: Path
) -> None:
    with gpumon(tmp_path, ReplyingTerminal) as (screen, process):
        assert isinstance(screen, ReplyingTerminal)
        screen.mute()
        screen.press("k", r"no children[\s\S]*Send TERM")
        slowly(screen, seconds)
        screen.unmute()
        screen.wait_for(IGNORED)
        confirm(screen, process)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_keys_while_the_terminal_reads_no_output_do_not_confirm(
    seconds: float, tmp_path: Path
) -> None:
    with gpumon(tmp_path, ReplyingTerminal) as (screen, process):
        screen.hold()
        screen.type("k")
        slowly(screen, seconds)
        # Long enough for everything that does not wait for the terminal.
        time.sleep(0.5)
        assert process.poll() is None
        screen.release()
        screen.wait_for(IGNORED)
        confirm(screen, process)


def test_keys_before_the_terminal_has_shown_the_resized_dialog_do_not_confirm(
    tmp_path: Path,
) -> None:
    with gpumon(tmp_path, ReplyingTerminal) as (screen, process):
        assert isinstance(screen, ReplyingTerminal)
        screen.press("k", r"no children[\s\S]*▌ SIGTERM [\s\S]*Send TERM")
        screen.mute()
        screen.resize(62, 16)
        screen.wait_for(r"no children[\s\S]*▌ TERM [\s\S]*Send TERM")
        screen.type(CONFIRM)
        # Long enough for everything that does not wait for the terminal.
        time.sleep(0.5)
        assert process.poll() is None
        screen.unmute()
        screen.wait_for(IGNORED)
        confirm(screen, process)
