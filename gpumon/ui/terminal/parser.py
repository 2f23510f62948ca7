"""Reads what a terminal sends, of which any program on it may have had its part.

Textual takes every sequence for one that a terminal would send, and ends with a traceback by a key
whose number is none, or by the mouse on a terminal that says it has no pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.keys import Keys

if TYPE_CHECKING:
    from textual.message import Message


class LenientParser(XTermParser):
    """Passes over what cannot be meant.

    Both names are private: ``pyproject.toml`` pins Textual's minor version.
    """

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
