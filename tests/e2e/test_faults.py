"""What else may happen to a machine, a driver or a program; README.md beside this has all of it."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpumon
from gpumon.system.resource_errors import lack_behind
from tests.command import run_gpumon, run_program
from tests.demo import COARSE_DEMO
from tests.driver import GIB, Card, Driver, Owner, h100, owners
from tests.e2e.demo import READY, changed_demo
from tests.e2e.test_live_screen import gpu_line, wait_for_line, words_of
from tests.e2e.test_terminal import left_clean, whole
from tests.lives import needs
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "gpumon", "-n", "0.1"]
CHECKOUT = str(Path(gpumon.__file__).parents[1])


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Two cards at 13 % and 23 %."""
    with Driver([h100(), h100()], driver_version="570.124.06") as made:
        for index, card in enumerate(made.cards):
            card.utilization_gpu = 13 + 10 * index
        yield made


def screen_of(driver: Driver, *arguments: str) -> Screen:
    return Screen([*GPUMON, *arguments], driver.env(), columns=120, lines=15)


def is_alive(screen: Screen, card: Card, index: int, percent: int) -> None:
    """What a card does is on the screen, and keys do what they do."""
    card.utilization_gpu = percent
    wait_for_line(screen, index, rf" {percent}%")
    screen.press("o", "self ")
    screen.press_away("o", "self ")


# The driver


@pytest.mark.slow
def test_all_cards_lost_at_once_are_all_told_and_may_come_back(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 1, "23%")
        for card in driver.cards:
            card.lost = True
        for index in range(2):
            wait_for_line(screen, index, r"✖ LOST since")
            assert "%" not in gpu_line(screen, index)
        screen.press("?", "type to search keys")
        screen.type("q")
        for card in driver.cards:
            card.lost = False
        is_alive(screen, driver.cards[1], 1, 77)


@pytest.mark.slow
def test_what_a_card_refuses_for_a_moment_is_back_by_itself(driver: Driver) -> None:
    refusing = driver.cards[0]
    refusing.memory_used = 30 * GIB

    def shown(screen: Screen) -> list[str]:
        line = gpu_line(screen, 0)
        assert not re.search(r" 30\.[1-9]/", line), "the reserve is not in use"
        return words_of(line)

    with screen_of(driver) as screen:
        wait_for_line(screen, 0, r" 30\.0/79\.6G .* 13%")
        usual = shown(screen)
        for code in (3, 4, 13, 25):
            for function in ("nvmlDeviceGetMemoryInfo_v2", None):
                refusing.fail(function, code)
                screen.wait(
                    lambda it: "30.0/79.6G" not in shown(it), f"waiting for {function}: {code}"
                )
                refusing.heal()
                screen.wait(lambda it: shown(it) == usual, f"waiting for {usual} after {code}")
        is_alive(screen, driver.cards[1], 1, 77)


ASKED_AT_FIRST = [
    *("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"),
    *("nvmlDeviceGetComputeRunningProcesses_v3", None),
]


@pytest.mark.slow
@pytest.mark.parametrize("function", ASKED_AT_FIRST)
def test_a_card_that_hangs_from_the_start_leaves_the_others_usable(
    driver: Driver, function: str | None
) -> None:
    driver.cards[0].hang(function)
    driver.cards[1].processes = [Owner(4_000_001, memory=3 * GIB)]
    with screen_of(driver) as screen:
        wait_for_line(screen, 1, r"● .* 23% ")
        screen.wait_for(r"GPU 0: no answer for \d+ s")
        screen.wait_for(r"(?m)^ 0 .*✖ no answer")
        assert "nvml" not in screen.text()
        screen.wait_for(r" 4000001 .* 3\.0G")
        is_alive(screen, driver.cards[1], 1, 77)
        driver.cards[0].release()
        wait_for_line(screen, 0, r"◎ busy.* 13% ")
        screen.wait_gone("no answer")
        is_alive(screen, driver.cards[1], 1, 78)
        screen.quit()


@pytest.mark.slow
def test_cards_that_hang_from_the_start_one_and_all_leave_the_screen_alive(driver: Driver) -> None:
    for card in driver.cards:
        card.hang()
    with screen_of(driver) as screen:
        for index in range(2):
            screen.wait_for(rf"(?m)^ {index} .*✖ no answer")
        screen.press("?", "type to search keys")
        screen.type("q")
        for card in driver.cards:
            card.release()
        is_alive(screen, driver.cards[0], 0, 77)


