"""``gpumon log`` against everything that happens to a program that runs for a night."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.command import run_program
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.known import known
from tests.lives import needs, user_name
from tests.recording.csv.command import (
    LOG,
    Log,
    logging,
    rows,
    run_log,
    wait_for_samples,
    wait_until,
)
from tests.screen import PATIENCE, Screen

ME = user_name(os.getuid())
TOO_LONG = r"the name is too long; choose a shorter one\.\n"


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Two cards whose values stand still until a test moves them."""
    with Driver([h100(), h100()], driver_version="570.124.06") as made:
        for index, card in enumerate(made.cards):
            card.memory_used = (index + 1) * 9 * GIB + 4096
            card.utilization_gpu = 10 * index + 3
            card.power_usage = 100_005 + index
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the GPUs of a log."""
    return tmp_path / "run.csv"


@contextmanager
def logged(driver: Driver, path: Path, samples: int = 2) -> Iterator[Log]:
    """A log that is running and has so many samples."""
    with logging(path, "-n", "0.1", env=driver.env()) as log:
        wait_for_samples(path, samples)
        yield log


# What stands in the files


def test_the_files_tell_what_the_driver_says_and_whose_work_it_is(
    driver: Driver, path: Path
) -> None:
    with owners(1, ["python", "train.py", "--lr", "3e-4"]) as started:
        pid = started[0].pid
        driver.cards[1].processes = [Owner(pid, memory=5 * GIB, sm=7)]
        with logged(driver, path, 3) as log:
            wait_for_samples(path.parent / "run.processes.csv", 1)
            assert log.end() == 0
    for row in rows(path):
        card = driver.cards[int(row["index"])]
        assert row["uuid"] == card.uuid
        assert round(float(row["memory.used [MiB]"]) * 2**20) == card.memory_used
        assert float(row["utilization.gpu [%]"]) == card.utilization_gpu
        assert float(row["power.draw [W]"]) * 1000 == card.power_usage
    (process,) = {
        (row["pid"], row["user"], row["used_gpu_memory [MiB]"].removesuffix(".0"), row["command"])
        for row in rows(path.parent / "run.processes.csv")
    }
    assert process == (str(pid), ME, str(5 * 1024), "python train.py --lr 3e-4")


def test_only_the_chosen_cards_and_the_users_own_processes_are_written(
    driver: Driver, path: Path
) -> None:
    driver.cards[1].processes = [Owner(3_999_999, memory=GIB)]
    done = run_log(path, "--for", "0.2", "--gpus", "1", "--user", "nobody-1", env=driver.env())
    assert done.returncode == 0
    assert {(row["index"], row["processes"]) for row in rows(path)} == {("1", "1")}
    assert rows(path.parent / "run.processes.csv") == []


def test_command_lines_are_left_out_where_that_is_asked(driver: Driver, path: Path) -> None:
    with owners(1, ["python", "--password", "hunter2"]) as started:
        driver.cards[0].processes = [Owner(started[0].pid, memory=GIB)]
        with logging(path, "-n", "0.1", "--no-commands", env=driver.env()) as log:
            found = wait_for_samples(path.parent / "run.processes.csv", 1)
            assert log.end() == 0
    assert found[0]["command"] == ""
    assert found[0]["pid"] == str(started[0].pid)
    assert all(b"hunter2" not in file.read_bytes() for file in path.parent.iterdir())


def test_nobody_else_may_read_it(driver: Driver, path: Path) -> None:
    done = run_log(path, "--for", "0.1", env=driver.env(), umask=0)
    assert done.returncode == 0
    assert sorted(file.name for file in path.parent.iterdir()) == ["run.csv", "run.processes.csv"]
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_a_name_it_is_called_after_the_machine_and_the_moment(
    driver: Driver, tmp_path: Path
) -> None:
    env = {**driver.env(), "PYTHONPATH": str(Path.cwd())}
    done = run_log("--for", "0.1", env=env, cwd=tmp_path)
    assert done.returncode == 0
    names = sorted(file.name for file in tmp_path.iterdir())
    assert re.fullmatch(r"gpumon-[\w-]+-\d{8}-\d{6}\.csv", names[0])
    assert f"gpumon replay {names[0]}" in done.stderr


def test_pandas_opens_both_files_with_no_options(driver: Driver, path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="there is no pandas here")
    with owners(2, ["python", "train.py", "=1+1"]) as started:
        driver.cards[0].processes = [Owner(one.pid, memory=5 * GIB, sm=7) for one in started]
        with logging(path, "-n", "0.1", env=driver.env()) as log:
            wait_for_samples(path.parent / "run.processes.csv", 1)
            wait_for_samples(path, 5)
            assert log.end() == 0
    cards = pandas.read_csv(path, parse_dates=["timestamp"])
    processes = pandas.read_csv(
        path.parent / "run.processes.csv", parse_dates=["timestamp", "start_time"]
    )
    assert len(cards) == len(rows(path))
    assert not cards.empty
    assert not processes.empty
    numeric = pandas.api.types.is_numeric_dtype
    for table, text in ((cards, CARD_TEXTS), (processes, PROCESS_TEXTS)):
        for name in table.columns.difference(text):
            assert numeric(table[name]), name
    assert str(cards["timestamp"].dtype).startswith("datetime64")
    assert str(processes["start_time"].dtype).startswith("datetime64")
    assert set(cards.groupby("index")["utilization.gpu [%]"].mean()) == {3.0, 13.0}
    assert cards["fan.speed [%]"].isna().all(), "what a GPU lacks is no number"


CARD_TEXTS = [
    *("timestamp", "accidents", "allocated.jobs", "allocated.users", "uuid", "name", "status"),
    *("pci.bus_id", "memory.unified", "pstate", "clocks_event_reasons.active", "ecc.mode.current"),
    *("remapped_rows.pending", "remapped_rows.failure", "retired_pages.pending"),
    *("gpu_recovery_action", "xid.at", "persistence_mode", "compute_mode", "display_mode"),
    *("display_active", "mig.mode.current", "status.since", "mig.devices", "host"),
    "driver_version",
]
PROCESS_TEXTS = [
    *("timestamp", "uuid", "start_time", "user", "type", "container", "job", "command", "name"),
    *("state", "visible", "slurm_job", "slurm_step", "notebook", "jupyter_kernel", "tmux"),
    *("environment", "launcher", "launcher_name", "parent"),
]


# How it ends


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_log_that_is_told_to_end_has_not_failed(
    driver: Driver, path: Path, number: signal.Signals
) -> None:
    with logged(driver, path, 3) as log:
        assert log.end(number) == 0
        said = log.said
    written = len({row["timestamp"] for row in rows(path)})
    assert re.search(
        rf"logged \ds to {re.escape(str(path))}: {written} samples, [\d.]+ KiB\n", said
    )
    named = shlex.quote(str(path))
    assert f"gpumon replay {named}; sum it up with: gpumon report {named}\n" in said
    assert "Traceback" not in said


def test_it_ends_by_itself_after_the_time_it_was_given(driver: Driver, path: Path) -> None:
    done = run_log(path, "-n", "0.1", "--for", "1s", env=driver.env())
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(
        f"gpumon: logging to {path} and run.processes.csv, a sample every 0.1 s, for 1s\n"
    )
    elapsed = [float(row["elapsed [s]"]) for row in rows(path)]
    assert elapsed == sorted(elapsed)
    assert elapsed[0] < 0.5 < elapsed[-1] < 30


def test_what_is_ignored_stays_ignored(driver: Driver, path: Path) -> None:
    # Where its output is a terminal, nohup leaves a file in the working directory.
    started = ["nohup", *LOG, str(path)]
    environment = {**driver.env(), "PYTHONPATH": str(Path.cwd())}
    with Screen([*started, "-n", "0.1"], environment, cwd=path.parent) as screen:
        found = wait_for_samples(path, 2)
        screen.hang_up()
        wait_for_samples(path, len(found) + 3)
        screen.signal(signal.SIGTERM)
        assert screen.process.wait(PATIENCE) == 0


def test_a_dropped_connection_ends_it_with_every_row_whole(driver: Driver, path: Path) -> None:
    with Screen([*LOG, str(path), "-n", "0.1"], driver.env()) as screen:
        wait_for_samples(path, 2)
        screen.hang_up()
        assert screen.process.wait(PATIENCE) == 0
    assert rows(path)


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_written_and_the_log_goes_on(
    driver: Driver, path: Path
) -> None:
    for _ in range(2):
        before = {row["timestamp"] for row in rows(path)}
        with logging(path, "-n", "0.1", env=driver.env()) as log:
            wait_for_samples(path, len(before) + 3)
            log.end(signal.SIGKILL)
        after = rows(path)
        assert before < {row["timestamp"] for row in after}
    with path.open("ab") as file:
        file.write(b"2026-07-01T14:03:27.512+02:00,0,GPU-to")
    assert run_log(path, "--for", "0.3", "-n", "0.1", env=driver.env()).returncode == 0
    read = rows(path)
    assert read[: len(after)] == after
    times = [row["timestamp"] for row in read]
    assert times == sorted(times)
    assert [row["index"] for row in read] == ["0", "1"] * (len(read) // 2), "whole samples"
    # Each of the three runs counts its seconds from 0.
    elapsed = [float(row["elapsed [s]"]) for row in read]
    assert sum(later < earlier for earlier, later in pairwise(elapsed)) == 2


@pytest.mark.slow
def test_a_second_gpumon_on_the_same_log_is_refused(driver: Driver, path: Path) -> None:
    with logged(driver, path, 1) as log:
        second = run_log(path, "--for", "1", env=driver.env())
        assert second.returncode == 1
        assert re.fullmatch(r"gpumon: .*run\.csv is already being written\b.*\n", second.stderr)
        assert log.end() == 0


# What goes wrong meanwhile


def test_a_card_that_hangs_is_told_and_the_log_goes_on(driver: Driver, path: Path) -> None:
    with logged(driver, path) as log:
        driver.cards[1].hang()
        log.wait_said(r"[\d-]+ [\d:]+ GPU 1: no answer\n")
        # The sample is written on a thread of its own.
        wait_until(lambda: rows(path)[-1]["status"] == "no answer", "the GPU that hangs")
        driver.cards[1].heal()
        log.wait_said(r"[\d-]+ [\d:]+ every GPU answers again\n")
        wait_until(lambda: rows(path)[-1]["status"] == "ok", "the GPU that answers")
        assert log.end() == 0
        assert log.said.count("\n") == 5, "each thing is said once"


def test_a_driver_that_goes_away_is_told_and_comes_back(driver: Driver, path: Path) -> None:
    with logged(driver, path) as log:
        driver.unload()
        log.wait_said(r"[\d-]+ [\d:]+ .*driver.*\n")
        driver.reload()
        log.wait_said("it goes on\n")
        wait_for_samples(path, len(rows(path)) // 2 + 2)
        assert log.end() == 0
        assert log.said.count("\n") == 5, "each thing is said once"


def test_what_cannot_be_written_is_counted_and_told_and_writing_goes_on(
    driver: Driver, path: Path
) -> None:
    with logged(driver, path) as log:
        limit_files(log.process.pid, path.stat().st_size)
        log.wait_said(r"[\d-]+ [\d:]+ \d+ samples? lost · .*run\.csv is not written: ")
        limit_files(log.process.pid, resource.RLIM_INFINITY)
        lost = log.wait_said(r"(\d+) samples? lost · it goes on\n")[1]
        wait_for_samples(path, len(rows(path)) // 2 + 2)
        assert log.end() == 0, "what was lost in between is told, and no failure of the end"
        assert int(lost) > 0
        assert f", {lost} lost, " in log.said


def limit_files(pid: int, size: int) -> None:
    """Let no file of a process grow beyond a size, as a full disk does."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def test_samples_lost_to_the_end_are_a_failure(driver: Driver, path: Path) -> None:
    with logged(driver, path) as log:
        limit_files(log.process.pid, path.stat().st_size)
        log.wait_said("is not written")
        assert log.end() == 1
        assert re.search(r"logged .* lost, .*run\.csv is not written: ", log.said)


