"""Paints the dashboard while Textual is still being imported, with real data.

Importing Textual is the longest part of the start. So the same rows are painted with plain escape
sequences as soon as there is a snapshot, and repainted until Textual draws them
(``gpumon.ui.terminal.handover``). If nothing can be painted, the screen appears when Textual does.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeAlias

from gpumon.config.themes.styles import resolve_styles
from gpumon.ui.view.cell_writer import CellWriter, SgrStyle, SgrStyles
from gpumon.ui.view.dashboard_rows import Dashboard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.themes import ThemeFile
    from gpumon.config.themes.styles import Rgb
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.text.cells import Row
    from gpumon.ui.view.dashboard_view import View

Attributes: TypeAlias = "list[int | list[bytes | int]]"
"""A terminal's settings, as ``termios`` returns them."""

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
_LEAVE = "\x1b[m\x1b[?7h\x1b[?1049l\x1b[?25h"

_LOCAL, _INPUT = 3, 0


class FirstPicture:
    """Paints snapshots on the sampling thread until it is handed over or closed.

    Args:
        history: The source of the graphs; it gets every snapshot before this does.
        view: The view.
        sgr_styles: The looks of the styles; ``None`` if nothing can be painted.
    """

    def __init__(self, history: History, view: View, sgr_styles: SgrStyles | None) -> None:
        self._dashboard = Dashboard(history)
        self._view = view
        self._sgr_styles = sgr_styles
        self._rows: list[Row] = []
        self._size = (0, 0)
        self._painting = Lock()
        self._seen = Event()
        self._attributes: Attributes | None = None

    def __enter__(self) -> FirstPicture:
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal, unless it was handed over.

        This happens before a traceback is printed, which would vanish with the alternate screen.
        """
        attributes = self.hand_over()
        if attributes is not None:
            # If the terminal is gone, a signal reports it.
            with suppress(OSError):
                _write(_LEAVE)
            set_attributes(attributes)

    def take(self, snapshot: Snapshot) -> None:
        """Paint a snapshot. A listener of a collector."""
        if snapshot.gpus and self._sgr_styles is not None:
            with self._painting:
                if self._sgr_styles is not None:
                    with suppress(OSError):
                        self._paint(snapshot, self._sgr_styles)
            self._seen.set()

    def wait(self, seconds: float) -> None:
        """Wait for the first picture, because importing delays it."""
        if self._sgr_styles is not None:
            self._seen.wait(seconds)

    def hand_over(self) -> Attributes | None:
        """Stop painting.

        Returns:
            The previous settings of the terminal; ``None`` if nothing was painted, or after the
            first call.
        """
        with self._painting:
            self._sgr_styles = None
            attributes, self._attributes = self._attributes, None
        return attributes

    def _paint(self, snapshot: Snapshot, sgr_styles: SgrStyles) -> None:
        if self._attributes is None:
            self._attributes = _take_keys()
            if self._attributes is None:
                self._sgr_styles = None
                return
            _write(_ENTER)
        width, height = size = os.get_terminal_size(2)
        rows = self._dashboard.rows(snapshot, self._view, width, height).all()
        before = self._rows if size == self._size else []
        writer = CellWriter(sgr_styles)
        for y, row in enumerate(rows):
            old = before[y] if y < len(before) else None
            if old == row:
                continue
            if old is None:
                writer.place(row, 0, y)
            else:
                writer.change(old, row, 0, y)
        self._rows, self._size = rows, size
        _write(writer.take())


def first_styles(theme: ThemeFile | None, environ: Mapping[str, str]) -> SgrStyles | None:
    """The looks of the styles, as ``Palette`` has them, without Textual.

    Returns:
        ``None`` for Textual's own themes, and for terminals with few colours, where only Textual
        can reduce the theme.
    """
    term = environ.get("TERM", "").strip().lower()
    many = environ.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}
    told = environ.get("NO_COLOR") or "TEXTUAL_COLOR_SYSTEM" in environ
    if theme is None or told or term.startswith("vt") or not (many or term.endswith("-256color")):
        return None
    codes = _true_codes if many else _codes_of_256
    sgr_styles = {
        name: SgrStyle(codes(look.fore, 38), codes(look.ground, 48), look.bold)
        for name, look in resolve_styles(theme.variables).items()
    }
    return SgrStyles(sgr_styles)


def _true_codes(colour: Rgb, which: int) -> str:
    return f"{which};2;{';'.join(map(str, colour))}"


def _codes_of_256(colour: Rgb, which: int) -> str:
    from rich.color import Color, ColorSystem

    codes = Color.from_rgb(*colour).downgrade(ColorSystem.EIGHT_BIT).get_ansi_codes()
    return ";".join((str(which), *codes[1:]))


def set_attributes(attributes: Attributes) -> None:
    """Apply these settings to the terminal, if it still exists."""
    import termios

    try:
        termios.tcsetattr(0, termios.TCSANOW, attributes)
    except termios.error:
        return


def _take_keys() -> Attributes | None:
    """Let keys queue without echo until they are read; returns the previous settings."""
    import termios

    try:
        before: Attributes = termios.tcgetattr(0)
        settings = termios.tcgetattr(0)
        # The settings that Textual will use.
        settings[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        settings[_INPUT] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR)
        termios.tcsetattr(0, termios.TCSANOW, settings)
    except termios.error:
        return None
    return before


def _write(text: str) -> None:
    assert sys.__stderr__ is not None  # noqa: S101 - it is the terminal
    sys.__stderr__.write(text)
    sys.__stderr__.flush()
