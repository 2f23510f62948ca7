"""Back in time, logged and replayed, in a real terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.recording.csv.files import log_files
from tests.build import NOON, gpu, process, snapshot
from tests.command import GPUMON, run_program
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.lives import NEEDS_ALL_PIDS
from tests.recording.csv.command import rows
from tests.report.logs import write_log
from tests.screen import Screen

HOME, END, ESCAPE = "\x1b[H", "\x1b[F", "\x1b"
BACK, ON = "[", "]"
LOGGED_THREE_SECONDS = r"● log \S+ (?![012]s)\d"
"""Or more, where time flies."""
CLOCK = re.compile(r"\d\d:\d\d:\d\d")


@contextmanager
def machine() -> Iterator[tuple[Driver, list[subprocess.Popen[bytes]]]]:
    """Two cards that are busy at 11 % each, and a process on the second."""
    with (
        Driver([h100(), h100()], driver_version="570.124.06") as driver,
        owners(1, ["python", "train.py", "--config", "big.yaml"]) as started,
    ):
        for card in driver.cards:
            card.utilization_gpu = 11
            card.memory_used = 2 * GIB
        driver.cards[1].processes = [Owner(started[0].pid, memory=GIB, sm=20)]
        yield driver, started


def screen_of(driver: Driver, *arguments: str, columns: int = 200, lines: int = 50) -> Screen:
    return Screen([*GPUMON, "-n", "0.1", *arguments], driver.env(), columns, lines)


def samples_of(driver: Driver) -> int:
    """How many were taken so far, a tenth of a second from one to the next at least."""
    return driver.cards[0].calls()["nvmlDeviceGetUtilizationRates"].calls


def replay_of(log: Path, *arguments: str, columns: int = 200, lines: int = 50) -> Screen:
    command = [*GPUMON, "replay", str(log), *arguments]
    return Screen(command, dict(os.environ), columns, lines)


def busy(*percent: int) -> str:
    """Cards at these utilisations, one below the other; the machine's own is in the first row."""
    return r"\n" + "".join(rf"[\s\S]* {share}%" for share in percent)


def values_of(rows: list[str]) -> list[str]:
    """The rows of GPUs and processes, without what only the past has: times of day in charts."""
    return [row for row in rows if re.match(r" *\d+ +\S+ |  +⠒ util|── \d| clocks| +# +PID", row)]


def clock_of(screen: Screen) -> str:
    found = CLOCK.findall(screen.rows()[0])
    return found[-1] if found else ""


@pytest.mark.slow
def test_the_screen_as_it_was_and_back_to_now() -> None:
    with machine() as (driver, started), screen_of(driver) as screen:
        screen.wait_for(busy(11, 11))
        screen.wait_for(str(started[0].pid))
        driver.cards[0].utilization_gpu = 77
        driver.cards[1].processes = []
        screen.wait_for(busy(77))
        screen.wait_gone(str(started[0].pid))
        screen.press(BACK, "REWIND")
        for _ in range(20):
            screen.type(BACK)
        screen.wait_for(r"paused +\d\d:\d\d:\d\d +\d+s ago")
        screen.wait_for(str(started[0].pid))
        screen.wait_gone(busy(77))
        driver.cards[0].utilization_gpu = 33
        screen.press("\x1b[B\x1b[B", r"▸.*train.py")
        screen.press("k", "this is the past: nothing can be ended in it")
        assert started[0].poll() is None
        screen.press_away(END, "REWIND")
        # What came meanwhile was recorded too.
        screen.wait_for(busy(33))
        screen.press("b", rf"{started[0].pid} python of \S+ left GPU 1")
        screen.press_away(ESCAPE * 3, "REWIND")


@pytest.mark.slow
def test_home_and_end_are_the_ends_of_what_was_seen_and_a_click_on_the_bar_goes_there(
    tmp_path: Path,
) -> None:
    log = tmp_path / "run.csv"
    with machine() as (driver, _), screen_of(driver, "--log", str(log)) as screen:
        screen.wait_for(busy(11))
        driver.cards[0].utilization_gpu = 77
        screen.wait_for(busy(77))
        screen.wait_for(LOGGED_THREE_SECONDS)
        screen.press(BACK, r"Home first +End now")
        screen.press_away(HOME, busy(77))
        screen.press_away(END, "REWIND")
        screen.wait_for(busy(77))
        screen.quit()
    with replay_of(log, "--paused") as screen:
        screen.wait_for("REPLAY(.|\n)* 11%(.|\n)*❚❚ paused")
        screen.wait_for(r"Home first +End last")
        screen.press(END, busy(77))
        screen.press_away(HOME, busy(77))
        bar = next(y for y, row in enumerate(screen.rows()) if "❚❚ paused" in row)
        # The line goes as far as the log has been read.
        screen.wait(lambda it: "·" in it.rows()[bar], "waiting for the end of the log")
        screen.click(screen.rows()[bar].rindex("·"), bar)
        screen.wait_for(busy(77))
        screen.press("@", "Go to a time")
        screen.press("25:00\r", "is not a time")
        # Of one packet too no key overtakes another.
        screen.press("\x7f" * 5 + "+1h\x1b[D\x1b[D\x7f-\r", "is not in this recording")
        screen.press_away(ESCAPE, "Go to a time")
        screen.quit()


