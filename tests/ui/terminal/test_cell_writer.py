"""What of rows and of their differences reaches a terminal."""

from __future__ import annotations

import re
from itertools import pairwise

import pyte
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.themes.styles import BLACK, Rgb
from gpumon.text.cells import Row
from gpumon.text.formatting import fit, printable
from gpumon.ui.terminal.cell_writer import CellWriter
from gpumon.ui.terminal.styles import Colour, SgrStyle, SgrStyles

LIGHT = Rgb(200, 200, 200)
LOOKS = {
    "": SgrStyle(LIGHT, BLACK),
    "same": SgrStyle(LIGHT, BLACK),
    "bad": SgrStyle(Rgb(255, 0, 0), BLACK, bold=True),
    "bar": SgrStyle(Rgb(0, 0, 255), Rgb(30, 30, 30)),
    "cursor": SgrStyle(reverse=True),
    "picked": SgrStyle(LIGHT, BLACK, reverse=True),
}
INKS = SgrStyles(LOOKS)
WIDTH, LINES = 24, 4
FIELDS = (5, 7, 1, 11)

texts = st.text(st.sampled_from("ab 1█▏–\u28ff中文é\u1161\u3164🏽e\u0301"), max_size=12)
styles = st.sampled_from(["", "same", "bad", "bar", "cursor", "picked"])


@st.composite
def rows(draw: st.DrawFn, widths: tuple[int, ...] = FIELDS) -> Row:
    """A row of columns of fixed widths, wide characters and all."""
    return tuple((fit(printable(draw(texts)), width), draw(styles)) for width in widths)


any_rows = rows() | rows((5, 7, 4, 8)) | rows((12, 12))


