"""The demo in a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.demo import COARSE_DEMO
from tests.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = r"GPU-MEM▼[\s\S]*ann [\s\S]*\n q quit"
"""Frames are drawn from the top: with the footer a frame is whole."""


@contextmanager
def demo(*arguments: str, columns: int = 100, lines: int = 24) -> Iterator[Screen]:
    """Run the demo with a coarse past, until its dashboard is whole and on."""
    with Screen([*COARSE_DEMO, *arguments], columns=columns, lines=lines) as screen:
        screen.wait_for(READY)
        yield screen


def changed_demo(change: str, *arguments: str, lines: int = 24) -> Screen:
    """The demo of a gpumon that a few lines of Python change first."""
    code = f"{change}\nfrom tests.demo import main\nraise SystemExit(main())"
    return Screen([sys.executable, "-c", code, *arguments], lines=lines)
