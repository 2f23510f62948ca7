"""What reaches terminals that show few characters, few colours, or none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.demo import COARSE_DEMO
from tests.known import known
from tests.screen import Screen

LOCALE = ("LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "GPUMON_ASCII")

COLOURS = re.compile(rb"\x1b\[([0-9;:]*)m")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in LOCALE} | dict(given)


def seen(given: Mapping[str, str], term: str = "xterm-256color") -> bytes:
    """All that a terminal is sent of the dashboard, its dialogs, a page, the past, and the help."""
    env = environment(given)
    with Screen(COARSE_DEMO, env, term=term, colorterm=None) as screen:
        screen.wait_for(r"q quit")
        # No Escape: together with the key behind it, it would be another key.
        screen.press("\x1b[Bk", r"Send TERM to 8")
        screen.press("w", r"not selected")
        screen.press("q", r"q quit")
        screen.press("e", r"Indices of the GPUs")
        screen.press("q", r"q quit")
        screen.press("t", r"t\[tree\]")
        screen.press("\r", r"Esc back")
        screen.press("q", r"q quit")
        screen.press("[", r"paused")
        screen.press("?", r"Esc back|Esc close")
        screen.press("\x1b[F", r"MIG mode +Whether the GPU")
        screen.press("q", r"q quit")
        screen.press("\x10", r"Search")
        screen.type("\x03")
        assert screen.wait_end() == 0
        return bytes(screen.output)


def codes(output: bytes) -> set[str]:
    """Parameters of all that sets colours or weight; those of 256 and more colours in one piece."""
    found: set[str] = set()
    for parameters in COLOURS.findall(output):
        text = parameters.decode()
        for longer in re.findall(r"[34]8;5;\d+|[34]8;2;\d+;\d+;\d+", text):
            found.add(longer.rpartition(";")[0] if ";5;" in longer else longer[:4])
        found |= set(re.sub(r"[34]8;(5;\d+|2;\d+;\d+;\d+)", "", text).split(";")) - {""}
    return found


@pytest.mark.slow
def test_a_locale_without_utf_8_is_sent_ascii_alone_and_a_terminal_without_colours_none() -> None:
    output = seen({"LC_ALL": "C"}, "vt100")
    assert output.isascii()
    assert b"GPU-MEMv" in output
    assert_no_colours(output)


def assert_no_colours(output: bytes) -> None:
    """What is chosen is reversed, and nothing has a colour."""
    sent = codes(output)
    assert "7" in sent
    assert not {code for code in sent if int(code.partition(";")[0]) >= 30}


@pytest.mark.slow
def test_ascii_may_be_asked_for() -> None:
    for given, arguments in [({}, ["--ascii"]), ({"GPUMON_ASCII": "1"}, [])]:
        env = environment({"LC_ALL": "C.UTF-8", **given})
        with Screen([*COARSE_DEMO, *arguments], env) as screen:
            screen.wait_for(r"GPU-MEMv[\s\S]*q quit")
            screen.type("q")
            screen.wait_end()
            assert screen.output.isascii()


@pytest.mark.slow
def test_in_ascii_signs_among_words_are_spelled_out_and_columns_stay_in_line() -> None:
    plain, fancy = (
        subprocess.run(
            [*COARSE_DEMO, "snapshot"],
            env=environment({"LC_ALL": locale}),
            capture_output=True,
            check=True,
        ).stdout.decode()
        for locale in ("C", "C.UTF-8")
    )
    assert ">= 394.2 of >= 557.5G used" in plain
    assert "≥ 394.2 of ≥ 557.5G used" in fancy
    assert "~" not in plain
    # The commands begin in the same column.
    starts = {line.index("COMMAND") for text in (plain, fancy) for line in heads(text)}
    assert len(starts) == 1
    assert len({line.index("python") for line in plain.splitlines() if " python" in line}) == 1
    with Screen(COARSE_DEMO, environment({"LC_ALL": "C"}), columns=100) as screen:
        cut = r" 88123\.b\.\.\. python[\s\S]*q quit"
        screen.wait_for(rf"idle >=3h[\s\S]*>= 394\.2 of >=[\s\S]*{cut}")
        screen.press("?", r"tagged processes \.\.\.")
        screen.press_away("\x1b", "Esc back")
        # Over the dashboard, a dialog has straight edges.
        screen.press("T", r"\+-{20,}\+[\s\S]*\+-{20,}\+")
        edges = {row.rindex("|") for row in screen.rows() if row.rstrip().endswith("|")}
        assert len(edges) == 1
        # What it cuts itself, and what Textual cuts.
        screen.press_away("\x1b", "amber")
        text = screen.press("e", r"served nobody; >= [^\n]*\.\.\. *\|[\s\S]*Space show or hide")
        assert "~" not in text
        screen.press_away("\x1b", "Space show or hide")
        text = screen.press("\x1b[Bk", r"\+ \d+ children[\s\S]*\.\.\. *\|[\s\S]*Send TERM")
        assert "~" not in text


def heads(text: str) -> list[str]:
    """The headings of the table of processes."""
    return [line for line in text.splitlines() if line.rstrip().endswith("COMMAND")]


def test_a_letter_of_another_locale_can_be_typed_and_is_shown() -> None:
    with Screen(COARSE_DEMO, environment({"LC_ALL": "de_DE.ISO-8859-1"})) as screen:
        screen.wait_for(r"q quit")
        screen.press("/", r"Enter keep")
        screen.send(b"J\xfcrg")
        screen.wait(lambda it: b"\xfc" in it.output, "waiting for the letter")
        screen.wait_for(r"0 of 18")


def test_a_byte_that_is_no_letter_ends_nothing() -> None:
    with Screen(COARSE_DEMO, environment({"LC_ALL": "C"})) as screen:
        screen.wait_for(r"q quit")
        screen.send(b"\xff\xfc")
        screen.press("t", r"t\[tree\]")


@pytest.mark.slow
def test_the_linux_console_is_sent_what_its_font_has_in_sixteen_colours() -> None:
    output = seen({"LC_ALL": "C.UTF-8"}, "linux")
    shown = {character for character in output.decode() if not character.isascii()}
    assert {"█", "─", "°"} <= shown
    for character in shown:
        character.encode("cp437")
    assert codes(output) <= SIXTEEN


SIXTEEN = {str(code) for start in (30, 40, 90, 100) for code in range(start, start + 8)} | {
    *("0", "1", "2", "3", "4", "7", "22", "23", "24", "27", "39", "49")
}


@pytest.mark.slow
def test_a_terminal_of_sixteen_colours_is_sent_no_others() -> None:
    sent = codes(seen({"LC_ALL": "C.UTF-8"}, "xterm"))
    assert sent <= SIXTEEN
    # More of them than grey: good, warning, critical.
    assert {"91", "92", "93"} <= sent


@pytest.mark.slow
def test_a_terminal_of_256_colours_is_sent_no_others() -> None:
    sent = codes(seen({"LC_ALL": "C.UTF-8"}, "screen-256color"))
    assert {"38;5", "48;5"} <= sent
    assert not {"38;2", "48;2"} & sent
    assert not {code for code in sent if code.isdigit() and 30 <= int(code) <= 107}


@pytest.mark.slow
def test_no_color_is_respected_and_states_still_differ() -> None:
    output = seen({"LC_ALL": "C.UTF-8", "NO_COLOR": "1"})
    assert_no_colours(output)
    assert "▲ hot" in output.decode()
    assert "○ free" in output.decode()


@pytest.mark.slow
def test_the_dialogs_are_whole_on_the_smallest_terminal() -> None:
    # An environment that says nothing is taken for UTF-8, and an empty NO_COLOR refuses nothing.
    with Screen(COARSE_DEMO, environment({"NO_COLOR": ""}), columns=60, lines=15) as screen:
        screen.wait_for(r"GPU-MEM▼[\s\S]*q quit")
        assert b"38;2;" in screen.output
        before = len(screen.output)
        screen.press("\x1b[Bk", r"Send TERM to 8")
        for name in ("INT", "TERM", "KILL", "HUP", "QUIT", "STOP", "CONT", "USR1", "USR2"):
            screen.wait_for(f"▌ {name} ")
        screen.press_away("q", r"Send TERM")
        text = screen.press("e", r"Space show or hide[\s\S]*Esc cancel")
        # A line for each column.
        assert re.search(r"● TYPE .*….*\n.*● GPU-MEM", text)
        # Textual has its own rule.
        assert b"38;2;" in screen.output[before:]


@pytest.mark.slow
def test_a_page_opened_in_the_past_says_so_and_waits_for_nothing() -> None:
    with Screen(COARSE_DEMO, environment({})) as screen:
        screen.wait_for(r"q quit")
        screen.press("\x1b[B[", r"paused")
        text = screen.press("\r", r"process \d+ +REWIND[\s\S]*Esc back")
        assert re.search(r"directory +–", text)


def test_a_log_and_its_report_are_told_in_ascii_too(tmp_path: Path) -> None:
    env = environment({"LC_ALL": "C", "NO_COLOR": "1"})
    log = [*COARSE_DEMO, "log", str(tmp_path / "run.csv"), "-n", "0.1", "--for", "2s"]
    with Screen(log, env, columns=160) as screen:
        assert screen.wait_end() == 0
        assert screen.output.isascii()
        # Between what is done and what is left may stand a part of a cell.
        assert re.search(rb"#[^ #]?\.+ +\d+ %", screen.output)
    report = [sys.executable, "-m", "gpumon", "report", str(tmp_path / "run.csv"), "--plot"]
    with Screen(report, env, columns=160, lines=80) as screen:
        assert screen.wait_end() == 0
        assert screen.output.isascii()
        # The two curves are not drawn alike.
        text = screen.text()
    curves = known(re.search(r"(\S+) utilisation % +(\S+) memory %", text))
    assert curves[1] != curves[2]


def test_what_a_program_reads_stays_utf_8_whatever_the_terminal_shows() -> None:
    for form in ("json", "prometheus"):
        done = subprocess.run(
            [*COARSE_DEMO, "snapshot", "--ascii", "--format", form],
            env=environment({"LC_ALL": "C"}),
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode("utf-8")
        assert b"H100" in done.stdout