@pytest.mark.slow
@pytest.mark.parametrize("function", [ASKED_AT_FIRST[0], *ASKED_AT_FIRST[-2:]])
def test_commands_use_the_cards_beside_one_that_hangs(driver: Driver, function: str | None) -> None:
    driver.cards[0].hang(function)
    driver.cards[1].utilization_gpu = 0
    driver.cards[1].temperature = 44

    shown = run_gpumon("snapshot", "--format", "json", env=driver.env())
    hanging, sound = json.loads(shown.stdout)["gpus"]
    assert (hanging["index"], hanging["status"]) == (0, "no answer")
    assert (sound["status"], sound["temperature_gpu_celsius"]) == ("ok", 44)
    chosen = run_gpumon("select", "-v", env=driver.env())
    assert (chosen.returncode, chosen.stdout) == (0, f"{driver.cards[1].uuid}\n")
    assert "does not answer" in chosen.stderr
    assert "nvml" not in chosen.stderr


def test_a_card_that_hangs_is_not_said_not_to_be_there(driver: Driver) -> None:
    driver.cards[0].hang("nvmlDeviceGetHandleByIndex_v2")
    with screen_of(driver, "--gpus", f"1,{driver.cards[0].uuid}") as screen:
        screen.wait_for(r"(?m)^ 1 +H100 [^\n]*◎ busy[^\n]*$(?s:.*) 23% ")
        driver.cards[0].release()
        wait_for_line(screen, 0, r"◎ busy.* 13% ")


def test_a_driver_that_is_replaced_meanwhile_says_what_helps(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 1, "23%")
        driver.unload()
        driver.fail_init(18)
        driver.reload()
        screen.wait_for(r"Reboot|reboot")
        driver.fail_init(0)
        is_alive(screen, driver.cards[1], 1, 77)


@pytest.mark.slow
def test_five_thousand_processes_a_second_leave_the_screen_alive(driver: Driver) -> None:
    over = threading.Event()

    def churn() -> None:
        """Every tenth of a second 500 others, none of which this machine shows."""
        pid = 3_000_000
        while not over.wait(0.1):
            driver.cards[0].processes = [Owner(pid + n, memory=GIB // 16) for n in range(500)]
            pid = 3_000_000 + (pid + 500) % 900_000

    churning = threading.Thread(target=churn)
    with screen_of(driver) as screen:
        wait_for_line(screen, 1, "23%")
        churning.start()
        try:
            screen.wait_for(r"500 processes")
            for percent in (40, 50, 60):
                is_alive(screen, driver.cards[1], 1, percent)
                screen.press("\x1b[B\x1b[Bk", r"Send TERM|no process|is gone|ended")
                screen.press_away("\x1b", "Send TERM")
        finally:
            over.set()
            churning.join()
        driver.cards[0].processes = []
        screen.wait_for(r" 0 processes|no process")
        is_alive(screen, driver.cards[1], 1, 77)


# The machine


def test_without_a_free_descriptor_the_screen_lives_on(driver: Driver) -> None:
    with owners(1, ["python", "train.py"]) as (owner,), screen_of(driver) as screen:
        # What is there first is a picture: a key is taken by what comes after it.
        is_alive(screen, driver.cards[1], 1, 55)
        pid = screen.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        # All the numbers below are taken.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB)]
        screen.wait_for(rf" {owner.pid} ")
        is_alive(screen, driver.cards[1], 1, 77)
        for key in ("\x1b[B\r", "e", "L", "?", "T", "k"):
            screen.press(key, "[Tt]oo many (open )?files")
            screen.press_away("P", "[Tt]oo many (open )?files")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        screen.wait_for("train.py")
        screen.quit()
        assert left_clean(screen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "starved_ending"), [(False, False), (True, False), (False, True)]
)
def test_with_no_more_memory_to_be_had_it_ends_with_a_sentence(
    sampling: bool, starved_ending: bool
) -> None:
    program = (
        "def none(*_, **__):\n"
        "    raise MemoryError\n"
        "from gpumon.makers.demo import DemoSource\n"
        "from gpumon.ui.terminal.driver import TerminalDriver\n"
        "from gpumon.ui.screens.dashboard import DashboardScreen\n"
        "def pressed(*_):\n"
        f"    if {starved_ending}: TerminalDriver.stop_application_mode = none\n"
        f"    if {sampling}: DemoSource.sample = none\n"
        "    else: none()\n"
        "DashboardScreen.action_move = pressed"
    )
    with changed_demo(program) as screen:
        screen.wait_for(READY)
        screen.type("\x1b[B")
        assert screen.wait_end() == 1
        assert left_clean(screen)
        assert said_by(screen) == NO_MEMORY


def test_where_python_forgets_to_say_that_memory_ran_out_it_is_said() -> None:
    forgotten = SystemError("<function f> returned NULL without setting an exception")
    assert f"gpumon: {lack_behind(forgotten)}" == NO_MEMORY
    assert lack_behind(SystemError("bad argument to internal function")) is None


STARVED = """
import resource, sys, threading
threading.stack_size(int(sys.argv[1]) << 20)
if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20, resource.RLIM_INFINITY))
from gpumon.cli import main
sys.exit(main(sys.argv[3:]))
"""
"""The same program, whose threads take so much room, in so much room; both in MiB."""
NO_MEMORY = "gpumon: there is no memory left on this machine, or for this program."
NO_THREAD = (
    "gpumon: no thread can be started: this machine, or your limit of processes (ulimit -u) or of "
    "memory (ulimit -v), has no room for one more."
)


NO_FILES = (
    "gpumon: no more files can be opened: your limit of open files (ulimit -n), or this "
    "machine's, has no room for one more."
)


def said_by(screen: Screen) -> str:
    return " ".join(screen.text().split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "arguments"),
    [*((files, "") for files in (5, 6, 7, 8, 9, 10, 12)), (5, "--demo"), (8, "--demo")],
)
def test_where_few_files_can_be_opened_the_dashboard_says_so(
    driver: Driver, files: int, arguments: str
) -> None:
    shell = f"ulimit -n {files}; exec {sys.executable} -m gpumon {arguments}"
    with Screen(["sh", "-c", shell], driver.env()) as screen:
        assert screen.wait_end() == 1
        assert said_by(screen) == NO_FILES
        assert left_clean(screen)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["snapshot", "select", "wait --timeout 1", "log --for 0.1s"])
