"""``gpumon log``: what it reads from the command line, and the words it finds for how it goes."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.snapshot import GpuStatus, Trouble
from gpumon.recording.csv import log_messages as words
from gpumon.recording.csv.csv_log import CsvLog
from gpumon.recording.recorder import LogStatus
from gpumon.text.formatting import cell_width
from gpumon.text.status_line import StatusLine
from tests.build import NOON, gpu, process, snapshot
from tests.command import run_gpumon, run_program
from tests.recording.csv.command import logging, rows, run_log, wait_until
from tests.threads import wait_for_end

GOES = LogStatus(Path("/data/run.csv"), 724.9, 724, 3_355_443, 0)
FULL = replace(GOES, lost=12, trouble="run.csv is not written: the disk is full.")


# The command line


def test_options_before_the_command_count_too(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    before = ["--demo", "--gpus", "1-2", "--user", "ann", "-n", "0.1"]
    done = run_gpumon(*before, "log", str(path), "--for", "0.5")
    assert done.returncode == 0
    assert "a sample every 0.1 s" in done.stderr
    assert {row["index"] for row in rows(path)} == {"1", "2"}
    assert {row["user"] for row in rows(tmp_path / "run.processes.csv")} <= {"ann"}


@pytest.mark.slow
@pytest.mark.parametrize("named", ["ro/", "ro", "./"])
def test_a_directory_gets_a_log_with_a_name_of_its_own(tmp_path: Path, named: str) -> None:
    (tmp_path / "ro").mkdir()
    done = run_log("--demo", named, "--for", "0.2", cwd=tmp_path)
    assert done.returncode == 0
    made = sorted(path.name for path in (tmp_path / named).glob("*.csv"))
    assert len(made) == 2
    assert all(re.fullmatch(r"gpumon-.*\d{8}-\d{6}(\.processes)?\.csv", name) for name in made)
    assert not [path for path in tmp_path.rglob("*") if path.name in {".csv", "ro.csv"}]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["run.txt", "run", "run.processes.csv", "./run.csv"])
def test_the_cards_file_is_named_at_the_beginning_and_at_the_end(
    tmp_path: Path, named: str
) -> None:
    done = run_log("--demo", named, "--for", "0.2", cwd=tmp_path)
    assert done.returncode == 0
    said = re.findall(r"(?:logging to|logged \S+ to|replay|report) ([^\s:;]+)", done.stderr)
    assert len(said) == 4, done.stderr
    (path,) = {tmp_path / name for name in said}
    assert path.is_file()
    assert rows(path)


def test_it_samples_once_a_second_unless_told_otherwise(tmp_path: Path) -> None:
    done = run_log(tmp_path / "run", "--demo", "--for", "0.1")
    assert f"logging to {tmp_path}/run.csv and run.processes.csv, a sample every second" in (
        done.stderr
    )
    assert len({row["timestamp"] for row in rows(tmp_path / "run.csv")}) == 1


def test_rotated_parts_keep_whole_samples_and_no_more_than_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with logging(path, "--demo", "-n", "0.1", "--rotate", "64K", "--keep", "2") as log:
        wait_until((tmp_path / "run.part0003.csv").exists, "the third that was moved aside")
        assert log.end() == 0
    parts = sorted(tmp_path.glob("run.part*.csv"))
    cards = [part for part in parts if not part.name.endswith(".processes.csv")]
    assert len(cards) == 2
    for part in (*cards, path):
        assert [row["index"] for row in rows(part)] == list("01234567") * (len(rows(part)) // 8)


# Words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (724, "12m04s"),
        (3600, "1h00m00s"),
        (11_524, "3h12m04s"),
        (184_320, "2d03h12m"),
        (-1, "0s"),
    ],
)
def test_a_length_of_time_is_said_to_the_second(seconds: float, said: str) -> None:
    assert words.length(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (912, "912 B"),
        (1023, "1.0 KiB"),
        (14_541, "14.2 KiB"),
        (3_355_443, "3.2 MiB"),
        (5 * 2**30, "5.0 GiB"),
        (5 * 2**40, "5120.0 GiB"),
    ],
)
def test_a_size_is_said_with_the_unit_that_keeps_it_short(count: int, said: str) -> None:
    assert words.size(count) == said


def test_how_it_goes_is_said_with_what_is_logged_and_who_is_busiest() -> None:
    cards = (gpu(utilization_gpu=3), gpu(index=1, utilization_gpu=98), gpu(index=2))
    taken = snapshot(NOON, *cards, processes=(process(1), process(2, user="bo")))
    assert words.amounts(GOES) == ["724 samples", "3.2 MiB"]
    assert words.machine(taken, None) == ["3 GPUs, 2 processes", "busiest: GPU 1 98 %"]
    assert words.machine(taken, "bo") == ["3 GPUs, 1 process", "busiest: GPU 1 98 %"]
    unknown = snapshot(NOON, gpu(utilization_gpu=None))
    assert words.machine(unknown, None) == ["1 GPU, 0 processes"]


def test_cards_that_do_not_answer_are_named() -> None:
    lost, silent = GpuStatus.LOST, GpuStatus.NO_ANSWER
    taken = snapshot(
        NOON,
        gpu(),
        gpu(index=1, status=silent),
        gpu(index=2, status=lost),
        gpu(index=3, status=lost),
    )
    assert words.silent_gpus(taken) == "GPU 1: no answer, GPU 2,3: lost"
    assert words.machine(taken, None)[-1] == "GPU 1: no answer, GPU 2,3: lost"
    asleep = snapshot(NOON, gpu(status=GpuStatus.ASLEEP))
    assert words.silent_gpus(asleep) == "", "who sleeps has not failed"


@given(st.floats(0, 1e7), st.floats(0.1, 1e6))
def test_a_bar_is_as_full_as_the_time_is_over_and_always_as_long(
    seconds: float, whole: float
) -> None:
    text = words.progress(seconds, whole)
    assert cell_width(text.partition(" ")[0]) == 16
    full = text.count("█") / 16
    assert full <= min(1.0, seconds / whole) < full + 2 / 16
    assert int(100 * min(1.0, seconds / whole)) == int(text.split()[1])


def test_the_end_of_a_bar_is_full() -> None:
    assert words.progress(28_800, 28_800) == f"{'█' * 16} 100 %  0s left"
    assert words.progress(17_000, 28_800) == "█████████▍░░░░░░  59 %  3h16m40s left"


def test_what_is_lost_comes_before_what_cannot_be_read() -> None:
    gone = replace(snapshot(NOON), trouble=Trouble("The driver was unloaded.", "Load it."))
    assert words.trouble_of(snapshot(NOON, gpu(sampled_at=NOON)), 1.0) is None
    assert words.trouble_of(gone, 1.0) == "The driver was unloaded."
    assert words.with_loss("it goes on", FULL) == "12 samples lost · it goes on"
    assert words.with_loss("it goes on", GOES) == "it goes on"


def test_a_machine_that_stands_still_is_told() -> None:
    stale = snapshot(NOON, gpu(sampled_at=NOON - 8), gpu(index=1, sampled_at=NOON - 9))
    assert words.trouble_of(stale, 1.0) == "No GPU has been read for 8s."
    assert words.trouble_of(stale, 10.0) is None
    asleep = snapshot(NOON, gpu(sampled_at=NOON - 900, status=GpuStatus.ASLEEP))
    assert words.trouble_of(asleep, 1.0) is None


def test_a_trouble_that_lasts_is_one_trouble() -> None:
    kinds = {
        words.kind_of(f"run.csv is not written: the disk has not answered for {length}.")
        for length in ("3s", "42s", "1m", "3h12m")
    }
    assert len(kinds) == 1
    assert words.kind_of("run.csv is not written: the disk is full.") not in kinds


def test_what_others_chose_is_safe_to_print() -> None:
    hostile = "\x1b[2J\r\n"
    said = [
        *words.summary(replace(FULL, trouble=hostile, path=Path(f"run{hostile}.csv")), hostile),
        words.beginning(f"run{hostile}.csv", 1.0, None),
        words.trouble_of(replace(snapshot(), trouble=Trouble(hostile, "")), 1.0) or "",
    ]
    assert all(sentence.isprintable() for sentence in said)


def test_the_next_steps_can_be_typed() -> None:
    advice = CsvLog("my run.csv").advice
    told, next_steps = words.summary(replace(FULL, path=Path("my run.csv")), advice)
    assert told.endswith("724 samples, 12 lost, 3.2 MiB. run.csv is not written: the disk is full.")
    assert "gpumon replay 'my run.csv'; sum it up with: gpumon report 'my run.csv'" in next_steps
    assert "gpumon replay ./-x.csv;" in CsvLog("-x.csv").advice


# Who tells


def test_a_pipe_that_nobody_reads_holds_nobody_up() -> None:
    read, write = os.pipe()
    others = set(threading.enumerate())
    try:
        with os.fdopen(write, "w", encoding="utf-8") as stream, StatusLine(stream) as teller:
            for _ in range(10_000):
                teller.say("x" * 100)
    finally:
        os.close(read)
    wait_for_end(lambda thread: thread not in others)


def test_where_there_is_no_standard_error_nothing_is_told() -> None:
    with StatusLine(None) as teller:
        teller.say("anything")
        teller.show(["anything"])
    assert not teller.rewrites


_TWICE = """
import signal
from queue import SimpleQueue
from gpumon.system.ending_signals import queue_ending_signals
news = SimpleQueue()
before = [signal.getsignal(number) for number in (2, 15, 1)]
with queue_ending_signals(news):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    for _ in range(3):
        assert news.get(timeout=60) is None
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
assert [signal.getsignal(number) for number in (2, 15, 1)] == before
"""


def test_a_second_control_c_acts_at_once() -> None:
    done = run_program([sys.executable, "-c", _TWICE])
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
