"""What stands for a glyph where the terminal does not show it."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpumon
from gpumon.text.charset import (
    CONSOLE,
    SUBSTITUTE,
    SUBSTITUTES,
    codeset_of,
    substitute,
    take_stream,
)
from gpumon.text.formatting import cell_width, fit, fit_right

PACKAGE = Path(gpumon.__file__).parent
_FULL_WIDTH = range(0xFF00, 0xFF5F)
"""Compared with what others wrote; never drawn."""


@pytest.mark.parametrize(
    ("environ", "codeset"),
    [
        ({}, "utf-8"),
        ({"LANG": "C.UTF-8"}, "utf-8"),
        ({"LANG": "de_DE.utf8"}, "utf-8"),
        ({"LANG": "C"}, "ascii"),
        ({"LANG": "POSIX"}, "ascii"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, "ascii"),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C", "LC_ALL": ""}, "ascii"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8"),
        ({"LANG": "de_DE.ISO-8859-1"}, "iso8859-1"),
        ({"LANG": "de_DE"}, "iso8859-1"),
        ({"LANG": "de_DE.ISO-8859-15@euro"}, "iso8859-15"),
        # These hold the glyphs twice as wide as they are measured.
        ({"LANG": "ja_JP.eucJP"}, "ascii"),
        ({"LANG": "zh_CN.GB18030"}, "ascii"),
        ({"LANG": "de_DE.nonsense"}, "ascii"),
        ({"TERM": "linux"}, CONSOLE),
        ({"TERM": "linux", "LANG": "C"}, "ascii"),
        ({"GPUMON_ASCII": "1"}, "ascii"),
        ({"GPUMON_ASCII": "0"}, "utf-8"),
    ],
)
def test_the_locale_says_what_a_terminal_shows(environ: dict[str, str], codeset: str) -> None:
    assert codeset_of(environ) == codeset


def drawn() -> set[str]:
    """Every character beyond ASCII in a text of the program: what it may draw, and more."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "charset.py":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set() if id(node) in docstrings else set(node.value)
    return {
        character
        for character in found
        if not character.isascii()
        and ord(character) not in _FULL_WIDTH
        and character != "\N{REPLACEMENT CHARACTER}"
    }


def test_an_empty_variable_counts_as_unset() -> None:
    # Python itself sets LC_CTYPE where the locale is C.
    code = "from gpumon.text.charset import codeset_of, environment as it; print(codeset_of(it()))"
    env = {**os.environ, "LC_CTYPE": "", "LANG": "C"}
    output = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
    assert output == "ascii\n"


@pytest.mark.slow
def test_every_glyph_that_is_drawn_has_a_substitute() -> None:
    missing = {glyph for glyph in drawn() if substitute(glyph) == "?"}
    assert not missing, "add these to SUBSTITUTES in gpumon/text/charset.py"


def test_every_picture_can_be_drawn_plainly_and_stays_as_wide() -> None:
    folder = Path(__file__).parents[1] / "ui" / "view" / "__snapshots__"
    pictures = [line for path in folder.glob("*.ambr") for line in path.read_text().splitlines()]
    assert pictures
    for line in pictures:
        plain = substitute(line)
        assert plain.isascii()
        assert plain.count("?") == line.count("?")
        assert len(plain) == cell_width(line)


def test_a_substitute_is_plain_and_as_wide_as_what_it_stands_for() -> None:
    braille = [chr(code) for code in range(0x2800, 0x2900)]
    for glyph in [*SUBSTITUTES, *braille, "ü", "字", "🙂"]:
        assert substitute(glyph).isascii()
        assert len(substitute(glyph)) == cell_width(glyph)
        shown = glyph.encode(CONSOLE).decode("utf-8")
        assert cell_width(shown) == cell_width(glyph)
        shown.encode("cp437")


def test_three_dots_are_as_wide_as_they_are_measured() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        take_stream(stream, "ascii")
        assert [cell_width(sign) for sign in "…≥–"] == [3, 2, 1]
        for width in range(30):
            for text in ("a rather long text", "a ‹rather› long text", "≥4m", "short"):
                for fitted in (fit(text, width), fit_right(text, width)):
                    written = fitted.encode("ascii", SUBSTITUTE).decode()
                    assert len(written) == cell_width(fitted) == width
        assert fit("a rather long text", 10).encode("ascii", SUBSTITUTE) == b"a rathe..."
        # A few cells are worth more than the dots.
        assert fit("a rather long text", 4).encode("ascii", SUBSTITUTE) == b"a r~"
        assert substitute("≥ 4 …") == ">= 4 ..."
    finally:
        take_stream(stream, "utf-8")
    assert [cell_width(sign) for sign in "…≥–"] == [1, 1, 1]


def test_the_console_keeps_the_lines_and_blocks_that_its_font_has() -> None:
    text = "│█▌▄░ °ü ▁▇▉ ● …"
    assert text.encode(CONSOLE).decode() == "│█▌▄░ °ü _██ * ~"


def test_a_stream_writes_what_the_locale_shows_and_question_marks_for_what_it_does_not() -> None:
    for codeset, written in (
        ("ascii", b"* J?rg ?? 90 C"),
        ("iso8859-1", b"* J\xfcrg ?? 90\xb0C"),
        ("utf-8", "● Jürg 字 90°C".encode()),
    ):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        take_stream(stream, codeset)
        stream.write("● Jürg 字 90°C")
        stream.flush()
        assert stream.buffer.getvalue() == written


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("86 °C, hot", "86 C , hot"),
        ("– °F", "- F "),
        ("86/90°C", "86/90 C"),
        ("   °C power", "    C power"),
        ("°C", " C"),
        ("90°", "90 "),
        ("…° ", "~  "),
    ],
)
def test_a_degree_leaves_one_space_before_its_unit_and_all_else_in_its_column(
    text: str, shown: str
) -> None:
    assert text.encode("ascii", SUBSTITUTE).decode() == shown
    assert len(shown) == cell_width(text)


def test_what_cannot_be_encoded_is_no_error_even_when_it_is_half_a_character() -> None:
    assert "\udc80".encode("ascii", SUBSTITUTE) in {b"", b"?"}
