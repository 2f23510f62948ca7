"""One host is read out of a log of several as out of a log of its own."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Snapshot
from gpumon.recording.csv.csv_log import CsvLog
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.recording import CsvRecording, open_log
from gpumon.recording.csv.rows import ONE_MACHINE, SEVERAL_MACHINES
from gpumon.recording.recorder import Recorder
from gpumon.recording.recording import RecordingError
from tests.build import NOON
from tests.clock import HandClock
from tests.known import known
from tests.recording.csv.reading import (
    assert_read_back,
    change_cells,
    opened,
    pack,
    read_whole,
    sample_at,
    times_of,
    write_log,
)
from tests.recording.csv.several import of_host, ticks, write_several

LONG = range(900)
"""Seconds of a log that is read in many pieces."""
ALWAYS = {"gpu-01": LONG, "gpu-02": LONG, "gpu-1": LONG}


def as_host(host: str, taken: Snapshot) -> Snapshot:
    """The sample with the name by which the user knows the host."""
    return replace(taken, host=replace(taken.host, name=host))


def assert_replayed(path: Path, host: str | None, seconds: list[int], name: str = "") -> None:
    """Check that a log has a host's samples of these seconds, and no others."""
    with opened(path, host) as tape:
        assert_is(tape, name or host or "", seconds)


def assert_is(tape: CsvRecording, host: str, seconds: list[int]) -> None:
    """Check that a recording has a host's samples of these seconds, and no others."""
    assert [round(time - NOON) for time in times_of(tape)] == seconds
    for second in seconds:
        found = known(tape.at(NOON + second))
        assert_read_back(found, as_host(host, of_host(host, second)))


def test_a_name_that_ends_as_another_one_is_another_host(tmp_path: Path) -> None:
    hosts = {"ann@gpu-1": range(0, 40, 2), "gpu-1": range(0, 40, 3), "1": range(0, 40, 5)}
    path = write_several(tmp_path / "run.csv", ticks(hosts, range(40)))
    for host, seconds in hosts.items():
        assert_replayed(path, host, [*seconds])


@pytest.mark.slow
def test_a_host_that_goes_and_comes_back_has_a_gap(tmp_path: Path) -> None:
    there = {"gpu-01": LONG, "gpu-02": range(500)}
    back = {"gpu-01": LONG, "gpu-02": range(800, 900)}
    taken = [*ticks(there, range(500)), *ticks(back, range(500, 900))]
    path = write_several(tmp_path / "run.csv", taken)
    with opened(path, "gpu-02") as tape:
        assert_is(tape, "gpu-02", [*range(500), *range(800, 900)])
        # In the gap the last sample before it is the newest.
        found = known(tape.at(NOON + 700))
        assert found.time == pytest.approx(NOON + 499)
        # The events of the whole log are those of the host.
        read_whole(tape)


def test_a_host_that_comes_late_begins_there(tmp_path: Path) -> None:
    late = {"gpu-01": LONG, "gpu-02": range(700, 900)}
    path = write_several(tmp_path / "run.csv", ticks(late, LONG))
    assert_replayed(path, "gpu-02", [*range(700, 900)])


@pytest.mark.slow
def test_a_log_that_grows_shows_each_new_sample_of_the_host(tmp_path: Path) -> None:
    hosts = {"gpu-01": LONG, "gpu-02": range(3, 900)}
    path = write_several(tmp_path / "run.csv", ticks(hosts, range(400)))
    cards = path.read_bytes()
    path.write_bytes(cards[:3000])
    with opened(path, "gpu-01") as tape, opened(path, "gpu-01") as other:
        shown = 0
        for end in range(3000, len(cards), 40_001):
            path.write_bytes(cards[:end])
            now = len(times_of(tape))
            assert now >= shown
            shown = now
        path.write_bytes(cards)
        assert_is(tape, "gpu-01", [*range(400)])
        assert_is(other, "gpu-01", [*range(400)])


