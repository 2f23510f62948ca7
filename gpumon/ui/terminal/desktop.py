"""What the terminal does on the user's desktop, also over ssh: bell, notifications, clipboard.

Textual's ``App.copy_to_clipboard`` writes OSC 52 (xterm's control sequences, "Manipulate Selection
Data"). No terminal confirms it, some ignore it, and multiplexers may drop it: tmux passes it on
only with ``set-clipboard on``, while its default since 2.6, ``external``, ignores programs; GNU
screen never passes it on. So the line is always shown on the screen too.
"""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from gpumon.text.formatting import printable
from gpumon.text.notification import notification
from gpumon.ui.background import call_soon

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from gpumon.model.processes import ProcessId

NO_PID_OF_THE_PAST = (
    "this is the past: another process may have this number now, so nothing is copied"
)

_BELL_SECONDS = 1.0
"""Seconds in which the bell rings once, however many alerts ring it."""
_MOST_SHOWN = 10
"""How many notifications are shown within a minute; the page of alerts lists all."""
_MINUTE = 60.0


class ScreenTerminal:
    """Rings and notifies while Textual has the terminal; implements ``Terminal`` of the channels.

    The thread of the application writes.
    """

    def __init__(self, app: App[int], write: Callable[[str], None]) -> None:
        self._app = app
        self._write = write
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
            self._write(sequence)


def copy(app: App[Any], text: str) -> str:
    """Copy a line, which will be pasted into a shell, to the terminal's clipboard.

    Returns:
        The message for the user, which contains the line.

    Raises:
        ValueError: The text is no printable line.
    """
    if not text.isprintable():
        raise ValueError(f"not one printable line: {text!r}")
    app.copy_to_clipboard(text)
    if "TMUX" in os.environ:
        return f"{text}   copied if tmux has `set -s set-clipboard on`"
    if "STY" in os.environ:
        return f"{text}   copy it by hand: screen does not pass it to the terminal"
    return f"{text}   copied, if the terminal allows it"


def copy_kill(app: App[Any], process: ProcessId, machine: str | None = None) -> str:
    """Copy the command that ends a process. Its PID may be reused later.

    Args:
        app: The application.
        process: The process.
        machine: Its machine, as the user named it; ``None`` for this one.

    Returns:
        The message for the user: the line, or why there is none.
    """
    if process.start_time is None:
        return f"{process.pid} is not visible here: another process may have this number"
    if machine is None:
        return copy(app, f"kill {process.pid}")
    # Refused where the name reaches another machine, which has no process with this start.
    subject = f"{process.pid}:{process.start_time}"
    return copy(app, f"gpumon end {subject} --hosts {shlex.quote(printable(machine))}")
