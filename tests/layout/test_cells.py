"""Rows, their differences, and what of them reaches a terminal."""

from __future__ import annotations

from itertools import pairwise

import pyte
from hypothesis import given
from hypothesis import strategies as st

from gpumon.layout.cells import (
    CellWriter,
    Ink,
    Inks,
    Row,
    bar,
    bar_style,
    braille,
    fill,
    row_width,
    spark,
)
from gpumon.text import cell_width, fit, printable

INKS = Inks(
    {
        "": Ink("38;2;200;200;200", "48;2;0;0;0"),
        "bad": Ink("38;2;255;0;0", "48;2;0;0;0", bold=True),
        "bar": Ink("38;2;0;0;255", "48;2;30;30;30"),
        "cursor": Ink(reverse=True),
    }
)
WIDTH = 24
FIELDS = (5, 7, 1, 11)

texts = st.text(st.sampled_from("ab 1█▏–中文é\u1161\u3164🏽e\u0301"), max_size=12)
styles = st.sampled_from(["", "bad", "bar", "cursor"])


@st.composite
def rows(draw: st.DrawFn, widths: tuple[int, ...] = FIELDS) -> Row:
    """A row of columns of fixed widths, wide characters and all."""
    return tuple((fit(printable(draw(texts)), width), draw(styles)) for width in widths)


def terminal() -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(WIDTH, 1)
    return screen, pyte.Stream(screen)


def looks(screen: pyte.Screen) -> list[tuple[object, ...]]:
    """What each cell shows; the colour of a blank does not show."""
    cells: list[tuple[object, ...]] = []
    for x in range(WIDTH):
        cell = screen.buffer[0][x]
        shown = (cell.data, cell.fg, cell.bold) if cell.data.strip() or cell.reverse else (" ",)
        cells.append((*shown, cell.bg, cell.reverse))
    return cells


@given(st.lists(rows() | rows((5, 7, 4, 8)) | rows((12, 12)), min_size=2, max_size=5))
def test_the_changed_cells_alone_make_the_old_row_look_like_the_new(course: list[Row]) -> None:
    patched, stream = terminal()
    writer = CellWriter(INKS)
    writer.place(course[0], 0, 0)
    stream.feed(writer.take())
    starts = None
    for old, new in pairwise(course):
        starts = writer.change(old, new, 0, 0, starts)
        stream.feed(writer.take())

        whole, other = terminal()
        writer.place(new, 0, 0)
        other.feed(writer.take())
        assert looks(patched) == looks(whole)


@given(rows())
def test_a_row_that_did_not_change_sends_nothing(row: Row) -> None:
    copy = tuple((str(text), style) for text, style in row)
    writer = CellWriter(INKS)
    writer.change(row, copy, 0, 0)
    assert writer.take() == ""


def test_one_changed_digit_sends_a_few_bytes() -> None:
    old: Row = (("GPU 0  ", ""), (" 47", ""), ("%", "bad"), (" " * 13, ""))
    new: Row = (("GPU 0  ", ""), (" 48", ""), ("%", "bad"), (" " * 13, ""))
    writer = CellWriter(INKS)
    writer.change(old, new, 0, 0)
    text = writer.take()
    assert "\x1b[1;10H" in text
    assert text.count("8") - text.count("48;") - text.count("38;") == 1
    assert len(text) < 60


def test_what_is_written_leaves_the_terminal_in_its_own_style() -> None:
    screen, stream = terminal()
    writer = CellWriter(INKS)
    writer.place((("x" * 5, "bad"), (" " * 19, "cursor")), 0, 0)
    stream.feed(writer.take() + "\x1b[1;1Hy")
    cell = screen.buffer[0][0]
    assert (cell.data, cell.fg, cell.bg, cell.bold, cell.reverse) == (
        "y",
        "default",
        "default",
        False,
        False,
    )


def test_rows_of_other_shapes_are_written_whole() -> None:
    for old, new in (
        ((("ab", ""),), (("a", ""), ("b", ""))),
        ((("ab", ""), ("c", "")), (("a", ""), ("bc", ""))),
    ):
        writer = CellWriter(INKS)
        writer.change(old, new, 0, 0)
        assert "".join(text for text, _ in new) in writer.take()


@given(st.lists(st.tuples(texts.map(printable), styles)), st.integers(0, 40))
def test_a_filled_row_is_exactly_as_wide_as_asked(
    fields: list[tuple[str, str]], width: int
) -> None:
    assert row_width(fill(fields, width)) == width


def test_a_bar_shows_the_least_that_is_and_never_more_than_all() -> None:
    assert bar(None, 4) == "    "
    assert bar(0.0, 4) == "    "
    assert bar(0.0001, 4) == "▁   "
    assert bar(0.5, 4) == "▇▇  "
    assert bar(0.65, 4) == "▇▇▇ "
    assert bar(1.0, 4) == "▇▇▇▇"
    assert bar(7.0, 4) == "▇▇▇▇"
    assert bar(-1.0, 4) == "    "
    assert bar(0.5, 0) == ""


def test_unknown_is_a_gap_and_zero_is_a_line() -> None:
    assert spark([None, 0.0, 100.0], 100.0) == " ▁▇"
    lines = braille([0.0, None, 100.0, 100.0], 100.0, 2, 2)
    assert lines == ["\u2800⣿", "⡀⣿"]


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=50), st.integers(1, 30), st.integers(1, 8))
def test_a_graph_has_the_size_it_was_asked_for(
    values: list[float | None], width: int, height: int
) -> None:
    lines = braille(values, 1e9, width, height)
    assert len(lines) == height
    assert all(len(line) == cell_width(line) == width for line in lines)


def test_a_bar_changes_its_look_at_half_and_at_nine_tenths_and_never_when_unknown() -> None:
    assert [bar_style("bar.util", value) for value in (0.0, 0.49, 0.5, 0.89, 0.9, 1.0)] == [
        *("bar.util.low", "bar.util.low"),
        *("bar.util", "bar.util"),
        *("bar.util.high", "bar.util.high"),
    ]
    assert bar_style("bar.memory", None) == "bar.memory"


def test_what_lies_between_two_changes_keeps_its_style() -> None:
    old: Row = (("1", ""), ("x b", "bad"), ("1", "bad"))
    new: Row = (("2", ""), ("  b", "bad"), ("2", "bad"))
    screen, stream = terminal()
    writer = CellWriter(INKS)
    writer.place(old, 0, 0)
    writer.change(old, new, 0, 0)
    stream.feed(writer.take())
    assert [screen.buffer[0][x].fg for x in (3, 4)] == ["ff0000", "ff0000"]