# Where it runs


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&- 1>&- 2>&-"])
def test_it_needs_no_standard_streams_and_gives_their_numbers_to_no_file(
    driver: Driver, path: Path, closed: str
) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *LOG, str(path), "-n", "0.1"]
    with subprocess.Popen(shell, env=driver.env()) as log:
        try:
            wait_for_samples(path, 3)
            for number in (0, 1, 2):
                with contextlib.suppress(FileNotFoundError):
                    opened = Path(f"/proc/{log.pid}/fd/{number}").readlink()
                    assert not opened.is_relative_to(path.parent)
            log.terminate()
            assert log.wait(PATIENCE) == 0
        finally:
            log.kill()
    assert rows(path)


def test_nobody_who_reads_what_it_says_is_needed(driver: Driver, path: Path) -> None:
    command = [*LOG, str(path), "-n", "0.1"]
    with subprocess.Popen(command, env=driver.env(), stderr=subprocess.PIPE) as log:
        try:
            known(log.stderr).close()
            driver.cards[1].lost = True
            wait_until(lambda: rows(path) and rows(path)[-1]["status"] == "lost", "the lost GPU")
            log.terminate()
            assert log.wait(PATIENCE) == 0
        finally:
            log.kill()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/run.csv", r"there is no such directory.*\n"),
        *(
            pytest.param(name, TOO_LONG, marks=pytest.mark.slow)
            for name in ("x" * 300, "x" * 245 + ".csv", "x/" * 2300 + ".csv")
        ),
    ],
    ids=["directory", "long name", "long name of processes", "long path"],
)
def test_a_place_that_cannot_be_written_is_told(
    driver: Driver, tmp_path: Path, name: str, said: str
) -> None:
    done = run_log(tmp_path / name, env=driver.env())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"gpumon: .+ cannot be written: {said}", done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_never_answers_is_told_and_leaves_no_files(tmp_path: Path) -> None:
    with Driver([h100()]) as driver:
        driver.system.hang("nvmlInitWithFlags")
        driver.system.hang("nvmlInit_v2")
        with logging(tmp_path / "run.csv", env=driver.env()) as log:
            log.wait_said("has not (answered|come back)")
            assert log.end() == 0
            assert "logged" not in log.said
        driver.system.heal()
    assert list(tmp_path.iterdir()) == []


