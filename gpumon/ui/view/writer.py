"""Rows of cells as terminal output, and of rows that changed only what did.

A tick's changes are many short runs of cells, a digit or two each, in a handful of looks. What a
line carries is then mostly colours and moves of the cursor, so the changes of a frame are written
look by look and down the columns: a colour is told once, and the next row's digit is a step away.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.text.formatting import cell_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.text.cells import Row

# Moving the cursor within a row costs about four bytes: nearer runs are cheaper written through.
_GAP = 5
_BACKSPACES = 3
"""So many are shorter than a sequence."""

_BRAILLE = frozenset(map(chr, range(0x2800, 0x2900)))

_MOVE_BYTES, _COLOUR_BYTES = 6, 20
"""What they take, about."""

RESET = "\x1b[0m"

_Run: TypeAlias = tuple[int, int, int, str, bool]
"""Where it ends and its line, its first cell and its text; whether the cursor stands at its end."""


class SgrStyle(Struct, frozen=True):
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


class SgrStyles:
    """How to get from one style to another with the fewest bytes.

    Args:
        inks: Style name -> what it looks like.

    Attributes:
        alike: Style name -> the first style of the same look.
    """

    def __init__(self, inks: Mapping[str, SgrStyle]) -> None:
        self._inks = inks
        firsts: dict[SgrStyle, str] = {}
        self.alike = {style: firsts.setdefault(ink, style) for style, ink in inks.items()}
        self._changes: dict[tuple[str | None, str], str] = {}
        self._covers: dict[tuple[str, str], bool] = {}

    def change(self, before: str | None, after: str) -> str:
        """The escape sequence, perhaps empty, that makes ``after`` of ``before``.

        Args:
            before: The style in force; ``None`` is the terminal's own.
            after: The style of the text that follows.
        """
        key = (before, after)
        known = self._changes.get(key)
        if known is None:
            known = self._changes[key] = self._find(before, after)
        return known

    def fits(self, text: str, style: str, look: str) -> bool:
        """Whether a text of one style looks the same in another: of blanks only the ground shows.

        Args:
            text: The text.
            style: Its style.
            look: One of the styles that ``alike`` leads to.
        """
        if self.alike[style] == look:
            return True
        if text and not text.isspace():
            return False
        known = self._covers.get((look, style))
        if known is None:
            old, new = self._inks[look], self._inks[style]
            known = old.ground == new.ground and not (old.reverse or new.reverse)
            self._covers[look, style] = known
        return known

    def _find(self, before: str | None, after: str) -> str:
        old = SgrStyle() if before is None else self._inks[before]
        new = self._inks[after]
        codes: list[str] = []
        if old.bold != new.bold:
            codes.append("1" if new.bold else "22")
        if old.reverse != new.reverse:
            codes.append("7" if new.reverse else "27")
        if old.fore != new.fore:
            codes.append(new.fore or "39")
        if old.ground != new.ground:
            codes.append(new.ground or "49")
        return f"\x1b[{';'.join(codes)}m" if codes else ""


class CellWriter:
    """Turns cells into terminal output, a frame at a time.

    Whole rows are written as they come, what changed in others after them, in whatever order takes
    the fewest bytes.
    """

    def __init__(self, inks: SgrStyles) -> None:
        self._inks = inks
        self._out: list[str] = []
        # The style in force after that; None is the terminal's own.
        self._style: str | None = None
        # What changed besides, by its look; and in which lines of the screen.
        self._runs: dict[str, list[_Run]] = {}
        self._changed: set[int] = set()
        self._measured, self._measured_parts = 0, 0

    def place(self, row: Row, x: int, y: int) -> None:
        """Write a whole row at its place.

        Args:
            row: What it shows now.
            x: Column of its first cell on screen, from 0.
            y: Its line on screen, from 0.
        """
        if y in self._changed:
            self.settle()
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
        fits = self._inks.fits
        # Of each run its look, its first cell, its text and its end.
        found: list[tuple[str, int, str, int]] = []
        # How many fields have been looked at, and what is left of the last one in the last run.
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
                look, begin, written, reached = found[-1]
                if at + first - reached < _GAP and fits(text[:last], style, look):
                    between = (rest, *row[done:place])
                    if all(fits(passed, name, look) for passed, name in between):
                        written += "".join([passed for passed, _ in between]) + text[:last]
                        found[-1] = look, begin, written, end
                        done, rest = place + 1, (text[last:], style)
                        continue
            piece = text[first:last]
            found.append((self._look(piece, style), at + first, piece, end))
            done, rest = place + 1, (text[last:], style)
        if found:
            if y in self._changed:
                self.settle()
            self._changed.add(y)
            edge = starts[-1]
            for look, begin, text, end in found:
                # At the edge of the screen the cursor waits, and what is neither ASCII nor braille
                # may take more cells of a terminal than it should.
                known = end < edge and (text.isascii() or _BRAILLE.issuperset(text))
                run = x + end, y, x + begin, text, known
                if look in self._runs:
                    self._runs[look].append(run)
                else:
                    self._runs[look] = [run]
        return starts

    def _look(self, text: str, style: str) -> str:
        """In which look a text is written: blanks in one that others have anyway."""
        if text.isspace():
            for look in self._runs:
                if self._inks.fits(text, style, look):
                    return look
        return self._inks.alike[style]

    def row(self, row: Row) -> None:
        """Write a whole row where the cursor stands."""
        for text, style in row:
            if self._style is None or not self._inks.fits(text, style, self._style):
                self._dip(style)
            self._out.append(text)

    def _dip(self, style: str) -> None:
        """Have a style in force."""
        look = self._inks.alike[style]
        change = self._inks.change(self._style, look)
        self._style = look
        if change:
            self._out.append(change)

    def settle(self) -> None:
        """Have all that was written come before what follows."""
        out = self._out
        at: tuple[int, int] | None = None
        for look, runs in self._runs.items():
            self._dip(look)
            # Down the columns: numbers end one below the other.
            runs.sort()
            for end, y, x, text, known in runs:
                step = None if at is None else _step(x - at[0], y - at[1])
                out.append(f"\x1b[{y + 1};{x + 1}H{text}" if step is None else step + text)
                at = (end, y) if known else None
        self._runs.clear()
        self._changed.clear()

    @property
    def size(self) -> int:
        """Bytes that were written so far; of changes about."""
        parts = self._out[self._measured_parts :]
        self._measured += sum([len(part.encode()) for part in parts])
        self._measured_parts = len(self._out)
        changes = sum(
            _COLOUR_BYTES + sum([_MOVE_BYTES + len(text.encode()) for _, _, _, text, _ in runs])
            for runs in self._runs.values()
        )
        return self._measured + changes

    def take(self) -> str:
        """All that was written, ending in the terminal's own style; the writer is empty then."""
        self.settle()
        if not self._out:
            return ""
        text = "".join(self._out) + RESET
        self._out.clear()
        self._measured = self._measured_parts = 0
        self._style = None
        return text


def _starts(row: Row) -> Sequence[int]:
    """In which of a row's cells its fields begin, and where it ends."""
    return [0, *accumulate(cell_width(text) for text, _ in row)]


@lru_cache(maxsize=4096)
def _step(columns: int, lines: int) -> str | None:
    """The way to a cell so far to the right and below; ``None`` where it is shorter to name it."""
    way = ""
    if lines:
        way = f"\x1b[{'' if abs(lines) == 1 else abs(lines)}{'B' if lines > 0 else 'A'}"
    if 0 > columns >= -_BACKSPACES:
        way += "\b" * -columns
    elif columns:
        way += f"\x1b[{'' if abs(columns) == 1 else abs(columns)}{'C' if columns > 0 else 'D'}"
    return way if len(way) <= _MOVE_BYTES else None
