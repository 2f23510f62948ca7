"""Which rows are sent first where the terminal is slow, and what becomes of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.ui.terminal.cell_writer import CellWriter, RowPainter
from gpumon.ui.terminal.styles import SgrStyle, SgrStyles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.text.cells import Row

STYLES = SgrStyles({"": SgrStyle(), "cursor": SgrStyle(reverse=True)})
WIDTH, LINES = 12, 6


class Writer(CellWriter):
    """Records which lines are written."""

    def __init__(self) -> None:
        super().__init__(STYLES)
        self.written: list[int] = []

    def place(self, row: Row, x: int, y: int) -> None:
        self.written.append(y)
        super().place(row, x, y)

    def change(
        self, before: Row, row: Row, x: int, y: int, starts: Sequence[int] | None = None
    ) -> Sequence[int] | None:
        self.written.append(y)
        return super().change(before, row, x, y, starts)


class Shown:
    """Rows that are painted frame by frame."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.limited = False
        self.room = LINES
        self._painter = RowPainter(LINES)

    def frame(self, rows: list[Row]) -> list[int]:
        """The lines that are written of a frame, in their order."""
        self.writer.written.clear()
        self._painter.paint(rows, self.writer, full=self._full if self.limited else None)
        return list(self.writer.written)

    def _full(self) -> bool:
        return len(self.writer.written) >= self.room


def rows(text: str, cursor: int | None = None) -> list[Row]:
    style = ["cursor" if y == cursor else "" for y in range(LINES)]
    return [((f"{text}{y}".ljust(WIDTH), style[y]),) for y in range(LINES)]


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_on_a_fast_line_rows_are_sent_from_the_top_down(shown: Shown) -> None:
    assert shown.frame(rows("a", 1)) == [0, 1, 2, 3, 4, 5]
    assert shown.frame(rows("b", 4)) == [0, 1, 2, 3, 4, 5]


def test_on_a_slow_line_the_cursor_comes_first_then_its_old_row(shown: Shown) -> None:
    shown.frame(rows("a", 1))
    shown.limited = True
    assert shown.frame(rows("b", 4)) == [4, 1, 0, 2, 3, 5]
    assert shown.frame(rows("c", 2)) == [2, 4, 0, 1, 3, 5]
    assert shown.frame(rows("d", 2)) == [2, 0, 1, 3, 4, 5]


def test_on_a_slow_line_rows_that_moved_with_the_cursor_come_first(shown: Shown) -> None:
    shown.frame(rows("a", 5))
    shown.writer.take()
    shown.limited = True
    shown.frame(rows("b", 4))
    frame = shown.writer.take()
    assert frame.index("b4") < frame.index("b5") < frame.index("\x1b[1;1H")


def test_pending_rows_come_first_in_the_next_frame_after_the_cursor(shown: Shown) -> None:
    shown.frame(rows("a", 0))
    shown.limited, shown.room = True, 3
    assert shown.frame(rows("b", 0)) == [0, 1, 2]
    assert shown.frame(rows("c", 0)) == [0, 3, 4]
    assert shown.frame(rows("d", 0)) == [0, 5, 1]


def test_pending_rows_are_sent_once(shown: Shown) -> None:
    shown.frame(rows("a", 0))
    shown.limited, shown.room = True, 4
    assert shown.frame(rows("b", 5)) == [5, 0, 1, 2]
    assert shown.frame(rows("b", 5)) == [3, 4]
    assert shown.frame(rows("b", 5)) == []
