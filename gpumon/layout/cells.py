"""Rows of styled cells: what every view is made of, and what changed between two of them.

A row is a tuple of fields, a field a text and the name of a style. Texts are printable and exactly
as wide as their column, so two rows of one view line up field by field, and a tick's difference is
a few short runs of cells.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.text import cell_width, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Field: TypeAlias = tuple[str, str]
"""A printable text and the name of its style; the empty name is plain text."""

Row: TypeAlias = tuple[Field, ...]

# Moving the cursor costs about eight bytes: nearer runs are cheaper written through.
_GAP = 8

_LOW, _HIGH = 0.5, 0.9
# The highest leaves a gap to the row above.
_LEVELS = " ▁▂▃▄▅▆▇▇"


def row_width(row: Sequence[Field]) -> int:
    """Cells a row takes."""
    return sum(cell_width(text) for text, _ in row)


def fill(fields: Iterable[Field], width: int, style: str = "") -> Row:
    """The fields as a row of exactly ``width`` cells: padded in ``style``, or cut at the edge."""
    row: list[Field] = []
    left = width
    for text, name in fields:
        # Asked of thousands of fields a second, nearly all of them plain.
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
    """The same text, all of it in one style."""
    return tuple((text, style) for text, _ in row)


def bar(fraction: float | None, width: int) -> str:
    """A horizontal bar of whole cells, a trace of what fills none; unknown is blank.

    It leaves a gap to the row above, as no character does that fills a part of a cell's width: the
    bars of a machine whose cards are used alike would be a wall.
    """
    if fraction is None or width <= 0:
        return " " * max(0, width)
    cells = round(min(1.0, max(0.0, fraction)) * width)
    text = _LEVELS[-1] * cells or (_LEVELS[1] if fraction > 0 else "")
    return text + " " * (width - len(text))


def bar_style(style: str, fraction: float | None) -> str:
    """A bar's style by how much of it is filled: fuller ones stand out, in the same hue.

    Args:
        style: ``bar.memory`` or ``bar.util``.
        fraction: How much is filled, 0 to 1; unknown is blank and has no look.
    """
    if fraction is None:
        return style
    return f"{style}.low" if fraction < _LOW else f"{style}.high" if fraction >= _HIGH else style


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
    columns: list[float | None] = [*([None] * (2 * width - len(newest))), *newest]
    # A known value always shows: zero is a line at the foot, a gap is unknown.
    levels = [
        0 if value is None else max(1, min(dots, round(value / top * dots))) for value in columns
    ]
    cells = [_braille_column(levels[x], levels[x + 1], height) for x in range(0, 2 * width, 2)]
    return ["".join(line) for line in zip(*cells, strict=True)] if cells else [""] * height


@lru_cache(maxsize=4096)
def _braille_column(left: int, right: int, height: int) -> tuple[str, ...]:
    """The cells of one column from the top down, filled so many dots high on either side."""
    floors = range(4 * (height - 1), -1, -4)
    return tuple(
        _DOTS[_LEFT[min(4, max(0, left - floor))] + _RIGHT[min(4, max(0, right - floor))]]
        for floor in floors
    )


# One of each, since thousands of columns are kept.
_DOTS = tuple(chr(0x2800 + dots) for dots in range(256))

# Dots of a braille cell filled from below: 0 to 4 of the left and of the right column.
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)


def _starts(row: Row) -> Sequence[int]:
    """In which of a row's cells its fields begin, and where it ends."""
    return [0, *accumulate(cell_width(text) for text, _ in row)]


class Ink(Struct, frozen=True):
    """What a style looks like, as parameters of the escape sequence SGR (ECMA-48, 8.3.117).

    Attributes:
        fore: Colour of the text, such as ``38;2;255;0;0``; empty is the terminal's own.
        ground: Colour behind it.
        bold: Bold.
        reverse: Text and ground exchanged.
    """

    fore: str = ""
    ground: str = ""
    bold: bool = False
    reverse: bool = False


