"""Many hosts in a real terminal: the simulated fleet, one of its hosts, and the way back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import GPUMON, run_program
from tests.demo import COARSE_DEMO
from tests.e2e.test_terminal import CAN_SEND, left_clean
from tests.known import known
from tests.recording.csv.command import rows
from tests.screen import Screen

FLEET = [*COARSE_DEMO, "--hosts", "gpu-[01-16]"]
ALL = r"hosts 15/16 [\s\S]*gpu-16 [\s\S]*── 16 hosts[\s\S]*\n q quit"
"""Every host has been seen, and the frame is whole."""


@pytest.fixture
def screen() -> Iterator[Screen]:
    """A fleet, each host of which has been seen."""
    with Screen(FLEET) as shown:
        shown.wait_for(ALL)
        yield shown


def test_a_host_is_opened_as_at_home_and_escape_returns_to_its_line(screen: Screen) -> None:
    screen.press("\x1b[B\x1b[B\x1b[B", r"\n▸gpu-03 ")
    screen.press("\r", r"gpumon  DEMO  gpu-03 [\s\S]*GPU-MEM▼[\s\S]*\n q quit")
    # Its pages are those of home.
    screen.press("\t\x1b[B\x1b[B\r", r"GPU 2[\s\S]*Esc back")
    screen.press("\x1b", r"gpu-03 [\s\S]*GPU-MEM▼")
    screen.press_away("\x1b", "▸")
    screen.press("\x1b", r"hosts 15/16 [\s\S]*\n▸gpu-03 ")
    screen.press("\r", r"gpumon  DEMO  gpu-03 [\s\S]*GPU-MEM▼")
    screen.quit()
    assert left_clean(screen)
    # The terminal is entered once, however many hosts are opened.
    assert bytes(screen.output).count(b"\x1b[?1049h") == 1


@pytest.mark.slow
def test_users_their_processes_and_the_host_of_one(screen: Screen) -> None:
    screen.press("u", r"IDLE-MEM[\s\S]*ann +\d+ [\s\S]*u\[users\]")
    screen.press("\x1b[B\x1b[B\r", r"\d+ processes · user=erin")
    screen.wait_gone(r"\n.gpu-\d\d .* ann ")
    # Of several keys each may be shown for a moment.
    screen.type("\x1b[B")
    text = screen.wait_for(r"\n▸gpu-\d\d ")
    chosen = known(re.search(r"\n▸(gpu-\d\d) +\S+ +(\d+) erin", text))
    screen.type("\r")
    # The cursor is on the process from which it was opened.
    screen.wait_for(rf"gpumon  DEMO  {chosen[1]} [\s\S]*▸ *\S+ +{chosen[2]} erin")
    screen.press("\x1b\x1b", rf"\n▸{chosen[1]} +\S+ +{chosen[2]} erin[\s\S]* user=erin ")
    screen.press("\x1b\x1b", r"── 16 hosts")
    screen.quit()


@pytest.mark.slow
def test_the_hosts_of_a_job_show_its_gpus_only_in_every_list_and_on_an_open_host() -> None:
    with Screen([*COARSE_DEMO, "--hosts", "slurm:88123"], columns=120) as screen:
        screen.wait_for(r"DEMO  slurm 88123  hosts 4  free 0 of 4 GPUs [\s\S]*── 4 hosts")
        screen.press("u", r"HOSTS[^\n]*\n chen +4 [^\n]*\n *\n")
        screen.press("g", r"\n slurm 88123 +chen +4 [^\n]* 4: ada-06!, ada-05[^\n]*\n *\n")
        screen.press("\x1b[B\r", r"\n ada-06 [^\n]* utilisation 0 %, median 100 %")
        screen.wait_for(r"── slurm 88123 chen · 4 machines ── 1 of 4 machines lags: ada-06 ")
        screen.type("\x1b\x1b\x1b[B\r")
        screen.wait_for(r"gpumon  DEMO  ada-05 [\s\S]*\n 5 +H100[\s\S]*── 2 processes · 1 user")
        screen.quit()


@pytest.mark.slow
def test_filters_and_orders_show_what_is_asked_for(screen: Screen) -> None:
    screen.press("/free>3", r"── \d of 16 hosts · free>3")
    screen.press(" colour:red", r'no term "colour"')
    screen.press("\x1b", r"── 16 hosts")
    screen.press("E", r"STATE▼[^\n]*\n.gpu-0[47] ")
    screen.press("F", r"FREE▼?[^\n]*\n.gpu-10 ")
    screen.press("?", r"type to search")
    screen.press("free>1", r"with more free GPUs than this")
    screen.press("\x1b\x1b", r"── 16 hosts")
    screen.quit()


@pytest.mark.slow
def test_clicks_choose_open_and_sort(screen: Screen) -> None:
    rows = screen.rows()
    at = next(y for y, row in enumerate(rows) if row.startswith(" gpu-05"))
    screen.click(4, at)
    screen.wait_for(r"\n▸gpu-05 ")
    screen.click(rows[1].index("FREE"), 1)
    screen.wait_for(r"sorted by FREE, descending")
    # By name they keep their places; by anything else they change them as their values do.
    screen.click(rows[1].index("HOST"), 1)
    screen.wait_for(r"sorted by HOST")
    line = next(y for y, row in enumerate(rows) if "gpu-10" in row)
    click = f"\x1b[<0;5;{line + 1}M\x1b[<0;5;{line + 1}m"
    # In one piece: two reads may be further apart than the clicks of a double click.
    screen.press(click * 2, r"gpumon  DEMO  gpu-10 ")
    screen.quit()


@pytest.mark.slow
def test_it_fits_every_size_and_follows_a_resize() -> None:
    hosts = [*COARSE_DEMO, "--hosts", "node-[001-100]"]
    with Screen(hosts, columns=30, lines=8) as screen:
        # What is new below is blank until it is drawn.
        for columns, lines in ((30, 8), (60, 15), (80, 24), (200, 50)):
            screen.resize(columns, lines)
            screen.wait_for(r"node-001 [\s\S]*── 100 hosts[\s\S]*\n q quit.*\Z")
            screen.wait(
                lambda it: it.rows()[-1].startswith(" q quit"), f"waiting for {columns}×{lines}"
            )
        screen.wait_for("hosts 94/100 ")
        screen.resize(100, 24)
        screen.wait_for(r"\A gpumon [^\n]*hosts 94/100 [\s\S]*── 100 hosts")
        assert b"Traceback" not in screen.output
        screen.quit()


def test_read_only_holds_on_an_open_host() -> None:
    with Screen([*FLEET, "--readonly"]) as screen:
        screen.wait_for(ALL)
        screen.press("\x1b[B\r", r"gpumon  DEMO  gpu-01 [\s\S]*GPU-MEM▼[\s\S]* ann ")
        screen.press("\x1b[Bk", "gpumon is read-only here: no signal is sent")
        screen.quit()


def test_a_process_of_an_open_host_is_ended_and_its_memory_returns(screen: Screen) -> None:
    screen.press("\x1b[B\r", r"gpumon  DEMO  gpu-01 [\s\S]*GPU-MEM▼[\s\S]* 58204 +ann ")
    screen.press("/58204\rk", CAN_SEND)
    screen.press("\x1b[C\r", r"✓[\s\S]*came back")
    screen.quit()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--demo", "--hosts", "a,b"], "simulated machines are shown on a terminal only"),
        (["--hosts", "a", "--log", "x.csv"], "standard output is not a terminal, so --log has no"),
        (["--hosts", "gpu-[9-1]"], "gpu-[9-1]"),
    ],
)
def test_without_a_terminal_it_says_what_it_cannot_do(arguments: list[str], told: str) -> None:
    done = run_program([*GPUMON, *arguments])
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


@pytest.mark.parametrize("option", [["--log", "x.csv"], ["--filter", "ann"], ["--user", "ann"]])
def test_on_a_terminal_it_refuses_what_is_for_one_machine(option: list[str]) -> None:
    with Screen([*FLEET, *option]) as screen:
        screen.wait_for(f"{option[0]} is for one machine: leave out --hosts")
        assert screen.wait_end() == 2


def test_a_log_of_one_of_many_hosts_leaves_out_command_lines_too(tmp_path: Path) -> None:
    options = ["--demo", "--hosts", "a,b", "--no-commands", "-n", "1"]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - as text
    with Screen([*GPUMON, *options], env, cwd=tmp_path) as screen:
        screen.wait_for(r"hosts 2 [\s\S]*\n q quit")
        screen.press("\x1b[B", r"\n▸a ")
        screen.press("\r", r"gpumon  DEMO  a [\s\S]*GPU-MEM▼")
        screen.press("L", r"logging to gpumon-\S+\.csv; L stops")
        screen.wait_for(r"● log \S+ (?!0s)\d")
        screen.quit()
    (log,) = tmp_path.glob("*.processes.csv")
    assert {row["command"] for row in rows(log)} == {""}
