"""Parses terminal input, which any program on the terminal may have influenced.

Textual assumes that every sequence is valid. A key with an invalid number, or a mouse event on a
terminal without a pixel size, ends it with a traceback. It also treats all input as pasted text
until the end of the paste arrives, which may be lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key
from textual.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.message import Message

_NUMBERED_KEY = re.compile(r"\x1b\[[\d;:]*u")
"""A key of the Kitty keyboard protocol: https://sw.kovidgoyal.net/kitty/keyboard-protocol/."""


class LenientParser(XTermParser):
    """Ignores invalid sequences, and can end a paste whose end does not arrive.

    The overridden names are private: ``pyproject.toml`` accepts only versions that were tried.

    Attributes:
        pasting: Whether a paste has begun and not ended.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self.pasting = False
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
