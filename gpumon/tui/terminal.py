"""The terminal as it was found: kept, and given back whatever ends the program."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import threading

# Everything Textual may have switched on, switched off: mouse, paste, focus and resize reports, the
# keyboard protocol, synchronized output, the alternate screen; then the cursor and line wrap back.
_RESTORE = (
    "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l\x1b[<u\x1b[m\x1b[?7h\x1b[?1049l\x1b[?25h"
)

_PATIENCE = 2.0
"""Seconds an orderly end may take before the terminal is restored by force."""


class Terminal:
    """Remembers a terminal's settings, and can put them back when Textual could not."""

    def __init__(self) -> None:
        self._attributes: list[int | list[bytes | int]] | None = None
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)

    def restore(self) -> None:
        """Put the terminal back by force, without waiting for output it does not take."""
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, _RESTORE.encode())
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)

    def end_by_force_after_patience(self, status: int) -> None:
        """End the process with this status if it has not ended by itself soon.

        A terminal that takes no more output, or is gone, must not keep the program alive.
        """

        def force() -> None:
            self.restore()
            os._exit(status)

        timer = threading.Timer(_PATIENCE, force)
        timer.daemon = True
        timer.start()
