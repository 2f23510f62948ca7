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

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual.widgets import Tooltip
from textual.widgets._toast import ToastRack

from gpumon.system.terminal_replies import MODE_QUERY
from gpumon.ui.terminal.cell_writer import CellWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App
    from textual.screen import Screen

    from gpumon.ui.terminal.styles import SgrStyles

_OVER_ALL = (ToastRack, Tooltip)
"""What Textual lays over a screen."""
_SYNC_START = "\x1b[?2026h"
_SYNC_END = "\x1b[?2026l"

# With this many pending writes the terminal is slower than the dashboard: frames are then dropped,
# because a full queue would block the event loop and every key.
_BACKLOG = 2

LEAST, MOST = 120, 16384
"""Bytes between two queries: at 20 kB/s the minimum is shown without a visible delay."""

_SLOW, _SLOW_SHARE = 0.008, 0.25
"""Seconds that an answer may take longer than the fastest one; or this share of its time."""
_PATIENCE = 1.0
"""Seconds after which an answer counts as lost."""
_CAUTION, _MOST_CAUTION = 1.0, 16.0
"""Seconds after a slow answer in which the amount is not increased. A busy machine is slow for a
moment, a slow line permanently: so each failed increase delays the next one further."""
_INTERACTIVE = 3
"""The effects of keys are written without waiting, unless this many answers are pending."""


class Pacing:
    """Limits how much is written to a terminal before it has shown the previous output.

    A query that terminals answer follows the output, and nothing more is written until the answer
    arrives; output that is due meanwhile goes into the next frame. The faster the answers, the more
    is written between two queries, so that a fast terminal is rarely queried.
    ``docs/decisions/0002-terminal-output.md`` says why.

    All times are in seconds of one clock.
    """

    def __init__(self) -> None:
        self.heard = False
        """Whether this terminal answers at all; until then it gets whole frames, and no query."""
        self._share = LEAST
        self._written = 0
        # The time, and the bytes written before.
        self._asked: list[tuple[float, int]] = []
        self._unanswered_since = math.inf
        self._quickest = math.inf
        self._careful_until = -math.inf
        self._caution = _CAUTION
        self._too_much = math.inf

    def room(self, now: float, *, interactive: bool = False) -> float:
        """Bytes that may be written now; ``interactive`` if a key was just pressed."""
        if not self.heard:
            return math.inf
        if self._asked and now - self._asked[-1][0] >= _PATIENCE:
            self._asked = []
            self._share = LEAST
        if self._asked and not (interactive and len(self._asked) < _INTERACTIVE):
            return 0
        return self._share

    def wrote(self, size: int, now: float) -> bool:
        """Record written bytes; returns whether the query must follow them."""
        self._written += size
        if not self.heard or (self._share > 4 * LEAST and self._written < self._share // 2):
            return False
        self._asked.append((now, self._written))
        self._written = 0
        self._unanswered_since = min(self._unanswered_since, now)
        return True

    def silent(self, now: float) -> bool:
        """Whether answers have stopped: output written now is not seen."""
        return now - self._unanswered_since > _PATIENCE

    def answered(self, now: float) -> None:
        """Record the terminal's answer."""
        self.heard = True
        self._unanswered_since = math.inf
        if not self._asked:
            return
        asked, size = self._asked.pop(0)
        took = now - asked
        self._quickest = min(self._quickest, took)
        longer = took - self._quickest
        if longer > max(_SLOW, _SLOW_SHARE * self._quickest):
            self._careful_until = now + self._caution
            if self._share > LEAST:
                self._too_much = self._share
                self._share //= 2
                self._caution = min(2 * self._caution, _MOST_CAUTION)
            return
        if size >= self._too_much:
            self._too_much, self._caution = math.inf, _CAUTION
        if now >= self._careful_until and 2 * size >= self._share:
            self._share = min(MOST, self._share * 2)


class TerminalRenderer:
    """Collects the changed cells of one frame in its ``writer``, then writes them."""

    def __init__(self, app: App[int], styles: SgrStyles) -> None:
        self._app = app
        self.use(styles)
        self._pacing = Pacing()
        self.interactive = True
        """Whether the current drawing is the effect of a key; see ``in_background``."""

    def use(self, styles: SgrStyles) -> None:
        """Write in other colours from now on."""
        self.styles = styles
        self.writer = CellWriter(styles)

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
