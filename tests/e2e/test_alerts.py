"""Alerts in a real terminal: those of the configuration, ``w``, and the page of both."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.command import GPUMON, write_config
from tests.demo import COARSE_DEMO
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.e2e.demo import READY
from tests.e2e.test_state_help import cool, hot, wait_for_samples
from tests.e2e.test_terminal import CAN_SEND
from tests.lives import NEEDS_ALL_PIDS
from tests.screen import PATIENCE, Screen

DOWN, TAB, ESCAPE = "\x1b[B", "\t", "\x1b"


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver([h100(), h100()]) as driver:
        yield driver


def screen_with(
    folder: Path,
    config: str,
    driver: Driver | None = None,
    arguments: Sequence[str] = (),
    columns: int = 140,
    lines: int = 30,
) -> Screen:
    write_config(folder, config)
    base = os.environ if driver is None else driver.env()
    env = {**base, "XDG_CONFIG_HOME": str(folder)}
    command = COARSE_DEMO if driver is None else [*GPUMON, "-n", "0.1"]
    return Screen([*command, *arguments], env, columns, lines)


def rung(screen: Screen, before: int) -> None:
    """Wait until the bell has rung since; every control sequence that ends with it is no bell."""
    screen.wait(lambda it: bells(it) > before, "waiting for the bell")


def bells(screen: Screen) -> int:
    plain = re.sub(rb"\x1b\][^\x07]*\x07", b"", bytes(screen.output))
    return plain.count(b"\x07")


@pytest.mark.slow
@NEEDS_ALL_PIDS
def test_the_end_of_a_process_is_reported_with_how_long_it_ran_and_its_memory(
    driver: Driver,
) -> None:
    with owners(2, ["python", "train.py"]) as started:
        card = driver.cards[0]
        card.memory_used = 21 * GIB
        driver.cards[1].memory_used = GIB
        card.processes = [Owner(started[0].pid, memory=20 * GIB, sm=20)]
        driver.cards[1].processes = [Owner(started[1].pid, memory=GIB, sm=20)]
        pid = started[0].pid
        with screen_with_driver(driver) as screen:
            screen.wait_for(rf" {pid} ")
            screen.press(DOWN, rf"▸ *0 +{pid} ")
            screen.press("w", rf"will notify when process {pid} has ended \(w cancels\)")
            screen.wait_for(rf"▸ *0★ *{pid} ")
            before = bells(screen)
            started[0].send_signal(signal.SIGKILL)
            started[0].wait(PATIENCE)
            card.processes = []
            card.memory_used = GIB
            screen.wait_for(rf"process {pid} has ended after \d+[ms]\d*s?; its 20\.0 GiB came back")
            rung(screen, before)
            shown = re.compile(rb"\x1b\]9;\S+ \S* ?%d [^\x07]*ended: process %d has " % (pid, pid))
            screen.wait(lambda it: shown.search(it.output) is not None, "a notification")
            screen.wait_for(r" ! 1 alert ")
            screen.press(
                "!",
                rf"\n▸ \d\d:\d\d △ \S+ \S* ?{pid}[^\n]*: ended +since [^\n]*\n"
                rf" +process {pid} has ended [^\n]*GiB came back \(alert {pid} ends\)",
            )
            # The process is gone, and its GPU is still there.
            screen.press("\r", r"GPU 0 [\s\S]*Esc back")
            screen.press(ESCAPE, r"\n▸ \d\d:\d\d △")
            screen.press(ESCAPE, r"COMMAND[\s\S]*\n q quit")
            assert "alert" not in screen.rows()[0]
            assert "★" not in screen.text()
            screen.quit()


def screen_with_driver(driver: Driver, columns: int = 140, lines: int = 30) -> Screen:
    return Screen([*GPUMON, "-n", "0.1"], driver.env(), columns, lines)


@pytest.mark.slow
@NEEDS_ALL_PIDS
def test_the_same_key_again_cancels_and_the_page_of_a_process_has_it_too(driver: Driver) -> None:
    with owners(1, ["python", "train.py"]) as started:
        pid = started[0].pid
        driver.cards[0].processes = [Owner(pid, memory=GIB, sm=20)]
        with screen_with_driver(driver) as screen:
            screen.wait_for(rf" {pid} ")
            screen.press(DOWN + "\r", rf"process {pid}[\s\S]*Esc back[^\n]*w notify when ended")
            screen.press("w", rf"will notify when process {pid} has ended")
            screen.press(ESCAPE, rf"▸ *0★ *{pid} [\s\S]*w\[notify when ended\]")
            screen.press("w", rf"process {pid} is no longer watched")
            screen.wait_for(rf"▸ *0 +{pid} ")
            driver.cards[0].processes = []
            screen.wait_for("no process is on a GPU")
            wait_for_samples(screen, driver)
            screen.press("!", "There are no notifications")


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "lines"), [(200, 50), (60, 15)])
def test_an_alert_of_the_configuration_is_reported_once_however_it_flaps(
    driver: Driver, tmp_path: Path, columns: int, lines: int
) -> None:
    config = '[[alerts]]\nwhen = "hot"\ndo = ["bell", "desktop"]\n'
    with screen_with(tmp_path, config, driver, columns=columns, lines=lines) as screen:
        screen.wait_for(r"○ free[\s\S]*\n q quit")
        wait_for_samples(screen, driver)
        before = bells(screen)
        hot(driver)
        screen.wait_for(r"GPU 0 \(H100[^)]*\) of \S+: too hot")
        rung(screen, before)
        screen.wait_for(" ! 1 alert ")
        cool(screen, driver)
        screen.wait_gone("hot: HW")
        hot(driver)
        screen.wait_for("hot: HW")
        cool(screen, driver)
        screen.wait_gone("hot: HW")
        text = screen.press(
            "!", r"▸ \d\d:\d\d ▲ \S+ GPU 0: hot[\s\S]*too hot[\s\S]*hot → bell, desktop"
        )
        assert text.count("GPU 0: hot") == 1
        assert screen.output.count(b"\x1b]9;") == 1


@pytest.mark.slow
def test_alerts_go_on_while_the_past_is_shown_and_a_past_moment_gives_none(
    driver: Driver, tmp_path: Path
) -> None:
    with screen_with(tmp_path, '[[alerts]]\nwhen = "hot"\n', driver) as screen:
        screen.wait_for(r"○ free[\s\S]*\n q quit")
        wait_for_samples(screen, driver)
        screen.press("[", "REWIND")
        screen.press("w", "this is the past: nothing becomes free or ends in it")
        hot(driver)
        screen.wait_for(r"GPU 0 \(H100[^)]*\) of \S+: too hot")
        screen.wait_for("REWIND")
        screen.press("!", r"GPU 0: hot[\s\S]*hot → this page only")


@pytest.mark.slow
def test_the_page_of_alerts_lists_what_is_watched(tmp_path: Path) -> None:
    with screen_with(tmp_path, '[[alerts]]\nname = "broken"\nwhen = "lost"\n') as screen:
        screen.wait_for(READY)
        screen.press("/58204\rw", "will notify when process 58204 has ended")
        screen.press(ESCAPE, "── 18 processes")
        screen.press("g", "· 2 processes")
        screen.press(DOWN + "w", "will notify when (job|process) .* has ended")
        screen.press("g\tw", r"will notify when GPU \d is free")
        screen.press(
            "!",
            r"Watched with w[\s\S]*GPU \d, until it is free\n *process 58204, until it ends: .*py"
            r"[\s\S]*(job|process) .*, until it ends: [\s\S]*broken: lost",
        )
        screen.press("q", READY)
        screen.press("w", r"GPU \d is no longer watched")
        screen.press("!", "process 58204, until it ends")
        assert ", until it is free" not in screen.text()


@pytest.mark.slow
def test_the_demo_notifies_in_the_terminal_and_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    config = f"""
[[alerts]]
name = "somebody ends"
when = "ends user:ann"
do = ["bell", {{ command = ["touch", "{ran}"] }}]
"""
    with screen_with(tmp_path, config) as screen:
        screen.wait_for(READY)
        screen.wait_for(r"idle ≥?3h3\dm")
        screen.press("/58204\rw", "will notify when process 58204 has ended")
        screen.press("k", CAN_SEND)
        screen.press("\x1b[C\r", r" ! 2 alerts ")
        text = screen.press("!", r"58204[\s\S]*58204[\s\S]*nothing leaves this terminal")
        assert "somebody ends: ends user:ann → bell" in text
        screen.press("q", r"\n q quit")
        screen.quit()
    assert not ran.exists()


def test_an_error_in_an_alert_is_shown_at_the_start(tmp_path: Path) -> None:
    with screen_with(tmp_path, '[[alerts]]\nwhen = "warm"\n') as screen:
        screen.wait_for(r"config\.toml, line 2: .*warm")


def test_a_page_of_alerts_in_a_fleet_says_where_they_are_checked() -> None:
    with Screen([*COARSE_DEMO, "--hosts", "gpu-[01-02]"], columns=100, lines=24) as screen:
        screen.wait_for(r"── 2 hosts[\s\S]*\n q quit")
        screen.press(DOWN + "\r", r"GPU-MEM▼[\s\S]*\n q quit")
        screen.press("!", r"There are no notifications[\s\S]*run gpumon watch there")


@pytest.mark.slow
def test_a_command_gets_the_notice_and_a_failing_one_is_reported_once(
    driver: Driver, tmp_path: Path
) -> None:
    got = tmp_path / "got.json"
    config = f"""
