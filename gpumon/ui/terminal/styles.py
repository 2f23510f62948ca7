"""The styles of a theme in the colours of a terminal, and their escape sequences.

The first picture is drawn with them: neither Textual nor, in true colour, Rich is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.config.themes.styles import Rgb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.themes import StyleColours

RESET = "\x1b[0m"

TRUE_COLOUR, COLOURS_256, COLOURS_16 = "truecolor", "256", "standard"
"""Colour systems of terminals, as Rich names them; ``None`` means no colours."""

Colour: TypeAlias = "Rgb | int | None"
"""A colour that a terminal shows: any, the number of one of its own, or its default."""

_REVERSED = {"cursor", "header.alarm", "footer.on"}
"""Styles that are reversed if the terminal has no or too few colours."""

_HUES = (1, 3, 2, 6, 4, 5)
"""The six hues among the sixteen colours, in order from red."""
_BRIGHT, _BLACK, _GREY, _WHITE = 8, 0, 7, 15
_GREYS = ((_BLACK, 0.25), (_BRIGHT, 0.55), (_GREY, 0.85), (_WHITE, 2.0))
"""The four greys, and the brightness below which each is the nearest."""
_LEAST_CHROMA = 0.2
"""A colour with a smaller chroma counts as grey."""
_BUTTON_CHROMA = 0.5
"""A background with at least this chroma is a button's."""
_LIGHT = {2, 3, 6}
"""The hues on which black text is legible."""


def refuses_colour(environ: Mapping[str, str]) -> bool:
    """Whether the user disabled colours (https://no-color.org), or the terminal has none."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM", "").startswith("vt")


def early_colour_system(environ: Mapping[str, str]) -> str | None:
    """The colour system that Rich will detect, if it certainly has many colours."""
    if refuses_colour(environ) or "TEXTUAL_COLOR_SYSTEM" in environ:
        return None
    if environ.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}:
        return TRUE_COLOUR
    term = environ.get("TERM", "").strip().lower()
    return COLOURS_256 if term.endswith("-256color") else None


class SgrStyle(Struct, frozen=True):
    """What the escape sequence SGR sets (ECMA-48, 8.3.117)."""

    fore: Colour = None  # Of the text.
    ground: Colour = None  # Of the background.
    bold: bool = False
    reverse: bool = False  # Text and background exchanged.


def sgr_styles(styles: Mapping[str, StyleColours], system: str | None) -> SgrStyles:
    """The styles of a theme as a terminal with this colour system shows them."""
    shown: dict[str, SgrStyle] = {}
    for name, style in styles.items():
        fore, ground = shown_as(style.fore, style.ground, system)
        reverse = name in _REVERSED
        if reverse and system == COLOURS_256:
            # The nearest of these may be the screen's background, but the text stands out.
            reverse = style.ground == styles[""].ground
        elif reverse:
            # With few colours its background may be the same as the screen's.
            reverse = ground == shown[""].ground
        shown[name] = SgrStyle(fore, ground, style.bold, reverse)
    return SgrStyles(shown)


class SgrStyles:
    """The shortest escape sequences from one style to another."""

    def __init__(self, by_name: Mapping[str, SgrStyle]) -> None:
        self.by_name = by_name
        firsts: dict[SgrStyle, str] = {}
        self.canonical = {name: firsts.setdefault(style, name) for name, style in by_name.items()}
        """Style name -> the first style that looks the same."""
        self._changes: dict[tuple[str | None, str], str] = {}
        self._same_ground: dict[tuple[str, str], bool] = {}

    def change(self, before: str | None, after: str) -> str:
        """The escape sequence, possibly empty, that changes one style to another.

        Args:
            before: The current style; ``None`` is the terminal's default.
            after: The new style.
        """
        key = (before, after)
        known = self._changes.get(key)
        if known is None:
            known = self._changes[key] = self._find(before, after)
        return known

    def looks_same(self, text: str, style: str, other: str) -> bool:
        """Whether a text looks the same in another, canonical style; blanks show the background."""
        if self.canonical[style] == other:
            return True
        if text and not text.isspace():
            return False
        known = self._same_ground.get((other, style))
        if known is None:
            old, new = self.by_name[other], self.by_name[style]
            known = old.ground == new.ground and not (old.reverse or new.reverse)
            self._same_ground[other, style] = known
        return known

    def _find(self, before: str | None, after: str) -> str:
        old = SgrStyle() if before is None else self.by_name[before]
        new = self.by_name[after]
        codes: list[str] = []
        if old.bold != new.bold:
            codes.append("1" if new.bold else "22")
        if old.reverse != new.reverse:
            codes.append("7" if new.reverse else "27")
        if old.fore != new.fore:
            codes.append(_code(new.fore, 30))
        if old.ground != new.ground:
            codes.append(_code(new.ground, 40))
        return f"\x1b[{';'.join(codes)}m" if codes else ""


def _code(colour: Colour, black: int) -> str:
    """The parameters of SGR for a colour; ``black`` is that of black text or background."""
    if colour is None:
        return str(black + 9)
    if isinstance(colour, Rgb):
        return f"{black + 8};2;{colour.red};{colour.green};{colour.blue}"
    if colour < _BRIGHT:
        return str(black + colour)
    return str(black + 52 + colour) if colour <= _WHITE else f"{black + 8};5;{colour}"


def shown_as(fore: Rgb, ground: Rgb, system: str | None) -> tuple[Colour, Colour]:
    """The terminal's colours for a text colour and its background.

    With sixteen colours the nearest one is mostly grey, and often that of the background. So a text
    gets the colour of its hue, and a background black, grey, white, or a button's own hue.
    """
    if system is None:
        return None, None
    if system == TRUE_COLOUR:
        return fore, ground
    if system == COLOURS_256:
        return _nearest(fore), _nearest(ground)
    if _chroma(ground) >= _BUTTON_CHROMA:
        behind = _hue(ground, dark=False)
        text = _BLACK if behind in _LIGHT else _WHITE
    else:
        light = _brightness(ground)
        behind = next(grey for grey, below in _GREYS if light < below)
        text = _hue(fore, dark=behind in {_BLACK, _BRIGHT})
    if text == behind:
        text = _BRIGHT if behind in {_BLACK, _WHITE} else _WHITE
    return text, behind


def _nearest(colour: Rgb) -> int | None:
    """The nearest of 256 colours."""
    from rich.color import Color, ColorSystem

    return Color.from_rgb(*colour).downgrade(ColorSystem.EIGHT_BIT).number


def _hue(colour: Rgb, *, dark: bool) -> int:
    if _chroma(colour) < _LEAST_CHROMA:
        light = _brightness(colour)
        if dark:
            return _WHITE if light > 0.8 else _GREY if light > 0.42 else _BRIGHT
        return _BLACK if light < 0.4 else _BRIGHT
    from colorsys import rgb_to_hls

    hue, _, _ = rgb_to_hls(*(part / 255 for part in colour))
    return _HUES[round(hue * 6) % 6] + (_BRIGHT if dark else 0)


def _brightness(colour: Rgb) -> float:
    red, green, blue = (part / 255 for part in colour)
    return (299 * red + 587 * green + 114 * blue) / 1000


def _chroma(colour: Rgb) -> float:
    return max(colour) / 255 - min(colour) / 255
