"""Reads what a terminal sends, of which any program on it may have had its part.

Textual takes every sequence for one that a terminal would send, and ends with a traceback by a key
whose number is none, or by the mouse on a terminal that says it has no pixels. And it takes all
that comes for a part of a paste until the end of the paste comes, which may be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key
from textual.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.message import Message


class LenientParser(XTermParser):
    """Passes over what cannot be meant, and can end a paste whose end does not come.

    The names that it overrides are private: ``pyproject.toml`` pins Textual's minor version.

    Attributes:
        pasting: Whether a paste has begun and its end has not come.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self.pasting = False
        self._last = ""

    def feed(self, data: str) -> Iterable[Message]:
        """See Textual's."""
        # Either sequence may come in two parts.
        seen = self._last + data
        begun, ended = seen.rfind(BRACKETED_PASTE_START), seen.rfind(BRACKETED_PASTE_END)
        if begun != ended:
            self.pasting = begun > ended
        self._last = seen[1 - len(BRACKETED_PASTE_START) :]
        return super().feed(data)

    def end_paste(self) -> Iterable[Message]:
        """Take what has come of a paste for all of it."""
        return self.feed(BRACKETED_PASTE_END)

    def parse_mouse_code(self, code: str) -> Message | None:
        """See Textual's."""
        try:
            return super().parse_mouse_code(code)
        except (ZeroDivisionError, OverflowError):
            return None

    def _parse_extended_key(self, sequence: str) -> list[Key] | None:  # type: ignore[override]  # keeps what it was asked before
        try:
            return super()._parse_extended_key(sequence)
        except (ValueError, OverflowError):
            return [Key(Keys.Ignore, sequence)]
