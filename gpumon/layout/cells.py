"""Rows of styled cells: what every view is made of, and what changed between two of them.

A row is a tuple of fields, a field a text and the name of a style. Texts are printable and exactly
as wide as their column, so two rows of one view line up field by field, and a tick's difference is
a few short runs of cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpumon.text import cell_width, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Field: TypeAlias = tuple[str, str]
"""A printable text and the name of its style; the empty name is plain text."""

Row: TypeAlias = tuple[Field, ...]

# Moving the cursor costs about eight bytes: nearer runs are cheaper written through.
_GAP = 8

_EIGHTHS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
# The highest leaves a gap to the row above.
_LEVELS = " ▁▂▃▄▅▆▇▇"


def row_width(row: Row) -> int:
    """Cells a row takes."""
    return sum(cell_width(text) for text, _ in row)


def fill(fields: Iterable[Field], width: int, style: str = "") -> Row:
    """The fields as a row of exactly ``width`` cells: padded in ``style``, or cut at the edge."""
    row: list[Field] = []
    left = width
    for text, name in fields:
        size = cell_width(text)
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
    """The same text, all of it in one style."""
    return tuple((text, style) for text, _ in row)


def bar(fraction: float | None, width: int) -> str:
    """A horizontal bar in eighths of a cell; unknown is blank."""
    if fraction is None or width <= 0:
        return " " * max(0, width)
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    if fraction > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text + " " * (width - len(text))


def spark(values: Sequence[float | None], top: float) -> str:
    """One cell a value, in eighths of a cell's height; unknown is blank, zero the lowest line."""
    cells: list[str] = []
    for value in values:
        if value is None:
            cells.append(" ")
        else:
            cells.append(_LEVELS[1 + min(7, max(0, int(value / top * 8)))])
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
    columns: list[float | None] = [None] * (2 * width - len(newest)) + newest
    # A known value always shows: zero is a line at the foot, a gap is unknown.
    levels = [
        0 if value is None else max(1, min(dots, round(value / top * dots))) for value in columns
    ]
    lines: list[str] = []
    for line in range(height):
        floor = (height - 1 - line) * 4
        lines.append(
            "".join(
                chr(
                    0x2800
                    + _LEFT[min(4, max(0, levels[x] - floor))]
                    + _RIGHT[min(4, max(0, levels[x + 1] - floor))]
                )
                for x in range(0, 2 * width, 2)
            )
        )
    return lines


# Dots of a braille cell filled from below: 0 to 4 of the left and of the right column.
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)


def changed_runs(old: Row, new: Row) -> list[tuple[int, int]] | None:
    """The cells in which two rows differ, as ascending (first, after last) runs.

    Returns:
        ``None`` when the rows do not line up field by field: then all of the row changed.
    """
    if len(old) != len(new):
        return None
    runs: list[tuple[int, int]] = []
    x = 0
    for (old_text, old_style), (new_text, new_style) in zip(old, new, strict=True):
        if old_text is new_text and old_style is new_style:
            x += cell_width(new_text)
            continue
        width = cell_width(new_text)
        if old_text != new_text or old_style != new_style:
            if cell_width(old_text) != width:
                return None
            first, last = 0, width
            if old_style == new_style and len(old_text) == len(new_text) == width:
                while old_text[first] == new_text[first]:
                    first += 1
                while old_text[last - 1] == new_text[last - 1]:
                    last -= 1
            if runs and x + first - runs[-1][1] < _GAP:
                runs[-1] = (runs[-1][0], x + last)
            else:
                runs.append((x + first, x + last))
        x += width
    return runs


def encode(
    row: Row, runs: Iterable[tuple[int, int]], x: int, y: int, sgr: Mapping[str, str]
) -> str:
    """The runs of a row as terminal output: cursor, style, text.

    Args:
        row: What the row shows now.
        runs: Cells of it to write.
        x: Column of the row's first cell on screen, from 0.
        y: Line of the row on screen, from 0.
        sgr: Style name -> the whole escape sequence that sets it, whatever was set before.
    """
    out: list[str] = []
    style: str | None = None
    for first, last in runs:
        out.append(f"\x1b[{y + 1};{x + first + 1}H")
        at = 0
        for text, name in row:
            end = at + cell_width(text)
            if end > first:
                if name != style:
                    style = name
                    out.append(sgr[name])
                out.append(_part(text, end - at, max(0, first - at), last - at))
            at = end
            if at >= last:
                break
    return "".join(out)


def _part(text: str, width: int, first: int, last: int) -> str:
    """Cells ``first`` up to ``last`` of a text.

    A text with wide characters is written to its end from ``first``'s character on: its runs always
    start and end at the field's own edges (see ``changed_runs``) or, merged, cover more than them.
    """
    if width == len(text):
        return text[first:last]
    return text
