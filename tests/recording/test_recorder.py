"""Recording: what reaches the files, whatever the disk does and whatever ends the recorder."""

from __future__ import annotations

import errno
import gc
import os
import random
import re
import resource
import shutil
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import Host, Snapshot, Trouble
from gpumon.recording.csv.csv_log import CsvLog
from gpumon.recording.csv.opening import LogError
from gpumon.recording.csv.rows import GpuRows
from gpumon.recording.recorder import QUEUED, LogStatus, Recorder
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.known import known
from tests.recording.csv.recording import CARDS, numbers, nursery, record, rows, sample, wait_until

MIB = 2**20
LIVES = 60


class Bench:
    """A recorder that has started, on a clock of its own."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.clock = HandClock(0.0, NOON)
        self.path = folder / "run.csv"
        self.processes_path = folder / "run.processes.csv"
        self.recorder = Recorder(CsvLog(self.path, **settings), clock=self.clock)  # type: ignore[arg-type]  # keywords pass through
        self.recorder.start()

    def at(self, seconds: float, one: Snapshot) -> LogStatus:
        """Record a snapshot so many seconds after the start."""
        self.clock.now = seconds
        record(self.recorder, replace(one, time=NOON + seconds, processes_at=NOON + seconds))
        return self.recorder.status


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.recorder.stop()


def test_every_sample_has_a_row_for_every_card(bench: Bench) -> None:
    for second in range(3):
        bench.at(second, snapshot(0, gpu(index=0), gpu(index=1)))
    status = bench.recorder.stop()

    found = rows(bench.path)
    assert [row["uuid"] for row in found] == ["GPU-0", "GPU-1"] * 3
    assert [row["elapsed [s]"] for row in found] == ["0.0", "0.0", "1.0", "1.0", "2.0", "2.0"]
    assert (status.samples, status.lost, status.trouble) == (3, 0, None)
    assert status.bytes == bench.path.stat().st_size + bench.processes_path.stat().st_size
    assert (status.path, status.seconds) == (bench.path, 2)


def test_a_value_that_changes_changes_in_its_row_and_no_other(bench: Bench) -> None:
    first = gpu(index=0, temperature_gpu=40, pstate=None)
    second = gpu(index=1, temperature_gpu=50, pstate=0)
    bench.at(0, snapshot(0, first, second))
    bench.at(1, snapshot(0, replace(first, pstate=8), replace(second, temperature_gpu=None)))

    values = [(row["temperature.gpu"], row["pstate"]) for row in rows(bench.path)]
    assert values == [("40", ""), ("50", "P0"), ("40", "P8"), ("", "P0")]


def test_the_same_moment_told_twice_is_two_samples(bench: Bench) -> None:
    one = snapshot(NOON)
    record(bench.recorder, one, one)

    assert bench.recorder.status.samples == 2
    assert len(rows(bench.path)) == 2


def test_a_snapshot_without_cards_is_no_row_and_no_loss(bench: Bench) -> None:
    bench.recorder.take(Snapshot(NOON, Host("ada-07"), trouble=Trouble("No driver.", "Load it.")))
    bench.at(1, snapshot())

    status = bench.recorder.stop()
    assert (status.samples, status.lost) == (1, 0)
    assert len(rows(bench.path)) == 1


ANN, BO = [process(1)], process(2, user="bo")
PLACED = [replace(ANN[0], place=Workload(tmux="train"))]
SIZES = [GIB, GIB + 63 * MIB, GIB + 64 * MIB, GIB + MIB, GIB, None, GIB]


@pytest.mark.parametrize(
    ("lists", "step", "column", "written"),
    [
        pytest.param(
            [ANN, ANN, [*ANN, BO], [*ANN, BO], ANN, [], *[ANN] * 14],
            1,
            "pid",
            {0: ["1"], 2: ["1", "2"], 4: ["1"], 6: ["1"], 10: ["1"], 14: ["1"], 18: ["1"]},
            id="a process comes or goes, and every four seconds",
        ),
        pytest.param(
            [ANN, ANN, PLACED, PLACED],
            1,
            "tmux",
            {0: [""], 2: ["train"]},
            id="it is found out where a process runs",
        ),
        pytest.param(
            [[process(memory_used=size)] for size in SIZES],
            0.1,
            "used_gpu_memory [MiB]",
            {0: ["1024.0"], 0.2: ["1088.0"], 0.4: ["1024.0"], 0.5: [""], 0.6: ["1024.0"]},
            id="memory moves far",
        ),
    ],
)
def test_a_list_is_written_when_processes_have_changed(
    bench: Bench,
    lists: list[list[GpuProcess]],
    step: float,
    column: str,
    written: dict[float, list[str]],
) -> None:
    for number, listed in enumerate(lists):
        bench.at(number * step, snapshot(processes=tuple(listed)))

    gpus = {row["elapsed [s]"]: row["timestamp"] for row in rows(bench.path)}
    found: dict[float, list[str]] = {}
    for row in rows(bench.processes_path):
        found.setdefault(float(row["elapsed [s]"]), []).append(row[column])
        assert gpus[row["elapsed [s]"]] == row["timestamp"]
    assert found == written


def test_processes_can_be_those_of_one_user_and_the_cards_are_all_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, user="bo")
    bench.at(0, snapshot(0, gpu(index=0), gpu(index=1), processes=(process(1), process(2))))
    bench.at(1, snapshot(0, gpu(index=0), processes=(process(1), process(2, user="bo"))))
    bench.recorder.stop()

    assert [row["pid"] for row in rows(bench.processes_path)] == ["2"]
    assert len(rows(bench.path)) == 3


def test_a_log_is_continued_and_seconds_begin_again(tmp_path: Path) -> None:
    for _ in range(2):
        bench = Bench(tmp_path)
        bench.at(0, sample(0))
        bench.at(1, sample(0))
        bench.recorder.stop()

    assert [row["elapsed [s]"] for row in rows(bench.path)][::CARDS] == ["0.0", "1.0", "0.0", "1.0"]
    lists = {row["elapsed [s]"] for row in rows(bench.processes_path)}
    assert lists == {"0.0"}
    assert len(rows(bench.processes_path)) == 2 * 3


def test_every_part_begins_with_a_list(tmp_path: Path) -> None:
    bench = Bench(tmp_path, rotate=3000, keep=3)
    for tenth in range(40):
        bench.at(tenth / 10, snapshot(processes=(process(),)))
    status = bench.recorder.stop()

    parts = sorted(tmp_path.glob("run.part*.processes.csv"))
    assert len(parts) == 3
    for part in parts:
        cards = rows(part.with_name(part.name.replace(".processes", "")))
        assert rows(part)[0]["timestamp"] == cards[0]["timestamp"]
    assert (status.samples, status.lost) == (40, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no/run", "there is no such directory; make it first"),
        ("file/run", "there is no such directory; make it first"),
        ("r" * 300, "the name is too long"),
        ("run.csv.gz", "is compressed"),
        ("pipe", "{path} is a pipe and no file to log to; choose another name."),
        ("/dev/full", "{path} is a device and no file to log to; choose another name."),
        (
            "/proc/run.csv",
            "{path} cannot be written: you may not write there; choose another place.",
        ),
    ],
)
def test_a_log_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / name
    recorder = Recorder(CsvLog(path))

    with pytest.raises(LogError, match=re.escape(says.format(path=path))):
        recorder.start()

    recorder.take(sample(1))
    assert recorder.stop().samples == 0
    assert {made.name for made in tmp_path.iterdir()} == {"file", "pipe"}


@pytest.mark.slow
def test_kill_at_any_moment_loses_at_most_the_sample_being_written(tmp_path: Path) -> None:
    path, lists = tmp_path / "run.csv", tmp_path / "run.processes.csv"
    moments = random.Random(4)
    following = 0
    seen = {path: 0, lists: 0}
    with nursery(tmp_path) as nursed:
        for life in range(LIVES):
            nursed.begin(path, following)
            # A third of them while it still begins, the others while it writes.
            if life % 3:
                wait_until(lambda: nursed.written, "a sample")
            time.sleep(moments.uniform(0, 0.015))
            nursed.kill()
            known = following + nursed.written

            after = Bench(tmp_path).recorder
            fresh = {file: rows(file, begin) for file, begin in seen.items()}
            found = numbers(fresh[path])
            last = found[-1] if found else following - 1
            assert last + 1 >= known
            assert found == [n for n in range(following, last + 1) for _ in range(CARDS)]
            assert numbers(fresh[lists]) == [n for n in range(following, last + 1) for _ in "123"]

            seen = {file: file.stat().st_size for file in seen}
            after.stop()
            following = last + 1

    assert following > LIVES
    assert set(numbers(rows(path))) == set(range(following))


def test_a_directory_that_is_removed_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    bench = Bench(folder)
    bench.at(0, sample(0))

    shutil.rmtree(folder)
    status = bench.at(1, sample(0))
    assert "run.csv is not written: the directory was removed" in known(status.trouble)
    assert status.lost == 1

    folder.mkdir()
    assert bench.at(1.5, sample(0)).lost == 2, "tried again within a second"
    status = bench.at(2, sample(0))
    assert (status.samples, status.lost, status.trouble) == (2, 2, None)
    assert (bench.recorder.stop().lost, len(rows(bench.path))) == (2, CARDS)
    assert len(rows(bench.processes_path)) == 3


def test_a_list_that_could_not_be_written_is_written_with_the_next_sample(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    bench.at(0, snapshot(processes=(process(1),)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        status = bench.at(1, snapshot(processes=(process(1), process(2))))
    assert "the disk reports errors" in (status.trouble or "")
    bench.at(2, snapshot(processes=(process(1), process(2))))

    written = [(row["elapsed [s]"], row["pid"]) for row in rows(bench.processes_path)]
    assert written == [("0.0", "1"), ("2.0", "1"), ("2.0", "2")]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "gpumon-test", str(disk)]
    try:
        mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk_loses_samples_in_one_piece_and_goes_on_when_there_is_space(
    tiny_disk: Path,
) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(32 * 1024))
    bench = Bench(tiny_disk)
    fill_up(bench)
    kept = bench.recorder.status.samples

    ballast.unlink()

    goes_on(bench, kept)


def test_a_file_that_may_not_grow_is_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        fill_up(bench)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    goes_on(bench, bench.recorder.status.samples)


def fill_up(bench: Bench) -> None:
    """Record until samples are lost, and a bit more."""
    second = 0
    while not bench.recorder.status.lost:
        bench.at(second, sample(second))
        second += 1
        assert second < 1000
    status = bench.at(second, sample(second))
    assert status.lost == 2
    assert "run.csv is not written: the " in known(status.trouble)
    for path in (bench.path, bench.processes_path):
        assert path.read_bytes().endswith(b"\n")


def goes_on(bench: Bench, kept: int) -> None:
    """Space was made after so many samples: the next is written, and the loss stays told."""
    later = kept + 10
    status = bench.at(later, sample(later))
    assert (status.samples, status.trouble) == (kept + 1, None)
    assert status.lost == 2

    bench.recorder.stop()
    whole = [*range(kept), later]
    assert numbers(rows(bench.path)) == [n for n in whole for _ in range(CARDS)]
    assert numbers(rows(bench.processes_path)) == [n for n in whole for _ in "123"]


@pytest.mark.root
def test_a_full_disk_at_the_start_is_refused_and_nothing_stays(tiny_disk: Path) -> None:
    (tiny_disk / "ballast").write_bytes(bytes(64 * 1024))

    with pytest.raises(LogError) as refused:
        Recorder(CsvLog(tiny_disk / "run")).start()

    assert "the disk is full" in str(refused.value)
    assert [path.name for path in tiny_disk.iterdir()] == ["ballast"]


def test_a_disk_that_hangs_holds_nobody_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    asked = threading.Event()
    real = os.fsync

    def hang(descriptor: int) -> None:
        asked.set()
        assert answer.wait(30)
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", hang)
        bench.clock.now = 1.0
        bench.recorder.take(sample(0))
        assert asked.wait(30)
        for number in range(QUEUED + 7):
            bench.recorder.take(sample(number))
        bench.clock.now = 6.0

        status = bench.recorder.status
        assert "the disk has not answered for 5s" in known(status.trouble)
        assert (status.samples, status.lost) == (1, 7)

        status = bench.recorder.stop(timeout=0.05)
        assert (status.samples, status.lost) == (1, QUEUED + 7)
        answer.set()

    bench.recorder.stop()
    assert len(rows(bench.path)) == CARDS, "nothing is written after the end"


def test_the_disk_is_waited_for_at_most_each_second_and_at_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[float] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(bench.clock.now))
    for tenth in range(35):
        bench.at(tenth / 10, snapshot())
    bench.recorder.stop()

    assert synced == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.4, 3.4]


def test_what_was_written_last_reaches_the_disk_though_nothing_follows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: synced.set())

    bench.at(0.1, snapshot())

    assert synced.wait(30)


def test_a_fault_in_the_recorder_reaches_whoever_hands_snapshots_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(GpuRows, "of", fail)
    bench.recorder.take(sample(0))
    wait_until(lambda: bench.recorder.status.trouble, "the fault")

    with pytest.raises(ZeroDivisionError):
        bench.recorder.take(sample(1))
    assert "a bug in gpumon" in (bench.recorder.stop().trouble or "")


@pytest.mark.slow
def test_four_minutes_at_ten_hertz_keep_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def minutes(first: int, last: int) -> int:
        """Record them, and say how much memory is in use then."""
        for tenth in range(first * 600, last * 600):
            bench.clock.now = tenth / 10
            bench.recorder.take(sample(tenth, cards=1, processes=1))
            if tenth % (QUEUED // 2) == 0:
                wait_until(lambda: bench.recorder.status.samples > bench.clock.now * 10, "room")
        wait_until(lambda: bench.recorder.status.samples == last * 600, "the last")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = minutes(0, 1)
        after = minutes(1, 4)
    finally:
        tracemalloc.stop()
    status = bench.recorder.stop()

    assert (status.samples, status.lost) == (2400, 0)
    assert after < before + 20_000
    assert len(rows(bench.path)) == 2400
