"""Queries the terminal's background colour, so that the default theme is light on a light one.

The query is sent while gpumon starts, and its reply is read just before the first picture, so a
terminal that replies delays nothing. A later reply is removed from the input by the driver.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from gpumon.config.themes.styles import Rgb, is_dark
from gpumon.ui.terminal.styles import refuses_colour

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERY = "\x1b]11;?\x1b\\\x1b[c"
"""OSC 11 (xterm's control sequences), then DA1: every terminal replies to that, and in order. So
its reply is the end of the wait where the terminal does not know the first."""

_WAIT_SECONDS = 0.1
"""How long the first picture waits for the reply, from the query on."""
_MOST_BYTES = 4096
_KEY_SECONDS = 0.1
"""The longest pause within a sequence that may be a key: Textual's own."""
_REST_SECONDS = 1.0
"""The longest pause within a reply."""

_REPLY = re.compile(
    r"\x1b\](?:11;(?P<colour>[\w:/#]{0,64}))(?:\x07|\x1b\\)|(?P<attributes>\x1b\[\?[\d;]{0,64}c)"
)
_BEGINNING = re.compile(r"\x1b(?:\](?:1(?:1(?:;[\w:/#]{0,64}\x1b?)?)?)?|\[(?:\?[\d;]{0,64})?)?\Z")
"""The beginning of a reply, which may arrive in parts; also that of many keys."""
_CERTAIN = re.compile(r"\x1b(?:\]11;|\[\?)")
"""Beginnings that no key has."""
_PARTS = re.compile(
    r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]*)?", re.IGNORECASE
)
_LATIN_1 = "latin-1"
"""Maps each byte to a character and back."""

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


def _is_light(colour: str) -> bool | None:
    """Whether a replied colour is light; ``None`` if it cannot be read."""
    match = _PARTS.fullmatch(colour)
    if match is None:
        return None
    parts = (round(int(part, 16) / (16 ** len(part) - 1) * 255) for part in match.groups())
    return not is_dark(Rgb(*parts).hex)


class BackgroundReply:
    """Separates the reply from what is typed.

    Attributes:
        is_light: What the reply says; ``None`` if nothing.
        outstanding: Whether the reply may still come.
    """

    def __init__(self, *, outstanding: bool) -> None:
        self.is_light: bool | None = None
        self.outstanding = outstanding
        self._held = ""

    def feed(self, text: str) -> str:
        """Take input; returns what was typed, without a last part that may begin a reply."""
        if not self.outstanding:
            return text
        text = self._held + text
        self._held = ""
        typed = ""
        while self.outstanding and (match := _REPLY.search(text)):
            typed += text[: match.start()]
            text = text[match.end() :]
            if match["attributes"] is not None:
                self.outstanding = False
            elif self.is_light is None:
                self.is_light = _is_light(match["colour"])
        if self.outstanding and (beginning := _BEGINNING.search(text)):
            self._held = beginning[0]
            text = text[: beginning.start()]
        return typed + text

    @property
    def pause(self) -> float | None:
        """Seconds without input after which to call ``release``; ``None`` if nothing is held."""
        if not self._held:
            return None
        return _REST_SECONDS if _CERTAIN.match(self._held) else _KEY_SECONDS

    def release(self) -> str:
        """The held input, after which nothing came, if it is a key; a part of a reply is lost."""
        held, self._held = self._held, ""
        return "" if _CERTAIN.match(held) else held


class BackgroundQuery:
    """The query, and what arrived since.

    Attributes:
        reply: The reply.
        sent_at: When the query was sent, by ``time.monotonic``; ``None`` if it was not.
    """

    def __init__(self) -> None:
        self.reply = BackgroundReply(outstanding=False)
        self.sent_at: float | None = None
        self._typed = ""

    def send(self) -> None:
        """Send it to the terminal, which echoes nothing now."""
        os.write(2, QUERY.encode())
        self.sent_at = time.monotonic()
        self.reply.outstanding = True

    def wait(self) -> bool | None:
        """Wait for the reply, not for long; whether the background is light, if it is known."""
        if self.sent_at is None:
            return None
        from select import POLLIN, poll

        ready = poll()
        ready.register(0, POLLIN)
        until = self.sent_at + _WAIT_SECONDS
        # A reply that is there counts even if the time is over.
        while self.reply.outstanding and ready.poll(1000 * max(0.0, until - time.monotonic())):
            data = os.read(0, _MOST_BYTES)
            if not data:
                break
            self._typed += self.reply.feed(data.decode(_LATIN_1))
        return self.reply.is_light

    def take_typed(self) -> bytes:
        """What was typed meanwhile."""
        typed, self._typed = self._typed, ""
        return typed.encode(_LATIN_1)
