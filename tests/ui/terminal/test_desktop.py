"""Lines for the clipboard: what the terminal gets, and what the person is told."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from textual.app import App

from gpumon.makers.visible_devices import assignment_line
from gpumon.model.processes import ProcessId
from gpumon.ui.terminal.desktop import copy, copy_kill
from tests.lives import needs
from tests.screen import PATIENCE, Screen

PROGRAM = """
from textual.app import App
from textual.binding import Binding
from gpumon.makers.visible_devices import assignment_line
from gpumon.ui.terminal.desktop import copy

class Copies(App):
    BINDINGS = [Binding("y", "copy")]

    def action_copy(self):
        self.notify(copy(self, "kill 41233"), timeout=60)

Copies().run()
"""
ENCODED = "a2lsbCA0MTIzMw=="
"""``kill 41233`` in base64."""


PROCESS = ProcessId(41233, 99)


@pytest.mark.parametrize(
    ("process", "host", "shown", "copied"),
    [
        (PROCESS, None, "kill 41233", "kill 41233"),
        # On another machine it names that and the very process.
        (PROCESS, "ann@gpu-04", "gpumon end", "gpumon end 41233:99 --hosts ann@gpu-04"),
        (PROCESS, "x;reboot\n", "gpumon end", "gpumon end 41233:99 --hosts 'x;reboot '"),
        # A PID of another namespace is never copied.
        (ProcessId(3999999, None), None, "not visible here", ""),
    ],
)
async def test_the_kill_command_names_the_process_that_is_meant(
    process: ProcessId, host: str | None, shown: str, copied: str
) -> None:
    async with App[None]().run_test() as pilot:
        assert shown in copy_kill(pilot.app, process, host)
        assert pilot.app.clipboard == copied


def test_the_cuda_line_names_cards_and_does_nothing_else_in_a_shell() -> None:
    assert assignment_line(["GPU-1", "GPU-2"], ()) == "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"
    hostile = "GPU-$(touch x);\n\x1b]0;y\x07'`"
    line = assignment_line([hostile], ())
    assert line.isprintable()
    shown = output_of(["sh", "-c", f'{line}; printf %s "$CUDA_VISIBLE_DEVICES"'])
    assert shown.startswith("GPU-$(touch x); ")
    assert shown.endswith("'`")


@pytest.mark.parametrize(
    ("name", "words"), [("HERE", ""), ("TMUX", "set-clipboard on"), ("STY", "by hand")]
)
async def test_the_line_itself_is_always_shown_with_what_may_prevent_the_copy(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    async with App[None]().run_test() as pilot:
        told = copy(pilot.app, "kill 7")
        assert "kill 7" in told
        assert words in told
        assert pilot.app.clipboard == "kill 7"


@pytest.mark.parametrize("text", ["kill 7\nrm x", "kill 7\x1b[31m", "a\tb"])
async def test_text_with_control_characters_is_refused(text: str) -> None:
    async with App[None]().run_test() as pilot:
        with pytest.raises(ValueError, match="printable"):
            copy(pilot.app, text)
        assert pilot.app.clipboard == ""


def test_the_terminal_gets_osc_52() -> None:
    with Screen([sys.executable, "-c", PROGRAM]) as screen:
        screen.wait(lambda it: len(it.output) > 1000, "waiting for the first frame")
        screen.press("y", "kill 41233")
        assert f"\x1b]52;c;{ENCODED}\x07".encode() in screen.output


@needs("tmux")
@pytest.mark.parametrize(("setting", "arrives"), [("on", True), ("external", False)])
def test_tmux_takes_it_as_we_say(tmp_path: Path, setting: str, arrives: bool) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    shown = f"printf '\\033]52;c;{ENCODED}\\007'; echo done; exec cat"
    subprocess.run(
        [*tmux, "set-option", "-s", "set-clipboard", setting, ";", "new-session", "-d", shown],
        check=True,
    )
    try:
        wait_for_output(tmux, "done")
        assert ("kill 41233" in output_of([*tmux, "list-buffers"])) is arrives
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def output_of(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wait_for_output(tmux: list[str], words: str) -> None:
    """Wait until the words stand in tmux's pane: what was printed before them is taken then."""
    deadline = time.monotonic() + PATIENCE
    while words not in output_of([*tmux, "capture-pane", "-p"]):
        assert time.monotonic() < deadline, f"{words!r} did not come"
        time.sleep(0.02)