@pytest.mark.parametrize("files", [5, 6])
def test_where_few_files_can_be_opened_no_command_ends_with_a_traceback(
    driver: Driver, tmp_path: Path, files: int, command: str
) -> None:
    for card in driver.cards:
        card.utilization_gpu = 0
    done = run_program(
        ["sh", "-c", f"ulimit -n {files}; exec {sys.executable} -m gpumon {command}"],
        {**driver.env(), "PYTHONPATH": CHECKOUT},
        cwd=tmp_path,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or done.stderr.splitlines()[-1] == NO_FILES


@pytest.mark.parametrize("arguments", [[], ["--demo"]])
def test_where_no_thread_can_be_started_the_dashboard_says_so(
    driver: Driver, arguments: list[str]
) -> None:
    command = [sys.executable, "-c", STARVED, "16000", "4000", *arguments]
    with Screen(command, driver.env()) as screen:
        assert screen.wait_end() == 1
        assert said_by(screen) == NO_THREAD
        assert left_clean(screen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["snapshot"], ["log", "run.csv"], ["select"], ["wait"], ["run", "--", "touch", "it-ran"]],
)
def test_where_no_thread_can_be_started_every_command_says_so(
    driver: Driver, arguments: list[str], tmp_path: Path
) -> None:
    done = run_program(
        [sys.executable, "-c", STARVED, "16000", "4000", *arguments],
        {**driver.env(), "PYTHONPATH": CHECKOUT},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, NO_THREAD)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_no_thread_can_be_started_a_check_of_doctor_says_so(driver: Driver) -> None:
    done = run_program([sys.executable, "-c", STARVED, "16000", "4000", "doctor"], driver.env())
    assert (done.returncode, done.stderr) == (1, "")
    said = " ".join(done.stdout.split())
    assert f"FAIL answer The GPUs cannot be read: {NO_THREAD.removeprefix('gpumon: ')}" in said
    assert "PASS version" in said


@pytest.mark.slow
def test_when_memory_runs_out_it_lives_on_or_ends_with_a_sentence(driver: Driver) -> None:
    # Threads of this size cannot take over the stack of one that has ended.
    command = [sys.executable, "-c", STARVED, "64", "0", "-n", "0.1"]
    with (
        owners(1, ["python", "train.py"]) as (owner,),
        Screen(command, driver.env(), columns=120, lines=15) as screen,
    ):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB)]
        screen.wait_for("train.py")
        is_alive(screen, driver.cards[1], 1, 55)
        pid = screen.process.pid
        size = int(re.findall(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])
        resource.prlimit(pid, resource.RLIMIT_AS, (size << 10, resource.RLIM_INFINITY))
        # A page, a dialog, the help, the palette: what they need was not there before.
        for keys in ("\x1b[B\r", "\x1b", "e", "\x1b", "?", "\x1b", "\x10", "\x1b", "q"):
            seen = screen.frames()
            screen.type(keys)
            screen.wait(
                lambda it, seen=seen: it.process.poll() is not None or it.frames() > seen,  # type: ignore[misc]  # a default binds the value
                "waiting for any answer",
            )
            if screen.process.poll() is not None:
                break
        if screen.wait_end() != 0:
            said = said_by(screen)
            assert any(sentence in said for sentence in (NO_MEMORY, NO_THREAD)), said
        assert b"Traceback" not in screen.output
        assert left_clean(screen)


