"""The glyphs that must meet their neighbours, or that fonts lack, as shapes in a cell.

Fonts differ in how blocks, lines and braille fill a cell, and leave seams between cells. Many
terminals draw these glyphs themselves, and so do the pictures.
"""

from __future__ import annotations

from typing import TypeAlias

WIDTH, HEIGHT = 10.0, 20.0

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, width and height within the cell."""
Outline: TypeAlias = tuple[float, float, str]
"""A filled path: its start within the cell, and its relative commands from there."""

_MIDDLE_X, _MIDDLE_Y = WIDTH / 2, HEIGHT / 2
# A thin line is a whole pixel on pages that show a picture of 100 columns 830 pixels wide. A
# thinner one would vanish at some positions, because lines have crisp edges.
_THIN, _THICK = 1.25, 2.0
_BRAILLE = 0x2800
# Column and row of each dot, by its bit.
_PLACES = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def _across(left: bool, right: bool, thickness: float = _THIN) -> Box:
    start = 0.0 if left else _MIDDLE_X - thickness / 2
    end = WIDTH if right else _MIDDLE_X + thickness / 2
    return start, _MIDDLE_Y - thickness / 2, end - start, thickness


def _along(up: bool, down: bool, thickness: float = _THIN) -> Box:
    start = 0.0 if up else _MIDDLE_Y - thickness / 2
    end = HEIGHT if down else _MIDDLE_Y + thickness / 2
    return _MIDDLE_X - thickness / 2, start, thickness, end - start


def _line(character: str, arms: str) -> tuple[str, tuple[Box, ...]]:
    boxes = []
    if "l" in arms or "r" in arms:
        boxes.append(_across("l" in arms, "r" in arms))
    if "u" in arms or "d" in arms:
        boxes.append(_along("u" in arms, "d" in arms))
    return character, tuple(boxes)


BOXES: dict[str, tuple[Box, ...]] = {
    "█": ((0, 0, WIDTH, HEIGHT),),
    "▀": ((0, 0, WIDTH, HEIGHT / 2),),
    "▐": ((WIDTH / 2, 0, WIDTH / 2, HEIGHT),),
    "▔": ((0, 0, WIDTH, HEIGHT / 8),),
    "▕": ((WIDTH * 7 / 8, 0, WIDTH / 8, HEIGHT),),
    "▚": ((0, 0, WIDTH / 2, HEIGHT / 2), (WIDTH / 2, HEIGHT / 2, WIDTH / 2, HEIGHT / 2)),
    **{
        glyph: ((0, HEIGHT * (8 - eighths) / 8, WIDTH, HEIGHT * eighths / 8),)
        for eighths, glyph in enumerate("▁▂▃▄▅▆▇", 1)
    },
    **{glyph: ((0, 0, WIDTH * eighths / 8, HEIGHT),) for eighths, glyph in enumerate("▏▎▍▌▋▊▉", 1)},
    **dict(
        _line(glyph, arms)
        for glyph, arms in zip(
            "─│┌┐└┘├┤┬┴┼",
            ("lr", "ud", "rd", "ld", "ru", "lu", "rud", "lud", "lrd", "lru", "lrud"),
            strict=True,
        )
    ),
    "━": (_across(True, True, _THICK),),
    "┃": (_along(True, True, _THICK),),
    "╌": ((1, _MIDDLE_Y - 0.5, 3, 1), (6, _MIDDLE_Y - 0.5, 3, 1)),
    "┊": tuple((_MIDDLE_X - 0.5, top, 1.0, 2.5) for top in (1.25, 6.25, 11.25, 16.25)),
    "■": ((1.5, 6.5, 7, 7),),
    "❚": ((3, 4, 4, 12),),
}
"""Glyphs made of rectangles."""

SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
"""Glyphs that cover the whole cell, and their opacity."""


def _circle(radius: float, x: float = _MIDDLE_X, y: float = _MIDDLE_Y) -> Outline:
    arc = f"a{radius:g} {radius:g} 0 1"
    return x - radius, y, f"{arc} 1 {2 * radius:g} 0{arc} 1 {-2 * radius:g} 0z"


def _ring(radius: float, thickness: float) -> Outline:
    x, y, outer = _circle(radius)
    inside = radius - thickness
    arc = f"a{inside:g} {inside:g} 0 1"
    # In the other direction: the inside stays empty.
    return x, y, f"{outer}m{thickness:g} 0{arc} 0 {2 * inside:g} 0{arc} 0 {-2 * inside:g} 0z"


def _diamond(radius: float) -> Outline:
    path = f"l{radius:g} {radius:g}l{-radius:g} {radius:g}l{-radius:g} {-radius:g}z"
    return _MIDDLE_X, _MIDDLE_Y - radius, path


def _open_diamond(radius: float, thickness: float) -> Outline:
    x, y, outer = _diamond(radius)
    inside = radius - thickness
    # The opposite direction leaves the inside empty.
    inner = f"l{-inside:g} {inside:g}l{inside:g} {inside:g}l{inside:g} {-inside:g}z"
    return x, y, f"{outer}m0 {thickness:g}{inner}"


_CROSS = (
    "l2.4 2.4l2.4-2.4l1.6 1.6l-2.4 2.4l2.4 2.4l-1.6 1.6l-2.4-2.4l-2.4 2.4l-1.6-1.6l2.4-2.4l-2.4-2.4"
)

OUTLINES: dict[str, tuple[Outline, ...]] = {
    "●": (_circle(4),),
    "○": (_ring(4, 1.2),),
    "◐": (_ring(4, 1.2), (_MIDDLE_X, _MIDDLE_Y + 4, "a4 4 0 0 1 0-8z")),
    "◉": (_ring(4.2, 1), _circle(2.2)),
    "◈": (_open_diamond(4.8, 1.2), _diamond(2.2)),
    "⊘": (_ring(4, 1.2), (7.4, 6.8, "l0.8 0.8l-5.6 5.6l-0.8-0.8z")),
    "★": (
        (5, 4.8, "l1.4 3.3l3.5 0.3l-2.7 2.3l0.9 3.5l-3.1-1.9l-3.1 1.9l0.9-3.5l-2.7-2.3l3.5-0.3z"),
    ),
    "✖": ((2.6, 6, f"{_CROSS}z"),),
    "▲": ((5, 5.5, "l4.5 8.5h-9z"),),
    "▼": ((5, 14.5, "l-4.5-8.5h9z"),),
    "▸": ((2.5, 6.5, "l5.5 3.5l-5.5 3.5z"),),
    "▶": ((1.5, 5.5, "l7.5 4.5l-7.5 4.5z"),),
    "╭": ((4.5, HEIGHT, "v-4.5q0-6 5.5-6v1q-4.5 0-4.5 5v4.5z"),),
    "╮": ((5.5, HEIGHT, "v-4.5q0-6-5.5-6v1q4.5 0 4.5 5v4.5z"),),
    "╰": ((4.5, 0, "v4.5q0 6 5.5 6v-1q-4.5 0-4.5-5v-4.5z"),),
    "╯": ((5.5, 0, "v4.5q0 6-5.5 6v-1q4.5 0 4.5-5v-4.5z"),),
}
"""Glyphs with slanted or round edges."""

DOT = 3.2
"""Diameter of a dot of braille."""
DOTS: dict[str, tuple[tuple[float, float], ...]] = {
    chr(_BRAILLE + bits): tuple(
        (WIDTH * (0.25 + column / 2), HEIGHT * (0.125 + row / 4))
        for bit, (column, row) in enumerate(_PLACES)
        if bits >> bit & 1
    )
    for bits in range(256)
}
"""Braille: the centre of each dot."""
