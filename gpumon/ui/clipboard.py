"""Copies lines to the clipboard of the user's terminal, also over ssh.

Textual's ``App.copy_to_clipboard`` writes OSC 52 (xterm's control sequences, "Manipulate Selection
Data"). No terminal confirms it, some ignore it, and multiplexers may drop it: tmux passes it on
only with ``set-clipboard on``, while its default since 2.6, ``external``, ignores programs; GNU
screen never passes it on. So the line is always shown on the screen too.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.model.processes import ProcessId

PAST_NUMBER = "this is the past: the number may be another process's by now, so nothing is copied"


def copy(app: App[Any], text: str) -> str:
    """Copy a line to the terminal's clipboard.

    Args:
        app: The application.
        text: One printable line: it will be pasted into a shell.

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
        return f"{text}   to be copied by hand: screen keeps it from the terminal"
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
        return f"{process.pid} is not visible here: that number means another process, or none"
    if machine is None:
        return copy(app, f"kill {process.pid}")
    # Refused where the name reaches another machine, which has no process with this start.
    subject = f"{process.pid}:{process.start_time}"
    return copy(app, f"gpumon end {subject} --hosts {shlex.quote(printable(machine))}")
