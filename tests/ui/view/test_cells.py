"""Rows, bars and graphs of cells, and what was drawn is kept while it would be drawn the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.text.cells import bar, bar_style, braille, fill, row_width, spark
from gpumon.text.formatting import cell_width, printable
from gpumon.ui.view.frame import Memo

texts = st.text(st.sampled_from("ab 1█▏–中文é\u1161\u3164🏽e\u0301"), max_size=12)
styles = st.sampled_from(["", "bad", "bar", "cursor"])


@given(st.lists(st.tuples(texts.map(printable), styles)), st.integers(0, 40))
def test_a_filled_row_is_exactly_as_wide_as_asked(
    fields: list[tuple[str, str]], width: int
) -> None:
    assert row_width(fill(fields, width)) == width


def test_a_bar_shows_the_least_that_is_and_never_more_than_all() -> None:
    shares = (None, -1.0, 0.0, 0.0001, 0.5, 0.65, 1.0, 7.0)
    assert [bar(share, 4) for share in shares] == [
        *("    ", "    ", "    ", "▁   ", "▇▇  ", "▇▇▇ ", "▇▇▇▇", "▇▇▇▇")
    ]
    assert bar(0.5, 0) == ""


def test_zero_is_blank_in_a_small_graph_and_unknown_is_a_dot() -> None:
    assert spark([None, 0.0, 0.4, 0.5, 100.0], 100.0) == "·  ▁▇"


def test_unknown_is_a_gap_and_zero_is_a_line_in_a_large_graph() -> None:
    assert braille([0.0, None, 100.0, 100.0], 100.0, 2, 2) == ["\u2800⣿", "⡀⣿"]


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=50), st.integers(1, 30), st.integers(1, 8))
def test_a_graph_has_the_size_it_was_asked_for(
    values: list[float | None], width: int, height: int
) -> None:
    lines = braille(values, 1e9, width, height)
    assert len(lines) == height
    assert all(len(line) == cell_width(line) == width for line in lines)


def test_a_bar_changes_its_look_at_half_and_at_nine_tenths_and_never_when_unknown() -> None:
    looks = {"bar.util.low": (0.0, 0.49), "bar.util": (0.5, 0.89), "bar.util.high": (0.9, 1.0)}
    for look, values in looks.items():
        assert [bar_style("bar.util", value) for value in values] == [look, look]
    assert bar_style("bar.memory", None) == "bar.memory"


def test_a_function_is_called_again_only_when_an_argument_has_changed() -> None:
    called: list[tuple[int, ...]] = []

    def total(*numbers: int) -> int:
        called.append(numbers)
        return sum(numbers)

    memo = Memo()
    asked = ((1, 2), (1, 2), (1, 3), (1, 2))
    assert [memo(total, *numbers) for numbers in asked] == [3, 3, 4, 3]
    assert called == [(1, 2), (1, 3), (1, 2)]


def test_with_a_key_of_its_own_a_result_lasts_as_long_as_the_key() -> None:
    memo = Memo()
    asked = ((7, 1.0), (7, 1.5), (8, 2.0))
    assert [memo.by(second, str, value) for second, value in asked] == ["1.0", "1.0", "2.0"]
    assert memo.newest(str) == "2.0"
    assert memo.newest(int) is None


def test_a_thing_among_several_has_results_of_its_own_until_it_is_gone() -> None:
    memo, made = Memo(), []

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    for _ in range(3):
        assert [memo.part(name)(make, name) for name in ("a", "b")] == ["A", "B"]
    assert made == ["a", "b"]
    memo.keep(["b", "never drawn"])
    assert [memo.part(name)(make, name) for name in ("a", "b")] == ["A", "B"]
    assert made == ["a", "b", "a"]
