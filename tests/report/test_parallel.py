"""A long log that is added up in parts says what it says as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from gpumon.recording.csv.files import log_files
from gpumon.report import output, parallel
from gpumon.report.reading import HostChoice, find_logs
from gpumon.report.window import TimeWindow
from gpumon.text.csv_cells import iso_time
from tests.build import GIB, gpu, process, snapshot
from tests.report import logs
from tests.report.logs import Sample, chaos, eventful_night, write_log
from tests.screen import PATIENCE

pytestmark = pytest.mark.slow

START = 1_760_000_000.0
NO_ERROR: dict[str, Any] = {"xid": None, "xid_at": None}


def long_day(seed: int) -> Iterator[Sample]:
    """An hour and a half of two GPUs by the second, with all that is remembered for a while."""
    random = Random(seed)
    elapsed, energy, ecc = 0.0, 1e6, 0
    xid: dict[str, Any] = NO_ERROR
    load = [0.0, 0.0]
    while elapsed < 5400:
        if random.random() < 0.05:
            # Spells of load, and of waiting for data.
            load = [random.choice((0.0, 5.0, 60.0, 100.0)) for _ in range(2)]
        ecc += random.random() < 0.01
        if random.random() < 0.0005:
            xid = {"xid": random.choice((31, 79)), "xid_at": START + elapsed}
        cards = [
            gpu(
                index=index,
                utilization_gpu=load[index],
                sm_active=load[index] / 4,
                memory_used=random.randrange(80 * GIB),
                power_draw=70 + 6 * load[index],
                energy=energy,
                clock_event_reasons=random.choice((0, 0, 0, 4, 0x48)),
                ecc_uncorrected_volatile=ecc,
                **xid,
            )
            for index in range(2)
        ]
        loading = tuple(
            replace(process(pid, gpus=(pid % 2,), sm=3), cpu_percent=100.0) for pid in (8, 9)
        )
        yield snapshot(START + elapsed, *cards, processes=loading), elapsed
        # Now and then a gap.
        elapsed = round(elapsed + (25.0 if random.random() < 0.001 else 1.0), 3)
        energy = round(energy + 700 * random.random(), 3)


def of_gpus(indices: set[int], samples: Iterator[Sample]) -> Iterator[Sample]:
    """The samples with the GPUs of these indices, and the processes on no others."""
    for taken, elapsed in samples:
        gpus = tuple(one for one in taken.gpus if one.index in indices)
        there = tuple(one for one in taken.processes if indices.issuperset(one.gpu_indices))
        yield replace(taken, gpus=gpus, processes=there), elapsed


def report(path: Path, by: str, monkeypatch: pytest.MonkeyPatch, least: int, **bounds: str) -> Any:
    monkeypatch.setattr(output, "PART_BYTES", least)
    return logs.report(path, by=by, **bounds)


def in_parts(path: Path, by: str = "gpu") -> bool:
    """Whether the log is added up in parts."""
    done = parallel.tally_parts(find_logs([str(path)]), by, TimeWindow(), HostChoice(), 1)
    return done is not None


def watch_parts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each report from now on was added up in parts."""
    tallied: list[bool] = []

    def tally(*arguments: Any) -> Any:
        done = parallel.tally_parts(*arguments)
        tallied.append(done is not None)
        return done

    monkeypatch.setattr(output, "tally_parts", tally)
    return tallied


