"""Writes to the terminal of this program, wherever its output goes."""

from __future__ import annotations

import os
from contextlib import suppress

_TERMINAL = "/dev/tty"


def write_to_terminal(sequence: str) -> None:
    """Write a control sequence, if there is a terminal; never waits for it."""
    with suppress(OSError):
        terminal = os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(terminal, sequence.encode())
        finally:
            os.close(terminal)
