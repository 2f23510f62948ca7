"""Textual's terminal driver, with fixes for cases that it does not handle or handles slowly.

It uses private parts of Textual, so ``pyproject.toml`` limits the versions of Textual.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from selectors import EVENT_READ, PollSelector
from threading import Event
from typing import TYPE_CHECKING

from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize

from gpumon.host.job_control import is_orphaned
from gpumon.kill.frozen import FROZEN
from gpumon.ui.terminal.parser import LenientParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message

_LARGEST = 2**16 - 1
"""Columns, or lines, that a terminal can have: the system keeps them in 16 bits."""
_MOST_CELLS = 2**20
"""Cells that a terminal can have. Whoever can type can report a size, also in a browser
(``gpumon serve``), and each cell costs memory."""
_MOST_BYTES = 4096
_BETWEEN_LOOKS = 0.1
_PASTE_PAUSE = 1.0
"""Seconds without input after which a paste is over, whether or not its end has come."""


class _Waking(Event):
    """An event that also wakes up a reader that waits for files."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self._writer = os.pipe()

    def set(self) -> None:
        if not self.is_set():
            super().set()
            os.write(self._writer, b"\0")

    def clear(self) -> None:
        if self.is_set():
            os.read(self.reader, 1)
        super().clear()

    def __del__(self) -> None:
        for descriptor in (self.reader, self._writer):
            with suppress(OSError):
                os.close(descriptor)


class TerminalDriver(LinuxDriver):
    """Sleeps until a key arrives, and takes the terminal only once, even if resumed several times.

    Textual's own loop polls for keys ten times a second.

    Textual prepares for a stop by Ctrl+Z. A SIGSTOP cannot be prepared for, and SIGCONT may arrive
    without a stop before it: Textual would then read and write a second time in parallel, keys
    would go to either reader, and the program would never end. So this driver releases the terminal
    first. A shell may have used it meanwhile, so all modes are set and everything is painted again.
    Textual takes and releases the terminal in the signal handler, which may run in the middle of
    doing so, or after the end.
    """

    _suspended = False

    def start_application_mode(self) -> None:
        """See Textual's."""
        if not isinstance(self.exit_event, _Waking):
            self.exit_event = _Waking()
        super().start_application_mode()  # type: ignore[no-untyped-call]  # so it is there

    def run_input_thread(self) -> None:
        """See Textual's: read keys until ``exit_event``."""
        over = self.exit_event
        assert isinstance(over, _Waking)  # noqa: S101 - it was when this thread was started
        parser = LenientParser(self._debug)
        # Not the codec's own decoder: ``terminal`` installs one there for the terminal's encoding.
        decode = linux_driver.getincrementaldecoder("utf-8")().decode  # type: ignore[attr-defined]  # not in its stub
        # select() fails for file descriptors above 1023.
        files = PollSelector()
        for descriptor in (self.fileno, over.reader):
            files.register(descriptor, EVENT_READ)
        while not over.is_set():
            # Only a pause distinguishes the Escape key from the beginning of a longer sequence.
            undecided = parser._timeout_time is not None  # noqa: SLF001 - see above
            patience = _BETWEEN_LOOKS if undecided else _PASTE_PAUSE if parser.pasting else None
            ready = files.select(patience)
            if any(key.fd == self.fileno for key, _ in ready):
                data = os.read(self.fileno, _MOST_BYTES)
                if not data:
                    # EOF repeats; avoid a busy loop.
                    over.wait(_BETWEEN_LOOKS)
                    continue
                for event in parser.feed(decode(data)):
                    self.process_message(event)
            elif parser.pasting and not (ready or undecided):
                for event in parser.end_paste():
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    @property
    def can_suspend(self) -> bool:
        """See Textual's; the program does not stop if no shell could continue it."""
        return not is_orphaned()

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(self._stop)

    def _stop(self) -> None:
        if not self.can_suspend:
            return
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        # To the whole group, as the terminal sends it: with uvx or a script between gpumon and the
        # shell, the shell sees a stopped job only if that process stops, too. Unlike for SIGSTOP,
        # which Textual sends, the kernel does not stop an orphaned group.
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        with FROZEN.suspended():
            os.killpg(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._take_anew)

    def _soon(self, do: Callable[[], None]) -> None:
        """Run something on the event loop, unless the program has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(do)

    def _take_anew(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        if self._suspended and self._auto_restart:
            self.resume_application_mode()
            self._app.refresh(layout=True)

    def suspend_application_mode(self) -> None:
        """See Textual's; the terminal must be taken again afterwards."""
        super().suspend_application_mode()
        self._suspended = True

    def resume_application_mode(self) -> None:
        """See Textual's."""
        self._suspended = False
        super().resume_application_mode()

    def process_message(self, message: Message) -> None:
        """See Textual's, which accepts any size that it reads."""
        if isinstance(message, Resize):
            columns, lines = message.size
            if max(columns, lines) > _LARGEST or columns * lines > _MOST_CELLS:
                return
        super().process_message(message)

    def _disable_mouse_support(self) -> None:
        super()._disable_mouse_support()
        # A terminal that reports its size in-band also reports the mouse in pixels once asked to.
        if self._mouse_pixels:
            self.write("\x1b[?1016l")
            self._mouse_pixels = False
