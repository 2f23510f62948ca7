"""Graphs and charts in a real terminal: the small graph, the machine's line, a card's page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.config.ui_state import NAME, UiState, load
from tests.command import GPUMON
from tests.demo import COARSE_DEMO
from tests.e2e.test_past import await_past
from tests.screen import Screen

FAST = ["-n", "0.1"]
DEMO = [*GPUMON, "--demo", *FAST]
STRIP = r"\n cpu +[\d–]+/96 cores .*ram +[\d–]+G free .*load "


def screen_of(state: Path, columns: int = 100, lines: int = 24) -> Screen:
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    return Screen([*COARSE_DEMO, *FAST], environment, columns, lines)


def test_h_shows_the_machine_and_that_is_remembered(tmp_path: Path) -> None:
    folder = tmp_path / "gpumon"

    def kept(shown: bool) -> bool:
        return (folder / NAME).exists() and load(folder) == UiState(host_strip=shown)

    with screen_of(tmp_path) as screen:
        screen.wait_for(r"GPU-MEM▼[\s\S]*\n q quit")
        assert " # GPU" in screen.rows()[1]
        screen.press("h", STRIP)
        screen.wait(lambda _: kept(True), "waiting for the file")
        screen.quit()
    with screen_of(tmp_path) as screen:
        screen.wait_for(STRIP)
        assert " # GPU" in screen.rows()[2]
        screen.type("h")
        screen.wait(lambda it: " # GPU" in it.rows()[1], "waiting for the line to go")
        screen.wait(lambda _: kept(False), "waiting for the file")


def test_c_cycles_the_small_graph_and_the_page_of_a_card_has_charts_over_a_time_to_choose(
    tmp_path: Path,
) -> None:
    with screen_of(tmp_path) as screen:
        screen.wait_for(r"power 60 s[\s\S]*GPU-MEM▼[\s\S]*\n q quit")
        for value in ("temp", "SMs", "DRAM", "util", "mem", "power"):
            screen.press("c", rf"(?m)°C .*  {value} 60 s$")
        screen.press("\t\r", r"The last 5 minutes[\s\S]*utilisation[\s\S]*100%┤[\s\S]*700W┤╌")
        for key, title in (("1", "The last minute"), ("4", "All that was seen: 4h")):
            screen.press(key, title)
        screen.press("\x1b", "GPU-MEM▼")
        screen.quit()


def has_times(row: str) -> bool:
    """Whether it is the row of the times of day below two charts."""
    return row.count(":") >= 2 and set(row) <= set("0123456789: ")


@pytest.mark.slow
def test_in_the_past_the_charts_end_at_that_moment(tmp_path: Path) -> None:
    with Screen(DEMO, {**os.environ, "XDG_STATE_HOME": str(tmp_path)}) as screen:
        screen.wait_for(r"GPU-MEM▼[\s\S]*\n q quit")
        await_past(screen)
        screen.press("(" * 30, r"30m \d\ds ago")
        screen.press("\t\r", "The last 5 minutes")
        screen.wait(lambda it: any(map(has_times, it.rows())), "waiting for the charts")
        # The clock of the page is that of the moment, and so is the axis' end.
        clock = screen.rows()[0].split()[-1]
        hour, minute, _ = (int(part) for part in clock.split(":"))
        times = next(row for row in screen.rows() if has_times(row))
        last = times.split()[-1]
        behind = hour * 60 + minute - int(last[:2]) * 60 - int(last[3:])
        # The last dot stands for the seconds around the moment, and may end in the next minute.
        assert (behind + 1) % 1440 <= 6


@pytest.mark.slow
def test_a_click_on_a_large_graph_points_at_its_card_and_another_opens_it(tmp_path: Path) -> None:
    title = "▲ 5   ⠒ util"
    with screen_of(tmp_path, columns=200, lines=50) as screen:
        screen.wait_for(rf"{title} 100%[\s\S]*\n q quit")
        y = next(y for y, row in enumerate(screen.rows()) if title in row)
        screen.click(screen.rows()[y].index(title) + 20, y + 3)
        screen.wait_for(r"\n▸5 H100")
        screen.click(screen.rows()[y].index(title) + 20, y)
        screen.click(screen.rows()[y].index(title) + 20, y)
        screen.wait_for(r"GPU 5 [\s\S]*The last 5 minutes")


@pytest.mark.slow
def test_one_window_for_all_screens_is_chosen_by_the_same_keys() -> None:
    with Screen([*GPUMON, "--demo"], dict(os.environ), 200, 50) as screen:
        screen.wait_until_live()
        screen.wait_for(r"-5m .* now")
        screen.press("1", r"-1m .* now")
        screen.wait_for("charts: the last minute")
        screen.press("\t\r", "The last minute")
        screen.press("3", "The last 30 minutes")
        screen.press("\x1b", r"-30m .* now[\s\S]*GPU-MEM▼")
        screen.press("\t", r"\n▸.* ann")
        screen.press("\r", "The last 30 minutes")
        screen.press("4", "All that was seen")
        screen.press("\x1b", "GPU-MEM▼")
        screen.press("u", "── ann all that was seen")
