"""Theme files are checked before use; what is wrong is said with file, key and what to write."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpumon.config.themes import DEFAULT, ThemeError, ThemeLibrary
from gpumon.config.themes.files import COLOURS, read_file
from gpumon.config.themes.styles import DASHBOARD, DRAWN, LEAST_CONTRAST, contrast, resolve_styles
from tests.command import run_program


@pytest.fixture
def library(tmp_path: Path) -> ThemeLibrary:
    return ThemeLibrary(own=tmp_path)


def faults(library: ThemeLibrary, text: str | bytes, name: str = "mine") -> tuple[str, ...]:
    """What is said of a theme of one's own."""
    path = library.folder / f"{name}.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ThemeError) as raised:
        library.read(name)
    for sentence in raised.value.sentences:
        assert str(path) in sentence
        assert sentence.endswith(".")
        assert sentence.isprintable()
    return raised.value.sentences


def test_three_lines_make_a_theme(library: ThemeLibrary) -> None:
    (library.folder / "mine.toml").write_text('base = "gpumon"\n[dashboard]\nmemory = "#F80"\n')
    mine, default = library.read("mine"), library.default()
    assert mine.dashboard == {**default.dashboard, "memory": "#ff8800"}
    assert mine.colours == default.colours
    assert mine.dark
    assert [Path(path).stem for path in mine.paths] == ["mine", "gpumon"]


def test_light_and_dark_follow_from_the_ground(library: ThemeLibrary) -> None:
    (library.folder / "day.toml").write_text('base = "gpumon"\n[colours]\nbackground = "#fff"\n')
    assert not library.read("day").dark


def test_a_theme_may_build_on_one_of_ones_own_and_on_its_namesake(library: ThemeLibrary) -> None:
    (library.folder / "gpumon.toml").write_text('base = "gpumon"\n[dashboard]\nuser = "#123456"\n')
    (library.folder / "next.toml").write_text('base = "gpumon"\n[dashboard]\ngood = "#654321"\n')
    assert library.read("next").dashboard["user"] == "#123456"
    assert library.default().dashboard["user"] != "#123456"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base = "gpumon"\n[dashboard]\nmemry = "#fff"', "'dashboard.memry'; the nearest is 'memo"),
        ('base = "gpumon"\n[dashbord]\nmemory = "#fff"', "'dashbord'; the nearest is 'dashboard'"),
        ('base = "gpumon"\nmemory = "#fff"', "'memory'; write it below [dashboard]"),
        ('base = "gpumon"\n[colours]\npanel = "blue"', "colours.panel is 'blue', which is no"),
        ('base = "gpumon"\n[colours]\npanel = "#12345"', "colours.panel is '#12345', which is no"),
        ('base = "gpumon"\n[colours]\npanel = "#11223344"', "is '#11223344', which is no colour"),
        ('base = "gpumon"\n[colours]\npanel = 7', "colours.panel must be a text, such as"),
        pytest.param(f"[colours]\npanel = 0x{'f' * 5000}", "must be a text", id="long hex"),
        ('base = "gpumon"\n[colours]\n"\\u001b[2J" = "#fff"', "unknown key"),
        ('base = "gpomon"', "base is 'gpomon', which is no theme file; the nearest is 'gpumon'"),
        ('base = "nord"', "base is 'nord', which is no theme file"),
        ('base = "../mine"', "base is '../mine', which is no theme file"),
        ('base = "mine"', "base refers back to this file"),
        ("base = 3", "base must be a text"),
        ("colours = 3", "colours must be a table"),
        ("[colours", "is not TOML: "),
        pytest.param(f"base = {'9' * 5000}", "is not TOML: ", id="long number"),
        pytest.param(f"base = {'[' * 5000}{']' * 5000}", "is nested too deeply", id="nested"),
        (b"\xff\xfe", "is not UTF-8: save it as UTF-8"),
        (b"#" * 200_000, "too long"),
    ],
)
def test_what_is_wrong_is_said(library: ThemeLibrary, text: str | bytes, said: str) -> None:
    assert said in faults(library, text)[0]


def test_every_fault_is_named_at_once(library: ThemeLibrary) -> None:
    assert len(faults(library, "base = 3\n")) == 1, "without a base nothing else is known"
    said = faults(library, "[colours]\nprimary = 'x'\nsecondry = '#fff'\n")
    assert len(said) == 2 + len(COLOURS) - 1 + len(DASHBOARD)
    assert any("colours.secondary is missing" in sentence for sentence in said)
    assert any("dashboard.series6 is missing" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ('base = "mine"', r"mine\.toml, line 1: base refers back to this file"),
        ('base = "gpumon"\nmemory = 3', r"below\.toml, line 2: unknown key 'memory'"),
    ],
    ids=["a circle", "a fault"],
)
def test_what_is_wrong_in_the_theme_below_is_found(
    library: ThemeLibrary, below: str, told: str
) -> None:
    (library.folder / "below.toml").write_text(below)
    (library.folder / "mine.toml").write_text('base = "below"')
    with pytest.raises(ThemeError, match=told):
        library.read("mine")


def test_what_a_theme_says_of_itself_moves_no_cursor(library: ThemeLibrary) -> None:
    (library.folder / "mine.toml").write_text('base = "gpumon"\nabout = "\\u001b[2J"\n')
    assert library.read("mine").about == "\N{REPLACEMENT CHARACTER}[2J"


