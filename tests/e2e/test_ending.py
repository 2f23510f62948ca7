"""From the full card to the memory that is back, in a real terminal, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests import lives
from tests.command import GPUMON
from tests.driver import GIB, Driver, Owner, buried, h100, owners
from tests.screen import PATIENCE, Screen

RIGHT, DOWN = "\x1b[C", "\x1b[B"


@contextmanager
def machine(
    tmp_path: Path,
    commands: Sequence[Sequence[str]],
    *arguments: str,
    columns: int = 120,
    lines: int = 34,
    frees: bool = True,
    **how: object,
) -> Iterator[tuple[Screen, list[subprocess.Popen[bytes]], Driver]]:
    """Two cards, a process of each command on the second, and gpumon before them.

    The n-th process holds 10 (n + 1) GiB. What ends gives its memory back where the driver
    ``frees`` it; otherwise the driver lists it on, as ``[Not Found]`` in nvidia-smi.
    """
    with Driver([h100(), h100()], driver_version="570.124.06") as driver:
        started: list[subprocess.Popen[bytes]] = []
        blocks = [owners(1, command, **how) for command in commands]  # type: ignore[arg-type]  # keywords pass through
        try:
            for block in blocks:
                started += block.__enter__()
            card = driver.cards[1]
            card.processes = [
                Owner(process.pid, memory=10 * (n + 1) * GIB, sm=20)
                for n, process in enumerate(started)
            ]
            card.memory_used = sum(owner.memory or 0 for owner in card.processes) + GIB // 4
            env = {**driver.env(), "XDG_STATE_HOME": str(tmp_path / "state")}
            with (
                buried(driver) if frees else nullcontext(),
                Screen([*GPUMON, "-n", "0.1", *arguments], env, columns, lines) as screen,
            ):
                screen.wait_for(rf"{started[-1].pid}")
                yield screen, started, driver
        finally:
            for block in blocks:
                block.__exit__(None, None, None)


RUNAWAY = ["python", "runaway.py", "--forever"]
TRAINING = ["python", "train.py", "--config", "big.yaml"]


def test_a_runaway_is_found_and_ended_and_its_memory_is_back(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY, TRAINING]) as (screen, started, _):
        # A wrong term is told, and the last good filter stays.
        screen.press_away("/mem>15G", "runaway.py")
        screen.press(" >", "a term has no spaces in it")
        screen.wait_gone("runaway.py")
        screen.wait_for("train.py")
        screen.press("\x1b", r"runaway.py[\s\S]*\n q quit")
        screen.press("/runaw\rk", rf"{started[0].pid}.*10\.0 GiB on GPU 1[\s\S]*no children")
        screen.type(RIGHT)
        screen.press("\r", r"✓  1 of 1 ended, 10\.0 GiB came back on GPU 1")
        assert started[0].wait(PATIENCE) == -15
        assert started[1].poll() is None
        screen.press_away("\x1b", "came back")
        log = (tmp_path / "state/gpumon/signals.jsonl").read_text()
        assert str(started[0].pid) in log
        assert (tmp_path / "state/gpumon/signals.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_memory_of_an_ended_process_that_the_driver_still_lists_did_not_come_back(
    tmp_path: Path,
) -> None:
    with machine(tmp_path, [RUNAWAY, TRAINING], frees=False) as (screen, started, driver):
        pid = started[0].pid
        screen.press("/runaw\rk", r"no children")
        screen.type(RIGHT)
        screen.type("\r")
        # Without its parent's wait it would be a zombie, which /proc still shows.
        assert started[0].wait(PATIENCE) == -15
        screen.wait_for(
            rf"!  1 of 1 ended, but 10\.0 GiB stay on GPU 1: the driver still lists {pid}, which "
            "has ended"
        )
        assert "came back" not in screen.text()
        screen.wait_for(rf" {pid} .*10\.0G .*ended\(still listed\) .*runaw")
        assert "not visible" not in screen.text()
        screen.press("k", rf"{pid} [\s\S]*it has ended: no signal reaches it[\s\S]*frees no memory")
        screen.press_away("\x1b", "no signal reaches it")
        card = driver.cards[1]
        card.processes = [owner for owner in card.processes if owner.pid != pid]
        card.memory_used = 20 * GIB + GIB // 4
        screen.wait_for(r"✓  1 of 1 ended, 10\.0 GiB came back on GPU 1")


def test_what_the_dialog_names_is_ended_though_the_list_moved_under_it(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY, TRAINING], columns=200) as (screen, started, driver):
        screen.press(DOWN, r"▸.*train.py")
        screen.press("k", "no children")
        card = driver.cards[1]
        card.processes = [
            Owner(started[0].pid, memory=30 * GIB, sm=20),
            Owner(started[1].pid, memory=5 * GIB, sm=20),
        ]
        screen.wait_for(r"30\.0G +20")
        screen.type(RIGHT)
        screen.press("\r", "1 of 1 ended")
        assert started[1].wait(PATIENCE) == -15
        assert started[0].poll() is None


@pytest.mark.slow
def test_what_ignores_term_is_offered_kill(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY], stubborn=True, children=3) as (screen, started, _):
        screen.press(DOWN, "▸")
        screen.press("k", r"\+ 3 children")
        screen.type(RIGHT)
        screen.press("\r", "TERM sent .* ago · 0 of 4 ended")
        screen.wait_for("k: send KILL to the rest")
        screen.press("k", "Send KILL")
        screen.wait(lambda it: "looking for" not in it.text(), "waiting for the children")
        screen.type(RIGHT)
        screen.press("\r", r"4 of 4 ended, 10\.0 GiB came back on GPU 1")
        assert started[0].wait(PATIENCE) == -9


def test_readonly_leads_to_no_signal(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY], "--readonly") as (screen, started, _):
        screen.press(DOWN, "▸")
        assert "k end" not in screen.text()
        screen.press("k", "gpumon is read-only here: no signal is sent")
        assert started[0].poll() is None
        screen.press("?", "Filter the processes")
        assert "End the process" not in screen.text()


@pytest.mark.slow
def test_a_tagged_pair_is_ended_together(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY, TRAINING, RUNAWAY]) as (screen, started, _):
        screen.press("/runaway\ra", "2 tagged")
        screen.type("\x1b")  # the tags first ...
        screen.wait_gone("2 tagged")
        screen.press("a", "2 tagged")
        screen.press("k", "Send TERM to 2")
        screen.wait_for("no children")
        screen.type(RIGHT)
        screen.press("\r", r"2 of 2 ended, 40\.0 GiB came back on GPU 1")
        assert [started[0].wait(PATIENCE), started[2].wait(PATIENCE)] == [-15, -15]
        assert started[1].poll() is None


def point_at(screen: Screen, pid: int) -> None:
    """Put the cursor on the line of a process."""
    screen.wait_for(rf" {pid} ")
    line = next(n for n, row in enumerate(screen.rows()) if f" {pid} " in row)
    screen.click(12, line)
    screen.wait_for(rf"▸.* {pid} ")


@pytest.mark.slow
def test_the_tree_shows_the_children_their_tags_go_with_it_and_users_narrow(tmp_path: Path) -> None:
    commands = [RUNAWAY, TRAINING]
    with machine(tmp_path, commands, children=6, columns=180, lines=60) as (screen, started, _):
        loader = min(lives.children(started[0].pid))
        screen.press("t", r"\+6 .*runaway.py")
        point_at(screen, started[0].pid)
        screen.type(RIGHT)
        point_at(screen, loader)
        screen.press(" ", "1 tagged")
        screen.press("k", rf"{loader} .*no GPU")
        screen.wait_for("no children")
        screen.press_away("\x1b", "no children")
        screen.press_away("t", "1 tagged")
        assert started[0].poll() is None
        screen.press("t", r"├─.*runaway.py")
        screen.press("u", "GPU-HOURS")
        screen.press(DOWN, "▸")
        screen.press("\r", rf"processes · only {lives.user_name(os.geteuid())} ")
        screen.wait_for(rf"{started[0].pid}")


@pytest.mark.slow
def test_the_key_of_a_dialog_confirms_nothing_and_under_it_no_others_are_told(
    tmp_path: Path,
) -> None:
    with machine(tmp_path, [RUNAWAY], columns=80, lines=24) as (screen, started, _):
        screen.press(DOWN, "▸")
        screen.press("k", "no children")
        screen.type("kkkkkk")
        screen.type("\x1b[3~\x1b[20~")
        screen.press_away("\r", "no children")
        screen.press("o", "self")
        assert started[0].poll() is None
        assert not (tmp_path / "state/gpumon/signals.jsonl").exists()
        screen.press_away("o", "self ")
        for key, said in (
            ("k", "← → buttons   Tab parts   Enter press   Esc cancel"),
            ("e", "Space show or hide .* Esc cancel"),
            ("@", "Enter go   Esc cancel"),
        ):
            screen.wait_for("q quit")
            screen.press(key, said)
            screen.wait_gone("q quit")
            screen.type("\x1b")
        screen.wait_for("q quit")
        # So is it where it was opened from a page.
        screen.press_away("\x1b[F", "REWIND")
        screen.press("\r", "Esc +(back|close)")
        screen.press("k", "Tab parts")
        screen.wait(lambda it: not it.rows()[-1].strip(), "waiting for a blank footer")


TORCHRUN = ["python", "/usr/local/bin/torchrun", "--nproc-per-node", "2", "train.py"]


@pytest.mark.slow
def test_a_job_is_ended_as_one_with_its_launcher_and_its_memory_is_back(tmp_path: Path) -> None:
    with machine(tmp_path, [TORCHRUN, RUNAWAY], children=3) as (screen, started, driver):
        launcher, runaway = (process.pid for process in started)
        workers = lives.children(launcher)
        driver.cards[1].processes = [
            *(Owner(pid, memory=10 * GIB, sm=20) for pid in workers),
            Owner(runaway, memory=10 * GIB),
        ]
        screen.press("g", rf"30\.0G[^\n]*torchrun {launcher} · 3 ")
        # A filter hides a part of the job, but the job is ended as a whole.
        screen.type(f"/not pid={workers[0]}\r")
        screen.wait_for(rf"3 of 4 processes[\s\S]*▸[^\n]*torchrun {launcher} · 2 ")
        screen.press(
            "k",
            rf"End job torchrun {launcher}: 4 processes[\s\S]*{launcher} [\s\S]*torchrun --nproc"
            rf"[\s\S]*will free about 30\.0 GiB on GPU 1[\s\S]*Send TERM to 4",
        )
        assert all(str(pid) in screen.text() for pid in workers)
        screen.type(RIGHT)
        screen.type("\r")
        screen.wait_for(rf"✓  job torchrun {launcher}: 4 of 4 ended, 30\.0 GiB came back on GPU 1")
        assert started[0].wait(PATIENCE) == -15
        assert started[1].poll() is None
        log = (tmp_path / "state/gpumon/signals.jsonl").read_text().splitlines()
        assert {json.loads(line)["pid"] for line in log} == {launcher, *workers}


@pytest.mark.slow
def test_the_smallest_terminal_names_a_process_before_it_confirms(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY], children=3, columns=60, lines=15) as (
        screen,
        started,
        driver,
    ):
        pid = started[0].pid
        for card, memory in zip(driver.cards, (30, 40), strict=True):
            card.processes = [Owner(pid, memory=memory * GIB, sm=20)]
            card.memory_used = memory * GIB + GIB // 4
        screen.wait_for(rf"0,1 +{pid} .*70\.0G")
        screen.press(DOWN, "▸")
        shown = screen.press("k", r"Send TERM to 4[\s\S]*lines 1–\d+ of \d+ · PgUp PgDn")
        assert f"{pid}  {lives.user_name(os.geteuid())}" in shown
        assert "runaway.py" in shown
        assert shown.count("about") == 1
        screen.type(RIGHT)
        screen.press("\r", "of 4 ended")
        assert started[0].wait(PATIENCE) == -15


def test_a_job_on_many_gpus_is_summed_up_in_the_smallest_terminal(tmp_path: Path) -> None:
    with (
        Driver([h100() for _ in range(16)], driver_version="570.124.06") as driver,
        owners(1, RUNAWAY) as (process,),
    ):
        for index, card in enumerate(driver.cards):
            card.processes = [Owner(process.pid, memory=(40 + index) * GIB, sm=20)]
            card.memory_used = (40 + index) * GIB
        env = {**driver.env(), "XDG_STATE_HOME": str(tmp_path)}
        with Screen([*GPUMON, "-n", "0.1"], env, 60, 15) as screen:
            screen.wait_for(rf"{process.pid}")
            screen.press(DOWN, "▸")
            screen.type("k")
            screen.wait_for(
                rf"{process.pid}  [\s\S]*will free about 760\.0 GiB on GPU 0-15[\s\S]*Send TERM"
            )


def test_a_terminal_too_small_to_name_the_processes_confirms_nothing(tmp_path: Path) -> None:
    with machine(tmp_path, [RUNAWAY], columns=100, lines=30) as (screen, started, _):
        screen.press(DOWN, "▸")
        screen.press("k", r"no children[\s\S]*▌ SIGTERM [\s\S]*Send TERM")
        screen.resize(60, 15)
        screen.wait_for(rf"{started[0].pid}[\s\S]*▌ TERM [\s\S]*Send TERM")
        screen.resize(40, 10)
        screen.wait_for("too small for this: 60×15")
        screen.resize(100, 30)
        screen.wait_for(rf"▸.*{started[0].pid}")
        assert "Send TERM" not in screen.text()
        assert started[0].poll() is None
        assert not (tmp_path / "state/gpumon/signals.jsonl").exists()
