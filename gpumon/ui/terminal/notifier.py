"""The bell and the desktop notifications of the terminal in which gpumon runs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpumon.text.notification import notification
from gpumon.ui.background import call_soon

if TYPE_CHECKING:
    from gpumon.ui.app import BaseApp

_BELL_SECONDS = 1.0
"""Seconds in which the bell rings once, however many alerts ring it."""
_MOST_SHOWN = 10
"""How many notifications are shown within a minute; the page of alerts lists all."""
_MINUTE = 60.0


class ScreenTerminal:
    """Rings and notifies while Textual has the terminal; implements ``Terminal`` of the channels.

    The thread of the application writes.
    """

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._rung_at = -_BELL_SECONDS
        self._shown_at: list[float] = []

    def bell(self) -> None:
        """Ring the bell."""
        call_soon(self._app, self._ring)

    def notify(self, title: str, text: str) -> None:
        """Show a notification."""
        sequence = notification(title, text, os.environ)
        call_soon(self._app, self._show, sequence)

    def _ring(self) -> None:
        now = time.monotonic()
        if now - self._rung_at >= _BELL_SECONDS:
            self._rung_at = now
            self._app.bell()

    def _show(self, sequence: str) -> None:
        now = time.monotonic()
        self._shown_at = [at for at in self._shown_at if now - at < _MINUTE]
        if len(self._shown_at) < _MOST_SHOWN:
            self._shown_at.append(now)
            self._app.write_to_terminal(sequence)
