"""Textual's terminal driver, with fixes for cases that it does not handle or handles slowly.

It uses private parts of Textual, so ``pyproject.toml`` limits the versions of Textual.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import struct
import termios
import time
from contextlib import suppress
from selectors import EVENT_READ, PollSelector
from threading import Event, Lock
from typing import IO, TYPE_CHECKING

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.keys import Keys
from textual.message import Message

from gpumon.host.process_tree import is_orphaned
from gpumon.kill.frozen import FROZEN
from gpumon.system.terminal_replies import ATTRIBUTES, MODE_QUERY, TerminalReplies
from gpumon.ui.background import call_soon
from gpumon.ui.terminal.background import BackgroundQuery
from gpumon.ui.terminal.terminal import ALTERNATE_SCREEN, RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.ui.terminal.terminal import Terminal

_LARGEST = 2**16 - 1
"""Columns, or lines, that a terminal can have: the system keeps them in 16 bits."""
_MOST_CELLS = 2**20
"""Cells that a terminal can have. Whoever can type can report a size, also in a browser
(``gpumon serve``), and each cell costs memory."""
_MOST_BYTES = 4096
_BETWEEN_LOOKS = 0.1
_FORGOTTEN_SECONDS = 10.0
"""After these seconds a reply that did not come is lost: a later one is to another query."""
_FLOOD_SECONDS = 2.0
"""How long output waits for input to be read, which may come without a pause."""
_READ_SECONDS = 0.001
_BLOCKED_SECONDS = 0.1
_REACTION_SECONDS = 0.001
"""Nobody reacts faster to what is written, which takes as long to reach the terminal."""
_PASTE_PAUSE = 1.0
"""Seconds without input after which a paste is over, whether or not its end has come."""

_NUMBERED_KEY = re.compile(r"\x1b\[[\d;:]*u")
"""A key of the Kitty keyboard protocol: https://sw.kovidgoyal.net/kitty/keyboard-protocol/."""


class LenientParser(XTermParser):
    """Ignores invalid sequences, and can end a paste whose end does not arrive.

    Any program on the terminal may have influenced what is read. Textual assumes that every
    sequence is valid: a key with an invalid number, or a mouse event on a terminal without a pixel
    size, ends it with a traceback. It also treats all input as pasted text until the end of the
    paste arrives, which may be lost.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self.pasting = False
        """Whether a paste has begun and not ended."""
        self._last = ""

    def feed(self, data: str) -> Iterable[Message]:
        """See Textual's."""
        # Either sequence may arrive in two parts.
        seen = self._last + data
        begun, ended = seen.rfind(BRACKETED_PASTE_START), seen.rfind(BRACKETED_PASTE_END)
        if begun != ended:
            self.pasting = begun > ended
        self._last = seen[1 - len(BRACKETED_PASTE_START) :]
        # Textual up to 8.2.6 takes what follows one that it does not know for a part of it.
        return super().feed(_NUMBERED_KEY.sub(self._known_key, data))

    def _known_key(self, match: re.Match[str]) -> str:
        return match[0] if list(self._sequence_to_key_events(match[0])) else ""

    def end_paste(self) -> Iterable[Message]:
        """Treat the received part of a paste as the whole paste."""
        return self.feed(BRACKETED_PASTE_END)

    def parse_mouse_code(self, code: str) -> Message | None:
        """See Textual's."""
        try:
            return super().parse_mouse_code(code)
        except (ZeroDivisionError, OverflowError):
            return None

    def _sequence_to_key_events(self, sequence: str, *how: bool, **also: bool) -> Iterable[Key]:
        try:
            return list(super()._sequence_to_key_events(sequence, *how, **also))
        except (ValueError, OverflowError):
            return [Key(Keys.Ignore, sequence)]