def test_what_it_does_not_need_is_not_imported(driver: Driver, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from gpumon.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = run_program(
        [sys.executable, "-c", code, "log", str(tmp_path / "run.csv"), "--for", "0.1"],
        driver.env(),
        check=True,
    )
    imported = set(done.stdout.split())
    assert "msgspec" in imported
    assert not imported & {"textual", "rich", "prometheus_client", "pandas"}


# On a terminal


def test_one_line_says_how_it_goes(driver: Driver, path: Path) -> None:
    driver.cards[1].utilization_gpu = 98
    driver.cards[0].processes = [Owner(3_999_999, memory=GIB)]
    with Screen([*LOG, str(path), "-n", "0.1"], driver.env()) as screen:
        text = screen.wait_for(
            r"● run\.csv  \d+s  \d+ samples  \d+\.\d KiB  2 GPUs, 1 process  busiest: GPU 1 98 %"
        )
        assert len(text.strip().splitlines()) == 1, "it is one line, rewritten"
        screen.type("\x03")
        assert screen.wait_end() == 0
        ending = screen.text().strip().splitlines()
        assert "●" not in screen.text()
        assert ending[0].startswith("gpumon: logged ")
        assert screen.attributes() == screen.attributes_before


def test_the_line_is_rewritten_at_most_twice_a_second(driver: Driver, tmp_path: Path) -> None:
    command = [*LOG, str(tmp_path / "run.csv"), "-n", "0.1", "--for", "2"]
    with Screen(command, driver.env()) as screen:
        assert screen.wait_end() == 0
        assert 1 <= screen.output.count("●".encode()) <= 5
        controls = set(re.findall(rb"\x1b[^A-Za-z]*[A-Za-z]", bytes(screen.output)))
        assert controls <= {b"\x1b[K"}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40, 12, 1])
