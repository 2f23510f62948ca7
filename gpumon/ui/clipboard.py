"""Lines for the clipboard of whoever sits at the terminal, also over ssh.

Textual's ``App.copy_to_clipboard`` writes OSC 52 (xterm's control sequences, "Manipulate Selection
Data"), which asks the terminal to take a text. No terminal answers whether it did, some never do,
and what runs in between may keep it: tmux passes it on under ``set-clipboard on`` alone, while its
default since 2.6, ``external``, ignores what programs send; GNU screen never passes it on. So the
line itself always belongs on the screen too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpumon.host.cuda_visible_devices import visible_devices_line
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import App

    from gpumon.model.snapshot import ProcessId

PAST_NUMBER = "this is the past: the number may be another process's by now, so nothing is copied"


def cuda_line(uuids: Sequence[str]) -> str:
    """What to set so that a program sees these cards and no others, under any order of CUDA's."""
    return visible_devices_line([printable(uuid) for uuid in uuids])


def copy(app: App[Any], text: str) -> str:
    """Offer a line to the terminal's clipboard.

    Args:
        app: Whose terminal.
        text: One printable line: it will be pasted into a shell.

    Returns:
        What to tell, the line included.

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


def copy_kill(app: App[Any], process: ProcessId) -> str:
    """Offer what to type to end a process by hand. It names a number, which may be another's later.

    Returns:
        What to tell: the line, or why there is none.
    """
    if process.start_time is None:
        return f"{process.pid} is not visible here: that number means another process, or none"
    return copy(app, f"kill {process.pid}")
