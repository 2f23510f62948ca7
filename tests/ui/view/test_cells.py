"""Rows, bars and graphs of cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.text.cells import bar, bar_style, braille, fill, row_width, spark
from gpumon.text.formatting import cell_width, printable

texts = st.text(st.sampled_from("ab 1█▏–中文é\u1161\u3164🏽e\u0301"), max_size=12)
styles = st.sampled_from(["", "bad", "bar", "cursor"])


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


def test_zero_is_blank_in_a_small_graph_and_unknown_is_a_dot() -> None:
    assert spark([None, 0.0, 0.4, 0.5, 100.0], 100.0) == "·  ▁▇"


def test_unknown_is_a_gap_and_zero_is_a_line_in_a_large_graph() -> None:
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
