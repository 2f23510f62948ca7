"""Saves the terminal's state, and restores it however the program ends."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from gpumon.kill.frozen import FROZEN
from gpumon.system.terminal_replies import ATTRIBUTES, REPLY_SECONDS, TerminalReplies
from gpumon.text.charset import ASCII, UTF_8
from gpumon.ui.terminal.background import BackgroundQuery, may_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Attributes: TypeAlias = "list[int | list[bytes | int]]"
"""A terminal's settings, as ``termios`` returns them."""

ALTERNATE_SCREEN = "\x1b[?1049h"
RESTORE = (
    "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l\x1b[<u\x1b[m\x1b[?7h\x1b[?1049l\x1b[?25h"
)
"""Switches off everything that Textual may have switched on: reports of mouse, paste, focus and
size, the keyboard protocol, synchronized output, the alternate screen; then restores cursor and
line wrap."""

_LOCAL, _INPUT, _SPECIAL = 3, 0, 6
"""Where the settings have their modes and their special characters."""
_DISABLED = b"\0"
"""In place of a special character (``_POSIX_VDISABLE``)."""

_ASKED_FOR = 0
"""No signal's number: it means that the application itself requested the end."""

_PATIENCE = 2.0 + REPLY_SECONDS
"""Seconds an orderly end may take, with a last wait for the terminal's replies, before the terminal
is restored by force."""


def mouse_is_free(environ: Mapping[str, str]) -> bool:
    """Whether mouse reporting has no side effects on this terminal.

    GNU screen (4.9) holds the Esc key back until the next key, and sends both as one, while the
    program inside uses mouse reporting.
    """
    return "STY" not in environ or "TMUX" in environ


def read_leniently() -> None:
    """Make Textual decode keys in the encoding of the terminal.

    Textual decodes the keys of every terminal as UTF-8, and ends with a traceback for an invalid
    byte: one letter typed in another locale is enough.
    """
    from textual.drivers import linux_driver

    encoding = getattr(sys.__stderr__, "encoding", None) or UTF_8
    # Every terminal sends at least ASCII; other bytes are then unknown.
    codec = codecs.getincrementaldecoder(UTF_8 if encoding == ASCII else encoding)
    # The name is private: pyproject.toml limits the versions of Textual.
    linux_driver.getincrementaldecoder = lambda _: partial(codec, "replace")  # type: ignore[assignment,attr-defined]  # not in its stub


ENDING_SIGNALS = tuple(
    number for number in signal.Signals if number.name in {"SIGINT", "SIGTERM", "SIGHUP"}
)
_ENDING_AT_START = tuple(number for number in ENDING_SIGNALS if number != signal.SIGINT)
"""Those that Python does not turn into an exception."""


class Terminal:
    """Saves a terminal's settings, provides it to Textual, and restores everything.

    Textual draws on standard error and reads the size from the environment. Standard error may be
    redirected, and a shell that exports COLUMNS and LINES would freeze the size. So while this
    context is active, standard error is the terminal, and the terminal's own size is used.

    Attributes:
        attributes: The settings that it had; ``None`` if they cannot be read.
        background: The query for its background.
    """

    def __init__(self) -> None:
        self.attributes: Attributes | None = None
        self.background = BackgroundQuery()
        self._elsewhere: int | None = None
        self._is_changed = False

    def __enter__(self) -> Terminal:
        import termios

        with contextlib.suppress(termios.error):
            self.attributes = termios.tcgetattr(0)
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
        if not os.isatty(2):
            sys.stderr.flush()
            self._elsewhere = os.dup(2)
            os.dup2(1, 2)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        for number in _ENDING_AT_START:
            if signal.getsignal(number) == self._end_at_start:
                signal.signal(number, signal.SIG_DFL)
        if self._elsewhere is not None:
            sys.stderr.flush()
            os.dup2(self._elsewhere, 2)
            os.close(self._elsewhere)
            self._elsewhere = None

    def queue_keys(self, *, signals: bool = False) -> bool:
        """Let keys queue without echo until they are read; whether that worked.

        Args:
            signals: Whether Ctrl+C still ends the program.
        """
        if self.attributes is None:
            return False
        import termios

        try:
            settings = termios.tcgetattr(0)
            # The settings that Textual will use.
            settings[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
            settings[_INPUT] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR)
            if signals:
                # Stopped or killed now, it would leave these settings and a reply to the shell.
                settings[_SPECIAL][termios.VSUSP] = _DISABLED
                settings[_SPECIAL][termios.VQUIT] = _DISABLED
            else:
                settings[_LOCAL] &= ~termios.ISIG
            termios.tcsetattr(0, termios.TCSANOW, settings)
        except termios.error:
            return False
        self._is_changed = True
        return True

    def query_background(self) -> None:
        """Send the query for the background, if the terminal can be asked."""
        if not may_query(os.environ) or not self.queue_keys(signals=True):
            return
        for number in _ENDING_AT_START:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end_at_start)
        with contextlib.suppress(OSError):
            self.background.send()

    def _end_at_start(self, number: int, _: object) -> None:
        self.leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def leave(self) -> None:
        """Restore the settings, once no reply is left for the shell."""
        if self.background.reply.outstanding and self.background.sent_at is not None:
            replies = TerminalReplies()
            replies.expect(ATTRIBUTES, self.background.sent_at)
            replies.drain(0)
            self.background.reply.outstanding = False
        if self._is_changed and self.attributes is not None:
            import termios

            self._is_changed = False
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self.attributes)

    def restore(self) -> None:
        """Force the terminal back, without waiting for output that it does not accept."""
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, RESTORE.encode())
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)
        if self.attributes is not None:
            import termios

            with contextlib.suppress(termios.error):
                termios.tcflush(0, termios.TCIFLUSH)
                termios.tcsetattr(0, termios.TCSANOW, self.attributes)