def test_the_line_never_wraps(driver: Driver, tmp_path: Path, columns: int) -> None:
    command = [*LOG, str(tmp_path / "run.csv"), "-n", "0.1"]
    with Screen(command, driver.env(), columns=columns, lines=5) as screen:
        wait_for_samples(tmp_path / "run.csv", 12)
        assert [row.strip() for row in screen.rows()[1:]] == [""] * 4
        screen.type("\x03")
        assert screen.wait_end() == 0


def test_a_length_of_time_gets_a_bar_and_what_is_left(driver: Driver, tmp_path: Path) -> None:
    command = [*LOG, str(tmp_path / "run.csv"), "-n", "0.1", "--for", "4s"]
    with Screen(command, driver.env()) as screen:
        screen.wait_for(r"● run\.csv  █+[▏▎▍▌▋▊▉]?░*  +\d+ %  [0-3]s left  \d+ samples")
        assert screen.wait_end() == 0


def test_trouble_stands_in_the_place_of_the_line(driver: Driver, path: Path) -> None:
    with Screen([*LOG, str(path), "-n", "0.1"], driver.env(), columns=180) as screen:
        found = wait_for_samples(path, 2)
        limit_files(gpumon_of(screen), path.stat().st_size)
        screen.wait_for(r"✖ \d+ samples lost · .*run\.csv is not written: ")
        limit_files(gpumon_of(screen), resource.RLIM_INFINITY)
        screen.wait_for(r"● run\.csv  .* \d+ lost  ")
        assert len(rows(path)) >= len(found)
        screen.type("\x03")
        assert screen.wait_end() == 0


