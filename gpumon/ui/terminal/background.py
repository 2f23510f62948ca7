"""Queries the terminal's background colour, so that the default theme is light on a light one.

The query is sent while gpumon starts, and its reply is read just before the first picture, so a
terminal that replies delays nothing. A later reply is removed from the input by the driver.
"""

from __future__ import annotations

import math
import os
import re
import time
from typing import TYPE_CHECKING

from gpumon.config.themes.styles import Rgb, is_dark
from gpumon.system.terminal_replies import REPLY_SECONDS
from gpumon.ui.terminal.styles import refuses_colour

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERY = "\x1b]11;?\x1b\\\x1b[c"
"""OSC 11 (xterm's control sequences), then DA1: every terminal replies to that, and in order. So
its reply is the end of the wait where the terminal does not know the first."""

WAIT_SECONDS = 0.1
"""How long the first picture waits for the reply, from the query on."""
_MOST_BYTES = 4096
_KEY_SECONDS = 0.1
"""The longest pause within a sequence that may be a key: Textual's own."""
_UNFINISHED_SECONDS = 5.0
"""How long the rest of a reply is dropped. It may be lost, so after that, input is typed again."""
_LONGEST_REPLY = 4096
"""Bytes of a reply whose end has not come after which it is dropped."""

_REPLY = re.compile(
    rb"\x1b\]11;(?P<colour>[ -~]*)(?:(?P<end>\x07|\x1b\\)|(?=\x1b[^\\]|[^ -~\x07\x1b]))"
    rb"|(?P<attributes>\x1b\[\?[\d;]*c)"
)
"""A reply, which may stand between two bytes of a character. A byte that cannot be a part of a
colour, such as Ctrl+C, ends one without its end, and is a key."""
_UNFINISHED_REPLY = re.compile(rb"\x1b(?:\]11;[ -~]*\x1b?|\[\?[\d;]*)\Z")
"""The beginning of a reply, which may arrive in parts. No key begins so."""
_REPLY_OR_KEY = re.compile(rb"\x1b(?:\]1{0,2}|\[)?\Z")
"""A shorter beginning, which may be the Escape key or the beginning of another key."""
_PARTS = re.compile(
    rb"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]*)?", re.IGNORECASE
)

_LEAVE_ALONE = ("linux", "eterm", "sun", "cons25")
"""Beginnings of ``TERM`` for terminals that show the query as text or have no themes."""
_LIGHT_NUMBERS = {"7", *map(str, range(9, 16))}
"""The light ones of a terminal's sixteen colours."""


def may_query(environ: Mapping[str, str]) -> bool:
    """Whether the terminal has colours, and handles a query that it does not know."""
    term = environ.get("TERM", "")
    return not (refuses_colour(environ) or term in {"", "dumb"} or term.startswith(_LEAVE_ALONE))


def hinted_light(environ: Mapping[str, str]) -> bool | None:
    """What ``COLORFGBG`` (rxvt, Konsole) says of the background; ``None`` if nothing.

    Inside tmux and screen it is that of the terminal in which they were started.
    """
    number = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not number.isdecimal() or "TMUX" in environ or "STY" in environ:
        return None
    return number in _LIGHT_NUMBERS


def _is_light(colour: bytes) -> bool | None:
    """Whether a replied colour is light; ``None`` if it cannot be read."""
    match = _PARTS.fullmatch(colour)
    if match is None:
        return None
    parts = (round(int(part, 16) / (16 ** len(part) - 1) * 255) for part in match.groups())
    return not is_dark(Rgb(*parts).hex)


class BackgroundReply:
    """Separates the reply from what is typed.

    Args:
        sent_at: When the query was sent, by ``time.monotonic``; ``None`` if it was not.

    Attributes:
        is_light: What the reply says; ``None`` if nothing.
        outstanding: Whether the reply may still come.
    """

    def __init__(self, sent_at: float | None = None) -> None:
        self.is_light: bool | None = None
        self.outstanding = sent_at is not None
        # Some terminals never reply. The Escape key must not be late for the whole session.
        self._expected_until = -math.inf if sent_at is None else sent_at + REPLY_SECONDS
        self._incomplete = b""
        self._drop_at = math.inf

    def feed(self, data: bytes) -> bytes:
        """Take input; returns what was typed, without a last part that may begin a reply."""
        if not self.outstanding:
            return data
        now = time.monotonic()
        data = self._take_incomplete(now) + data
        typed = b""
        while self.outstanding and (match := _REPLY.search(data)):
            typed += data[: match.start()]
            data = data[match.end() :]
            self._drop_at = math.inf
            if match["attributes"] is not None:
                self.outstanding = False
            elif self.is_light is None and match["end"]:
                self.is_light = _is_light(match["colour"])
        if not self.outstanding:
            return typed + data
        beginning = unfinished = _UNFINISHED_REPLY.search(data)
        if unfinished is not None:
            self._drop_at = min(self._drop_at, now + _UNFINISHED_SECONDS)
        else:
            self._drop_at = math.inf
            if now < self._expected_until:
                beginning = _REPLY_OR_KEY.search(data)
        if beginning is not None:
            data = data[: beginning.start()]
            if len(beginning[0]) <= _LONGEST_REPLY:
                self._incomplete = beginning[0]
        return typed + data

    def _take_incomplete(self, now: float) -> bytes:
        """The incomplete last part, which is dropped if its rest is too late."""
        incomplete, self._incomplete = self._incomplete, b""
        if now < self._drop_at:
            return incomplete
        self._drop_at = math.inf
        return b""

    @property
    def pause(self) -> float | None:
        """Seconds without input after which to call ``release``; ``None`` if nothing is held."""
        if not self._incomplete:
            return None
        if self._drop_at == math.inf:
            return _KEY_SECONDS
        return max(0.0, self._drop_at - time.monotonic())

    def release(self) -> bytes:
        """The held input if it is a key; the beginning of a reply is dropped when it is time."""
        now = time.monotonic()
        if now < self._drop_at < math.inf:
            return b""
        return self._take_incomplete(now)


class BackgroundQuery:
    """The query, and what arrived since.

    Attributes:
        reply: The reply.
        sent_at: When the query was sent, by ``time.monotonic``; ``None`` if it was not.
    """

    def __init__(self) -> None:
        self.reply = BackgroundReply()
        self.sent_at: float | None = None
        self._typed = b""

    def send(self) -> None:
        """Send it to the terminal, which echoes nothing now."""
        os.write(2, QUERY.encode())
        self.sent_at = time.monotonic()
        self.reply = BackgroundReply(self.sent_at)

    def wait(self) -> bool | None:
        """Wait for the reply, not for long; whether the background is light, if it is known."""
        if self.sent_at is None:
            return None
        from select import POLLIN, poll

        ready = poll()
        ready.register(0, POLLIN)
        until = self.sent_at + WAIT_SECONDS
        # A reply that is there counts even if the time is over.
        while self.reply.outstanding and ready.poll(1000 * max(0.0, until - time.monotonic())):
            data = os.read(0, _MOST_BYTES)
            if not data:
                break
            self._typed += self.reply.feed(data)
        return self.reply.is_light

    def take_typed(self) -> bytes:
        """What was typed meanwhile."""
        typed, self._typed = self._typed, b""
        return typed
