"""Themes in a terminal: chosen by looking, remembered, read anew when saved, never a crash."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpumon.config.themes import ThemeLibrary
from tests.command import GPUMON, run_program
from tests.demo import COARSE_DEMO
from tests.screen import Screen

READY = " 7 H100"
MINE = 'base = "gpumon"\n[dashboard]\nheader = "{}"\n'


class Person:
    """Somebody with a configuration and a state of their own."""

    def __init__(self, folder: Path) -> None:
        self.env = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self.themes = folder / "config" / "gpumon" / "themes"
        self.themes.mkdir(parents=True)
        self.memory = folder / "state" / "gpumon" / "theme"

    def start(self, *arguments: str, **more: str) -> Screen:
        return Screen([*COARSE_DEMO, *arguments], {**self.env, **more})

    def theme(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_program([*GPUMON, "theme", *arguments], self.env)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def header_of(theme: str) -> str:
    return ThemeLibrary().read(theme).dashboard["header"].lstrip("#")


def wait_for_header(screen: Screen, ground: str) -> None:
    """The ground of the first cell, which is the header's on the dashboard and on every page."""
    screen.wait(lambda it: it.cells()[0][2] == ground, f"waiting for a header on {ground}")


@pytest.mark.slow
def test_a_theme_is_chosen_by_looking_and_remembered(person: Person) -> None:
    with person.start() as screen:
        screen.wait_for(READY)
        wait_for_header(screen, header_of("gpumon"))
        screen.press("T", "Esc cancel")
        screen.type("\x1b[B")
        wait_for_header(screen, header_of("amber"))
        screen.press_away("\x1b", "Esc cancel")
        wait_for_header(screen, header_of("gpumon"))
        assert not person.memory.exists()
        screen.type("T\x1b[B")
        wait_for_header(screen, header_of("amber"))
        screen.press_away("\r", "Esc cancel")
        screen.quit()
    assert person.memory.read_text() == "amber\n"
    with person.start() as screen:
        screen.wait_for(READY)
        wait_for_header(screen, header_of("amber"))
    with person.start(GPUMON_THEME="mono") as screen:
        wait_for_header(screen, header_of("mono"))
    with person.start("--theme", "dusk", GPUMON_THEME="mono") as screen:
        wait_for_header(screen, header_of("dusk"))


@pytest.mark.slow
def test_every_screen_beneath_takes_the_theme(person: Person) -> None:
    with person.start() as screen:
        screen.wait_for(READY)
        screen.press_away("\t\r", READY)
        screen.press("T\x1b[B", "Esc cancel")
        wait_for_header(screen, header_of("amber"))
        screen.press_away("\r", "Esc cancel")
        wait_for_header(screen, header_of("amber"))
        screen.press("\x1b", READY)
        wait_for_header(screen, header_of("amber"))


@pytest.mark.slow
def test_a_theme_of_ones_own_is_read_anew_when_saved_and_kept_when_broken(person: Person) -> None:
    path = person.themes / "mine.toml"
    path.write_text(MINE.format("#102030"))
    with person.start("--theme", "mine") as screen:
        screen.wait_for(READY)
        wait_for_header(screen, "102030")
        path.write_text(MINE.format("#302010"))
        wait_for_header(screen, "302010")
        path.write_text(MINE.format("#30201"))
        screen.wait_for("dashboard.header")
        wait_for_header(screen, "302010")
        path.write_text(MINE.format("#203010"))
        wait_for_header(screen, "203010")


@pytest.mark.slow
def test_a_theme_that_cannot_be_used_is_told_and_the_default_taken(person: Person) -> None:
    (person.themes / "mine.toml").write_text('base = "gpumon"\n[dashboard]\nmemry = "#fff"\n')
    with person.start("--theme", "mine") as screen:
        screen.wait_for(READY)
        wait_for_header(screen, header_of("gpumon"))
        screen.wait_for("dashboard.memry")
    with person.start() as screen:
        screen.wait_for(READY)
        screen.press("T", "mine +yours")
        # It stands first; the default, under the cursor, is next.
        screen.press("\x1b[A", "dashboard.memry")
        wait_for_header(screen, header_of("gpumon"))
        screen.press_away("\r\x1b[B", "dashboard.memry")
        screen.type("\x1b[B")
        wait_for_header(screen, header_of("amber"))


def test_a_name_that_is_no_themes_is_a_sentence(person: Person) -> None:
    with person.start("--theme", "ambre") as screen:
        assert screen.wait_end() == 2
        assert "there is no theme 'ambre'; the nearest is 'amber'." in screen.text()


def test_the_list_names_all_themes_and_where_ones_own_lie(person: Person) -> None:
    (person.themes / "mine.toml").write_text("broken")
    listed = person.theme("list").stdout.splitlines()
    assert listed[0].split() == ["mine", str(person.themes / "mine.toml")]
    assert [line.split()[0] for line in listed] == ThemeLibrary(own=person.themes).names()
    (person.themes / "mine.toml").unlink()
    assert str(person.themes) in person.theme("list").stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpumon", "solarized-light"])
def test_what_is_shown_where_there_are_no_colours_is_a_theme_file(
    person: Person, name: str
) -> None:
    shown = person.theme("show", name).stdout
    copy = person.themes / "copy.toml"
    copy.write_text(shown)
    assert person.theme("check", str(copy)).returncode == 0
    theme, shipped = ThemeLibrary().read_path(copy), ThemeLibrary().read(name)
    assert (theme.colours, theme.dashboard) == (shipped.colours, shipped.dashboard)


def test_a_sample_stands_on_a_terminal_in_its_colours(person: Person) -> None:
    with Screen([*GPUMON, "theme", "show", "amber"], person.env) as screen:
        assert screen.wait_end() == 0
        wait_for_header(screen, header_of("amber"))
        for word in ("amber", "memory", "lost since", "series6"):
            assert word in screen.text()


def test_what_cannot_be_shown_is_a_sentence(person: Person) -> None:
    done = person.theme("show", "ambre")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpumon: there is no theme 'ambre'; the nearest is 'amber'.\n"
    done = person.theme("show", "nord")
    assert done.returncode == 2
    assert "gpumon --demo --theme nord" in done.stderr
    (person.themes / "mine.toml").write_text("base = 3")
    done = person.theme("show", "mine")
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine.toml, line 1: base must be a text" in done.stderr


def test_a_check_says_all_that_is_wrong_by_its_status_too(person: Person) -> None:
    path = person.themes / "mine.toml"
    path.write_text('base = "gpumon"\nmemory = "#fff"\n[colours]\npanl = "#fff"\n')
    done = person.theme("check", str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == f"gpumon: {path}, line 2: unknown key 'memory'; write it below [dashboard]."
    assert second == f"gpumon: {path}, line 4: unknown key 'colours.panl'; the nearest is 'panel'."
    path.write_text('base = "gpumon"\n[dashboard]\ndim = "#333"\n')
    done = person.theme("check", str(path))
    assert done.returncode == 0
    assert "the style dim has a contrast of 1." in done.stderr
    path.write_text('base = "gpumon"\n')
    done = person.theme("check", str(path))
    said = f"{path} is a valid theme; the key T selects it.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert person.theme("check", str(path.parent / "gone.toml")).returncode == 2
    assert person.theme("check", str(path.parent)).returncode == 2
