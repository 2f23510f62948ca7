"""On a slow line that answers, frames are sent in parts: in the end nothing was left out."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gpumon.system.terminal_replies import MODE_QUERY
from tests.bench.line import COLUMNS, LINES, Line
from tests.bench.sight import Sight
from tests.ui.terminal.test_renderer import F6, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 15_000
PATIENCE = 60.0
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
