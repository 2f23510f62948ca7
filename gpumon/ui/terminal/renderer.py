"""Writes changed cells directly to the terminal, bypassing Textual's compositor.

Textual's compositor writes every changed region from its widget's left edge and renders everything
that overlaps it: ten frames a second of a full dashboard cost several times as much as the changed
cells alone. So the changed cells of a tick go directly to the driver, in one write.

This uses ``App._driver``, which is private: ``pyproject.toml`` limits the versions of Textual, and
``tests/ui/terminal/test_renderer.py`` checks that the terminal shows what the widgets contain after
dialogs, toasts and resizes. Whenever anything may cover the dashboard, ``TerminalRenderer.ready``
is False and the caller repaints through Textual's public interface.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual.widgets import Tooltip
from textual.widgets._toast import ToastRack

from gpumon.system.terminal_replies import MODE_QUERY
from gpumon.ui.terminal.pacing import MOST, Pacing
from gpumon.ui.view.cell_writer import CellWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App
    from textual.screen import Screen

    from gpumon.ui.palette import Palette

_OVER_ALL = (ToastRack, Tooltip)
"""What Textual lays over a screen."""
_SYNC_START = "\x1b[?2026h"
_SYNC_END = "\x1b[?2026l"

# With this many pending writes the terminal is slower than the dashboard: frames are then dropped,
# because a full queue would block the event loop and every key.
_BACKLOG = 2


class TerminalRenderer:
    """Collects the changed cells of one frame, then writes them.

    Args:
        app: The application whose terminal is written to.
        palette: The colours.

    Attributes:
        palette: The colours.
        writer: Receives the cells.
        interactive: Whether the current drawing is the effect of a key; see ``in_background``.
    """

    def __init__(self, app: App[int], palette: Palette) -> None:
        self._app = app
        self.use(palette)
        self._pacing = Pacing()
        self.interactive = True

    def use(self, palette: Palette) -> None:
        """Write in other colours from now on."""
        self.palette = palette
        self.writer = CellWriter(palette.sgr_styles)

    def ready(self, screen: Screen[object]) -> bool:
        """Whether cells may be written past the compositor right now."""
        app = self._app
        if not app.is_running or app.is_headless or app.screen is not screen or app._driver is None:  # noqa: SLF001 - see above
            return False
        for child in screen.children:
            if isinstance(child, _OVER_ALL) and (
                child.display if isinstance(child, Tooltip) else child.children
            ):
                return False
        return True

    def behind(self) -> bool:
        """Whether the terminal has not yet accepted, or shown, the previous output."""
        thread = getattr(self._app._driver, "_writer_thread", None)  # noqa: SLF001 - see above
        if thread is not None and thread._queue.qsize() > _BACKLOG:  # noqa: SLF001 - see above
            return True
        now = time.monotonic()
        return self._pacing.silent(now) and not self._pacing.room(now, interactive=self.interactive)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Drawing in this block is not the effect of a key, and waits for the terminal."""
        self.interactive = False
        try:
            yield
        finally:
            self.interactive = True

    @property
    def limited(self) -> bool:
        """Whether part of a frame may have to be left out."""
        return self._pacing.room(time.monotonic()) < MOST

    def full(self) -> bool:
        """Whether this frame has no room for more; the rest goes into the next frame."""
        room = self._pacing.room(time.monotonic(), interactive=self.interactive)
        # No frame is longer than that, so it need not be measured.
        return room < MOST and self.writer.size >= room

    def answered(self) -> None:
        """The terminal has shown everything written before its query."""
        self._pacing.answered(time.monotonic())

    def flush(self) -> None:
        """Write the frame."""
        frame = self.writer.take()
        driver = self._app._driver  # noqa: SLF001 - see above
        # Once the app ends, the terminal is restored while screens may still be drawn.
        if frame and driver is not None and self._app.is_running:
            # It knows the mode, and so shows only complete frames (DEC mode 2026).
            if self._pacing.heard:
                frame = f"{_SYNC_START}{frame}{_SYNC_END}"
            if self._pacing.wrote(len(frame), time.monotonic()):
                frame += MODE_QUERY
            driver.write(frame)
