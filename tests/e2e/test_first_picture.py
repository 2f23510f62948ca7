"""The first picture stands before Textual does, and nobody sees the one become the other."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from gpumon.config.themes import ThemeLibrary, resolve_styles
from gpumon.config.themes.styles import STYLES
from gpumon.ui.startup import first_styles
from gpumon.ui.terminal.styles import COLOURS_256, TRUE_COLOUR, SgrStyles, sgr_styles
from tests.bench.line import Line
from tests.bench.sight import Sight
from tests.command import run_program
from tests.demo import COARSE_DEMO
from tests.driver import Driver, Owner, a100
from tests.e2e.demo import changed_demo
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "gpumon", "--demo", "-n", "0.1"]
WITHOUT_TEXTUAL = """
import signal, sys, threading

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "textual":
            {happens}

sys.meta_path.insert(0, Finder())
from tests.demo import main
sys.exit(main("-n", "0.1"))
"""
WAITS, FAILS = "threading.Event().wait()", "raise ImportError('a broken Textual')"
WHERE_PYTHON_REPLACES_WHAT_IS_RAISED = """
            class Named:
                def __set_name__(self, owner, name):
                    signal.raise_signal(signal.SIGTERM)
            type("Owner", (), {"named": Named()})
"""
WHERE_PYTHON_DROPS_WHAT_IS_RAISED = """
            class Gone:
                def __del__(self):
                    signal.raise_signal(signal.SIGTERM)
            Gone()
"""
WITHOUT_A_PAST = """
import sys, threading
from gpumon.cli import main
from gpumon.makers.demo import DemoSource

DemoSource.past = lambda self: threading.Event().wait()
sys.exit(main(["--demo", "-n", "0.1"]))
"""
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def without_textual(happens: str) -> Screen:
    return Screen([sys.executable, "-c", WITHOUT_TEXTUAL.format(happens=happens)])


@pytest.mark.slow
def test_once_the_screen_is_full_it_never_is_less() -> None:
    with Line(GPUMON, dict(os.environ)) as line:
        while b"\x1b[?2026$p" not in b"".join(one.data for one in line.output):
            line.read_until(line.now + 0.05)
        # Textual has the terminal now. Its first frames come with the answer to that question.
        frames = len(line.output) + 12
        while len(line.output) < frames:
            line.read_until(line.now + 0.05)
    sight = Sight()
    most = 0
    for written in sight.watch(line.output):
        seen = sum(bool(row.strip()) for row in sight.text().splitlines())
        # A process may have ended.
        assert seen >= most - 2, f"at {written.at:.3f} s:\n{sight.text()}"
        most = max(most, seen)
    assert most > 20
    assert b"".join(one.data for one in line.output).count(ENTER) == 1


def test_it_needs_no_textual_and_moves() -> None:
    with without_textual(WAITS) as screen:
        screen.wait_for(r"\n q quit")
        before = screen.text()
        screen.wait(lambda it: it.text() != before, "waiting for another frame")


def test_it_does_not_wait_for_the_past_of_the_demo() -> None:
    with Screen([sys.executable, "-c", WITHOUT_A_PAST]) as screen:
        screen.wait_for(r"\n q quit")


@pytest.mark.slow
def test_the_demo_has_its_past_once_textual_draws() -> None:
    with Screen(GPUMON) as screen:
        screen.wait_for(r"idle 3h1\dm  bo")


def test_it_follows_the_size_of_the_terminal() -> None:
    with without_textual(WAITS) as screen:
        screen.wait_for(r"\n q quit")
        screen.resize(80, 20)
        screen.wait(lambda it: it.rows()[19].startswith(" q quit"), "waiting for the new size")


def test_a_key_pressed_before_textual_is_there_is_not_lost() -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait(lambda it: ENTER in it.output, "waiting for the first picture")
        screen.quit()
        assert screen.output.count(ENTER) == screen.output.count(LEAVE) == 1
        assert screen.attributes() == screen.attributes_before


def test_a_signal_finds_it_and_the_terminal_is_restored() -> None:
    with without_textual(WAITS) as screen:
        screen.wait_for(r"\n q quit")
        screen.signal(signal.SIGTERM)
        assert screen.wait_end() == -signal.SIGTERM
        assert screen.output.count(LEAVE) == 1
        assert screen.attributes() == screen.attributes_before


@pytest.mark.slow
@pytest.mark.parametrize(
    "somewhere", [WHERE_PYTHON_REPLACES_WHAT_IS_RAISED, WHERE_PYTHON_DROPS_WHAT_IS_RAISED]
)
def test_a_signal_ends_it_wherever_in_an_import_it_comes(somewhere: str) -> None:
    with without_textual(somewhere) as screen:
        assert screen.wait_end() == -signal.SIGTERM
        assert screen.output.count(LEAVE) == 1
        assert screen.attributes() == screen.attributes_before


def test_what_goes_wrong_after_it_is_told_on_the_screen_that_stays() -> None:
    with without_textual(FAILS) as screen:
        assert screen.wait_end() == 1
        left, told = screen.output.find(LEAVE), screen.output.find(b"a broken Textual")
        assert -1 < left < told
        assert screen.attributes() == screen.attributes_before


def test_a_terminal_of_few_colours_waits_for_textual() -> None:
    with Screen(COARSE_DEMO, colorterm=None, term="xterm") as screen:
        screen.wait(lambda it: ENTER in it.output, "waiting for Textual")
        assert b"\x1b[2J" not in screen.output
        screen.wait_for(r"\n q quit")


@pytest.mark.parametrize(
    "name", [name for name in ThemeLibrary().names() if ThemeLibrary().path(name)]
)
@pytest.mark.parametrize("term", [{"COLORTERM": "truecolor"}, {"TERM": "xterm-256color"}])
def test_its_colours_are_those_that_follow(name: str, term: dict[str, str]) -> None:
    from textual.app import App

    from gpumon.ui.theme_controller import to_textual

    file = ThemeLibrary().read(name)
    app: App[None] = App()
    app.register_theme(to_textual(file))
    app.theme = name
    system = TRUE_COLOUR if "COLORTERM" in term else COLOURS_256
    first = first_styles(file, term)
    then = sgr_styles(resolve_styles(app.get_css_variables()), system)
    assert first is not None
    for style in STYLES:
        ours, theirs = (
            [*map(int, re.findall(r"\d+", look(styles, style)))] for styles in (first, then)
        )
        # Textual's rounding may move a colour by the least there is.
        assert ours == pytest.approx(theirs, abs=1), style


def look(styles: SgrStyles, style: str) -> str:
    return styles.change(None, style)


def test_the_first_picture_imports_no_textual() -> None:
    program = "import sys, gpumon.ui.startup; print('textual' in sys.modules)"
    told = run_program([sys.executable, "-c", program], check=True)
    assert told.stdout.strip() == "False"


LATER = {
    *("argparse", "asyncio", "difflib", "inspect", "pathlib", "pickle", "platformdirs", "psutil"),
    *("rich", "shutil", "tempfile", "tomli", "tomllib", "typing_extensions"),
    *("gpumon.config.reading", "gpumon.kill.session", "gpumon.filters.language"),
    *("gpumon.host.workloads", "gpumon.kill.signals", "gpumon.scheduling.locks"),
    *("gpumon.recording.memory.recording", "gpumon.ui.app"),
}
"""What takes long to import, and nothing of which is in the first picture."""

WHEN_IT_STANDS = """
import sys
before = set(sys.modules)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "gpumon.kill.audit_log":
            with open(sys.argv[1], "w") as file:
                print(*sys.modules.keys() - before, file=file)

