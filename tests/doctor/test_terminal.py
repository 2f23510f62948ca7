"""What is said of the terminal."""

from __future__ import annotations

import os
import sys

import pytest

from gpumon.doctor import CheckVerdict, terminal
from tests.doctor.trees import PASS, WARN, Tree, expect, words
from tests.screen import Screen

UTF_8 = {"TERM": "xterm-256color", "LANG": "de_DE.UTF-8"}
QUESTION = b"\x1b[?2026$p\x1b[c"
ASK = """
from gpumon.doctor import terminal
from gpumon.doctor.context import DiagnosticContext, DriverAnswer, ExaminedMachine
machine = ExaminedMachine(environ={"TERM": "xterm"})
result = terminal.whole_frames(DiagnosticContext(machine, DriverAnswer))
print(f"<{result.verdict.value}: {result.found}>")
"""


@pytest.mark.parametrize("term", ["", "dumb"])
def test_a_terminal_without_a_cursor_is_told(tree: Tree, term: str) -> None:
    expect(terminal.kind(tree.case(environ={"TERM": term})), WARN, "gpumon snapshot")


def test_a_terminal_inside_tmux_is_said_to_be(tree: Tree) -> None:
    result = terminal.kind(tree.case(environ={**UTF_8, "TMUX": "/tmp/x,1,0"}))
    assert "xterm-256color in tmux" in words(result)


def test_a_terminal_that_is_too_small_is_told(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((50, 40)))
    expect(terminal.kind(tree.case(environ=UTF_8)), WARN, "50×40")


def test_a_terminal_that_does_not_tell_its_size_is_not_called_small(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    expect(terminal.kind(tree.case(environ=UTF_8)), PASS, "does not report its size")


@pytest.mark.parametrize(
    ("environ", "expected", "told"),
    [
        (UTF_8, PASS, "UTF-8 (locale de_DE.UTF-8)"),
        ({"LANG": "C"}, WARN, "draws graphs with ASCII"),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, WARN, "iso8859-1"),
        ({"GPUMON_ASCII": "1"}, PASS, "GPUMON_ASCII"),
        ({**UTF_8, "TERM": "linux"}, PASS, "console"),
    ],
)
def test_what_can_be_drawn_is_told(
    tree: Tree, environ: dict[str, str], expected: CheckVerdict, told: str
) -> None:
    expect(terminal.characters(tree.case(environ=environ)), expected, told)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({**UTF_8, "COLORTERM": "truecolor"}, "16 million"),
        (UTF_8, "256"),
        ({"TERM": "xterm"}, "16."),
        ({**UTF_8, "NO_COLOR": "1"}, "None"),
        ({"TERM": "dumb"}, "None"),
    ],
)
def test_colours_are_told(tree: Tree, environ: dict[str, str], told: str) -> None:
    assert words(terminal.colours(tree.case(environ=environ))).startswith(told)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("\x1b[?2026;2$y\x1b[?62;22c", "<pass: The terminal supports synchronized"),
        ("\x1b[?2026;0$y\x1b[?62;22c", "<pass: No synchronized"),
        ("\x1b[?62;22c", "<pass: No synchronized"),
    ],
)
def test_a_terminal_is_asked_and_its_answer_taken_off_the_line(answer: str, told: str) -> None:
    with Screen([sys.executable, "-c", ASK], silent=True) as screen:
        screen.wait(lambda s: QUESTION in s.output, "the question")
        screen.type(answer)
        assert told in screen.wait_for("<.*>")
        assert screen.wait_end() == 0
        assert screen.attributes() == screen.attributes_before


def test_a_terminal_that_controls_no_jobs_is_asked_too() -> None:
    apart = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', {ASK!r}], start_new_session=True)"
    )
    with Screen([sys.executable, "-c", apart], silent=True) as screen:
        screen.wait(lambda s: QUESTION in s.output, "the question")
        screen.type("\x1b[?2026;2$y\x1b[?62;22c")
        screen.wait_for("<pass: The terminal supports")
        assert screen.wait_end() == 0


def test_a_terminal_that_never_answers_is_not_waited_for() -> None:
    with Screen([sys.executable, "-c", ASK], silent=True) as screen:
        screen.wait_for("<unknown: The terminal does not answer")
        assert screen.wait_end() == 0
        assert screen.attributes() == screen.attributes_before


def test_output_that_goes_elsewhere_asks_no_terminal(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    assert terminal.whole_frames(tree.case(environ=UTF_8)) is None
