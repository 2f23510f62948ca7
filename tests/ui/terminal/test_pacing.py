"""A slow terminal gets little at a time, and the cursor first; a fast one is hardly asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from gpumon.text.cells import Row
from gpumon.ui.terminal.cell_writer import CellWriter, RowPainter
from gpumon.ui.terminal.renderer import LEAST, MOST, Pacing
from gpumon.ui.terminal.styles import SgrStyle, SgrStyles


def heard() -> Pacing:
    pacing = Pacing()
    pacing.answered(0.0)
    return pacing


def write(pacing: Pacing, now: float, rate: float, latency: float = 0.001) -> tuple[float, float]:
    """Fill the room; returns how much it was, and when the answer came."""
    room = pacing.room(now)
    if pacing.wrote(int(room), now):
        now += room / rate + latency
        pacing.answered(now)
    return room, now


def test_a_terminal_that_never_answered_gets_whole_frames_and_no_query() -> None:
    pacing = Pacing()
    assert pacing.room(1.0) == math.inf
    assert not pacing.wrote(20_000, 1.0)


def test_until_the_answer_only_effects_of_keys_are_written() -> None:
    pacing = heard()
    assert pacing.room(1.0) == LEAST
    assert pacing.wrote(LEAST, 1.0)
    assert pacing.room(1.1) == 0
    assert pacing.room(1.1, interactive=True) == LEAST
    pacing.answered(1.2)
    assert pacing.room(1.2) > 0


def test_keys_that_are_held_down_do_not_pile_up() -> None:
    pacing = heard()
    pieces = 0
    while pacing.room(1.0, interactive=True):
        pacing.wrote(LEAST, 1.0)
        pieces += 1
    assert pieces == 3


def test_an_answer_that_is_lost_is_waited_for_a_second() -> None:
    pacing = heard()
    pacing.wrote(LEAST, 1.0)
    assert pacing.room(1.9) == 0
    assert pacing.room(2.0) == LEAST


@pytest.mark.parametrize(
    ("rate", "latency", "room"), [(10_000_000, 0.001, MOST), (1_000_000, 0.2, 4000)]
)
def test_a_fast_terminal_soon_gets_whole_frames_and_few_queries_however_distant(
    rate: float, latency: float, room: float
) -> None:
    pacing, now = heard(), 0.0
    for _ in range(12):
        _, now = write(pacing, now, rate, latency)
    assert room <= pacing.room(now) <= MOST
    assert sum(pacing.wrote(800, now) for _ in range(10)) == 0


def test_a_slow_terminal_never_has_more_in_transit_than_it_shows_at_once() -> None:
    pacing, now = heard(), 0.0
    pacing.wrote(20, now)
    pacing.answered(now + 0.002)
    rooms = []
    for _ in range(200):
        room, now = write(pacing, now, rate=20_000)
        rooms.append(room)
    assert sum(room > 2 * LEAST for room in rooms) == 0
    assert sum(room > LEAST for room in rooms) < len(rooms) / 4


def test_an_amount_too_large_for_a_slow_terminal_is_tried_ever_more_rarely() -> None:
    pacing, now = heard(), 0.0
    tries: list[float] = []
    while now < 60.0:
        began = now
        room, now = write(pacing, now, rate=20_000)
        if room > 2 * LEAST:
            tries.append(began)
    assert sum(at < 10.0 for at in tries) > 2 * sum(at > 40.0 for at in tries) > 0


def test_a_terminal_that_stops_answering_counts_as_silent() -> None:
    pacing = heard()
    assert not pacing.silent(100.0)
    pacing.wrote(LEAST, 100.0)
    assert not pacing.silent(100.9)
    # One answer may be lost; that is no silence where the next one comes.
    pacing.room(101.0)
    pacing.wrote(LEAST, 101.0)
    assert pacing.silent(101.1)
    pacing.answered(101.2)
    assert not pacing.silent(200.0)


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