@pytest.mark.slow
@NEEDS_ALL_PIDS
@pytest.mark.parametrize("end", ["q", signal.SIGTERM, signal.SIGKILL])
def test_a_replay_shows_what_the_screen_showed_then(
    tmp_path: Path, end: str | signal.Signals
) -> None:
    log = tmp_path / "run.csv"
    shown: dict[str, list[str]] = {}
    with machine() as (driver, _), screen_of(driver, "-n", "1", "--log", str(log)) as screen:
        screen.wait_for("train.py")
        for second in range(8):
            before = clock_of(screen)
            driver.cards[0].utilization_gpu = 20 + second
            driver.cards[1].memory_used = (3 + second) * GIB
            screen.wait(lambda it, old=before: clock_of(it) not in ("", old), "waiting for a tick")  # type: ignore[misc]  # a default binds the value
            screen.wait_for(rf"util +{20 + second}%")
            shown[clock_of(screen)] = screen.rows()
        if isinstance(end, str):
            screen.type(end)
        else:
            screen.signal(end)
        screen.wait_end()
    stamps = {row["timestamp"]: CLOCK.findall(row["timestamp"])[0] for row in rows(log)}
    # Of two samples that fell into one second the screen's clock does not tell which it shows.
    seconds = Counter(stamps.values())
    moments = {clock: stamp for stamp, clock in stamps.items() if seconds[clock] == 1}
    assert len(shown.keys() & seconds.keys()) >= 7
    told = sorted(shown.keys() & moments.keys())
    # The first list of processes is older than their CPU time, and the next comes after four
    # seconds.
    clock = told[-3] if end == "q" else told[-2]
    with replay_of(log, "--paused", "--at", moments[clock]) as screen:
        then = values_of(shown[clock])
        screen.wait(lambda it: values_of(it.rows()) == then, "\n".join(["shown then", *then]))
        assert clock_of(screen) == clock


