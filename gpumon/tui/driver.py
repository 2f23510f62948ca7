"""Textual's driver of the terminal, and what it does not expect: to go on without a stop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from textual.events import Resize

try:
    from textual.drivers.linux_driver import LinuxDriver
except ImportError:
    # A system that is no Unix.
    from textual.driver import Driver as LinuxDriver  # type: ignore[assignment]  # nor has it this

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message

_LARGEST = 2**16 - 1
"""Columns, or lines, that a terminal can have: the system keeps them in 16 bits."""


class TerminalDriver(LinuxDriver):
    """Takes the terminal once, however often the program is told to go on.

    Textual prepares for a stop by Ctrl+Z. SIGSTOP cannot be prepared for, and SIGCONT may come with
    no stop before it: Textual then begins to read and write a second time beside the first, keys go
    to either, and the program never ends. So it lets go of the terminal first. Meanwhile a shell
    may have had it: all is set, and painted, anew. And Textual takes and gives back the terminal in
    the signal's own function, which may have come in the middle of doing so, or after the end.
    """

    _suspended = False

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._take_anew)

    def _soon(self, do: Callable[[], None]) -> None:
        """Do something between two others, unless all is over."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(do)

    def _take_anew(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        if self._suspended and self._auto_restart:
            self.resume_application_mode()
            self._app.refresh(layout=True)

    def suspend_application_mode(self) -> None:
        """See Textual's; the terminal is to be taken again."""
        super().suspend_application_mode()
        self._suspended = True

    def resume_application_mode(self) -> None:
        """See Textual's."""
        self._suspended = False
        super().resume_application_mode()

    def process_message(self, message: Message) -> None:
        """See Textual's, which takes any size that comes as text for true."""
        if not isinstance(message, Resize) or max(message.size) <= _LARGEST:
            super().process_message(message)

    def _disable_mouse_support(self) -> None:
        super()._disable_mouse_support()
        # What tells its size by itself tells of the mouse in pixels too, once it was asked to.
        if self._mouse_pixels:
            self.write("\x1b[?1016l")
            self._mouse_pixels = False
