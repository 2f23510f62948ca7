"""Makes Textual show every text as it is, where the terminal has its characters.

Textual reads the texts of its widgets as markup: ``[a=``, in a filter, a name or an error, ends the
program. gpumon writes no markup, so none is read, whatever the widget and whoever wrote the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.content import Content
from textual.filter import LineFilter

from gpumon.text.charset import SUBSTITUTES
from gpumon.text.formatting import spelled_out

if TYPE_CHECKING:
    from textual.color import Color


def read_no_markup() -> None:
    """Make a text of every text that Textual would read as markup."""
    Content.from_markup = _as_it_is  # type: ignore[assignment,method-assign]  # there is no setting for it


def _as_it_is(text: str | Content, **_: object) -> Content:
    return text if isinstance(text, Content) else Content(spelled_out(text))


class SameWidth(LineFilter):
    """Substitutes of the width that Textual measures, where others would move what follows."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        """The segments with substitutes."""
        return [
            segment
            if segment.text.isascii() or spelled_out(segment.text) == segment.text
            else Segment("".join(map(_same_width, segment.text)), segment.style, segment.control)
            for segment in segments
        ]


def _same_width(character: str) -> str:
    return character if spelled_out(character) == character else SUBSTITUTES[character]
