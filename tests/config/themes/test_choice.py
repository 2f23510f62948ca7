"""Which theme is taken: command line, environment, remembered, configuration, default."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.config.themes import ThemeChoice, ThemeLibrary, choose_theme, remember
from gpumon.config.themes.library import VARIABLE
from tests.known import known


class Person:
    """One with a folder of themes and a memory, and nothing in the environment."""

    def __init__(self, folder: Path) -> None:
        self.library = ThemeLibrary(own=folder / "themes")
        self.memory = folder / "state" / "gpumon" / "theme"
        self.library.folder.mkdir()
        self.memory.parent.mkdir(parents=True)

    def choose(self, asked: str | None = None, configured: str | None = None) -> ThemeChoice:
        return choose_theme(asked, configured, library=self.library, memory=self.memory)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_each_wins_over_the_next(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    assert person.choose().name == "gpumon"
    assert person.choose(configured="mono").name == "mono"
    assert remember("amber", person.memory) is None
    assert person.choose(configured="mono").name == "amber"
    monkeypatch.setenv(VARIABLE, "dusk")
    assert person.choose(configured="mono").name == "dusk"
    choice = person.choose("nord", "mono")
    assert (choice.name, choice.file, choice.sentences) == ("nord", None, ())
    monkeypatch.setenv(VARIABLE, "")
    person.memory.write_text("\n")
    choice = person.choose(configured="mono")
    assert (choice.name, choice.sentences) == ("mono", ())


def test_a_variable_is_blamed_once(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "drakula")
    # What the configuration comes to has the variable in it.
    (sentence,) = person.choose(configured="drakula").sentences
    assert sentence.startswith(VARIABLE)


def test_a_name_from_elsewhere_that_is_none_is_passed_over_and_told(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "drakula")
    remember("../amber", person.memory)
    choice = person.choose(configured="mono")
    assert choice.name == "mono"
    environment, memory = choice.sentences
    assert environment == "GPUMON_THEME: there is no theme 'drakula'; the nearest is 'dracula'."
    assert "the saved theme: there is no theme '../amber'" in memory


def test_a_file_that_cannot_be_used_gives_way_to_the_default(person: Person) -> None:
    for asked in ("mine", "gpumon"):
        path = person.library.folder / f"{asked}.toml"
        path.write_text('base = "gpumon"\n[dashboard]\ngod = ""')
        choice = person.choose(asked)
        assert choice.name == "gpumon"
        assert choice.file == person.library.default()
        assert "'dashboard.god'; the nearest is 'good'" in choice.sentences[0]


def test_ones_own_theme_of_the_defaults_name_is_the_default(person: Person) -> None:
    path = person.library.folder / "gpumon.toml"
    path.write_text('base = "gpumon"\n[dashboard]\nuser = "#123456"\n')
    assert known(person.choose().file).dashboard["user"] == "#123456"
    path.write_text("broken")
    choice = person.choose()
    assert choice.file == person.library.default()
    assert len(choice.sentences) == 1


def test_of_many_faults_one_is_told_and_where_the_others_are(person: Person) -> None:
    (person.library.folder / "mine.toml").write_text("")
    (sentence,) = person.choose("mine").sentences
    assert "colours.primary is missing" in sentence
    assert sentence.endswith("gpumon theme check reports 35 more.")


def test_a_memory_that_cannot_be_decoded_is_no_crash(person: Person) -> None:
    person.memory.write_bytes(b"\xff\xfe")
    assert person.choose().name == "gpumon"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_memory_that_is_no_file_is_no_crash_and_not_waited_for(
    person: Person, make: Callable[[Path], None]
) -> None:
    make(person.memory)
    assert person.choose().name == "gpumon"
    assert str(person.memory) in known(remember("amber", person.memory))


def test_a_memory_without_an_end_is_not_read_to_its_end(person: Person) -> None:
    person.memory.symlink_to("/dev/zero")
    (sentence,) = person.choose().sentences
    assert "there is no theme" in sentence
    assert len(sentence) < 2000


def test_a_disk_that_is_full_is_told_when_a_theme_is_to_be_remembered(person: Person) -> None:
    person.memory.symlink_to("/dev/full")
    assert remember("amber", person.memory) == (
        f"The theme is not saved: {person.memory} cannot be written: No space left on device."
    )


def test_names_of_ones_own_themes_that_are_proposed_move_no_cursor(person: Person) -> None:
    (person.library.folder / "\x1b[2J.toml").write_text('base = "gpumon"\n')
    (sentence,) = person.choose(configured="zzzzzzzz").sentences
    assert "[2J" in sentence
    assert sentence.isprintable()


def test_a_file_of_ones_own_goes_over_textuals_theme_of_that_name(person: Person) -> None:
    assert person.choose("nord").file is None
    (person.library.folder / "nord.toml").write_text('base = "gpumon"\n')
    assert person.choose("nord").file is not None


def test_a_theme_whose_file_has_no_readable_name_is_remembered_too(person: Person) -> None:
    name = os.fsdecode(b"mine\xff")
    (person.library.folder / f"{name}.toml").write_text('base = "gpumon"\n')
    assert remember(name, person.memory) is None
    assert person.choose().name == name
