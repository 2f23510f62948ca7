"""The configuration as it takes effect: a real program in a real terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.command import GPUMON, run_gpumon, write_config
from tests.demo import COARSE_DEMO
from tests.screen import Screen

Started: TypeAlias = Callable[..., Screen]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """Starts gpumon with this in its file, these arguments and variables."""

    def start(text: str, *arguments: str, columns: int = 120, **variables: str) -> Screen:
        write_config(tmp_path, text)
        env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **variables}
        return Screen([*COARSE_DEMO, *arguments], env, columns, 30)

    return start


def heading(screen: Screen) -> str:
    """The line of the table's columns, once it is there."""
    screen.wait_for("COMMAND")
    return next(line for line in screen.rows() if "COMMAND" in line)


def test_interval_columns_and_order_are_those_of_the_file(started: Started) -> None:
    text = """
interval = 7
columns = ["user", "age", "memory_used"]
sort = {column = "age", descending = false}
"""
    with started(text) as screen:
        screen.wait_for(r"\n +23377 bo")  # one of the last lines: all of it is drawn
        assert heading(screen).split() == ["PID", "USER", "AGE▲", "GPU-MEM", "COMMAND"]
        assert screen.rows()[0].rstrip().endswith(" 7s")
        # Minutes come before hours, and these before days.
        ages = re.findall(r"^ +\d+ \S+ +(\d+[mhd])", screen.text(), re.MULTILINE)
        assert len(ages) > 10
        assert ages == sorted(ages, key=lambda age: ("mhd".index(age[-1]), int(age[:-1])))


def test_the_command_line_goes_over_a_variable_and_that_over_the_file(started: Started) -> None:
    text = 'interval = 7\ncolumns = ["age"]\nunits = {memory = "GB"}\n'
    variables = {"GPUMON_INTERVAL": "6", "GPUMON_COLUMNS": "user"}
    with started(text, "-n", "5", **variables) as screen:
        assert heading(screen).split() == ["PID", "USER", "COMMAND"]
        assert screen.rows()[0].rstrip().endswith(" 5s")
        screen.wait_for("/85\\.5G")


def test_thresholds_and_units_are_those_of_the_file(started: Started) -> None:
    text = 'units = {memory = "GB", temperature = "F"}\n[thresholds]\nidle_after = "7d"\n'
    with started(text) as screen:
        # The past has been seen, and all cards are drawn.
        told = screen.wait_for(r"▲ stuck\?[\s\S]*\n 7 H100.* unattr.*/85\.5G")
        # By default this threshold is passed, as the test of a broken file shows.
        assert "◐ idle" not in told
        assert "°F" in told
        assert "79.6G" not in told


def test_read_only_by_the_file_ends_nothing(started: Started) -> None:
    with started("readonly = true\n") as screen:
        heading(screen)
        screen.press("\x1b[B\x1b[B", "▸")
        assert "end…" not in screen.text()
        screen.press("k", "gpumon is read-only here: no signal is sent")


KEYS = """
[keys]
end = "$"
filter = ["F5", "z"]
help = "0"
sort_age = ","
sort_before = "A"
"""


def test_changed_keys_do_what_they_are_for(started: Started) -> None:
    with started(KEYS, columns=160) as screen:
        heading(screen)
        # What was a key is none, and letters are letters where one types.
        screen.press("?z", "Enter keep")
        screen.type("hx")
        assert "Filter the processes" not in screen.wait_for("hx")
        screen.press("\x1b", r"18 processes[\s\S]*\n q quit")
        # The help page tells the changed keys.
        screen.press("0", r"F5 z +Filter the processes[\s\S]*\$ +End the process")
        screen.wait_gone(r"\n q quit")
        screen.press("\x1b", r"18 processes[\s\S]*\n q quit")
        screen.press("\x1b[B\x1b[B", r" 0 help .*\$ end….*F5 filter")
        screen.press(",", "AGE▼")
        screen.press("k$", "Send TERM")
        screen.press_away("\x1b", "Send TERM")
        # Pages go by them too.
        screen.wait_for("Enter details")
        screen.press("\r", r"Esc back.* \$ end….*s show secrets")
        screen.press("k$", "Send TERM")


