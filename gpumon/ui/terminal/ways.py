"""The bell and the desktop notifications of the terminal in which gpumon runs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpumon.text.notification import notification

if TYPE_CHECKING:
    from collections.abc import Callable

_BELL_SECONDS = 1.0
"""Seconds in which the bell rings once, however many alerts ring it."""
_MOST_SHOWN = 10
"""How many notifications are shown within a minute; the page of alerts lists all."""
_MINUTE = 60.0


class ScreenTerminal:
    """Rings and notifies while Textual has the terminal; implements ``TerminalWays``.

    Args:
        run_soon: Runs a call on the application's thread, which writes to the terminal.
        bell: Rings the terminal's bell.
        write: Writes a control sequence to the terminal.
    """

    def __init__(
        self,
        run_soon: Callable[[Callable[[], None]], None],
        bell: Callable[[], None],
        write: Callable[[str], None],
    ) -> None:
        self._run_soon = run_soon
        self._bell = bell
        self._write = write
        self._rung_at = -_BELL_SECONDS
        self._shown_at: list[float] = []

    def bell(self) -> None:
        """Ring the bell."""
        self._run_soon(self._ring)

    def notify(self, title: str, text: str) -> None:
        """Show a notification."""
        sequence = notification(title, text, os.environ)
        self._run_soon(lambda: self._show(sequence))

    def _ring(self) -> None:
        now = time.monotonic()
        if now - self._rung_at >= _BELL_SECONDS:
            self._rung_at = now
            self._bell()

    def _show(self, sequence: str) -> None:
        now = time.monotonic()
        self._shown_at = [at for at in self._shown_at if now - at < _MINUTE]
        if len(self._shown_at) < _MOST_SHOWN:
            self._shown_at.append(now)
            self._write(sequence)
