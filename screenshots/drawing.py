"""A picture of a screen's cells, as SVG.

Letters stay text, in a font of the reader's machine, each at its own position. Glyphs that must
meet their neighbours are drawn as shapes, on whole pixels.
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
# At this size a letter of the first font is as wide as a cell.
_LETTERS = f'font-family="{_FONTS}" font-size="16.6667"'
BASELINE = 15.5
MARGIN = 16.0
"""Around the content of a picture."""
_CORNER = 10.0

DRAWN_GLYPHS = {*BOXES, *SHADES, *OUTLINES, *DOTS}
"""Those that are drawn as shapes; the font has the others."""

_Fill: TypeAlias = tuple[str, float]
"""Colour and opacity."""
_Style: TypeAlias = tuple[str, bool, bool]
"""Colour, whether bold, whether underlined."""


def svg_of(lines: Sequence[Sequence[Cell]], ground: str, title: str) -> str:
    """The picture.

    Args:
        lines: The screen.
        ground: The background of the terminal, which is also the margin of the picture.
        title: What the picture shows, for readers who do not see it.
    """
    width, height = WIDTH * len(lines[0]), HEIGHT * len(lines)
    return page(width, height, ground, title, screen(lines, ground))


def page(width: float, height: float, ground: str, title: str, content: Iterable[str]) -> str:
    """A picture with a margin around content of this size."""
    outer_width, outer_height = width + 2 * MARGIN, height + 2 * MARGIN
    size = f'width="{outer_width:g}" height="{outer_height:g}"'
    parts = [
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {outer_width:g} {outer_height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect {size} rx="{_CORNER:g}" fill="{ground}"/>',
        f'<g transform="translate({MARGIN:g} {MARGIN:g})" {_LETTERS}>',
        *content,
        "</g>",
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def screen(lines: Sequence[Sequence[Cell]], ground: str) -> Iterable[str]:
    """The elements of some lines of a screen; the first line begins at 0, 0."""
    shapes = [*_boxes(_grounds(lines, ground)), *_boxes(_blocks(lines))]
    if shapes:
        yield from ('<g shape-rendering="crispEdges">', *shapes, "</g>")
    yield from _outlines(lines)
    dots = list(_dots(lines))
    if dots:
        yield f'<g fill="none" stroke-width="{DOT:g}" stroke-linecap="round">'
        yield from (*dots, "</g>")
    yield '<g xml:space="preserve">'
    for row, line in enumerate(lines):
        yield from _texts(row, line)
    yield "</g>"


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
        outline = "".join(
            f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z"
            for x, y, width, height in _joined(boxes)
        )
        transparent = "" if opacity == 1.0 else f' fill-opacity="{opacity:g}"'
        yield f'<path fill="{colour}"{transparent} d="{outline}"/>'


def _joined(boxes: Iterable[Box]) -> list[Box]:
    """The boxes, with neighbours in a row joined to one."""
    joined: list[Box] = []
    for x, y, width, height in boxes:
        if joined:
            left, top, wide, high = joined[-1]
            if (top, high, left + wide) == (y, height, x):
                joined[-1] = (left, top, wide + width, high)
                continue
        joined.append((x, y, width, height))
    return joined


def _outlines(lines: Sequence[Sequence[Cell]]) -> Iterable[str]:
    paths: dict[str, list[str]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            for left, top, outline in OUTLINES.get(cell.character, ()):
                start = f"M{WIDTH * column + left:g} {HEIGHT * row + top:g}"
                paths[cell.colour].append(start + outline)
    for colour, found in paths.items():
        yield f'<path fill="{colour}" d="{"".join(found)}"/>'


def _dots(lines: Sequence[Sequence[Cell]]) -> Iterable[str]:
    paths: dict[str, list[str]] = defaultdict(list)
    for row, line in enumerate(lines):
        for column, cell in enumerate(line):
            for x, y in DOTS.get(cell.character, ()):
                # A line without length shows its round ends: a dot.
                paths[cell.colour].append(f"M{WIDTH * column + x:g} {HEIGHT * row + y:g}h0")
    for colour, found in paths.items():
        yield f'<path stroke="{colour}" d="{"".join(found)}"/>'


def _texts(row: int, line: Sequence[Cell]) -> Iterable[str]:
    """The letters of a line, each at its own position: no font can shift or join them."""
    runs: list[tuple[_Style, list[tuple[float, str]]]] = []
    for column, cell in enumerate(line):
        character = cell.character
        if character in DRAWN_GLYPHS or not character or (character == " " and not cell.underlined):
            continue
        style = (cell.colour, cell.bold, cell.underlined)
        if not runs or runs[-1][0] != style:
            runs.append((style, []))
        runs[-1][1].append((WIDTH * column, character))
    for (colour, bold, underlined), letters in runs:
        places = " ".join(f"{x:g}" for x, _ in letters)
        more = ' font-weight="bold"' if bold else ""
        more += ' text-decoration="underline"' if underlined else ""
        words = escape("".join(character for _, character in letters), quote=False)
        y = HEIGHT * row + BASELINE
        yield f'<text fill="{colour}"{more} y="{y:g}" x="{places}">{words}</text>'