@pytest.mark.slow
def test_a_log_may_have_a_length_of_time(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with Screen([*GPUMON, "--demo"], env, columns=120, cwd=tmp_path) as screen:
        screen.wait_for(r"\n q quit")
        screen.press("l", "Log to a file for a length of time")
        screen.press("soon\r", "write seconds, or a time such as 30s")
        screen.press("\x7f\x7f\x7f\x7f2s\r", r"logging to gpumon-.*\.csv for 2s; L stops")
        screen.wait_for(r"logged to gpumon-.*\.csv: \d+ samples? in \ds")
        screen.quit()
        assert screen.text().count("gpumon replay") == 1


@pytest.mark.slow
def test_a_log_of_the_demo_is_named_after_the_demos_machine(tmp_path: Path) -> None:
    checkout = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with Screen([*GPUMON, "--demo"], checkout, cwd=tmp_path) as screen:
        screen.wait_for(" q quit")
        screen.press("L", r"logging to gpumon-ada-07-\d{8}-\d{6}\.csv; L stops")
        screen.quit()
    command = ["-m", "gpumon", "log", "--demo", "--for", "0.1s", "without-screen/"]
    (tmp_path / "without-screen").mkdir()
    subprocess.run([sys.executable, *command], cwd=tmp_path, env=checkout, check=True)
    assert {log.name[:14] for log in tmp_path.rglob("*.csv")} == {"gpumon-ada-07-"}


@pytest.mark.slow
def test_one_key_makes_a_log_that_is_replayed(tmp_path: Path) -> None:
    with machine() as (driver, _):
        environment = {**driver.env(), "PYTHONPATH": str(Path.cwd())}
        with Screen([*GPUMON, "-n", "0.1"], environment, 120, 30, cwd=tmp_path) as screen:
            screen.wait_for("train.py")
            screen.press("L", r"logging to gpumon-\S+\.csv; L stops")
            screen.wait_for(r"● log \S+ (?!0s)\d")
            screen.press("L", r"logged to gpumon-\S+\.csv: \d+ samples? in \d+s, ")
            screen.wait_gone("● log")
            screen.quit()
            screen.wait_for(r"gpumon: logged \d+ samples")
        (log,) = tmp_path.glob("gpumon-*[0-9].csv")
        assert {row["uuid"] for row in rows(log)} == {card.uuid for card in driver.cards}
        with replay_of(log) as screen:
            screen.wait_for("REPLAY(.|\n)*train.py")
            screen.press("L", "this is a log already")


def test_a_log_that_cannot_be_written_is_told_before_the_screen(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("mine,alone\n1,2\n")
    with machine() as (driver, _), screen_of(driver, "--log", f"{tmp_path}/notes.csv") as screen:
        assert screen.wait_end() == 1
        assert "gpumon: " in screen.text()
        assert "notes.csv" in screen.text().replace("\n", "")
    assert (tmp_path / "notes.csv").read_text() == "mine,alone\n1,2\n"


@pytest.mark.parametrize(
    ("content", "words"), [("", "empty"), ("a,b\n1,2\n", "line 1"), (None, "no")]
)
def test_what_is_no_log_is_told_in_a_sentence(
    tmp_path: Path, content: str | None, words: str
) -> None:
    log = tmp_path / "x.csv"
    if content is not None:
        log.write_text(content)
    with replay_of(log) as screen:
        assert screen.wait_end() == 1
        assert words in screen.text()
        assert "Traceback" not in screen.text()


@pytest.mark.slow
def test_a_replay_says_how_many_lines_are_damaged_as_a_report_does(tmp_path: Path) -> None:
    taken = (
        (snapshot(NOON + second, gpu(index=0), processes=(process(),)), float(second))
        for second in range(300)
    )
    log = write_log(tmp_path / "day.csv", taken)
    for path, place in ((log, 100), (log, 201), (log_files(log).processes, 10)):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[place] = b"garbage\n"
        path.write_bytes(b"".join(lines))
    told = run_program([*GPUMON, "report", str(log)], check=True).stdout
    damaged = "day.csv has 2 damaged lines, the first is line 101; unreadable values"
    assert damaged in " ".join(told.split())
    for argument in ("--paused", "--speed=10"):
        with replay_of(log, argument) as screen:
            screen.wait_for(rf"{re.escape(damaged)} count as unknown\. 1 more file of these logs")


def await_past(screen: Screen) -> None:
    """The demo's past is put where it can be looked back at a second after the start."""

    def goes_back(it: Screen) -> bool:
        if "REWIND" not in it.text() and "nothing has been seen" not in it.text():
            it.type(BACK)
        return "REWIND" in it.text()

    screen.wait(goes_back, "waiting for the past")
    screen.press_away(END, "REWIND")


@pytest.mark.slow
def test_a_log_that_cannot_grow_says_why_and_the_screen_goes_on(tmp_path: Path) -> None:
    with machine() as (driver, _):
        limited = f'ulimit -f 32; exec {sys.executable} -m gpumon -n 0.1 --log "{tmp_path}/run.csv"'
        with Screen(["sh", "-c", limited], driver.env(), 240, 30) as screen:
            screen.wait_for(r"● log: \d+ samples lost(.|\n)*the file has reached its largest size")
            driver.cards[0].utilization_gpu = 88
            screen.wait_for(busy(88))
            screen.quit()
            screen.wait_for(r"logged \d+ samples? in \d+s, \d+ samples? lost")


@pytest.mark.slow
def test_going_on_past_the_newest_sample_playing_and_the_end_go_back_to_now() -> None:
    with machine() as (driver, _), screen_of(driver) as screen:
        screen.wait_for(busy(11))
        driver.cards[0].utilization_gpu = 77
        screen.wait_for(busy(77))
        for on in (ON, "}", ")"):
            screen.press(on, "this is now")
            screen.press(BACK, "REWIND")
            screen.wait_gone("this is now")
            screen.press_away(")", "REWIND")
        # Pressed faster than anything is shown, back is still back: there are four seconds to go.
        screen.wait(lambda _: samples_of(driver) > 40, "a past")
        screen.press(f"{BACK * 3}{ON}", "REWIND(.|\n)*paused")
        screen.press_away("]" * 40, "REWIND")
        # What is played catches up with the present.
        screen.press(BACK, "REWIND")
        for _ in range(6):
            screen.type("+")
        screen.wait_for("playback speed 100×")
        screen.press_away("p", "REWIND")
        # A held picture is left for the past, and the past for the present.
        screen.press("p", "PAUSED(.|\n)*q quit")
        screen.press(BACK, "REWIND")
        screen.press_away(END, "REWIND")
        screen.wait_for("PAUSED")


@pytest.mark.slow
def test_what_was_said_of_one_moment_is_not_said_of_another() -> None:
    with machine() as (driver, started), screen_of(driver) as screen:
        screen.wait_for(str(started[0].pid))
        driver.cards[1].processes = []
        screen.wait_gone(str(started[0].pid))
        driver.cards[0].utilization_gpu = 77
        screen.wait_for(busy(77))
        for move in (BACK, "{", HOME, END):
            screen.type("b")
            said = f" {started[0].pid} python of "
            screen.wait(lambda it, said=said: said in it.rows()[-1], "what happened")  # type: ignore[misc]  # a default binds the value
            screen.type(move)
            screen.wait(lambda it: " q quit" in it.rows()[-1], "the keys")
            screen.press_away(END, "REWIND")


def test_what_happened_just_now_is_the_event_before_now() -> None:
    with machine() as (driver, started), screen_of(driver, "-n", "2") as screen:
        screen.wait_for(str(started[0].pid))
        driver.cards[1].processes = []
        # The newest sample is the one it left in, for two seconds.
        screen.wait_gone(str(started[0].pid))
        screen.type("b")
        said = f" {started[0].pid} python of "
        screen.wait(lambda it: said in it.rows()[-1], "what happened")
        # The moment it happened at is shown by now: the one before it is asked for.
        screen.press("b", "no event is known before this moment")


@pytest.mark.slow
def test_a_step_back_changes_nothing_of_what_is_known_and_is_shown_at_once() -> None:
    with Screen([*GPUMON, "--demo"], dict(os.environ), 120, 30) as screen:
        screen.wait_for(r"idle 3h1\dm  bo(.|\n)*stuck\? 100%(.|\n)*LOST(.|\n)*processes")
        await_past(screen)
        screen.type(BACK)
        # The screen as it stands and a while later, once all that led to the moment is known.
        for shown in ("REWIND(.|\n)*LOST(.|\n)*paused", r"REWIND(.|\n)*1 H100 △ busy but empty"):
            frame = screen.wait_for(shown)
            assert re.search(r"5 H100 ▲ stuck\? 100% at 17% power, 2\dm  chen", frame)
            assert re.search(r"3 H100 ◐ idle 3h1\dm  bo 52\.0G", frame)
        screen.press_away(f"{BACK * 3}{END}", "REWIND")
        for key in ("b", HOME):
            if key == HOME:
                screen.type(BACK)
            screen.type(key)
            # The oldest moment of the demo is one before the card was lost.
            shown = "REWIND(.|\n)*paused" if key == HOME else "REWIND(.|\n)*LOST(.|\n)*paused"
            screen.wait_for(shown)
            screen.press_away(f"{BACK * 3}{END}", "REWIND")
        screen.quit()


@pytest.mark.slow
def test_a_held_picture_stays_what_it_is_however_often_it_is_drawn() -> None:
    with machine() as (driver, _), screen_of(driver) as screen:
        screen.wait_for(busy(11, 11))
        # Something to be seen in the graphs.
        screen.wait_for(r"[⠉⠒⠤⣀]{3}")
        screen.press("p", "PAUSED")
        # In the second that the newest column of the graphs tells of.
        for card in driver.cards:
            card.utilization_gpu = 95
        held = screen.wait_for("PAUSED(.|\n)*q quit")
        # Of three seconds the graphs would tell.
        before = samples_of(driver)
        screen.wait(lambda _: samples_of(driver) >= before + 30, "samples")
        screen.resize(190, 50)
        screen.wait_for(r"(?m)^ gpumon .{170,179}0\.1s$")
        screen.resize(200, 50)
        screen.wait(lambda it: it.text() == held, "the same picture")


XID = Accident(NOON + 10.5, AccidentKind.ERROR_CODE, "GPU-0", 31, 41233, "python")


def test_x_lists_accidents_and_enter_goes_to_their_moment(tmp_path: Path) -> None:
    python = replace(process(41233, user="chen"), name="python", command=("python", "train.py"))
    samples = [snapshot(NOON + at, processes=(python,) * (at < 11)) for at in range(60)]
    told = [replace(each, accidents=(XID,) * (each.time > XID.time)) for each in samples]
    log = write_log(tmp_path / "run.csv", zip(told, map(float, range(60)), strict=True))
    command = [*GPUMON, "replay", "--paused", str(log)]
    with Screen(command, dict(os.environ, TZ="UTC"), 100, 30) as screen:
        screen.wait_for(r"41233 chen")
        screen.press("x", r"▸ \d\d:\d\d 0 +XID 31 +41233 python of chen +41233 python.* ≥ 24\.0")
        screen.wait_for(r"command: python train\.py")
        screen.press("\r", r"\A[^\n]*:\d\d:10[^\n]*\n[\s\S]*41233 chen")
