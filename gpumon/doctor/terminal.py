"""Checks of the terminal: whether it can show what gpumon draws."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from gpumon.doctor import check, passed, unknown, warned
from gpumon.system.ending_signals import defer_signals
from gpumon.system.terminal_replies import MODE_QUERY, REPLY_SECONDS
from gpumon.text.charset import ASCII, CONSOLE, UTF_8, codeset_of
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext

_LEAST_COLUMNS, _LEAST_LINES = 60, 15
"""The smallest size that the dashboard supports."""

# A terminal that ignores the first replies at once to the second (DA1), as every terminal does.
_QUERIES = MODE_QUERY.encode() + b"\x1b[c"
_ANSWER = re.compile(rb"\x1b\[\?2026;(\d)\$y")
_END = re.compile(rb"\x1b\[\?[\d;]*c")


@check("kind")
def kind(context: DiagnosticContext) -> Result:
    """The type of the terminal (``TERM``), and whether it is large enough."""
    term = context.machine.environ.get("TERM", "")
    if term in {"", "dumb"}:
        shown = f"TERM={term}" if term else "TERM is not set"
        return warned(
            f"{shown}: the dashboard cannot move the cursor.",
            "Over ssh use `ssh -t`, in a container `docker exec -it -e TERM=xterm-256color`, "
            "without a terminal `gpumon snapshot`.",
        )
    inside = " in tmux" if "TMUX" in context.machine.environ else ""
    inside = inside or (" in screen" if "STY" in context.machine.environ else "")
    size = _size()
    if size is None:
        return passed(f"{printable(term)}{inside}; output is not a terminal.")
    if not (size.columns and size.lines):
        return passed(f"{printable(term)}{inside}; it does not report its size.")
    words = f"{printable(term)}{inside}, {size.columns}×{size.lines}."
    if size.columns < _LEAST_COLUMNS or size.lines < _LEAST_LINES:
        least = f"{_LEAST_COLUMNS}×{_LEAST_LINES}"
        return warned(words, f"Make it larger: the dashboard needs at least {least}.")
    return passed(words)


def _size() -> os.terminal_size | None:
    try:
        return os.get_terminal_size(1)
    except OSError:
        return None


@check("characters")
def characters(context: DiagnosticContext) -> Result:
    """Whether bars and graphs can be drawn with more than ASCII: the locale."""
    environ = context.machine.environ
    codeset = codeset_of(environ)
    locale = next(filter(None, map(environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), None)
    shown = "no locale is set" if locale is None else f"locale {printable(locale)}"
    if environ.get("GPUMON_ASCII", "0") not in {"", "0"}:
        return passed("ASCII only, because GPUMON_ASCII is set.")
    if codeset == UTF_8:
        return passed(f"UTF-8 ({shown}).")
    if codeset == CONSOLE:
        return passed("UTF-8, limited to the font of the Linux console.")
    words = "ASCII" if codeset == ASCII else codeset
    return warned(
        f"UTF-8 is not available ({shown}): gpumon draws graphs with {words}.",
        "If the terminal shows UTF-8: `export LANG=C.UTF-8` (or en_US.UTF-8).",
    )


@check("colours")
def colours(context: DiagnosticContext) -> Result:
    """The number of colours: ``COLORTERM``, ``TERM`` and ``NO_COLOR``."""
    environ = context.machine.environ
    if environ.get("NO_COLOR"):
        return passed("None, because NO_COLOR is set.")
    if environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        return passed("16 million.")
    term = environ.get("TERM", "")
    if "256" in term or term.endswith("-direct"):
        return passed("256. If the terminal has more: `export COLORTERM=truecolor`.")
    if term in {"", "dumb"}:
        return passed("None.")
    return passed("16. If the terminal has more: `export TERM=xterm-256color`.")


@check("whole frames")
def whole_frames(context: DiagnosticContext) -> Result | None:
    """Whether the terminal shows complete frames only, so that nothing flickers.

    This is synchronized output; the terminal is queried.
    """
    if context.machine.environ.get("TERM", "") in {"", "dumb"}:
        return None
    if not (os.isatty(0) and os.isatty(1)):
        return None  # There is no terminal to query.
    answer = _ask()
    if answer is None:
        return unknown("The terminal does not answer the query.")
    match = _ANSWER.search(answer)
    if match is not None and match[1] in {b"1", b"2", b"3"}:
        return passed("The terminal supports synchronized output.")
    return passed("No synchronized output: a slow connection may show half a frame.")


def _in_foreground() -> bool:
    """Whether the terminal is ours to use; a shell without job control never prevents it."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True


def _ask() -> bytes | None:
    """Query the terminal and remove its answer from the input; ``None`` without an answer."""
    import select
    import termios
    import tty

    try:
        before = termios.tcgetattr(0)
    except termios.error:
        return None
    # Typed ahead: it belongs to the shell, and what was read cannot be put back.
    if select.select([0], [], [], 0)[0] or not _in_foreground():
        return None
    answer = b""
    # Ending or stopping now would leave the reply, and these settings, to the shell.
    with defer_signals():
        try:
            tty.setcbreak(0, termios.TCSANOW)
            sys.stdout.flush()
            os.write(1, _QUERIES)
            until = time.monotonic() + REPLY_SECONDS
            while not _END.search(answer):
                left = until - time.monotonic()
                if left <= 0 or not select.select([0], [], [], left)[0]:
                    return None
                data = os.read(0, 256)
                if not data:
                    return None
                answer += data
        finally:
            termios.tcsetattr(0, termios.TCSANOW, before)
    return answer