class Terminal:
    """A terminal, and who writes to it."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(WIDTH, LINES)
        self.writer = CellWriter(INKS)
        self._stream = pyte.Stream(self.screen)

    def flush(self) -> None:
        self._stream.feed(self.writer.take())

    def place(self, *rows: Row) -> None:
        """Write whole rows, from the top."""
        for y, row in enumerate(rows):
            self.writer.place(row, 0, y)
        self.flush()

    def looks(self) -> list[tuple[object, ...]]:
        """What each cell shows; the colour of a blank does not show."""
        cells: list[tuple[object, ...]] = []
        for cell in (self.screen.buffer[y][x] for y in range(LINES) for x in range(WIDTH)):
            is_blank = not cell.data.strip() and not cell.reverse
            shown = (" ",) if is_blank else (cell.data, cell.fg, cell.bold)
            cells.append((*shown, cell.bg, cell.reverse))
        return cells


def looks(*rows: Row) -> list[tuple[object, ...]]:
    """What each cell shows where these rows are written whole."""
    terminal = Terminal()
    terminal.place(*rows)
    return terminal.looks()


def colour(shown: Colour) -> str:
    """As the terminal has it."""
    return shown.hex[1:] if isinstance(shown, Rgb) else "default"


@given(
    st.lists(st.tuples(st.text("a1 -\u28ff", min_size=1, max_size=6), styles), max_size=3), styles
)
def test_every_cell_of_a_row_looks_as_its_style_says(row: list[tuple[str, str]], last: str) -> None:
    row = [*row, (" ", last)]
    terminal = Terminal()
    terminal.place((), tuple(row))
    cells = [(character, LOOKS[style]) for text, style in row for character in text]
    for x, (character, ink) in enumerate(cells):
        shown = terminal.screen.buffer[1][x]
        assert (shown.data, shown.reverse, shown.bg) == (character, ink.reverse, colour(ink.ground))
        # Of a blank the colour and the weight do not show, unless it is made of them.
        if character != " " or ink.reverse:
            assert shown.fg == colour(ink.fore)
        if character != " ":
            assert shown.bold == ink.bold


@given(st.lists(any_rows, min_size=2, max_size=5))
def test_the_changed_cells_alone_make_the_old_row_look_like_the_new(course: list[Row]) -> None:
    patched, starts = Terminal(), None
    patched.place(course[0])
    for old, new in pairwise(course):
        starts = patched.writer.change(old, new, 0, 0, starts)
        patched.flush()
        assert patched.looks() == looks(new)


@given(rows())
def test_a_row_that_did_not_change_sends_nothing(row: Row) -> None:
    assert change_all([row], [tuple((str(text), style) for text, style in row)]) == ""


def _numbered(number: int) -> Row:
    """A row with numbers close to one another, of which what lies between does not change."""
    tens, ones = divmod(number, 10)
    return (
        *(("GPU ", ""), (f"{tens} ", ""), ("W", "bad"), (f"{ones}", "same"), (":x", "bad")),
        *((f"{ones}-{tens:5d}", "same"), ("%", "bar"), (f"{number:6d}", "")),
    )


digits = st.integers(0, 99).map(_numbered)


@given(
    st.lists(any_rows, min_size=LINES, max_size=LINES)
    | st.lists(digits, min_size=LINES, max_size=LINES),
    st.lists(
        st.lists(st.tuples(st.integers(0, LINES - 1), any_rows | digits, st.booleans())),
        max_size=4,
    ),
)
def test_the_rows_of_a_frame_are_told_in_any_order_and_each_ends_as_told_last(
    first: list[Row], frames: list[list[tuple[int, Row, bool]]]
) -> None:
    patched, shown = Terminal(), list(first)
    patched.place(*shown)
    for frame in frames:
        for y, row, whole in frame:
            if whole:
                patched.writer.place(row, 0, y)
            else:
                patched.writer.change(shown[y], row, 0, y)
            shown[y] = row
        patched.flush()
        assert patched.looks() == looks(*shown)


def table(numbers: list[int]) -> list[Row]:
    return [
        (
            *(("GPU ", ""), (f"{number:4d}", "bad"), (" W", ""), (f"{number:4d}", "")),
            *(("    /", ""), (f"{number:4d}", "same"), (".", "")),
        )
        for number in numbers
    ]


def change_all(old: list[Row], new: list[Row], writer: CellWriter | None = None) -> str:
    writer = writer or CellWriter(INKS)
    for y, (before, row) in enumerate(zip(old, new, strict=True)):
        writer.change(before, row, 0, y)
    return writer.take()


def test_a_colour_is_told_once_a_frame_and_the_next_line_is_a_step_away() -> None:
    frames = [table(numbers) for numbers in ([11, 22, 33, 44], [12, 27, 31, 48], [13, 29, 32, 49])]
    writer = CellWriter(INKS)
    for (old, new), down in zip(pairwise(frames), ("2718", "3929"), strict=True):
        text = change_all(old, new, writer)
        assert text.count("38;2;255;0;0") == text.count("38;2;200;200;200") == 1
        assert text.count("\x1b[B\b".join(down)) == 3
        assert len(text) < 150


def test_a_blank_is_left_to_a_look_that_is_there_anyway() -> None:
    text = change_all(
        [(("12", "bad"),), (("8", ""), ("x", ""))], [(("13", "bad"),), ((" ", ""), ("x", ""))]
    )
    assert "38;2;200;200;200" not in text


def test_after_what_may_be_wider_on_a_terminal_the_next_cell_is_named() -> None:
    old: list[Row] = [(("1", ""), ("-----", "")), (("1", ""), ("-----", ""))]
    for piece, named in (("▇", 2), ("中", 2), ("\u28c0", 1), ("2", 1)):
        rest = "-" * (3 if piece == "中" else 4)
        new: list[Row] = [(("1", ""), (f"{piece}{rest}", ""))] * 2
        assert len(re.findall(r"\x1b\[\d+;\d+H", change_all(old, new))) == named, piece


def changed(before: Row, after: Row) -> pyte.Screen:
    """A terminal with a row that was placed and changed in one frame."""
    terminal = Terminal()
    terminal.writer.place(before, 0, 0)
    terminal.writer.change(before, after, 0, 0)
    terminal.flush()
    return terminal.screen


def test_a_blank_that_stands_out_is_not_left_to_another_look() -> None:
    before: Row = (("12", ""), ("  ", ""), ("ab", ""))
    after: Row = (("13", ""), ("  ", "picked"), ("ab", ""))
    screen = changed(before, after)
    assert [x for x in range(6) if screen.buffer[0][x].reverse] == [2, 3]


def test_what_is_settled_comes_before_what_follows() -> None:
    old, new = table([11, 22, 33, 44]), table([12, 27, 31, 48])
    writer = CellWriter(INKS)
    writer.change(old[2], new[2], 0, 2)
    writer.flush_changes()
    alone = writer.take().removesuffix("\x1b[0m")
    for y in (2, 0, 1, 3):
        writer.change(old[y], new[y], 0, y)
        if y == 2:
            writer.flush_changes()
    assert writer.take().startswith(alone)


def test_the_size_is_that_of_what_will_be_written_about() -> None:
    old, new = table([11, 22, 33, 44]), table([12, 27, 31, 48])
    writer = CellWriter(INKS)
    assert writer.size == 0
    writer.place((("é", "bad"),), 0, 0)
    placed = writer.size
    assert placed == len(writer.take().encode()) - len("\x1b[0m")
    for y, (before, row) in enumerate(zip(old, new, strict=True)):
        size = writer.size
        writer.change(before, row, 0, y)
        assert writer.size > size
    about = writer.size
    assert 0.5 * about < len(writer.take().encode()) < 1.5 * about
    assert writer.size == 0


def test_one_changed_digit_sends_a_few_bytes() -> None:
    old: Row = (("GPU 0  ", ""), (" 47", ""), ("%", "bad"), (" " * 13, ""))
    new: Row = (("GPU 0  ", ""), (" 48", ""), ("%", "bad"), (" " * 13, ""))
    text = change_all([old], [new])
    assert "\x1b[1;10H" in text
    assert text.count("8") - text.count("48;") - text.count("38;") == 1
    assert len(text) < 60


def test_what_is_written_leaves_the_terminal_in_its_own_style() -> None:
    terminal = Terminal()
    terminal.place((("x" * 5, "bad"), (" " * 19, "cursor")))
    terminal.screen.cursor_position(1, 1)
    terminal.screen.draw("y")
    assert terminal.screen.buffer[0][0] == pyte.screens.Char("y")


def test_rows_of_other_shapes_are_written_whole() -> None:
    for old, new in (
        ((("ab", ""),), (("a", ""), ("b", ""))),
        ((("ab", ""), ("c", "")), (("a", ""), ("bc", ""))),
    ):
        assert "".join(text for text, _ in new) in change_all([old], [new])


def test_what_lies_between_two_changes_keeps_its_style() -> None:
    old: Row = (("1", ""), ("x b", "bad"), ("1", "bad"))
    new: Row = (("2", ""), ("  b", "bad"), ("2", "bad"))
    assert [changed(old, new).buffer[0][x].fg for x in (3, 4)] == ["ff0000", "ff0000"]


def test_near_changes_are_one_piece_whatever_their_style_is_called() -> None:
    old: Row = (("1", ""), ("1x", "same"), ("1", ""), ("1", "same"))
    new: Row = (("2", ""), ("2x", "same"), ("2", ""), ("3", "same"))
    assert change_all([old], [new]).endswith("m\x1b[1;1H22x23\x1b[0m")


def test_a_step_may_lead_up_and_back_and_on() -> None:
    text = change_all(
        [(("1", ""), (" " * 9, ""), ("1-", ""))], [(("2", ""), (" " * 9, ""), ("3-", ""))]
    )
    assert text.endswith("m\x1b[1;1H2\x1b[9C3\x1b[0m")
    old: list[Row] = [(("11111", ""), ("-", ""))] * LINES
    new: list[Row] = [(("11112", ""), ("-", "")), *old[1:-1], (("11131", ""), ("-", ""))]
    assert change_all(old, new).endswith("m\x1b[4;4H3\x1b[3A2\x1b[0m")
    new = [(("11121", ""), ("-", "")), *old[1:-1], (("11113", ""), ("-", ""))]
    assert change_all(old, new).endswith("m\x1b[1;4H2\x1b[3B3\x1b[0m")
