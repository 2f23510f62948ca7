"""What a command without a screen tells meanwhile, on standard error.

On a terminal that is one line, rewritten in place; anywhere else lines that stay, few enough for
the log of a service or a job.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from gpumon.codeset import SUBSTITUTE
from gpumon.text import cell_width, fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_GAP = "  "
_ERASED = "\r\x1b[K"
_COLUMNS = 80
"""Of a terminal that does not tell."""
_MOST_WAITING = 1000
"""So many texts wait for a stream that takes none; later ones are dropped."""
_LAST_WORDS_SECONDS = 1.0
"""What a terminal that takes no output, or a full pipe, may hold the end up for."""


class Teller:
    """Writes to a stream from a thread of its own: one that takes nothing must not stop a command.

    Nothing here raises for what a stream does: who has closed it does not want to be told.

    Args:
        stream: Where to; ``None`` where the program was started without one.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._descriptor = -1 if stream is None else stream.fileno()
        self._encoding = "utf-8" if stream is None else stream.encoding
        self._on_terminal = os.isatty(self._descriptor) and _can_erase()
        self._shown = ""
        self._over = False
        self._texts: SimpleQueue[str | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_on, name="gpumon-teller", daemon=True)

    def __enter__(self) -> Teller:
        self._writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the line in place away and wait, not for long, until all is written."""
        self._texts.put(self._erasure())
        self._texts.put(None)
        self._writer.join(_LAST_WORDS_SECONDS)
        self._over = True

    @property
    def rewrites(self) -> bool:
        """Whether there is a line in place: on a terminal that nobody else is at by now."""
        return self._on_terminal and self._in_foreground()

    def say(self, sentence: str) -> None:
        """Write a line that stays; its text is safe to print."""
        if self._texts.qsize() < _MOST_WAITING:
            self._texts.put(f"{self._erasure()}gpumon: {sentence}\n")

    def show(self, parts: Sequence[str]) -> None:
        """Rewrite the line in place; does nothing where there is none.

        Args:
            parts: What it says, safe to print, the first things first: the last ones go where the
                terminal is too narrow for them.
        """
        if not (self.rewrites and self._texts.empty()):
            return
        # The last column stays free: behind a character there the cursor is nowhere for sure.
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
        """Whether no shell that started this with ``&`` is at the terminal."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True  # it controls no jobs

    def _write_on(self) -> None:
        for text in iter(self._texts.get, None):
            if self._over:
                return  # by now the descriptor may be another file's
            with suppress(OSError):
                os.write(self._descriptor, text.encode(self._encoding, SUBSTITUTE))


def tell(sentence: str) -> None:
    """Write a line to standard error, safe to print; nothing for an empty one."""
    if sentence:
        write(f"gpumon: {sentence}\n")


def write(text: str) -> None:
    """Write lines to standard error, if there is one that takes them."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def columns() -> int | None:
    """How wide the terminal is that standard error goes to; ``None`` where it goes to none."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    return None


def _can_erase() -> bool:
    return os.environ.get("TERM", "") not in {"", "dumb"}


def _cut(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit, the first one cut if even that does not."""
    line = parts[0]
    for part in parts[1:]:
        longer = line + _GAP + part
        if cell_width(longer) > width:
            break
        line = longer
    return line if cell_width(line) <= width else fit(line, max(0, width)).rstrip()
