"""Detects a terminal's colours, and reduces a theme to them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

_HUES = (1, 3, 2, 6, 4, 5)
"""The six hues among the sixteen colours, in order from red."""
_BRIGHT, _BLACK, _GREY, _WHITE = 8, 0, 7, 15
_LEAST_CHROMA = 0.2
"""A colour with a smaller chroma counts as grey."""
_BUTTON_CHROMA = 0.5
"""A background with at least this chroma is a button's."""
_LIGHT = {2, 3, 6}
"""The hues on which black text is legible."""
_STANDS_OUT = 0.3
"""A background this much lighter or darker than the screen's marks a selection."""


def refuses_colour(environ: Mapping[str, str]) -> bool:
    """Whether the user disabled colours (https://no-color.org), or the terminal has none."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM", "").startswith("vt")


def colour_system(environ: Mapping[str, str], detected: str | None) -> ColorSystem | None:
    """The terminal's colour system; ``None`` means no colours.

    Args:
        environ: The environment.
        detected: The system that Rich has detected.
    """
    return None if refuses_colour(environ) else COLOR_SYSTEMS.get(str(detected))


@lru_cache(maxsize=1024)
def shown_as(fore: Color, ground: Color, system: ColorSystem) -> tuple[RichColor, RichColor]:
    """The terminal colours for a text colour and its background.

    With sixteen colours the nearest one is mostly grey, and often that of the background. So a text
    gets the colour of its hue, and a background black, grey, white, or a button's own hue.
    """
    if system is not ColorSystem.STANDARD:
        return fore.rich_color.downgrade(system), ground.rich_color.downgrade(system)
    if _chroma(ground) >= _BUTTON_CHROMA:
        behind = _hue(ground, dark=False)
        text = _BLACK if behind in _LIGHT else _WHITE
    else:
        behind = _grey(ground)
        text = _hue(fore, dark=behind in {_BLACK, _BRIGHT})
    if text == behind:
        text = _BRIGHT if behind in {_BLACK, _WHITE} else _WHITE
    return RichColor.from_ansi(text), RichColor.from_ansi(behind)


def _grey(colour: Color) -> int:
    """The nearest of the four greys."""
    light = colour.brightness
    return next(grey for grey, below in _GREYS if light < below)


_GREYS = ((_BLACK, 0.25), (_BRIGHT, 0.55), (_GREY, 0.85), (_WHITE, 2.0))


def _hue(colour: Color, *, dark: bool) -> int:
    if _chroma(colour) < _LEAST_CHROMA:
        light = colour.brightness
        if dark:
            return _WHITE if light > 0.8 else _GREY if light > 0.42 else _BRIGHT
        return _BLACK if light < 0.4 else _BRIGHT
    return _HUES[round(colour.hsl[0] * 6) % 6] + (_BRIGHT if dark else 0)


def _chroma(colour: Color) -> float:
    return max(colour.normalized) - min(colour.normalized)


class FewColours(LineFilter):
    """Reduces the colours of Textual's widgets to those of the terminal.

    Without colours, text on a highlighted background, such as the selected line, is reversed.

    Args:
        system: The terminal's colour system; ``None`` means no colours.
    """

    def __init__(self, system: ColorSystem | None) -> None:
        super().__init__()
        self._system = system

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in fewer colours."""
        return [
            Segment(text, _fewer(style or _PLAIN, background, self._system), control)
            for text, style, control in segments
        ]


_PLAIN = Style()


@lru_cache(maxsize=4096)
def _fewer(style: Style, background: Color, system: ColorSystem | None) -> Style:
    ground = background if style.bgcolor is None else Color.from_rich_color(style.bgcolor)
    if system is None:
        marked = abs(ground.brightness - background.brightness) > _STANDS_OUT
        plain = Style(reverse=True) if marked and not style.reverse else _PLAIN
        return style.without_color + plain
    if style.color is None:
        return style
    fore, behind = shown_as(Color.from_rich_color(style.color), ground, system)
    return style + Style(color=fore, bgcolor=behind)
