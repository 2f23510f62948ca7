"""Waiting for what a screen shows, and reading it, without a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpumon.ui.screens.painted import CellView
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.pilot import Pilot


def text(app: App[Any]) -> str:
    """The rows of the screen on top."""
    rows = [row for view in app.screen.query(CellView) for row in view.rows]
    return "\n".join("".join(part for part, _ in row) for row in rows)


async def until(pilot: Pilot[Any], holds: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}\n{text(pilot.app)}"
        await pilot.pause(0.01)


async def shown(pilot: Pilot[Any], *words: str) -> None:
    """Wait until these words stand on the screen, one after the other."""
    for each in words:
        await until(pilot, lambda each=each: each in text(pilot.app), f"{each!r}")  # type: ignore[misc]  # a default binds the value


async def gone(pilot: Pilot[Any], words: str) -> None:
    """Wait until these words stand on the screen no longer."""
    await until(pilot, lambda: words not in text(pilot.app), f"{words!r} to go")


async def press(pilot: Pilot[Any], *keys: str, shows: str) -> None:
    """Press keys, and wait until what they lead to stands on the screen."""
    await pilot.press(*keys)
    await shown(pilot, shows)
