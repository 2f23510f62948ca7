"""How changed cells reach the terminal: written there directly, not through Textual's compositor.

Textual's compositor writes every changed region from its widget's left edge and renders all that
overlaps it: ten frames a second of a full dashboard cost it several times what the cells themselves
cost. So a tick's changed cells go straight to the driver, in one write.

This leans on ``App._driver``, which is private; Textual's minor versions are pinned for it, and
``tests/tui/test_pen.py`` holds that the terminal shows what the widgets hold after dialogs, toasts
and resizes. Whenever anything may lie over the dashboard, ``Pen.ready`` is False and the caller
repaints the public way instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Tooltip
from textual.widgets._toast import ToastRack

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

_SYNC_START = "\x1b[?2026h"
_SYNC_END = "\x1b[?2026l"

# With this many writes waiting the terminal is slower than the dashboard: frames are dropped then,
# since a full queue would block the event loop and every key with it.
_BACKLOG = 2


class Pen:
    """Collects the changed cells of one frame, then writes them."""

    def __init__(self, app: App[object]) -> None:
        self._app = app
        self._parts: list[str] = []
        self.synchronized = False
        """Whether the terminal shows a frame only when it is whole (DEC mode 2026)."""

    def ready(self, screen: Screen[object]) -> bool:
        """Whether cells of a screen may be written past the compositor right now."""
        app = self._app
        if app.is_headless or app.screen is not screen or app._driver is None:  # noqa: SLF001
            return False
        for child in screen.children:
            if isinstance(child, ToastRack) and child.children:
                return False
            if isinstance(child, Tooltip) and child.display:
                return False
        return True

    def behind(self) -> bool:
        """Whether the terminal has not yet taken what was written before."""
        thread = getattr(self._app._driver, "_writer_thread", None)  # noqa: SLF001
        return thread is not None and thread._queue.qsize() > _BACKLOG  # noqa: SLF001

    def add(self, cells: str) -> None:
        """Take encoded cells into the frame."""
        self._parts.append(cells)

    def flush(self) -> None:
        """Write the frame."""
        if not self._parts:
            return
        frame = "".join(self._parts)
        self._parts.clear()
        if self.synchronized:
            frame = f"{_SYNC_START}{frame}{_SYNC_END}"
        driver = self._app._driver  # noqa: SLF001
        if driver is not None:
            driver.write(frame)