def count_in_parts(monkeypatch: pytest.MonkeyPatch, least: int) -> list[bool]:
    """Count in parts of so many bytes from now on; returns whether each report was."""
    monkeypatch.setattr(output, "PART_BYTES", least)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    return watch_parts(monkeypatch)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that tests only read."""
    return write_log(tmp_path_factory.mktemp("day") / "day.csv", long_day(0))


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))


def assert_parts_agree(path: Path, by: str, monkeypatch: pytest.MonkeyPatch, **bounds: str) -> Any:
    """Check that the parts say what the whole says; returns the lines of the whole."""
    whole = report(path, by, monkeypatch, sys.maxsize, **bounds)
    assert report(path, by, monkeypatch, 1, **bounds) == logs.about(whole)
    return whole["lines"]


def test_the_parts_say_what_the_whole_says(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tallied = watch_parts(monkeypatch)
    for line in assert_parts_agree(day, "gpu", monkeypatch):
        assert all(line[key] for key in ("gaps", "xids", "starved_hours"))
    for by in ("host", "user", "process"):
        assert_parts_agree(day, by, monkeypatch)
    assert tallied == 4 * [False, True]


def test_an_end_between_samples_counts_as_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = (one for one in long_day(1) if one[1] < 4100 and not 3990 < one[1] < 3999)
    log = write_log(tmp_path / "day.csv", samples)
    tallied = watch_parts(monkeypatch)
    # Between two samples, at a sample, and in a gap.
    for end in (4000.5, 4001.0, 3995.0):
        first, last = (iso_time(START + at) for at in (100.5, end))
        assert_parts_agree(log, "gpu", monkeypatch, first=first, last=last)
    assert tallied == 3 * [False, True]


def test_an_error_logged_late_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> Iterator[Sample]:
        for taken, elapsed in long_day(0):
            xid = {"xid": 79, "xid_at": START + 1000} if elapsed > 4000 else NO_ERROR
            gpus = tuple(replace(one, **xid) for one in taken.gpus)
            yield replace(taken, gpus=gpus), elapsed

    log = write_log(tmp_path / "day.csv", late())
    lines = report(log, "gpu", monkeypatch, 1)["lines"]
    assert [line["xids"] for line in lines] == [{"79": 1}, {"79": 1}]


@pytest.mark.parametrize("samples", [eventful_night, partial(chaos, 1)], ids=["night", "chaos"])
def test_whatever_a_log_has_it_is_cut_only_where_that_changes_nothing(
    samples: Callable[[float], Iterator[Sample]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path / "day.csv", of_gpus({1, 2, 4, 5, 6}, samples(START)))
    for by in ("gpu", "host", "user", "process"):
        assert_parts_agree(log, by, monkeypatch)


def test_what_depends_on_all_that_was_seen_before_is_read_as_a_whole(day: Path) -> None:
    assert not in_parts(day, "job")


def test_users_and_processes_that_come_and_go_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy() -> Iterator[Sample]:
        random = Random(5)
        here: list[int] = []
        for number, (taken, elapsed) in enumerate(long_day(2)):
            if random.random() < 0.2:
                here = random.sample(range(1, 9), random.randrange(7))
            there = [
                process(
                    pid,
                    user=random.choice((None, "ann")) if pid == 1 else f"user {pid % 3}",
                    gpus=((0,), (1,), (0, 1))[pid % 3],
                    sm=random.choice((0, 10, 80)),
                    memory_used=random.randrange(10) * GIB,
                )
                for pid in here
            ]
            # With each sample around two of the three cuts, a process of its own ends.
            if 2500 < elapsed < 3400:
                there.append(process(100 + number, user="bo", gpus=(0,), sm=10))
            yield replace(taken, processes=tuple(there)), elapsed

    log = write_log(tmp_path / "day.csv", busy())
    tallied = watch_parts(monkeypatch)
    for by in ("user", "process"):
        lines = assert_parts_agree(log, by, monkeypatch)
        assert any(line["idle_hours"] and line["xids"] for line in lines)
    assert tallied == 2 * [False, True]


def test_a_damaged_log_is_read_as_a_whole(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "day.csv"
    lines = day.read_text().splitlines(keepends=True)
    lines[5000] = "garbage\n"
    log.write_text("".join(lines))
    tallied = watch_parts(monkeypatch)
    (said, *_) = report(log, "gpu", monkeypatch, 1)["notes"]
    assert tallied == [False]
    assert said.startswith(f"{log} has 1 damaged line, line 5001;")


def test_a_log_that_was_appended_to_itself_is_read_as_a_whole(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "day.csv"
    log.write_bytes(2 * day.read_bytes())
    samples = len({line.partition(b",")[0] for line in day.read_bytes().splitlines()[1:]})
    tallied = watch_parts(monkeypatch)
    notes = report(log, "gpu", monkeypatch, 1)["notes"]
    assert tallied == [False]
    assert any(f"repeats {samples:,} earlier samples" in note for note in notes)


def test_a_gpu_that_comes_later_is_not_lost(tmp_path: Path) -> None:
    def some() -> Iterator[Sample]:
        for number, (taken, elapsed) in enumerate(long_day(0)):
            if 1800 < number < 2000:
                yield taken, elapsed
            else:
                yield snapshot(taken.time, taken.gpus[0], processes=taken.processes), elapsed

    assert not in_parts(write_log(tmp_path / "day.csv", some()))


def test_short_logs_are_read_in_one_process(day: Path) -> None:
    found = find_logs([str(day)])
    size = log_files(day).gpus.stat().st_size
    for least in (size, size // 2 + 1):
        assert parallel.tally_parts(found, "gpu", TimeWindow(), HostChoice(), least) is None


PROGRAM = """
import os, sys, time
from gpumon.report import output, parallel
output.PART_BYTES = 1
os.sched_getaffinity = lambda _: range(4)
totals, parent = parallel.UsageTotals, os.getpid()
def slow(*arguments):
    # The others are never ready.
    time.sleep(5 if os.getpid() == parent else 3600)
    return totals(*arguments)
parallel.UsageTotals = slow
output.print_report(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_no_process_is_left(number: signal.Signals, day: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(day)], stderr=subprocess.PIPE, start_new_session=True
    )
    with program:
        deadline = time.monotonic() + PATIENCE
        while len(others := psutil.Process(program.pid).children()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        program.send_signal(number)
        program.wait(PATIENCE)
        assert program.stderr is not None
        told = program.stderr.read().decode()
    _, alive = psutil.wait_procs(others, PATIENCE)
    assert not alive
    # The command line's own handler of Ctrl+C is not in this program.
    assert told.count("Traceback") == (number == signal.SIGINT), told