class Inks:
    """How to get from one style to another with the fewest bytes.

    Args:
        inks: Style name -> what it looks like.
    """

    def __init__(self, inks: Mapping[str, Ink]) -> None:
        self._inks = inks
        self._changes: dict[tuple[str | None, str, bool], tuple[str, str]] = {}

    def change(self, before: str | None, after: str, *, blank: bool) -> tuple[str, str]:
        """The escape sequence that makes ``after`` of ``before``.

        Args:
            before: The style in force; ``None`` is the terminal's own.
            after: The style of the text that follows.
            blank: Whether that text is blank: then only its ground shows, and the colour may stay.

        Returns:
            The sequence, perhaps empty, and the style in force after it.
        """
        key = (before, after, blank)
        known = self._changes.get(key)
        if known is None:
            known = self._changes[key] = self._find(before, after, blank)
        return known

    def _find(self, before: str | None, after: str, blank: bool) -> tuple[str, str]:
        old = Ink() if before is None else self._inks[before]
        new = self._inks[after]
        if blank and before is not None and old.ground == new.ground and not old.reverse:
            return ("", after) if old == new else ("", before)
        codes: list[str] = []
        if old.bold != new.bold:
            codes.append("1" if new.bold else "22")
        if old.reverse != new.reverse:
            codes.append("7" if new.reverse else "27")
        if old.fore != new.fore:
            codes.append(new.fore or "39")
        if old.ground != new.ground:
            codes.append(new.ground or "49")
        return (f"\x1b[{';'.join(codes)}m" if codes else ""), after


RESET = "\x1b[0m"


class CellWriter:
    """Turns cells into terminal output, remembering the style in force from row to row."""

    def __init__(self, inks: Inks) -> None:
        self._inks = inks
        self._style: str | None = None
        self._out: list[str] = []
        self._size = self._measured = 0

    def place(self, row: Row, x: int, y: int) -> None:
        """Write a whole row at its place.

        Args:
            row: What it shows now.
            x: Column of its first cell on screen, from 0.
            y: Its line on screen, from 0.
        """
        self._out.append(f"\x1b[{y + 1};{x + 1}H")
        self.row(row)

    def change(
        self, before: Row, row: Row, x: int, y: int, starts: Sequence[int] | None = None
    ) -> Sequence[int] | None:
        """Write a row's cells that differ from those that stand there.

        Args:
            before: What stands there.
            row: What the row shows now.
            x: Column of its first cell on screen, from 0.
            y: Its line on screen, from 0.
            starts: What this returned for ``before``.

        Returns:
            Where the fields of the row begin; ``None`` when they are not those of ``before``.
        """
        if len(before) != len(row):
            self.place(row, x, y)
            return None
        if starts is None:
            starts = _starts(before)
        written, style_before = len(self._out), self._style
        # How many cells and fields were written; what is left of the last one of these.
        end, done, rest = -_GAP, 0, ""
        for place, (old, new) in enumerate(zip(before, row, strict=True)):
            if old is new or old == new:
                continue
            (old_text, old_style), (text, style) = old, new
            at, width = starts[place], starts[place + 1] - starts[place]
            if (len(text) if text.isascii() else cell_width(text)) != width:
                del self._out[written:]
                self._style = style_before
                self.place(row, x, y)
                return None
            first, last = 0, len(text)
            if old_style == style and len(old_text) == last == width:
                while old_text[first] == text[first]:
                    first += 1
                while old_text[last - 1] == text[last - 1]:
                    last -= 1
            gap = None if at + first - end >= _GAP else self._gap(row[done:place], rest)
            if gap is None:
                self._out.append(f"\x1b[{y + 1};{x + at + first + 1}H")
            else:
                self._out.append(gap)
                first = 0
            self._write(text[first:last], style)
            rest = text[last:]
            end, done = at + width - len(rest), place + 1
            if rest and style != self._style:
                # A blank may have been written in the style before it.
                end = -_GAP
        return starts

    def _gap(self, between: Row, rest: str) -> str | None:
        """What lies between the last cells written and the next.

        A few of one style are cheaper written again than passed over. ``None`` is another style.
        """
        for text, style in between:
            if style != self._style:
                return None
            rest += text
        return rest

    def row(self, row: Row) -> None:
        """Write a whole row where the cursor stands."""
        for text, name in row:
            self._write(text, name)

    def _write(self, text: str, style: str) -> None:
        if style != self._style:
            change, self._style = self._inks.change(self._style, style, blank=text.isspace())
            if change:
                self._out.append(change)
        self._out.append(text)

    @property
    def size(self) -> int:
        """Bytes that were written so far."""
        self._size += sum([len(part.encode()) for part in self._out[self._measured :]])
        self._measured = len(self._out)
        return self._size

    def take(self) -> str:
        """All that was written, ending in the terminal's own style; the writer is empty then."""
        if not self._out:
            return ""
        text = "".join(self._out) + RESET
        self._out.clear()
        self._size = self._measured = 0
        self._style = None
        return text
