"""A picture of a screen's cells, as SVG.

Letters stay letters: whoever looks at the picture has them in a font of their own, each at its
place. What must meet its neighbours is drawn as shapes, on whole pixels.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from screenshots.glyphs import BOXES, DOT, DOTS, HEIGHT, OUTLINES, SHADES, WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from screenshots.cells import Cell
    from screenshots.glyphs import Box

_NAMESPACE = "http://www.w3.org/2000/svg"

FONT = "JetBrains Mono"
_FONTS = f"'{FONT}', ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
# So large that a letter of the first font is as wide as a cell.
_LETTERS = f'font-family="{_FONTS}" font-size="16.6667"'
_BASELINE = 15.5
_MARGIN = 16.0
_CORNER = 10.0

_DRAWN = {*BOXES, *SHADES, *OUTLINES, *DOTS}

_Fill: TypeAlias = tuple[str, float]
"""Colour and opacity."""
_Pen: TypeAlias = tuple[str, bool, bool]
"""Colour, whether bold, whether underlined."""


def svg_of(lines: Sequence[Sequence[Cell]], ground: str, title: str) -> str:
    """The picture.

    Args:
        lines: The screen.
        ground: The colour of the terminal itself, seen around the screen.
        title: What the picture shows, for those who do not see it.
    """
    width, height = WIDTH * len(lines[0]) + 2 * _MARGIN, HEIGHT * len(lines) + 2 * _MARGIN
    parts = [
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" rx="{_CORNER:g}" fill="{ground}"/>',
        f'<g transform="translate({_MARGIN:g} {_MARGIN:g})" {_LETTERS}>',
        '<g shape-rendering="crispEdges">',
        *_boxes(_grounds(lines, ground)),
        *_boxes(_blocks(lines)),
        "</g>",
        *_outlines(lines),
        f'<g fill="none" stroke-width="{DOT:g}" stroke-linecap="round">',
        *_dots(lines),
        "</g>",
        '<g xml:space="preserve">',
    ]
    for row, line in enumerate(lines):
        parts += _texts(row, line)
    return "\n".join([*parts, "</g>", "</g>", "</svg>", ""])


def _grounds(lines: Sequence[Sequence[Cell]], ground: str) -> dict[_Fill, list[Box]]:
    found: dict[_Fill, list[Box]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            if cell.ground not in {None, ground}:
                box = (WIDTH * column, HEIGHT * row, WIDTH, HEIGHT)
                found[str(cell.ground), 1.0].append(box)
    return found


def _blocks(lines: Sequence[Sequence[Cell]]) -> dict[_Fill, list[Box]]:
    found: dict[_Fill, list[Box]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            x, y = WIDTH * column, HEIGHT * row
            for left, top, width, height in BOXES.get(cell.character, ()):
                found[cell.colour, 1.0].append((x + left, y + top, width, height))
            if cell.character in SHADES:
                found[cell.colour, SHADES[cell.character]].append((x, y, WIDTH, HEIGHT))
    return found


def _boxes(found: dict[_Fill, list[Box]]) -> Iterable[str]:
    for (colour, opacity), boxes in found.items():
        way = "".join(
            f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z"
            for x, y, width, height in _joined(boxes)
        )
        faint = "" if opacity == 1.0 else f' fill-opacity="{opacity:g}"'
        yield f'<path fill="{colour}"{faint} d="{way}"/>'


def _joined(boxes: Iterable[Box]) -> list[Box]:
    """One box for each run of them side by side."""
    joined: list[Box] = []
    for x, y, width, height in boxes:
        if joined:
            left, top, before, tall = joined[-1]
            if (top, tall, left + before) == (y, height, x):
                joined[-1] = (left, top, before + width, tall)
                continue
        joined.append((x, y, width, height))
    return joined


def _outlines(lines: Sequence[Sequence[Cell]]) -> Iterable[str]:
    ways: dict[str, list[str]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            for left, top, way in OUTLINES.get(cell.character, ()):
                start = f"M{WIDTH * column + left:g} {HEIGHT * row + top:g}"
                ways[cell.colour].append(start + way)
    for colour, found in ways.items():
        yield f'<path fill="{colour}" d="{"".join(found)}"/>'


def _dots(lines: Sequence[Sequence[Cell]]) -> Iterable[str]:
    ways: dict[str, list[str]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            for x, y in DOTS.get(cell.character, ()):
                # A line without length has its round ends.
                ways[cell.colour].append(f"M{WIDTH * column + x:g} {HEIGHT * row + y:g}h0")
    for colour, found in ways.items():
        yield f'<path stroke="{colour}" d="{"".join(found)}"/>'


def _texts(row: int, line: Sequence[Cell]) -> Iterable[str]:
    """The letters of a line; each has its own place, so that no font can shift or join them."""
    runs: list[tuple[_Pen, list[tuple[float, str]]]] = []
    for column, cell in enumerate(line):
        character = cell.character
        if character in _DRAWN or not character or (character == " " and not cell.underlined):
            continue
        renderer = (cell.colour, cell.bold, cell.underlined)
        if not runs or runs[-1][0] != renderer:
            runs.append((renderer, []))
        runs[-1][1].append((WIDTH * column, character))
    for (colour, bold, underlined), letters in runs:
        places = " ".join(f"{x:g}" for x, _ in letters)
        more = ' font-weight="bold"' if bold else ""
        more += ' text-decoration="underline"' if underlined else ""
        words = escape("".join(character for _, character in letters), quote=False)
        y = HEIGHT * row + _BASELINE
        yield f'<text fill="{colour}"{more} y="{y:g}" x="{places}">{words}</text>'
