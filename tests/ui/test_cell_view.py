"""Which rows are sent first where the terminal is slow, and what becomes of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from textual.geometry import Region

from gpumon.ui.view.cell_writer import CellWriter, SgrStyle, SgrStyles
from gpumon.ui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.text.cells import Row

INKS = SgrStyles({"": SgrStyle(), "cursor": SgrStyle(reverse=True)})
WIDTH, LINES = 12, 6
PLACE = Region(0, 0, WIDTH, LINES)


class Pen:
    """What a view writes with: room for so many rows a frame, and which ones were written."""

    def __init__(self) -> None:
        self.writer = Writer(self)
        self.limited = False
        self.room = LINES
        self.written: list[int] = []

    def full(self) -> bool:
        return len(self.written) >= self.room


class Writer(CellWriter):
    def __init__(self, renderer: Pen) -> None:
        super().__init__(INKS)
        self._renderer = renderer

    def place(self, row: Row, x: int, y: int) -> None:
        self._renderer.written.append(y)
        super().place(row, x, y)

    def change(
        self, before: Row, row: Row, x: int, y: int, starts: Sequence[int] | None = None
    ) -> Sequence[int] | None:
        self._renderer.written.append(y)
        return super().change(before, row, x, y, starts)


class Shown:
    """A view whose frames are written one by one."""

    def __init__(self) -> None:
        self.renderer = Pen()
        self.view = CellView(cast("Any", self.renderer))
        self.view._painted = [None] * LINES

    def frame(self, rows: list[Row]) -> list[int]:
        """The lines that are written of a frame, in their order."""
        self.renderer.written.clear()
        self.view.rows = rows
        self.view._write(PLACE)
        return list(self.renderer.written)


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
    shown.renderer.limited = True
    assert shown.frame(rows("b", 4)) == [4, 1, 0, 2, 3, 5]
    assert shown.frame(rows("c", 2)) == [2, 4, 0, 1, 3, 5]
    assert shown.frame(rows("d", 2)) == [2, 0, 1, 3, 4, 5]


def test_on_a_slow_line_rows_that_moved_with_the_cursor_come_first(shown: Shown) -> None:
    shown.frame(rows("a", 5))
    shown.renderer.writer.take()
    shown.renderer.limited = True
    shown.frame(rows("b", 4))
    frame = shown.renderer.writer.take()
    assert frame.index("b4") < frame.index("b5") < frame.index("\x1b[1;1H")


def test_pending_rows_come_first_in_the_next_frame_after_the_cursor(shown: Shown) -> None:
    shown.frame(rows("a", 0))
    shown.renderer.limited, shown.renderer.room = True, 3
    assert shown.frame(rows("b", 0)) == [0, 1, 2]
    assert shown.frame(rows("c", 0)) == [0, 3, 4]
    assert shown.frame(rows("d", 0)) == [0, 5, 1]


def test_pending_rows_are_sent_once(shown: Shown) -> None:
    shown.frame(rows("a", 0))
    shown.renderer.limited, shown.renderer.room = True, 4
    assert shown.frame(rows("b", 5)) == [5, 0, 1, 2]
    assert shown.frame(rows("b", 5)) == [3, 4]
    assert shown.frame(rows("b", 5)) == []
