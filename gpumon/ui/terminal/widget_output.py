"""What Textual's own widgets write: in the colours and characters of the terminal, without markup.

Textual reads the texts of its widgets as markup: ``[a=``, in a filter, a name or an error, ends the
program. gpumon writes no markup, so none is read, whatever the widget and whoever wrote the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter

from gpumon.config.themes.styles import Rgb
from gpumon.text.charset import SUBSTITUTES
from gpumon.text.formatting import spelled_out
from gpumon.ui.terminal.styles import shown_as

if TYPE_CHECKING:
    from gpumon.ui.terminal.styles import Colour, SgrStyle

_STANDS_OUT = 0.3
"""A background this much lighter or darker than the screen's marks a selection."""
_PLAIN = Style()


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
            else Segment(_same_width(segment.text), segment.style, segment.control)
            for segment in segments
        ]


_CUT = re.compile(r"[ -~]{2}…(?= *$)")
"""The end of a text that Textual has cut: gpumon's own texts are spelled out before."""


def _same_width(text: str) -> str:
    text = _CUT.sub("...", text)
    return "".join(
        character if spelled_out(character) == character else SUBSTITUTES[character]
        for character in text
    )


class FewColours(LineFilter):
    """Reduces the colours of Textual's widgets to those of the terminal.

    Without colours, text on a highlighted background, such as the selected line, is reversed.
    """

    def __init__(self, system: str | None) -> None:
        super().__init__()
        self._system = system

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in fewer colours."""
        return [
            Segment(text, _fewer(style or _PLAIN, background, self._system), control)
            for text, style, control in segments
        ]


@lru_cache(maxsize=4096)
def _fewer(style: Style, background: Color, system: str | None) -> Style:
    ground = background if style.bgcolor is None else Color.from_rich_color(style.bgcolor)
    if system is None:
        marked = abs(ground.brightness - background.brightness) > _STANDS_OUT
        plain = Style(reverse=True) if marked and not style.reverse else _PLAIN
        return style.without_color + plain
    if style.color is None:
        return style
    text = Color.from_rich_color(style.color)
    fore, behind = shown_as(Rgb(*text.rgb), Rgb(*ground.rgb), system)
    return style + Style(color=_rich(fore), bgcolor=_rich(behind))


@lru_cache(maxsize=256)
def rich_style(style: SgrStyle) -> Style:
    """The same as Textual writes it."""
    return Style(
        color=_rich(style.fore),
        bgcolor=_rich(style.ground),
        bold=style.bold,
        reverse=style.reverse,
    )


def _rich(colour: Colour) -> RichColor | None:
    if colour is None:
        return None
    return RichColor.from_rgb(*colour) if isinstance(colour, Rgb) else RichColor.from_ansi(colour)
