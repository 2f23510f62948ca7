"""The bell and the desktop notifications of the terminal in which gpumon runs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpumon.scheduling.wait.notification import notification

if TYPE_CHECKING:
    from collections.abc import Callable

_BELL_SECONDS = 1.0
"""Seconds in which the bell rings once, however many alerts ring it."""
_MOST_AT_ONCE = 10
"""How many notifications are shown within a minute; the page of alerts lists all."""
_MINUTE = 60.0


class ScreenTerminal:
    """Rings the bell and shows notifications; for the application's thread.

    Args:
        bell: Rings the terminal's bell.
        write: Writes a control sequence to the terminal.
    """

    def __init__(self, bell: Callable[[], None], write: Callable[[str], None]) -> None:
        self._ring = bell
        self._write = write
        self._rung_at = -_BELL_SECONDS
        self._shown_at: list[float] = []

    def bell(self) -> None:
        """Ring the bell."""
        now = time.monotonic()
        if now - self._rung_at >= _BELL_SECONDS:
            self._rung_at = now
            self._ring()

    def notify(self, text: str) -> None:
        """Show a notification."""
        now = time.monotonic()
        self._shown_at = [at for at in self._shown_at if now - at < _MINUTE]
        if len(self._shown_at) < _MOST_AT_ONCE:
            self._shown_at.append(now)
            self._write(notification(text, os.environ))
