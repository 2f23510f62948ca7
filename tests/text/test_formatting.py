"""Names and command lines of other people, on a screen."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.text.formatting import (
    cell_width,
    duration,
    fit,
    fit_right,
    memory_size,
    per_second,
    printable,
)

hostile = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=60)


@given(hostile)
def test_nothing_printable_moves_the_cursor_or_hides(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(character)[0] in "CM" for character in shown)
    assert not any(character.isspace() and character != " " for character in shown)
    assert all(cell_width(character) in (1, 2) for character in shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python train.py", "python train.py"),
        ("a\x1b[31mred\x07", "a\ufffd[31mred\ufffd"),
        ("a\tb\nc", "a b c"),
        ("\u202etxt.exe", "\ufffdtxt.exe"),
        ("zero\u200bwidth", "zero\ufffdwidth"),
        ("e\u0301", "é"),
        ("模型", "模型"),
        ("名\u1161\u3164a🏽", "名a"),
        ("lone \udc80", "lone \ufffd"),
    ],
)
def test_what_is_shown_of_a_hostile_text(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(hostile.map(printable), st.integers(0, 70))
def test_a_fitted_text_takes_exactly_its_cells(text: str, width: int) -> None:
    assert cell_width(fit(text, width)) == width
    assert cell_width(fit_right(text, width)) == width


def test_a_cut_is_marked_and_short_text_is_not() -> None:
    assert fit("abcdef", 4) == "abc…"
    assert fit("abcd", 4) == "abcd"
    assert fit("模型模型", 4) == "模… "
    assert fit_right("ab", 4) == "  ab"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (11520, "3h12m"),
        (86400 * 5 + 4 * 3600, "5d04h"),
    ],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0B"),
        (500 * 2**10, "500K"),
        (380 * 2**20, "380M"),
        (1023 * 2**20, "1.0G"),
        (int(9.1 * 2**30), "9.1G"),
        (1200 * 2**30, "1.2T"),
    ],
)
def test_sizes_keep_to_five_characters(size: int | None, text: str) -> None:
    assert memory_size(size) == text
    assert len(text) <= 5


@pytest.mark.slow
def test_every_character_is_measured_as_the_screen_measures_it_and_only_visible_ones_stay() -> None:
    basic, others = range(0x10000), range(0x10000, sys.maxunicode + 1, 101)
    for character in map(chr, (*basic, *others)):
        shown = printable(character)
        assert cell_width(shown) == cell_len(shown), ascii(character)
        assert not shown or unicodedata.category(shown)[0] in "LNPSZ", ascii(character)
        assert shown == " " or not shown.isspace(), ascii(character)
        assert unicodedata.normalize("NFC", shown) == shown
    assert cell_width("a訓b") == 4, "what stands between is measured too"


def test_the_table_is_imported_for_text_that_needs_it_only() -> None:
    program = (
        "import sys; from gpumon.text.formatting import cell_width;"
        "print(cell_width('▸ 61 °C – é ⣿ █ │ …'), 'rich' in sys.modules);"
        "print(cell_width('訓練'), 'rich' in sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert output == "19 False\n4 True\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.001, "<0.1"),
        (0.42, "0.4"),
        (3.0, "3"),
        (9.97, "10"),
        (540.4, "540"),
        (9_999.4, "9999"),
        (9_999.6, "10.0k"),
        (99_949.0, "99.9k"),
        (123_456.0, "123k"),
        (999_600.0, "1.0M"),
    ],
)
def test_a_rate_is_short_and_only_nothing_is_0(value: float | None, text: str) -> None:
    assert per_second(value) == text
