"""Tables: a column says what it shows of an item, how wide it is, and what items are sorted by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from gpumon.text.cells import Field, Row, fill, restyle
from gpumon.text.formatting import fit, fit_right

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ItemT = TypeVar("ItemT")

WATCHED = "★"
"""Marks what is to be notified: a GPU that becomes free, a process that ends."""
GUTTER = 2
"""Cells between two lines side by side."""


class Sort(Struct, frozen=True):
    """How a table is sorted: by the column with this key."""

    column: str = "memory_used"
    descending: bool = True


class Column(Struct, Generic[ItemT], frozen=True, gc=False):
    """A column of a table."""

    key: str  # Identifies it; columns of several tables with one meaning have one key.
    label: str  # The heading.
    # Cells, without the space behind it; 0 takes the remaining width. In the list of GPUs with the
    # gap before it, and 0 where the width of the screen decides.
    width: int
    about: str  # What it means, in a sentence.
    # What items are sorted by; ``None`` is unknown, and comes last. Where the cells of a line are
    # kept, as in the list of GPUs, it has all that they depend on.
    value: Callable[[ItemT], object]
    text: Callable[[ItemT], str] = str  # The text of an item.
    style: str = ""  # The style of the text.
    left: bool = False  # Whether the text is aligned at the left.
    descends: bool = True  # Whether the first press sorts the largest first, as for amounts.
    # Draws an item in exactly so many cells, in place of ``text``.
    draw: Callable[[ItemT, int], Sequence[Field]] | None = None
    name: str = ""  # The column in a sentence, if the heading is a sign.
    keep: int = 0  # On a narrow terminal the column with the lowest one is dropped first.
    letter: str = ""  # The key that sorts by it.
    shown: bool = True  # Whether it is shown by default.
    # Cells for usual values, if the texts of what is listed decide the width. They get up to
    # ``width`` cells, and up to ``most`` where the last column has enough.
    least: int | None = None
    most: int = 0
    # Whether the longest text is that of the largest value.
    grows: bool = False
    short: str = ""  # The heading where ``label`` does not fit.
    # Texts that say nothing: a default column of which every cell has one of them is not shown.
    vacant: tuple[str, ...] = ()

    def fields(self, item: ItemT, width: int) -> Sequence[Field]:
        """What it shows of an item, in exactly so many cells."""
        if self.draw is not None:
            return self.draw(item, width)
        return ((self.fit(self.text(item), width), self.style),)

    def fit(self, text: str, width: int) -> str:
        """A text, aligned in so many cells."""
        return fit(text, width) if self.left else fit_right(text, width)


class Marks(NamedTuple):
    """How a line is marked."""

    cursor: bool = False  # Whether it is under the cursor.
    tagged: bool = False  # Whether it is tagged.
    branch: str = ""  # Tree glyphs before the command.
    shift: int = 0  # Cells that commands are scrolled sideways.
    dimmed: bool = False  # Whether it is not on the GPU under the cursor.
    watched: bool = False  # Whether its end is to be notified.

    @property
    def style(self) -> str:
        """The style of the whole line; empty for a line without marks."""
        if self.cursor:
            return "cursor"
        if self.tagged:
            return "tagged"
        return "dim" if self.dimmed else ""

    @property
    def sign(self) -> Field:
        """The first cell of the line."""
        if self.tagged:
            return "◉" if self.cursor else "●", "tagged"
        return "▸" if self.cursor else " ", ""


PLAIN, AT_CURSOR = Marks(), Marks(cursor=True)


def at_cursor(row: Row) -> Row:
    """A row under the cursor: the sign replaces its first cell, a blank."""
    return with_sign(row, AT_CURSOR)


def with_sign(row: Row, marks: Marks) -> Row:
    """A row with its sign in place of the first cell, a blank; it keeps its colours if tagged."""
    (text, style), *rest = row
    sign, sign_style = marks.sign
    if not marks.cursor:
        return ((sign, sign_style), (text[1:], sign_style or style), *rest)
    at_sign: Row = ((sign, sign_style),) if sign_style else ()
    text = text[1:] if at_sign else sign + text[1:]
    return (*at_sign, *restyle(((text, ""), *rest), marks.style))


def line(
    cells: Iterable[Sequence[Field]], width: int, marks: Marks = PLAIN, style: str = ""
) -> Row:
    """A line of a table: its sign, then what each column shows, with a space behind each.

    Args:
        cells: The fields of each column.
        width: Cells of the line.
        marks: How it is marked.
        style: The style of the whole line if it has no mark.
    """
    fields = [marks.sign]
    gap = (WATCHED if marks.watched else " ", "state.note")
    for cell in cells:
        fields += cell
        fields.append(gap)
        gap = (" ", "")
    row = fill(fields, width)
    whole = marks.style or style
    return restyle(row, whole) if whole else row


def heading_row(columns: Sequence[Column[Any]], sort: Sort, width: int) -> Row:
    """The headings of the columns, with an arrow at the sorted one."""
    fields: list[Field] = [(" ", "heading")]
    for column in columns:
        is_sorted = column.key == sort.column
        arrow = ("▼" if sort.descending else "▲") if is_sorted else ""
        size = column.width or remaining(columns, width)
        label = column.label + arrow
        if column.short and len(label) > size:
            label = column.short + arrow
        fields.append((column.fit(label, size), "heading.sorted" if is_sorted else "heading"))
        fields.append((" ", "heading"))
    return fill(fields[:-1], width, "heading")


def item_row(
    item: ItemT,
    columns: Sequence[Column[ItemT]],
    width: int,
    marks: Marks = PLAIN,
    style: str = "",
) -> Row:
    """A line of a table: what each column shows of an item; see ``line``."""
    left = remaining(columns, width)
    cells = [column.fields(item, column.width or left) for column in columns]
    return line(cells, width, marks, style)


def fitting(columns: Iterable[Column[ItemT]], width: int) -> tuple[Column[ItemT], ...]:
    """The first columns that fit, and the one that takes the remaining width."""
    edge = 0
    kept = []
    for column in columns:
        edge += column.width + 1
        if edge <= width or not column.width:
            kept.append(column)
    return tuple(kept)


def remaining(columns: Iterable[Column[Any]], width: int) -> int:
    """The cells of a column without a width of its own, which is the last one."""
    return max(0, width - 1 - sum(column.width + 1 for column in columns if column.width))


def column_at(columns: Sequence[Column[Any]], x: int) -> Column[Any] | None:
    """The column under a cell of the heading."""
    edge = 1
    for column in columns:
        edge += column.width + 1
        if x < edge or not column.width:
            return column
    return None


def column_beside(columns: Sequence[Column[Any]], sort: Sort, step: int) -> str | None:
    """The key of the column so many steps from the sorted one; ``None`` if there are none."""
    keys = [column.key for column in columns]
    at = keys.index(sort.column) if sort.column in keys else -1
    return keys[(at + step) % len(keys)] if keys else None


def next_sort(now: Sort, column: Column[Any]) -> tuple[Sort, str]:
    """The order by a column, reversed if it is the order of now, and a message about it."""
    descending = not now.descending if column.key == now.column else column.descends
    words = "descending" if descending else "ascending"
    return Sort(column.key, descending), f"sorted by {column.label}, {words}"


def by_column(items: Iterable[ItemT], columns: Iterable[Column[ItemT]], sort: Sort) -> list[ItemT]:
    """Sort items by one of the columns."""
    column = next(column for column in columns if column.key == sort.column)
    return in_order(items, column.value, descending=sort.descending)


def in_order(
    items: Iterable[ItemT], value_of: Callable[[ItemT], object], *, descending: bool
) -> list[ItemT]:
    """Sort items by their values; the sort is stable, and ``None`` (unknown) comes last."""
    known: list[tuple[object, ItemT]] = []
    unknown: list[ItemT] = []
    for item in items:
        value = value_of(item)
        if value is None:
            unknown.append(item)
        else:
            known.append((value, item))
    # The values of one column are comparable, which their type does not say.
    known.sort(key=lambda pair: pair[0], reverse=descending)  # type: ignore[arg-type,return-value]  # no None here
    return [item for _, item in known] + unknown


def line_width(width: int, columns: int) -> int:
    """Cells of a line where so many stand side by side."""
    return (width - GUTTER * (columns - 1)) // columns


def beside(lines: Sequence[Row], columns: int, rows: int, width: int, style: str = "") -> list[Row]:
    """Lines in columns side by side, the first ones in the first column.

    Args:
        lines: The lines, each of ``line_width``.
        columns: The number of columns.
        rows: The most lines of a column.
        width: Cells of a row.
        style: The style of what is between and behind the lines.
    """
    if columns == 1:
        return list(lines[:rows])
    size = line_width(width, columns)
    # The lines are as wide as they must be; to measure their fields again would be half of the
    # cost of a frame.
    rest = fill((), width - columns * (size + GUTTER) + GUTTER, style)
    blank, gutter = fill((), size, style), (" " * GUTTER, style)
    found = []
    for y in range(min(rows, len(lines))):
        fields: list[Field] = []
        for at in range(y, columns * rows, rows):
            fields += [*(lines[at] if at < len(lines) else blank), gutter]
        found.append((*fields[:-1], *rest))
    return found
