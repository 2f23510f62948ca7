"""Alerts the user: the terminal bell, or a desktop notification.

A notification is a control sequence that the terminal handles, also over ssh. There are two: OSC 9
of iTerm2, and OSC 777 of urxvt. Most terminals know only one, and a terminal that knows both would
show it twice. No terminal confirms it, and most that know neither ignore it. tmux passes a wrapped
sequence on only with ``allow-passthrough on``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

BELL = "\a"
_TITLE = "gpumon"
_TERMINAL = "/dev/tty"


def notification(text: str, environment: Mapping[str, str], title: str = _TITLE) -> str:
    """The sequence that makes the terminal show a text.

    Args:
        text: What to show.
        environment: The environment, which identifies the terminal.
        title: The title above it.
    """
    # A semicolon separates the parts of both.
    head, shown = (printable(part).replace(";", ",") for part in (title, text))
    sequence = (
        f"\x1b]777;notify;{head};{shown}\a"
        if _knows_777(environment)
        else f"\x1b]9;{head}: {shown}\a"
    )
    if "TMUX" in environment:
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    if "STY" in environment:
        return f"\x1bP{sequence}\x1b\\"
    return sequence


def _knows_777(environment: Mapping[str, str]) -> bool:
    return environment.get("TERM", "").startswith(("rxvt", "foot")) or "VTE_VERSION" in environment


def send(sequence: str) -> None:
    """Write a sequence to this program's terminal, if there is one."""
    with suppress(OSError):
        terminal = os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(terminal, sequence.encode())
        finally:
            os.close(terminal)