def test_names_of_files_are_told_without_what_moves_the_cursor(library: ThemeLibrary) -> None:
    (library.folder / "mine\x1b[2J.toml").write_text('base = "none of these"\n')
    with pytest.raises(ThemeError) as raised:
        library.read("mine\x1b[2J")
    assert str(raised.value).count("mine\N{REPLACEMENT CHARACTER}[2J") == 2
    assert str(raised.value).isprintable()


def test_a_folder_or_a_link_to_nowhere_is_no_theme(library: ThemeLibrary) -> None:
    (library.folder / "folder.toml").mkdir()
    (library.folder / "gone.toml").symlink_to(library.folder / "nothing")
    for name in ("folder", "gone"):
        with pytest.raises(ThemeError, match="no such theme file"):
            library.read(name)


def test_names_come_with_ones_own_first_and_each_once(library: ThemeLibrary) -> None:
    (library.folder / "mono.toml").write_text('base = "gpumon"')
    (library.folder / "notes.txt").write_text("no theme")
    (library.folder / ".toml").write_text("no name")
    names = library.names()
    assert names[:2] == ["mono", DEFAULT]
    assert len(names) == len(set(names))
    assert "nord" in names
    assert "notes" not in names
    assert "" not in names


def test_a_name_that_is_a_path_is_no_theme(library: ThemeLibrary) -> None:
    (library.folder.parent / "outside.toml").write_text('base = "gpumon"')
    with pytest.raises(ThemeError, match="There is no theme"):
        library.read("../outside")
    assert "is no theme file" in faults(library, 'base = "../outside"')[0]


def test_a_file_that_may_not_be_read_is_told(library: ThemeLibrary) -> None:
    # Root may read what has no permissions; nobody may read a process's memory at 0 this way.
    (library.folder / "mine.toml").symlink_to("/proc/self/mem")
    with pytest.raises(ThemeError, match="cannot be read: Input/output error; check"):
        library.read("mine")


def test_of_a_huge_file_no_more_is_read_than_a_theme_may_have(library: ThemeLibrary) -> None:
    path = library.folder / "mine.toml"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(ThemeError, match="is too long to be a theme"):
        library.read("mine")


def test_a_colour_that_the_file_gives_is_shown_as_it_was_given(library: ThemeLibrary) -> None:
    (library.folder / "mine.toml").write_text(
        'base = "gpumon"\n[colours]\nbackground = "#101010"\n[dashboard]\ndim = "#111111"'
    )
    assert resolve_styles(library.read("mine").variables)["dim"].fore.hex == "#111111"


def test_a_colour_that_is_made_of_others_can_be_read_whatever_they_are() -> None:
    found = resolve_styles({**dict.fromkeys(COLOURS, "#808080"), "background": "#7f7f7f"})
    for name, look in found.items():
        if not name.startswith(DRAWN):
            assert contrast(look.fore, look.ground) >= LEAST_CONTRAST, name


def test_gpumons_own_themes_are_read_without_a_reader_of_all_toml() -> None:
    program = (
        "import sys; before = set(sys.modules);"
        "from gpumon.config.themes import ThemeLibrary; shelf = ThemeLibrary();"
        "print(len([shelf.read(name) for name in shelf.shipped()]) > 2,"
        "{'tomllib', 'tomli', 'pathlib', 'difflib', 'platformdirs'} & (set(sys.modules) - before))"
    )
    assert run_program([sys.executable, "-c", program]).stdout == "True set()\n"


PIECES = (
    *('a = "x"', 'b="\u00fc#[ü]"', 'a  =   "y"', "[one]", "[two]", " [one] ", "# said", "", "\t"),
    *("a = 'x'", 'a.b = "x"', "c = 1", 'c = "\\t"', 'c = "x" # said', "[one.two]", "[[one]]"),
    *("\x0c", '\ufeffa = "x"', 'one = "x"', "\u00a0", "# \x7f", 'd = "\x7f"', '"e" = "x"'),
    *('f = "x', "\r", "\x0c"),
)


def what_is_read(lines: Sequence[str], ends: str) -> object:
    """The theme of these lines, or what is said of it without the numbers of its lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.toml")
        path.write_bytes(ends.join(lines).encode())
        try:
            return read_file(str(path))
        except ThemeError as error:
            return [
                re.sub(r"line \d+|is not TOML.*", "", said[len(folder) :])
                for said in error.sentences
            ]


@example(lines=["\r"], ends="\n")
@example(lines=["[one]", 'a = "x"', "[one]"], ends="\n")
@example(lines=['one = "x"', "[one]"], ends="\n")
@example(lines=['a = "x"', 'a = "x"'], ends="\n")
@given(lines=st.lists(st.sampled_from(PIECES), max_size=6), ends=st.sampled_from(["\n", "\r\n"]))
def test_what_is_read_without_one_is_what_it_would_read(lines: list[str], ends: str) -> None:
    # A tab in a comment is for the reader of all TOML. A byte order mark stays the first character.
    at = 1 if lines and lines[0].startswith("\ufeff") else 0
    assert what_is_read(lines, ends) == what_is_read([*lines[:at], "#\t#", *lines[at:]], ends)
