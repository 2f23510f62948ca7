"""Colours as numbers: parsing, mixing, and contrast by WCAG 2.2."""

from __future__ import annotations

import re
from typing import NamedTuple

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


def blend(one: Rgb, other: Rgb, share: float) -> Rgb:
    """A mixture that holds ``share`` of the other colour, 0 to 1."""
    return Rgb(*(round(a + (b - a) * share) for a, b in zip(one, other, strict=True)))


def luminance(colour: Rgb) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.2)."""
    red, green, blue = (linear(part) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(part: int) -> float:
    """The linear intensity of an sRGB component, 0 to 1 (IEC 61966-2-1)."""
    value = part / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def contrast(one: Rgb, other: Rgb) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
