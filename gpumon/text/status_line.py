"""Status output on standard error, for commands without a screen.

On a terminal it is one line, rewritten in place; elsewhere permanent lines, few enough for the log
of a service or a job.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from gpumon.text.charset import SUBSTITUTE
from gpumon.text.formatting import cell_width, fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_GAP = "  "
_ERASED = "\r\x1b[K"
_COLUMNS = 80
"""Width of a terminal that does not report it."""
_MOST_WAITING = 1000
"""This many texts wait for a blocked stream; later ones are dropped."""
_LAST_WORDS_SECONDS = 1.0
"""How long a blocked terminal or a full pipe may delay the end."""


class StatusLine:
    """Writes to a stream on its own thread, so that a blocked stream does not stop a command.

    Errors of the stream are ignored: its reader has closed it on purpose.

    Args:
        stream: The stream; ``None`` if the program was started without one.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._descriptor = -1 if stream is None else stream.fileno()
        self._encoding = "utf-8" if stream is None else stream.encoding
        self._on_terminal = os.isatty(self._descriptor) and _can_erase()
        self._shown = ""
        self._over = False
        self._texts: SimpleQueue[str | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_on, name="gpumon-teller", daemon=True)

    def __enter__(self) -> StatusLine:
        self._writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the line in place and wait, but not for long, until everything is written."""
        self._texts.put(self._erasure())
        self._texts.put(None)
        self._writer.join(_LAST_WORDS_SECONDS)
        self._over = True

    @property
    def rewrites(self) -> bool:
        """Whether there is a line in place: on a terminal with this program in the foreground."""
        return self._on_terminal and self._in_foreground()

    def say(self, sentence: str) -> None:
        """Write a permanent line; its text must be safe to print."""
        if self._texts.qsize() < _MOST_WAITING:
            self._texts.put(f"{self._erasure()}gpumon: {sentence}\n")

    def show(self, parts: Sequence[str]) -> None:
        """Rewrite the line in place, if there is one.

        Args:
            parts: Its parts, safe to print, most important first: a narrow terminal drops the last
                ones.
        """
        if not (self.rewrites and self._texts.empty()):
            return
        # The last column stays free, because the cursor position after it differs between
        # terminals.
        line = _cut(parts, self._columns() - 1)
        if line != self._shown:
            self._texts.put(_ERASED + line)
            self._shown = line

    def _erasure(self) -> str:
        shown, self._shown = self._shown, ""
        return _ERASED if shown and self.rewrites else ""

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._descriptor).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _in_foreground(self) -> bool:
        """Whether this program is in the foreground, not started with ``&``."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True  # No job control.

    def _write_on(self) -> None:
        for text in iter(self._texts.get, None):
            if self._over:
                return  # The descriptor may belong to another file by now.
            with suppress(OSError):
                os.write(self._descriptor, text.encode(self._encoding, SUBSTITUTE))


def tell(sentence: str) -> None:
    """Write a line to standard error, safe to print; nothing for an empty text."""
    if sentence:
        write(f"gpumon: {sentence}\n")


def write(text: str) -> None:
    """Write lines to standard error, if it accepts them."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def columns() -> int | None:
    """The width of standard error's terminal; ``None`` if it is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    return None


def _can_erase() -> bool:
    return os.environ.get("TERM", "") not in {"", "dumb"}


def _cut(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit; the first one is cut if it does not fit."""
    line = parts[0]
    for part in parts[1:]:
        longer = line + _GAP + part
        if cell_width(longer) > width:
            break
        line = longer
    return line if cell_width(line) <= width else fit(line, max(0, width)).rstrip()