class _Waking(Event):
    """An event that also wakes up a reader that waits for files."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self._writer = os.pipe()

    def set(self) -> None:
        if not self.is_set():
            # First, because Python may lack memory to set it, and have set it all the same.
            os.write(self._writer, b"\0")
            super().set()

    def clear(self) -> None:
        if self.is_set():
            os.read(self.reader, _MOST_BYTES)
        super().clear()

    def __del__(self) -> None:
        for descriptor in (self.reader, self._writer):
            with suppress(OSError):
                os.close(descriptor)


class _Query:
    """A query that the terminal has not replied to."""

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at
        self.call: Callable[[float], None] | None = None


class _Frame(str):
    """Output that must be told from the keys before it."""

    __slots__ = ()


class _Report(str):
    """Stands in the output for a call with the time of the last frame."""

    __slots__ = ("call",)

    def __new__(cls, call: Callable[[float], None]) -> _Report:
        report = super().__new__(cls)
        report.call = call
        return report

    call: Callable[[float], None]


class _WatchedFile(io.TextIOBase):
    """The terminal's file, which knows the keys that are older than a frame.

    They have been read before the frame is written. After it a reaction of the user cannot be told
    from them; only if the terminal has not taken the frame for a while, nobody has reacted.

    Args:
        file: The file.
        all_read_at: Waits until nothing typed waits to be read, and returns the time.
    """

    def __init__(self, file: IO[str], all_read_at: Callable[[], float]) -> None:
        self._file = file
        self._all_read_at = all_read_at
        self._older_until = 0.0

    def write(self, text: str) -> int:
        if isinstance(text, _Report):
            text.call(self._older_until + _REACTION_SECONDS)
        elif isinstance(text, _Frame):
            at = self._all_read_at()
            self._file.write(text)
            self._file.flush()
            blocked = time.monotonic() - at > _BLOCKED_SECONDS
            self._older_until = self._all_read_at() if blocked else at
        else:
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()


def _waiting(descriptor: int) -> int:
    """Bytes that wait to be read."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)


