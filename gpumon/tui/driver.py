"""Textual's driver of the terminal, and what it does not expect or does too often.

It leans on what Textual keeps to itself, and ``pyproject.toml`` pins its minor version for that;
where the parser of keys is no longer where it was, Textual's own loop reads them.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from functools import partial
from threading import Event

try:
    from textual.drivers import linux_driver
    from textual.drivers.linux_driver import LinuxDriver
except ImportError:
    # A system that is no Unix.
    from textual.driver import Driver as LinuxDriver  # type: ignore[assignment]  # nor has it this
try:
    from textual._xterm_parser import XTermParser
except ImportError:
    XTermParser = None  # type: ignore[assignment,misc]  # see above

_MOST_BYTES = 4096
_BETWEEN_LOOKS = 0.1


class _Waking(Event):
    """An event that is also seen by whoever waits for files."""

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
    """Sleeps until a key comes, and takes the terminal once, however often it is told to go on.

    Textual's own loop looks for keys ten times a second.

    Textual prepares for a stop by Ctrl+Z. SIGSTOP cannot be prepared for, and SIGCONT may come with
    no stop before it: Textual then begins to read and write a second time beside the first, keys go
    to either, and the program never ends. So it lets go of the terminal first. Meanwhile a shell
    may have had it: all is set, and painted, anew.
    """

    def start_application_mode(self) -> None:
        """See Textual's."""
        if not isinstance(self.exit_event, _Waking):
            self.exit_event = _Waking()
        super().start_application_mode()  # type: ignore[no-untyped-call]  # so it is there

    def run_input_thread(self) -> None:
        """See Textual's: take keys until ``exit_event``."""
        over = self.exit_event
        if XTermParser is None or not isinstance(over, _Waking):
            super().run_input_thread()
            return
        parser = XTermParser(self._debug)
        # Not the codec's own: ``terminal`` puts one there that knows the terminal's encoding.
        decode = linux_driver.getincrementaldecoder("utf-8")().decode  # type: ignore[attr-defined]  # not in its stub
        while not over.is_set():
            # An Escape is told from the beginning of a longer sequence by what does not follow.
            undecided = parser._timeout_time is not None  # noqa: SLF001 - see above
            patience = _BETWEEN_LOOKS if undecided else None
            ready, _, _ = select.select([self.fileno, over.reader], [], [], patience)
            if self.fileno in ready:
                data = os.read(self.fileno, _MOST_BYTES)
                if not data:
                    # Nothing will come any more, and that again and again.
                    over.wait(_BETWEEN_LOOKS)
                    continue
                for event in parser.feed(decode(data)):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    def resume_application_mode(self) -> None:
        """See Textual's, which leaves the terminal blank where its size is what it was."""
        super().resume_application_mode()
        self._loop.call_soon_threadsafe(partial(self._app.refresh, layout=True))

    def _sigcont_application(self, *_: object) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            # Not here and now: the signal may have come in the middle of a write.
            self._loop.call_soon_threadsafe(self._take_anew)
        else:
            super()._sigcont_application()

    def _take_anew(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
            self.resume_application_mode()