@pytest.mark.slow
def test_a_host_that_comes_back_in_a_newer_part_is_seen_from_its_first_row(tmp_path: Path) -> None:
    write_several(tmp_path / "run.part0001.csv", ticks({"gpu-02": LONG}, range(5)))
    hosts = {"gpu-01": LONG, "gpu-02": range(100, 400)}
    path = write_several(tmp_path / "run.csv", ticks(hosts, range(5, 400)))
    cards = path.read_bytes()
    first = cards.index(b",gpu-02\n")
    row = cards.rindex(b"\n", 0, first) + 1
    for begin in (row, row - 1, row // 2):
        path.write_bytes(cards[:begin])
        with opened(path, "gpu-02") as tape:
            assert_is(tape, "gpu-02", [*range(5)])
            path.write_bytes(cards)
            assert_is(tape, "gpu-02", [*range(5), *range(100, 400)])


@pytest.mark.slow
def test_a_host_that_is_only_in_later_parts_or_only_in_older_ones_is_found(tmp_path: Path) -> None:
    thirds = (range(300), range(300, 600), range(600, 900))
    hosts = (["gpu-01", "gpu-03"], ["gpu-01", "gpu-02"], ["gpu-01"])
    names = ("run.part0001", "run.part0002", "run")
    for name, seconds, there in zip(names, thirds, hosts, strict=True):
        write_several(tmp_path / f"{name}.csv", ticks(dict.fromkeys(there, LONG), seconds))
    for old in list(tmp_path.glob("run.part0002*.csv")):
        pack(old)
    for host, seconds in (("gpu-01", LONG), ("gpu-02", thirds[1]), ("gpu-03", thirds[0])):
        with opened(tmp_path / "run.csv", host) as tape:
            assert_is(tape, host, [*seconds])
            read_whole(tape)


def test_without_a_name_the_only_host_is_shown_and_several_are_named(tmp_path: Path) -> None:
    one = write_several(tmp_path / "one.csv", ticks({"gpu-07": LONG}, range(20)))
    assert_replayed(one, None, [*range(20)], "gpu-07")
    several = write_several(tmp_path / "run.csv", ticks(ALWAYS, range(20)))
    with pytest.raises(RecordingError, match=r"has several hosts.*gpu-01, gpu-02, gpu-1\b"):
        open_log(several)
    with pytest.raises(RecordingError, match=r"no sample of gpu-0: it has gpu-01, gpu-02, gpu-1\."):
        open_log(several, "gpu-0")


def test_a_log_of_one_machine_knows_its_name_and_nvidia_smi_does_not(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [of_host("gpu-01", second) for second in range(20)])
    with opened(path) as tape, opened(path, "gpu-01.example") as named:
        assert times_of(tape) == times_of(named)
    # Its list of processes names no host.
    found = sample_at(path, NOON + 10, "gpu-01.example")
    assert_read_back(found, of_host("gpu-01", 10))
    with pytest.raises(RecordingError, match=r"no sample of box: it has gpu-01\.example\."):
        open_log(path, "box")


def test_damage_to_one_host_leaves_the_others_whole(tmp_path: Path) -> None:
    path = write_several(tmp_path / "run.csv", ticks(ALWAYS, range(60)))
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if line.endswith(b",gpu-02") and number % 5 == 0:
            lines[number] = (line[:-3], line.replace(b",", b"\0"), b"", b"\xff" * 99)[number % 4]
    path.write_bytes(b"\n".join(lines))
    for host in ("gpu-01", "gpu-1"):
        assert_replayed(path, host, [*range(60)])
    with closing(open_log(path, "gpu-02")) as tape:
        assert times_of(tape)
        read_whole(tape)


def test_the_damage_of_a_host_is_told_with_its_lines(tmp_path: Path) -> None:
    path = write_several(tmp_path / "run.csv", ticks(ALWAYS, range(60)))
    lines = path.read_bytes().splitlines()
    of_second = [place for place, line in enumerate(lines) if line.endswith(b",gpu-02")]
    wrong = {20: "x", 30: "x", 40: "-5"}
    memory = "memory.used [MiB]"
    change_cells(path, *((of_second[at] - 1, memory, cell) for at, cell in wrong.items()))
    with opened(path, "gpu-01") as tape:
        read_whole(tape)
        assert tape.damage == ""
    with opened(path, "gpu-02") as tape:
        read_whole(tape)
        assert f"run.csv has 2 damaged lines, the first is line {of_second[20] + 1};" in tape.damage
        assert "run.csv has 1 line with values that no GPU can have" in tape.damage


# Writing


def lines_by_host(path: Path) -> dict[str, int]:
    """The number of rows of each host."""
    return Counter(line.rpartition(",")[2] for line in path.read_text().splitlines()[1:])


def record(path: Path, seconds: range, *, several: bool = True, rotate: int | None = None) -> None:
    """Log three hosts, or one machine, and end."""
    clock = HandClock(float(seconds[0]), epoch=NOON)
    recorder = Recorder(CsvLog(path, several=several, rotate=rotate), clock=clock)
    recorder.start()
    for number, second in enumerate(seconds, 1):
        clock.now = float(second)
        if several:
            recorder.take_all({host: of_host(host, second) for host in ALWAYS})
        else:
            recorder.take(of_host("ada", second))
        while recorder.status.samples < number:
            assert not recorder.status.lost
            time.sleep(0.001)
    status = recorder.stop()
    assert (status.samples, status.lost) == (len(seconds), 0)


def test_a_log_that_was_cut_anywhere_is_continued_with_whole_samples(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    record(path, range(3))
    files = log_files(path)
    cards, lists = files.gpus.read_bytes(), files.processes.read_bytes()
    rows = cards.split(b"\n")
    for end in range(len(SEVERAL_MACHINES.gpu_header), len(cards), 97):
        files.gpus.write_bytes(cards[:end])
        files.processes.write_bytes(lists)
        record(path, range(3, 4))
        counts = set(lines_by_host(path).values())
        whole = files.gpus.read_bytes().split(b"\n")
        assert all(row in rows or b"12:00:03" in row for row in whole), "no row is torn"
        # Nothing tells that a sample is incomplete which ends between two rows, or that the first
        # sample is if the next time has just begun.
        torn = cards[:end].rpartition(b"\n")[2]
        is_first = cards[:end].count(b"\n") <= 6
        assert len(counts) == 1 or not torn or (is_first and b"," not in torn)


def test_a_log_of_one_machine_is_moved_aside_before_several_are_logged(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    record(path, range(3), several=False)
    before = path.read_bytes()
    assert before.startswith(ONE_MACHINE.gpu_header)
    assert b"hostname" not in before
    record(path, range(3, 6))
    record(path, range(6, 9), several=False)
    assert (tmp_path / "run.part0001.csv").read_bytes() == before
    assert lines_by_host(tmp_path / "run.part0002.csv") == dict.fromkeys(ALWAYS, 6)
    assert path.read_bytes().startswith(ONE_MACHINE.gpu_header)
    with pytest.raises(RecordingError, match=r"several hosts.*ada\.example, gpu-01"):
        open_log(path)
    assert_replayed(path, "gpu-02", [3, 4, 5])


def test_each_rotated_part_has_whole_samples_and_the_lists_of_all_hosts(tmp_path: Path) -> None:
    record(tmp_path / "run.csv", range(200), rotate=100_000)
    parts = sorted(tmp_path.glob("run*.csv"))
    cards = [part for part in parts if "processes" not in part.name]
    assert len(cards) > 2
    for part in cards:
        assert len(set(lines_by_host(part).values())) <= 1
        if lines_by_host(part):
            lists = log_files(part).processes
            assert lines_by_host(lists).keys() == ALWAYS.keys()
    assert_replayed(tmp_path / "run.csv", "gpu-1", [*range(200)])