class BackgroundKnown(Message):
    """The terminal has replied to the query for its background, after the first picture."""

    def __init__(self, *, is_light: bool) -> None:
        super().__init__()
        self.is_light = is_light


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
    _retaking = False
    replies = False
    """Whether the terminal replies to queries."""
    background = BackgroundQuery()
    """The query that was sent before Textual started; this one was not sent."""

    def start_application_mode(self) -> None:
        """See Textual's."""
        if not isinstance(self.exit_event, _Waking):
            self.exit_event = _Waking()
            self._replies = TerminalReplies()
            self._reading = Lock()
            self._watchers: set[object] = set()
            self._queries: list[_Query] = []
            if self.background.reply.outstanding and self.background.sent_at is not None:
                self._replies.expect(ATTRIBUTES, self.background.sent_at)
            assert self._file is not None  # noqa: S101 - ``Terminal`` has opened standard error
            self._file = _WatchedFile(self._file, self._all_read_at)  # type: ignore[assignment]  # what its writer needs
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
        background = self.background.reply
        typed = decode(self.background.take_typed())
        for event in parser.feed(typed) if typed else ():
            self.process_message(event)
        while not over.is_set():
            try:
                # Only a pause distinguishes the Escape key from the beginning of a longer sequence.
                undecided = parser._timeout_time is not None  # noqa: SLF001 - see above
                patience = _BETWEEN_LOOKS if undecided else _PASTE_PAUSE if parser.pasting else None
                if background.pause is not None:
                    patience = min(background.pause, patience or background.pause)
                ready = files.select(patience)
                if any(key.fd == self.fileno for key, _ in ready):
                    with self._reading:
                        data = os.read(self.fileno, _MOST_BYTES)
                        # Replies are ASCII, and may stand between two bytes of a character.
                        self._replies.read(data.decode("latin-1"))
                        text = decode(self._without_background(data)) if data else ""
                        for event in parser.feed(text) if text else ():
                            self.process_message(event)
                    if not data:
                        # EOF repeats; avoid a busy loop.
                        over.wait(_BETWEEN_LOOKS)
                        continue
                elif background.pause is not None and not (ready or undecided):
                    for event in parser.feed(decode(background.release())):
                        self.process_message(event)
                elif parser.pasting and not (ready or undecided):
                    for event in parser.end_paste():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
            except MemoryError:
                # These keys are lost; later ones are not.
                parser = LenientParser(self._debug)

    def _without_background(self, data: bytes) -> bytes:
        """Input without a late reply to the query for the background, which is applied."""
        reply = self.background.reply
        if not reply.outstanding:
            return data
        known = reply.is_light
        data = reply.feed(data)
        if reply.is_light is not None and known is None:
            self.process_message(BackgroundKnown(is_light=reply.is_light))
        return data

    # -- what stands on the screen, and which keys are older ---------------------------------------

    def write(self, data: str) -> None:
        """See Textual's."""
        self._replies.written(data)
        now = time.monotonic()
        for _ in range(data.count(MODE_QUERY)):
            self._queries = [it for it in self._queries if now - it.sent_at < _FORGOTTEN_SECONDS]
            self._queries.append(_Query(now))
        super().write(_Frame(data) if self._watchers else data)

    def watch_output(self, watcher: object, *, on: bool) -> None:
        """Note which keys are older than each frame from now on; see ``when_written``."""
        if on:
            self._watchers.add(watcher)
        else:
            self._watchers.discard(watcher)

    def when_written(self, call: Callable[[float], None]) -> None:
        """Call with the time up to which keys are older than the last frame, once it is written.

        The call is made on the application's thread. The time is that of events.
        """
        super().write(_Report(lambda at: call_soon(self._app, call, at)))

    def ask(self, call: Callable[[float], None]) -> None:
        """Call with the time when the terminal has shown everything written so far."""
        self.write(MODE_QUERY)
        self._queries[-1].call = call

    def replied(self, at: float) -> bool:
        """Take a reply of the terminal; whether ``ask`` has asked for it."""
        self.replies = True
        if not self._queries:
            return False
        call = self._queries.pop(0).call
        if call is not None:
            call(at)
        return call is not None

    def _all_read_at(self) -> float:
        """Wait until nothing that was typed waits to be read, and return the time."""
        deadline = time.monotonic() + _FLOOD_SECONDS
        while True:
            with self._reading:
                now = time.monotonic()
                if now > deadline or self.exit_event.is_set() or not _waiting(self.fileno):
                    return now
            time.sleep(_READ_SECONDS)

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
            self._retaking = True
            self.suspend_application_mode()
            self._retaking = False
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

    def stop_application_mode(self) -> None:
        """See Textual's, which leaves replies, and all that the terminal reports, to the shell.

        First the terminal is asked to stop reporting and to show the shell's screen again. What it
        has sent until then is dropped while its settings still prevent an echo.
        """
        self.disable_input()
        self.write(RESTORE)
        if self._replies.reports_may_follow:
            # Mouse and keys may have been reported until now: this reply comes after them.
            self.write(MODE_QUERY)
        if not self._retaking:
            self._replies.drain(self.fileno)
            self.background.reply.outstanding = False
        if self.attrs_before is not None:
            with suppress(termios.error):
                termios.tcflush(self.fileno, termios.TCIFLUSH)
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)

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


def driver_after(terminal: Terminal, hand_over: Callable[[], bool]) -> type[TerminalDriver]:
    """A driver for a terminal that was prepared, and may already show the dashboard.

    Entering the alternate screen a second time would clear it, and the settings that Textual finds
    are not those to restore at the end. ``tests/e2e/test_first_picture.py`` checks that nothing
    flashes and everything is restored.

    Args:
        terminal: The terminal, which may have been queried.
        hand_over: Stops the painting of the first picture; returns whether anything was painted.
    """

    class Successor(TerminalDriver):
        _started = _entered = False

        def start_application_mode(self) -> None:
            is_first, self._started = not self._started, True
            if is_first:
                self._entered = hand_over()
                self.background = terminal.background
            super().start_application_mode()
            if is_first and terminal.attributes is not None:
                self.attrs_before = terminal.attributes

        def write(self, data: str) -> None:
            if self._entered and data == ALTERNATE_SCREEN:
                self._entered = False
                return
            super().write(data)

    return Successor