def gpumon_of(screen: Screen) -> int:
    """The number of what runs in a terminal; ``setsid`` has become it."""
    return screen.process.pid


def test_a_terminal_that_takes_no_output_does_not_keep_it_alive(driver: Driver, path: Path) -> None:
    with Screen([*LOG, str(path), "-n", "0.1"], driver.env()) as screen:
        screen.wait_for("●")
        screen.type("\x13")  # Ctrl+S
        count = len(rows(path))
        wait_until(lambda: len(rows(path)) > count + 20, "samples all the same")
        screen.signal(signal.SIGTERM)
        assert screen.process.wait(PATIENCE) == 0


def test_a_terminal_without_a_cursor_gets_lines(driver: Driver, tmp_path: Path) -> None:
    command = [*LOG, str(tmp_path / "run.csv"), "-n", "0.1", "--for", "1"]
    with Screen(command, driver.env(), term="dumb", columns=200) as screen:
        assert screen.wait_end() == 0
        assert b"\x1b" not in screen.output
        assert screen.text().startswith("gpumon: logging to ")


@contextmanager
def none_left(path: Path) -> Iterator[None]:
    """End the log of this file that a shell, which is gone by then, may have left running."""
    try:
        yield
    finally:
        for file in Path("/proc").glob("[1-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if os.fsencode(path) in file.read_bytes():
                    os.kill(int(file.parent.name), signal.SIGKILL)


@needs("bash")
def test_control_z_holds_it_and_a_log_in_the_background_keeps_off_the_terminal(
    driver: Driver, path: Path
) -> None:
    env = driver.env() | {"PS1": "$ "}
    with (
        none_left(path),
        # As wide as any path.
        Screen(["bash", "--norc", "--noprofile", "-i"], env, columns=600) as screen,
    ):
        screen.wait_for(r"\$")
        screen.press(f"{' '.join(LOG)} {path} -n 0.1\n", "●")
        screen.press("\x1a", "Stopped")
        screen.press("stty tostop; bg\n", r"gpumon log \S+ -n 0\.1 &")
        drawn = screen.output.count("●".encode())
        found = wait_for_samples(path, 1)
        wait_until(lambda: len(rows(path)) > len(found) + 20, "samples in the background")
        assert screen.output.count("●".encode()) <= drawn + 1
        screen.type("fg\n")
        wait_until(lambda: screen.output.count("●".encode()) > drawn + 1, "the line again")
        screen.press("\x03", "gpumon: logged ")
        screen.press("echo status $?\n", "status 0")
        screen.type("exit\n")
        screen.wait_end()
