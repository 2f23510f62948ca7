"""Textual's driver of the terminal, and what it does not expect: to go on without a stop."""

from __future__ import annotations

from functools import partial

try:
    from textual.drivers.linux_driver import LinuxDriver
except ImportError:
    # A system that is no Unix.
    from textual.driver import Driver as LinuxDriver  # type: ignore[assignment]  # nor has it this


class TerminalDriver(LinuxDriver):
    """Takes the terminal once, however often the program is told to go on.

    Textual prepares for a stop by Ctrl+Z. SIGSTOP cannot be prepared for, and SIGCONT may come with
    no stop before it: Textual then begins to read and write a second time beside the first, keys go
    to either, and the program never ends. So it lets go of the terminal first. Meanwhile a shell
    may have had it: all is set, and painted, anew.
    """

    def _sigcont_application(self, *_: object) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            # Not here and now: the signal may have come in the middle of a write.
            self._loop.call_soon_threadsafe(self._take_anew)
        else:
            super()._sigcont_application()
            if self._key_thread is not None:
                # Entering the alternate screen has cleared it, whatever was drawn before the stop.
                self._loop.call_soon_threadsafe(partial(self._app.refresh, layout=True))

    def _take_anew(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
            self.resume_application_mode()
            self._app.refresh(layout=True)