[[alerts]]
when = "hot"
do = [{{ command = ["sh", "-c", "cat > '{got}'"] }}, {{ command = ["false"] }}]
"""
    with screen_with(tmp_path, config, driver) as screen:
        screen.wait_for(r"○ free[\s\S]*\n q quit")
        wait_for_samples(screen, driver)
        hot(driver)
        screen.wait_for(" ! 1 alert ")
        screen.wait(lambda _: got.exists() and got.stat().st_size > 0, "waiting for the command")
        screen.type("!")
        # It stands on the page, and for some seconds in the last line too.
        screen.wait_for(r"GPU 0: hot[\s\S]*hot → command[\s\S]*command false failed: .*\n")
        assert "\n".join(screen.rows()[:-1]).count("command false failed") == 1
        screen.press("q", r"\n q quit")
        screen.quit()
    assert json.loads(got.read_text())["gpu_index"] == 0


@pytest.mark.slow
def test_of_two_dashboards_one_runs_the_commands_and_both_list(
    driver: Driver, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    config = (
        f'[[alerts]]\nwhen = "hot"\ndo = [{{ command = ["sh", "-c", "echo x >> \'{ran}\'"] }}]\n'
    )
    write_config(tmp_path, config)
    env = {**driver.env(), "XDG_STATE_HOME": f"{tmp_path}/state", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [*GPUMON, "-n", "0.1"]
    with Screen(command, env, 140, 30) as one, Screen(command, env, 140, 30) as other:
        for screen in (one, other):
            screen.wait_for(r"○ free")
            # What holds when a dashboard starts is not reported.
            wait_for_samples(screen, driver)
        hot(driver)
        for screen in (one, other):
            screen.wait_for(" ! 1 alert ")
        one.wait(lambda _: ran.exists(), "waiting for the command")
        for screen in (one, other):
            screen.press("!", "GPU 0: hot")
            screen.press("q", r"\n q quit")
            screen.quit()
    assert ran.read_text() == "x\n"