sys.meta_path.insert(0, Finder())
from gpumon.cli import main
sys.exit(main([]))
"""


def test_the_first_picture_of_real_cards_imports_nothing_that_it_never_holds(
    tmp_path: Path,
) -> None:
    told = tmp_path / "modules"
    with Driver([a100(), a100()]) as driver:
        driver.cards[0].processes = [Owner(os.getpid(), memory=2**30)]
        command = [sys.executable, "-c", WHEN_IT_STANDS, str(told)]
        homes = {f"XDG_{name}_HOME": str(tmp_path) for name in ("CONFIG", "STATE")}
        with Screen(command, env={**driver.env(), **homes}) as screen:
            screen.wait_for(r"\n q quit")
            screen.wait(
                lambda _: told.exists() and told.read_text().endswith("\n"), "waiting for its words"
            )
    modules = set(told.read_text().split())
    assert {"msgspec", "gpumon.ui.view.dashboard_rows", "gpumon.makers.nvidia.source"} <= modules
    assert not modules & LATER


@pytest.mark.slow
def test_garbage_is_collected_once_the_screen_stands_and_never_by_then(tmp_path: Path) -> None:
    told = tmp_path / "collecting"
    program = (
        "import gc, sys\n"
        "from gpumon.ui import startup\n"
        "from gpumon.ui.app import GpumonApp\n"
        "def tell(*_, **__):\n"
        "    with open(sys.argv[1], 'a') as file:\n"
        "        print(gc.isenabled(), file=file)\n"
        "startup.first_styles = tell\n"
        "GpumonApp.run = tell"
    )
    with changed_demo(program, str(told)) as screen:
        assert screen.wait_end() == 0
    assert told.read_text().split() == ["False", "True"]


@pytest.mark.slow
def test_a_line_that_is_behind_at_the_hand_over_shows_no_blank_screen() -> None:
    behind = (
        "from gpumon.ui.terminal.renderer import TerminalRenderer\n"
        "TerminalRenderer.behind = lambda _: True"
    )
    with changed_demo(behind) as screen:
        screen.wait_for_mouse()
        screen.wait_for(r"GPU-MEM▼[\s\S]*\n q quit")
