"""Writes rows of cells as terminal output: whole rows, or only the cells that changed.

The changes of a frame are many short runs of cells, often a single digit, in a few styles. Most
bytes are then colours and cursor movements. Changes are therefore written style by style and
column by column: each colour is sent once, and the next digit is often one step below.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from gpumon.text.formatting import cell_width
from gpumon.ui.terminal.styles import RESET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.text.cells import Row
    from gpumon.ui.terminal.styles import SgrStyles

# Moving the cursor within a row takes about four bytes: shorter gaps are written instead.
_GAP = 5
_BACKSPACES = 3
"""Up to this number, backspaces are shorter than an escape sequence."""

_BRAILLE = frozenset(map(chr, range(0x2800, 0x2900)))

_MOVE_BYTES, _COLOUR_BYTES = 6, 20
"""Estimates of the bytes of a cursor movement and of a colour."""

_Run: TypeAlias = tuple[int, int, int, str, bool]
"""Its end, line, first cell and text, and whether the cursor is known to be at its end."""


class RowPainter:
    """Writes the rows that differ from those on the terminal."""

    def __init__(self, lines: int = 0) -> None:
        self.painted: list[Row | None] = [None] * lines
        """The rows on the terminal; ``None`` where unknown."""
        # The columns at which their fields start; None where unknown.
        self._starts: dict[int, Sequence[int] | None] = {}
        self._first = 0

    def expect(self, rows: Sequence[Row]) -> list[int]:
        """Something else writes these rows; returns the lines that differ."""
        painted, self.painted = self.painted, list(rows)
        self._starts.clear()
        known = len(painted)
        return [y for y, row in enumerate(rows) if y >= known or row != painted[y]]

    def paint(
        self,
        rows: Sequence[Row],
        writer: CellWriter,
        left: int = 0,
        top: int = 0,
        full: Callable[[], bool] | None = None,
    ) -> None:
        """Write changed rows while there is room, starting where the last frame stopped.

        Args:
            rows: As many rows as are painted.
            writer: Receives them.
            left: Column of their first cells on screen, from 0.
            top: Line of the first row on screen, from 0.
            full: Whether there is no room for more; by default there is room for all.
        """
        painted = self.painted
        first, self._first = self._first, 0
        order = [y for y in (*range(first, len(rows)), *range(first)) if rows[y] != painted[y]]
        if full is not None:
            # After a key the user looks for the cursor: its new row first, then its old one.
            order.sort(key=lambda y: 2 - 2 * _has_cursor(rows[y]) - _has_cursor(painted[y]))
        for y in order:
            row, before = rows[y], painted[y]
            if full is not None and full():
                self._first = y
                return
            if before is None:
                writer.place(row, left, top + y)
                self._starts[y] = None
            else:
                self._starts[y] = writer.change(before, row, left, top + y, self._starts.get(y))
            painted[y] = row
            if full is not None and (_has_cursor(row) or _has_cursor(before)):
                writer.flush_changes()


def _has_cursor(row: Row | None) -> bool:
    return row is not None and any(style == "cursor" for _, style in row[:2])


class CellWriter:
    """Turns cells into terminal output, one frame at a time.

    Whole rows are written in the given order, followed by the changed cells of other rows in an
    order that takes few bytes.
    """

    def __init__(self, styles: SgrStyles) -> None:
        self._styles = styles
        self._out: list[str] = []
        # The style after the output so far; None is the terminal's default.
        self._style: str | None = None
        # Changed runs by style, and the lines of the screen that have any.
        self._runs: dict[str, list[_Run]] = {}
        self._changed: set[int] = set()
        self._measured, self._measured_parts = 0, 0
        self._runs_bytes = 0

    def place(self, row: Row, x: int, y: int) -> None:
        """Write a whole row at its position.

        Args:
            row: The row.
            x: Column of its first cell on screen, from 0.
            y: Its line on screen, from 0.
        """
        if y in self._changed:
            self.flush_changes()
        self._out.append(f"\x1b[{y + 1};{x + 1}H")
        self.row(row)

    def change(
        self, before: Row, row: Row, x: int, y: int, starts: Sequence[int] | None = None
    ) -> Sequence[int] | None:
        """Write the cells of a row that have changed.

        Args:
            before: The row on screen.
            row: The new row.
            x: Column of its first cell on screen, from 0.
            y: Its line on screen, from 0.
            starts: The value returned for ``before``.

        Returns:
            The first cell of each field; ``None`` if they differ from those of ``before``.
        """
        if len(before) != len(row):
            self.place(row, x, y)
            return None
        if starts is None:
            starts = _starts(before)
        looks_same = self._styles.looks_same
        # The style, first cell, text and end of each run.
        found: list[tuple[str, int, str, int]] = []
        # Number of fields compared, and the rest of the last field of the last run.
        done, rest = 0, ("", "")
        for place, (old, new) in enumerate(zip(before, row, strict=True)):
            if old is new or old == new:
                continue
            (old_text, old_style), (text, style) = old, new
            at, width = starts[place], starts[place + 1] - starts[place]
            if (len(text) if text.isascii() else cell_width(text)) != width:
                self.place(row, x, y)
                return None
            first, last = 0, len(text)
            if old_style == style and len(old_text) == last == width:
                while old_text[first] == text[first]:
                    first += 1
                while old_text[last - 1] == text[last - 1]:
                    last -= 1
            end = at + width - (len(text) - last)
            if found:
                current, begin, written, reached = found[-1]
                if at + first - reached < _GAP and looks_same(text[:last], style, current):
                    between = (rest, *row[done:place])
                    if all(looks_same(passed, name, current) for passed, name in between):
                        written += "".join([passed for passed, _ in between]) + text[:last]
                        found[-1] = current, begin, written, end
                        done, rest = place + 1, (text[last:], style)
                        continue
            piece = text[first:last]
            found.append((self._run_style(piece, style), at + first, piece, end))
            done, rest = place + 1, (text[last:], style)
        if found:
            if y in self._changed:
                self.flush_changes()
            self._changed.add(y)
            edge = starts[-1]
            for run_style, begin, text, end in found:
                # The position is unknown after the last column, where terminals delay the wrap,
                # and after characters other than ASCII and braille, whose width terminals disagree
                # on.
                known = end < edge and (text.isascii() or _BRAILLE.issuperset(text))
                run = x + end, y, x + begin, text, known
                self._runs_bytes += _MOVE_BYTES + len(text.encode())
                if run_style in self._runs:
                    self._runs[run_style].append(run)
                else:
                    self._runs[run_style] = [run]
                    self._runs_bytes += _COLOUR_BYTES
        return starts

    def _run_style(self, text: str, style: str) -> str:
        """The style in which a run is written; for blanks one that is used anyway."""
        if text.isspace():
            for used in self._runs:
                if self._styles.looks_same(text, style, used):
                    return used
        return self._styles.canonical[style]

    def row(self, row: Row) -> None:
        """Write a whole row at the cursor."""
        for text, style in row:
            if self._style is None or not self._styles.looks_same(text, style, self._style):
                self._set_style(style)
            self._out.append(text)

    def _set_style(self, style: str) -> None:
        style = self._styles.canonical[style]
        change = self._styles.change(self._style, style)
        self._style = style
        if change:
            self._out.append(change)

    def flush_changes(self) -> None:
        """Append the collected changes to the output, before anything that is written next."""
        out = self._out
        at: tuple[int, int] | None = None
        for style, runs in self._runs.items():
            self._set_style(style)
            # By columns, because numbers end one below the other.
            runs.sort()
            for end, y, x, text, known in runs:
                step = None if at is None else _step(x - at[0], y - at[1])
                out.append(f"\x1b[{y + 1};{x + 1}H{text}" if step is None else step + text)
                at = (end, y) if known else None
        self._runs.clear()
        self._runs_bytes = 0
        self._changed.clear()

    @property
    def size(self) -> int:
        """Bytes written so far; those of collected changes are estimated."""
        parts = self._out[self._measured_parts :]
        self._measured += sum([len(part.encode()) for part in parts])
        self._measured_parts = len(self._out)
        return self._measured + self._runs_bytes

    def take(self) -> str:
        """Return the output, which ends in the terminal's default style, and empty the writer."""
        self.flush_changes()
        if not self._out:
            return ""
        text = "".join(self._out) + RESET
        self._out.clear()
        self._measured = self._measured_parts = 0
        self._style = None
        return text


def _starts(row: Row) -> Sequence[int]:
    """The first cell of each field, and the end of the row."""
    return [0, *accumulate(cell_width(text) for text, _ in row)]


@lru_cache(maxsize=4096)
def _step(columns: int, lines: int) -> str | None:
    """A relative cursor movement; ``None`` if an absolute one is shorter."""
    move = ""
    if lines:
        move = f"\x1b[{'' if abs(lines) == 1 else abs(lines)}{'B' if lines > 0 else 'A'}"
    if 0 > columns >= -_BACKSPACES:
        move += "\b" * -columns
    elif columns:
        move += f"\x1b[{'' if abs(columns) == 1 else abs(columns)}{'C' if columns > 0 else 'D'}"
    return move if len(move) <= _MOVE_BYTES else None
