"""Rows of styled cells, which all views consist of.

A row is a tuple of fields; a field is a text and a style name. Texts are printable and exactly as
wide as their column, so two rows of one view match field by field; ``CellWriter`` writes the
differences.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from gpumon.text.formatting import cell_width, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Field: TypeAlias = tuple[str, str]
"""A printable text and the name of its style; the empty name is plain text."""

Row: TypeAlias = tuple[Field, ...]

_LOW, _HIGH = 0.5, 0.9
# The highest level leaves a gap to the row above.
_LEVELS = " ▁▂▃▄▅▆▇▇"
_VISIBLE = 0.005
"""A share that rounds to 0 % is drawn as zero in a small graph."""


def row_width(row: Sequence[Field]) -> int:
    """The width of a row in cells."""
    return sum(cell_width(text) for text, _ in row)


def fill(fields: Iterable[Field], width: int, style: str = "") -> Row:
    """The fields as a row of exactly ``width`` cells: padded in ``style``, or cut at the edge."""
    row: list[Field] = []
    left = width
    for text, name in fields:
        # Called for thousands of fields a second, nearly all of them plain.
        size = len(text) if text.isascii() else cell_width(text)
        if size > left:
            if left > 0:
                row.append((fit(text, left), name))
            return tuple(row)
        row.append((text, name))
        left -= size
    if left:
        row.append((" " * left, style))
    return tuple(row)


def restyle(row: Row, style: str) -> Row:
    """The same text in a single style."""
    return tuple((text, style) for text, _ in row)


def bar(fraction: float | None, width: int) -> str:
    """A horizontal bar of whole cells, with a faint background; unknown is blank.

    It leaves a gap to the row above; partial-width characters cannot: the bars of equally used GPUs
    would merge into a block.
    """
    if fraction is None or width <= 0:
        return " " * max(0, width)
    cells = round(min(1.0, max(0.0, fraction)) * width)
    text = _LEVELS[-1] * cells or (_LEVELS[1] if fraction > 0 else "")
    return text + " " * (width - len(text))


def bar_style(style: str, fraction: float | None) -> str:
    """The style of a bar by its fill level: fuller bars are stronger, in the same hue.

    Args:
        style: ``bar.memory`` or ``bar.util``.
        fraction: How much is filled, 0 to 1; unknown is blank and has no look.
    """
    if fraction is None:
        return style
    return f"{style}.low" if fraction < _LOW else f"{style}.high" if fraction >= _HIGH else style


def spark(values: Sequence[float | None], top: float) -> str:
    """One cell per value, in eighths of a cell's height; zero is blank, unknown a dot."""
    cells: list[str] = []
    for value in values:
        if value is None:
            cells.append("·")
        else:
            share = value / top
            cells.append(_LEVELS[1 + min(7, int(share * 8))] if share >= _VISIBLE else " ")
    return "".join(cells)


def braille(values: Sequence[float | None], top: float, width: int, height: int) -> list[str]:
    """A filled graph of ``width`` by ``height`` cells, two values a cell and four dots a cell high.

    Args:
        values: Oldest first; the newest stands at the right edge. Unknown leaves a gap.
        top: The value at the upper edge.
        width: Cells.
        height: Cells.

    Returns:
        ``height`` lines from the top down, each ``width`` cells.
    """
    dots = height * 4
    newest = list(values[-2 * width :])
    columns: list[float | None] = [*([None] * (2 * width - len(newest))), *newest]
    # A known value is always visible: zero is a line at the bottom, a gap is unknown.
    levels = [
        0 if value is None else max(1, min(dots, round(value / top * dots))) for value in columns
    ]
    cells = [_braille_column(levels[x], levels[x + 1], height) for x in range(0, 2 * width, 2)]
    return ["".join(line) for line in zip(*cells, strict=True)] if cells else [""] * height


@lru_cache(maxsize=4096)
def _braille_column(left: int, right: int, height: int) -> tuple[str, ...]:
    """The cells of one column from the top down, filled to a dot height on either side."""
    floors = range(4 * (height - 1), -1, -4)
    return tuple(
        _DOTS[_LEFT[min(4, max(0, left - floor))] + _RIGHT[min(4, max(0, right - floor))]]
        for floor in floors
    )


# Shared strings, because thousands of columns are kept.
_DOTS = tuple(chr(0x2800 + dots) for dots in range(256))

# Dots of a braille cell filled from below: 0 to 4 of the left and of the right column.
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