class EndedEarly(BaseException):
    """A signal arrived before there was an application that could end in order."""


class ShutdownWatchdog:
    """Makes sure that the program ends when it must.

    A terminal that accepts no output blocks Textual's event loop, and a hung driver blocks a
    thread; neither may keep the program alive. So a separate thread handles signals, and forces an
    end that does not happen soon, with the terminal restored.

    Args:
        terminal: The terminal to restore.
        ask: Asks the application to end with a status; called on another thread. Returns whether
            there is an application.

    Attributes:
        received: The signal that asked for the end.
    """

    def __init__(self, terminal: Terminal, ask: Callable[[int], bool]) -> None:
        self.received: signal.Signals | None = None
        self._interrupts = False
        self._terminal = terminal
        self._ask = ask
        self._over = threading.Event()
        self._status = 0
        self._reader, self._writer = -1, -1

    def __enter__(self) -> ShutdownWatchdog:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # Python's own handler runs between two steps of the main thread, which may be blocked for
        # ever; the signal number is written to this pipe in any case.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in ENDING_SIGNALS:
            signal.signal(number, self._interrupt)
        threading.Thread(target=self._listen, name="gpumon-signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        signal.set_wakeup_fd(-1)
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.close(self._writer)

    def begin(self, status: int) -> None:
        """An end with this status was requested: force it if it does not happen."""
        # The listening thread waits for it: the machine may have no room for a new thread.
        self._status = status
        os.write(self._writer, bytes([_ASKED_FOR]))

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """A block before the application exists: a signal interrupts it.

        Raises:
            EndedEarly: A signal has arrived.
        """
        self._interrupts = True
        try:
            yield
        except Exception:
            # In a class body, Python up to 3.11 replaces an exception by one of its own.
            if self.received is None:
                raise
        finally:
            self._interrupts = False
        self.check()

    def check(self) -> None:
        """Report a signal again, because Python drops exceptions in callbacks.

        Raises:
            EndedEarly: A signal has arrived.
        """
        if self.received is not None:
            raise EndedEarly

    def _interrupt(self, number: int, _: object) -> None:
        if self._interrupts:
            self._interrupts = False
            # The listening thread may be later than the end.
            self.received = signal.Signals(number)
            raise EndedEarly

    def _listen(self) -> None:
        while numbers := os.read(self._reader, 64):
            for number in numbers:
                if number == _ASKED_FOR:
                    self._wait_or_force(self._status)
                elif number in ENDING_SIGNALS:
                    self.received = self.received or signal.Signals(number)
                    status = 128 + number
                    if self._ask(status):
                        self._wait_or_force(status)
                    else:
                        self._force(status)
        os.close(self._reader)

    def _wait_or_force(self, status: int) -> None:
        self._over.wait(_PATIENCE)
        self._force(status)

    def _force(self, status: int) -> None:
        if not self._over.is_set():
            self._terminal.restore()
            FROZEN.end()
            os._exit(status)
