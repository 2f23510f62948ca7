"""Converts a theme's colours to the styles of the views; colours are mixed as numbers (WCAG 2.2).

Textual's own themes have no dashboard colours: these are derived from theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEX = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})", re.ASCII | re.IGNORECASE)


class Rgb(NamedTuple):
    """A colour in sRGB, each part 0 to 255."""

    red: int
    green: int
    blue: int

    @property
    def hex(self) -> str:
        """The notation of theme files, ``#rrggbb``."""
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"


BLACK, WHITE = Rgb(0, 0, 0), Rgb(255, 255, 255)


def parse(text: str) -> Rgb:
    """A colour from ``#rgb``, ``#rrggbb`` or ``#rrggbbaa``, without the opacity.

    Raises:
        ValueError: It is not such a colour.
    """
    if not _HEX.fullmatch(text):
        raise ValueError(f"{text!r} is no colour")
    digits = text[1:]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    return Rgb(*(int(digits[at : at + 2], 16) for at in (0, 2, 4)))


def blend(first: Rgb, second: Rgb, share: float) -> Rgb:
    """A mixture that holds ``share`` of the second colour, 0 to 1."""
    return Rgb(*(round(a + (b - a) * share) for a, b in zip(first, second, strict=True)))


def luminance(colour: Rgb) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.2)."""
    red, green, blue = (linear(part) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(part: int) -> float:
    """The linear intensity of an sRGB component, 0 to 1 (IEC 61966-2-1)."""
    value = part / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def contrast(first: Rgb, second: Rgb) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


PREFIX = "gpumon-"
"""The prefix of the dashboard's colours among Textual's variables."""

# Style name -> (colour, background, bold). A background of "" is the screen's own.
STYLES: dict[str, tuple[str, str, bool]] = {
    "": ("foreground", "", False),
    "strong": ("foreground", "", True),
    "dim": ("dim", "", False),
    "stale": ("stale", "", False),
    "user": ("user", "", False),
    "rule": ("faint", "", False),
    "heading": ("dim", "", False),
    "heading.sorted": ("foreground", "", True),
    "header": ("foreground", "header", False),
    "header.dim": ("dim", "header", False),
    "header.title": ("title", "header", True),
    "header.mark": ("mark", "header", True),
    "header.alarm": ("critical", "header", True),
    "footer": ("dim", "header", False),
    "footer.key": ("title", "header", True),
    "footer.on": ("title", "cursor", True),
    "footer.message": ("foreground", "header", True),
    "bar.memory.low": ("memory_low", "trough", False),
    "bar.memory": ("memory", "trough", False),
    "bar.memory.high": ("memory_high", "trough", False),
    "bar.util.low": ("utilization_low", "trough", False),
    "bar.util": ("utilization", "trough", False),
    "bar.util.high": ("utilization_high", "trough", False),
    "bar.other": ("other", "trough", False),
    "bar.stale": ("faint", "trough", False),
    "graph.util": ("utilization", "", False),
    "graph.memory": ("memory", "", False),
    "graph.other": ("other", "", False),
    **{f"series.{number}": (f"series{number}", "", False) for number in range(1, 7)},
    "state.good": ("good", "", False),
    "state.quiet": ("dim", "", False),
    "state.note": ("note", "", False),
    "state.warning": ("warning", "", True),
    "state.critical": ("critical", "", True),
    "panel.title": ("title", "header", True),
    "panel.state.good": ("good", "header", True),
    "panel.state.quiet": ("dim", "header", False),
    "panel.state.note": ("note", "header", True),
    "panel.state.warning": ("warning", "header", True),
    "panel.state.critical": ("critical", "header", True),
    "tagged": ("mark", "", True),
    "narrowing": ("mark", "", False),
    "cursor": ("title", "cursor", False),
}

# For a theme without dashboard colours: (first, second, share of the second).
_DERIVED: dict[str, tuple[str, str, float]] = {
    "dim": ("foreground", "background", 0.45),
    "faint": ("foreground", "background", 0.75),
    "stale": ("foreground", "background", 0.6),
    "trough": ("foreground", "background", 0.88),
    "header": ("foreground", "background", 0.9),
    "cursor": ("primary", "background", 0.55),
    "title": ("foreground", "foreground", 0.0),
    "user": ("foreground", "warning", 0.3),
    "memory_low": ("primary", "background", 0.3),
    "memory": ("primary", "primary", 0.0),
    "memory_high": ("primary", "foreground", 0.35),
    "utilization_low": ("success", "background", 0.3),
    "utilization": ("success", "success", 0.0),
    "utilization_high": ("success", "foreground", 0.35),
    "other": ("accent", "accent", 0.0),
    "good": ("success", "success", 0.0),
    "note": ("warning", "foreground", 0.3),
    "warning": ("warning", "warning", 0.0),
    "critical": ("error", "error", 0.0),
    "mark": ("warning", "warning", 0.0),
    "series1": ("success", "success", 0.0),
    "series2": ("primary", "primary", 0.0),
    "series3": ("warning", "warning", 0.0),
    "series4": ("error", "error", 0.0),
    "series5": ("accent", "accent", 0.0),
    "series6": ("secondary", "secondary", 0.0),
}
DASHBOARD = tuple(_DERIVED)
"""Names of the dashboard's colours in theme files."""

DRAWN = ("bar.", "graph.", "series.", "rule")
"""Prefixes of styles for graphics, which need less contrast than text."""
_LEAST_DRAWN = 1.3
LEAST_CONTRAST = 4.5
"""The contrast that WCAG 2.2 requires for text (success criterion 1.4.3, level AA)."""


class StyleColours(NamedTuple):
    """Colour, background and weight of a style."""

    fore: Rgb
    ground: Rgb
    bold: bool


def resolve_styles(variables: Mapping[str, str]) -> dict[str, StyleColours]:
    """The colours of all styles.

    The variables are Textual's colours by name, such as ``primary``, and the dashboard's with
    ``PREFIX``, as far as the theme defines them.
    """
    return {name: resolve_style(name, variables) for name in STYLES}


def resolve_style(name: str, variables: Mapping[str, str]) -> StyleColours:
    """The colours of one style."""
    colour, ground, bold = STYLES[name]
    behind = _resolve(ground or "background", variables)
    shown = _resolve(colour, variables)
    if PREFIX + colour not in variables:
        least = _LEAST_DRAWN if name.startswith(DRAWN) else LEAST_CONTRAST
        shown = _legible(shown, behind, parse(variables["foreground"]), least)
    return StyleColours(shown, behind, bold)


def _resolve(name: str, variables: Mapping[str, str]) -> Rgb:
    text = variables.get(PREFIX + name)
    if text is None and name in _DERIVED:
        first, second, share = _DERIVED[name]
        return blend(parse(variables[first]), parse(variables[second]), share)
    return parse(text if text is not None else variables[name])


def _legible(colour: Rgb, ground: Rgb, foreground: Rgb, least: float) -> Rgb:
    """The colour, moved towards the text colour until it has enough contrast.

    Colours that a theme defines for buttons may not be legible as text.
    """
    extreme = BLACK if luminance(ground) > _MIDDLE else WHITE
    for text in (foreground, extreme):
        for step in range(11):
            nearer = blend(colour, text, step / 10)
            if contrast(nearer, ground) >= least:
                return nearer
    return extreme


_MIDDLE = 0.179
"""The luminance at which black and white have equal contrast."""


def is_dark(background: str) -> bool:
    """Whether light text has more contrast on this background than dark text."""
    return luminance(parse(background)) < _MIDDLE