@pytest.mark.slow
def test_a_click_on_the_footer_does_what_the_word_says_whatever_its_key(started: Started) -> None:
    with started('[keys]\nend = "t"\ntree = "k"\nfilter = "f5"\n', columns=160) as screen:
        heading(screen)
        screen.press("\x1b[B\x1b[B", "t end…")
        for word, shown in (("filter", "Enter keep"), ("end…", "Send TERM")):
            screen.wait_for(rf"\b{word}[^\n]*\Z")
            screen.click(screen.rows()[-1].index(word) + 1, screen.lines - 1)
            screen.wait_for(shown)
            screen.press_away("\x1b", shown)


@pytest.mark.slow
def test_sentences_and_footers_call_changed_keys_by_their_names(started: Started) -> None:
    text = """
[keys]
change_side = "f6"
previous_line = "z"
first_line = "f7"
pause = "$"
graph = "p"
step_back = "f8"
sort_where = "f10"
copy = "f11"
chart_1m = "f12"
"""
    with started(text, columns=160) as screen:
        heading(screen)
        screen.press("\r", "choose a process first: z ↓, or a GPU: F6")
        screen.press("$", r"paused; \$ resumes")
        screen.press("$]", "this is now: F8 goes back in time")
        screen.press("\x1b[19~", r"\$ play.*F7 first")
        screen.press_away("\x1b[F", r"\$ play")
        screen.type("\x1b[17~\r")
        # In a page the keys that scroll are always the same.
        screen.wait_for(r"F12 1m.*↑↓ scroll.*F11 copy CUDA_VISIBLE_DEVICES")
        screen.type("?")
        screen.wait_for(
            r"Keys on this page: GPU 0[\s\S]*F12 +Charts: the last minute[\s\S]*F11 +Copy the GPU"
        )


def test_a_clash_of_keys_is_told_at_the_start_and_the_usual_key_stays(started: Started) -> None:
    with started('[keys]\nmine = "t"\n', columns=160) as screen:
        screen.wait_for(
            'config.toml, line 2: keys.mine: t is already the key for "tree": give tree another one'
        )
        screen.press("t", "├─")
        screen.press("m", "only mine|mine ·|· ann")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("interval = 0.001\n", r"config\.toml, line 1: interval cannot be 0\.001: give seconds"),
        ("a = 1\nb = 2\n", r"2 mistakes \(gpumon config check\): config\.toml, line 1: unknown"),
    ],
)
def test_a_broken_file_is_told_on_screen_and_defaults_hold(
    text: str, words: str, started: Started
) -> None:
    with started(text) as screen:
        screen.wait_for(words)
        assert screen.rows()[0].rstrip().endswith(" 0.5s")
        screen.wait_for(r"◐ idle .*/79\.6G")
        screen.quit()


def test_a_broken_file_is_told_of_on_standard_error_by_commands(tmp_path: Path) -> None:
    path = tmp_path / "gpumon" / "config.toml"
    write_config(tmp_path, "themee = 1\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "GPUMON_UNITS": "GB"}
    done = run_gpumon("snapshot", "--demo", env=env)
    said = f"gpumon: {path}, line 1: unknown setting themee (did you mean theme?).\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert "/85.5G" in done.stdout
    done = run_gpumon("snapshot", "--demo", "--format", "json", env=env)
    assert (done.returncode, done.stderr) == (0, ""), "no program's format depends on it"


SMI = "timestamp, index, uuid, name, memory.used [MiB], memory.free [MiB], memory.total [MiB]\n"


@pytest.mark.slow
def test_a_replay_goes_by_thresholds_and_units_too(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    used = [10000] * 30 + [50000] * 90
    rows = [
        f"2025/03/01 03:{second // 60:02}:{second % 60:02}.000, 0, GPU-1, NVIDIA H100, "
        f"{size} MiB, {81920 - size} MiB, 81920 MiB\n"
        for second, size in enumerate(used)
    ]
    log.write_text(SMI + "".join(rows), encoding="utf-8")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [*GPUMON, "replay", "--paused", "--at", "03:01:50", str(log)]
    with Screen(command, env, 120, 30) as screen:
        usual = screen.wait_for(r"\n ❚❚ paused[\s\S]*\n q quit")
        assert "/80.0G" in usual
        assert "■" not in usual
        screen.wait_for("● busy")
    write_config(tmp_path, 'units.memory = "GB"\n[thresholds]\nfull_share = 0.5\n')
    with Screen(command, env, 120, 30) as screen:
        told = screen.wait_for(r"\n ❚❚ paused[^\n]*■[\s\S]*\n q quit")
        assert "/85.9G" in told
        screen.wait_for("■ full")