CLOCK = """
import os, sys, time
now = time.time
def shifted():
    try:
        return now() + float(open(sys.argv[1]).read() or 0)
    except OSError:
        return now()
time.time = shifted
from gpumon.cli import main
sys.exit(main(["-n", "0.1"]))
"""


@pytest.mark.slow
def test_a_clock_that_is_set_is_followed(driver: Driver, tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    command = [sys.executable, "-c", CLOCK, str(shift)]
    with (
        owners(1, ["python", "train.py"]) as (owner,),
        Screen(command, driver.env(), columns=120, lines=15) as screen,
    ):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB)]
        screen.wait_for("train.py")
        for place, seconds in enumerate((-7200, 7200, -1_600_000_000)):
            clock = clock_of(screen)
            (tmp_path / "new").write_text(str(seconds))
            (tmp_path / "new").rename(shift)
            screen.wait(
                lambda it, clock=clock: clock_of(it)[:2] not in ("", clock[:2]),  # type: ignore[misc]  # a default binds the value
                f"waiting for the time {seconds} s from here",
            )
            is_alive(screen, driver.cards[1], 1, 77 + place)
            assert not re.search(r" -\d+[smhd]", screen.text()), "no length of time is negative"
            for keys, what in (("\x1b[B\r", "Esc back"), ("q", "q quit"), ("[", "REWIND")):
                screen.press(keys, what)
            screen.press_away("\x1b[F", "REWIND")
        screen.quit()


def clock_of(screen: Screen) -> str:
    found = re.findall(r"\d\d:\d\d:\d\d", screen.rows()[0])
    return found[-1] if found else ""


# The terminal and signals


def threads_of(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


@pytest.mark.slow
def test_after_a_stop_that_nobody_announced_it_goes_on_and_can_be_left() -> None:
    with Screen(COARSE_DEMO, fresh=True) as screen:
        screen.wait_for(READY)
        screen.press("P", "PID▲")
        screen.type("M")
        screen.wait(whole, "waiting for the dashboard")
        pid = screen.process.pid
        before = threads_of(pid)
        for _ in range(3):
            screen.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED)
            taken = screen.output.count(b"\x1b[?1049h")
            screen.signal(signal.SIGCONT)
            screen.wait(
                lambda it, taken=taken: it.output.count(b"\x1b[?1049h") > taken,  # type: ignore[misc]  # a default binds the value
                "waiting for the terminal to be taken anew",
            )
            screen.wait(whole, "waiting for the dashboard")
        assert threads_of(pid) <= before, "nothing reads or writes beside another"
        screen.press("P", "PID▲")
        screen.quit()
        assert left_clean(screen)


@pytest.mark.parametrize("closed", ["0<&-", "0</dev/null"])
def test_without_anything_to_read_keys_from_it_says_what_to_use(closed: str) -> None:
    with Screen(["sh", "-c", f"exec {closed}; exec {sys.executable} -m tests.demo"]) as screen:
        assert screen.wait_end() == 1
        said = said_by(screen)
        assert "standard input is not a terminal" in said
        assert "use gpumon snapshot" in said
        assert b"\x1b" not in screen.output
        assert screen.attributes() == screen.attributes_before


@pytest.mark.slow
@pytest.mark.root
@needs("unshare")
@needs("setpriv")
def test_where_proc_hides_the_processes_of_others_their_rows_stay(driver: Driver) -> None:
    # A /proc of its own, which hides others' processes even from root, who may not look at them.
    hiding = (
        "mount -t proc -o hidepid=2,gid=54321 proc /proc || exit 77;"
        'exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "$@"'
    )
    with subprocess.Popen(["sleep", "1000"], user=65534, group=65534) as other:
        try:
            driver.cards[0].processes = [Owner(other.pid, memory=3 * GIB)]
            command = ["unshare", "--mount", "sh", "-c", hiding, "sh", *GPUMON]
            with Screen(command, driver.env(), columns=120, lines=15) as screen:
                screen.wait_for(rf" {other.pid} –? .* 3\.0G .*\(not visible here\)")
                is_alive(screen, driver.cards[1], 1, 77)
                screen.quit()
        finally:
            other.kill()
