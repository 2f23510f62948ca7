"""The terminal as it was found: kept, and given back whatever ends the program."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from gpumon.codeset import ASCII, UTF_8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Everything Textual may have switched on, switched off: mouse, paste, focus and resize reports, the
# keyboard protocol, synchronized output, the alternate screen; then the cursor and line wrap back.
_RESTORE = (
    "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l\x1b[<u\x1b[m\x1b[?7h\x1b[?1049l\x1b[?25h"
)

_ASKED_FOR = 0
"""What is no signal's number: told where the application itself is to end."""

_PATIENCE = 2.0
"""Seconds an orderly end may take before the terminal is restored by force."""


def mouse_is_free(environ: Mapping[str, str]) -> bool:
    """Whether the terminal tells of the mouse without a price.

    GNU screen (4.9) keeps the key Esc back until the next key comes, and sends both as one, for as
    long as the program within has asked for the mouse.
    """
    return "STY" not in environ or "TMUX" in environ


def read_leniently() -> None:
    """Have Textual read keys in the encoding that the terminal is written to in.

    Textual takes every terminal's keys for UTF-8, and ends with a traceback by a byte that is none:
    one letter typed in another locale would do.
    """
    from textual.drivers import linux_driver

    encoding = getattr(sys.__stderr__, "encoding", None) or UTF_8
    # Every terminal sends at least ASCII; what more it sends then is not known.
    codec = codecs.getincrementaldecoder(UTF_8 if encoding == ASCII else encoding)
    # Its name for it is private: pyproject.toml pins Textual's minor version.
    linux_driver.getincrementaldecoder = lambda _: partial(codec, "replace")  # type: ignore[assignment,attr-defined]  # not in its stub


ENDING_SIGNALS = tuple(
    number for number in signal.Signals if number.name in {"SIGINT", "SIGTERM", "SIGHUP"}
)


class Terminal:
    """Remembers a terminal's settings, finds it for Textual, and puts everything back.

    Textual draws on standard error and asks the environment for the size. Standard error may be
    sent elsewhere, and a shell that exports COLUMNS and LINES would freeze the size at what it was
    there; so for as long as this is entered, standard error is the terminal, and its own size
    counts.
    """

    def __init__(self) -> None:
        self._attributes: list[int | list[bytes | int]] | None = None
        self._elsewhere: int | None = None

    def __enter__(self) -> Terminal:
        import termios

        with contextlib.suppress(termios.error):
            self._attributes = termios.tcgetattr(0)
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
        if not os.isatty(2):
            sys.stderr.flush()
            self._elsewhere = os.dup(2)
            os.dup2(1, 2)
        return self

    def __exit__(self, *_: object) -> None:
        if self._elsewhere is not None:
            sys.stderr.flush()
            os.dup2(self._elsewhere, 2)
            os.close(self._elsewhere)
            self._elsewhere = None

    def restore(self) -> None:
        """Put the terminal back by force, without waiting for output it does not take."""
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, _RESTORE.encode())
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)
        if self._attributes is not None:
            import termios

            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)


class EndedEarly(BaseException):
    """A signal came while nothing was there yet that could end in order."""


class Ending:
    """Sees to it that the program ends when it is told to.

    A terminal that takes no more output blocks Textual's event loop, and a driver that hangs keeps
    a thread; neither may keep the program alive. So signals are taken by a thread of their own, and
    an end that has not come by itself soon is forced, the terminal restored.

    Args:
        terminal: To be restored.
        ask: Asks the application to end with this status; called on a thread that is not its own.
            Returns whether there is one to ask.

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

    def __enter__(self) -> Ending:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # Python's own handler runs between two steps of the main thread, which may be blocked for
        # good; the number of the signal is written to this pipe in any case.
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
        """An end with this status has been asked for: force it if it does not come."""
        # The thread that listens waits for it: a new one might be one too many for this machine.
        self._status = status
        os.write(self._writer, bytes([_ASKED_FOR]))

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Do what comes before there is an application to ask: a signal interrupts it.

        Raises:
            EndedEarly: A signal has come.
        """
        self._interrupts = True
        try:
            yield
        except Exception:
            # Where a class is made, Python up to 3.11 puts an exception of its own in the place of
            # whatever is raised there.
            if self.received is None:
                raise
        finally:
            self._interrupts = False
        self.check()

    def check(self) -> None:
        """Tell of a signal again: in what is called back, Python drops what is raised.

        Raises:
            EndedEarly: A signal has come.
        """
        if self.received is not None:
            raise EndedEarly

    def _interrupt(self, number: int, _: object) -> None:
        if self._interrupts:
            self._interrupts = False
            # The thread that listens may be later than the end.
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
            os._exit(status)
