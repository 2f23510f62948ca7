"""A log opened as a tape: it shows what was sampled, whatever became of its files."""

from __future__ import annotations

import gzip
import os
import re
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.processes import Container, ProcessId, Workload
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.recording.csv import file_lines, index
from gpumon.recording.csv.columns import GPU_COLUMNS, HOSTNAME, PROCESS_COLUMNS, CsvColumn
from gpumon.recording.csv.damage import Damage, damage_notes
from gpumon.recording.csv.file_lines import FileLines
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.recording import open_log
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.history import History
from gpumon.recording.recording import RecordingError
from gpumon.system.system import System
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.driver import Driver, Owner, h100, h100_mig, owners, rtx4090
from tests.known import known
from tests.log_headers import GPU_HEADER, PROCESS_HEADER
from tests.nvml_source import NvmlSource
from tests.recording.archive.archives import demo_samples
from tests.recording.csv.reading import (
    assert_read_back,
    busy,
    change_cells,
    lines_of,
    opened,
    pack,
    read_whole,
    rows,
    sample_at,
    times_of,
    wait_until,
    write_log,
)
from tests.screen import PATIENCE


@pytest.fixture(params=["short", "long"])
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short log lies in many chunks, and may be taken for a long one."""
    monkeypatch.setattr(index, "CHUNK", 3000)
    monkeypatch.setattr(index, "STRIDE", 15_000)
    monkeypatch.setattr(file_lines, "PROBE", 500)
    if request.param == "long":
        monkeypatch.setattr(index, "HEADINGS_SOUGHT", 20_000)


def ms(time_: float) -> float:
    return round(time_, 3)


# What is read is what was sampled


def test_a_simulated_machine_reads_back_as_it_was_sampled(tmp_path: Path) -> None:
    clock = HandClock()
    cards = [h100(), h100_mig(), rtx4090(memory_used=3 * GIB)]
    with Driver(cards) as driver, owners(3, ["python", "train me.py", "=1+1"]) as started:
        driver.attach()
        for card, owner in zip(driver.cards, started, strict=True):
            card.processes = [Owner(owner.pid, memory=2 * GIB, type="C", sm=40), Owner(4_000_000)]
        source = NvmlSource(system=System(clock=clock))
        source.open()
        sampled = []
        for second in range(12):
            clock.now = 1000.0 + second
            if second == 6:
                driver.cards[2].lost = True
            sampled.append(source.sample())
        source.close()
    with opened(write_log(tmp_path / "run.csv", sampled)) as tape:
        for one in sampled[:6]:
            read = known(tape.at(one.time + 0.0005))
            # Between two written lists the older one holds, but for those who came and went.
            assert {each.id for each in read.processes} == {each.id for each in one.processes}
            listed = next(
                each for each in sampled if abs(each.time - (read.processes_at or 0)) < 0.002
            )
            expected = replace(one, processes=listed.processes, processes_at=listed.processes_at)
            assert_read_back(read, expected)
        last = known(tape.at(sampled[-1].time + 1))
    assert last.gpus[2].status is GpuStatus.LOST


def test_the_demo_reads_back_as_it_was_sampled(tmp_path: Path) -> None:
    # A list is written where the one before is 4 s old, and so at each of these.
    sampled = demo_samples(40, step=5.25)
    with opened(write_log(tmp_path / "run.csv", sampled)) as tape:
        assert len(times_of(tape)) == len(sampled)
        for one in sampled:
            assert_read_back(known(tape.at(one.time + 0.0005)), one)


def test_everything_that_is_known_of_a_process_comes_back(tmp_path: Path) -> None:
    whole = replace(
        process(41233, gpus=(0, 1), memory_used=3 * GIB + 1, sm=97, type_="M+C"),
        uid=1007,
        name="-sh",
        command=("python", "a b.py", "=cmd|' /C calc'!A0", "--name=ß", ""),
        state="R",
        cpu_percent=231.25,
        rss=9 * GIB + 4096,
        place=Workload(
            container=Container("docker", name="llama-ft"),
            slurm_job="88123_4",
            slurm_step="batch",
            jupyter_kernel="8a",
            notebook="/home/ann/@work/x.ipynb",
            tmux="$3",
            environment="llama",
            session=41000,
            launcher=ProcessId(41001, 77),
            launcher_name="torchrun",
            parent=ProcessId(41002, None),
        ),
    )
    unseen = process(7, start_time=None, visible=False, user=None, started_at=None, gpus=(1,))
    one = snapshot(NOON, gpu(index=0), gpu(index=1), processes=(whole, unseen))
    assert_read_back(sample_at(write_log(tmp_path / "run.csv", [one])), one)


def test_the_same_list_is_the_same_object(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(9)])
    with opened(path) as tape:
        shown = [known(tape.at(NOON + second)) for second in range(9)]
    lists = [one.processes for one in shown]
    assert all(one is lists[0] for one in lists[:4])
    assert all(one is lists[4] for one in lists[4:8])
    assert lists[4] is not lists[0]
    assert [one.processes_at for one in shown][:5] == [*[NOON] * 4, NOON + 4]


def test_a_card_without_processes_shows_none_and_one_without_a_list_says_so(tmp_path: Path) -> None:
    cards = (gpu(index=0), gpu(index=1, unknown={"processes": Unknown.NO_PERMISSION}))
    sampled = [
        snapshot(NOON, gpu(index=0), gpu(index=1), processes=(process(1, gpus=(0, 1)),)),
        # The process left the first card at the moment at which nobody knew of the second.
        snapshot(NOON + 1, *cards, processes=()),
        snapshot(NOON + 2, *cards, processes_at=None),
    ]
    with opened(write_log(tmp_path / "run.csv", sampled)) as tape:
        first, second, third = (known(tape.at(NOON + number)) for number in range(3))
    assert [one.id.pid for one in first.processes] == [1]
    assert second.processes == ()
    assert "processes" not in second.gpus[0].unknown
    assert second.gpus[1].unknown["processes"] is Unknown.NOT_RECORDED
    assert third.processes_at is None
    assert "processes" in third.gpus[0].unknown


def test_cards_without_a_list_do_not_pretend_to_know_it(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(0), busy(1)])
    lists = tmp_path / "run.processes.csv"
    lists.write_bytes(PROCESS_HEADER)
    without_rows = sample_at(path, NOON + 1)
    lists.unlink()
    for shown in (without_rows, sample_at(path, NOON + 1)):
        card = shown.gpus[0]
        assert (card.utilization_gpu, card.unknown["processes"]) == (1, Unknown.NOT_RECORDED)


def test_a_list_counts_only_as_long_as_it_is_fresh_and_the_cards_agree(tmp_path: Path) -> None:
    both = (process(1, gpus=(0, 1)), process(2, gpus=(1,)))
    cards = (gpu(index=0), gpu(index=1))
    _, lists = lines_of([snapshot(NOON, *cards, processes=both)])
    gpus, _ = lines_of(
        [
            snapshot(NOON, *cards, processes=both),
            # Its list is missing, as when the disk was full.
            snapshot(NOON + 1, *cards, processes=(process(1),)),
            snapshot(NOON + 20, *cards, processes=both),
        ]
    )
    path = tmp_path / "run.csv"
    path.write_bytes(GPU_HEADER + gpus)
    path.with_suffix(".processes.csv").write_bytes(PROCESS_HEADER + lists)
    with opened(path) as tape:
        shown = [tape.at(NOON + second) for second in (0, 1, 20)]
    listed = [[(one.id.pid, one.gpu_indices) for one in each.processes] for each in shown if each]
    assert listed == [[(1, (0, 1)), (2, (1,))], [(1, (0,))], []]
    known = [["processes" not in card.unknown for card in each.gpus] for each in shown if each]
    assert known == [[True, True], [True, True], [False, False]]


# Ways through it


@pytest.mark.usefixtures("small_chunks")
def test_a_log_that_is_being_written_grows_and_a_torn_end_waits(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(0)])
    gpus, processes = lines_of((busy(second) for second in range(1, 60)), began=NOON)
    with opened(path) as tape, path.open("ab") as file:
        assert tape.last == NOON
        with path.with_suffix(".processes.csv").open("ab") as lists:
            lists.write(processes)
        for line in gpus.splitlines(keepends=True):
            before = tape.last
            file.write(line[:100])
            file.flush()
            assert tape.last == before
            file.write(line[100:])
            file.flush()
        assert tape.last == NOON + 59
        newest = tape.at(NOON + 60)
        assert len(times_of(tape)) == 60
    assert newest is not None
    assert len(newest.gpus) == 2


def test_a_log_that_is_rotated_twice_while_an_old_moment_is_shown_is_read_whole(
    tmp_path: Path,
) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(5)])
    with opened(path) as tape:
        for number in (1, 2):
            for files in ("csv", "processes.csv"):
                (tmp_path / f"run.{files}").rename(tmp_path / f"run.part{number:04}.{files}")
            write_log(path, [busy(10 * number + second) for second in range(5)])
            tape.at(NOON)
        seconds = [ms(time - NOON) for time in times_of(tape)]
    assert seconds == [*range(5), *range(10, 15), *range(20, 25)]


# What became of the files


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("ending", [".gz", ".zst", ""])
def test_rotated_and_packed_parts_are_one_tape(tmp_path: Path, ending: str) -> None:
    for part, name in enumerate(("run.part0002", "run.part10000", "run")):
        write_log(
            tmp_path / f"{name}.csv",
            [busy(100 * part + second, pid=part + 1) for second in range(50)],
            began=NOON,
        )
        if ending and name != "run":
            pack(tmp_path / f"{name}.csv", ending)
            pack(tmp_path / f"{name}.processes.csv", ending)
    with opened(tmp_path / "run.csv") as tape:
        assert tape.first == NOON
        for second in (130, 30, 149, 220, 0):
            read = known(tape.at(NOON + second))
            assert read.time == NOON + second
            assert [one.id.pid for one in read.processes] == [second // 100 + 1]
        assert len(times_of(tape)) == 150
        assert tape.step(NOON + 49, 1) == NOON + 100
        assert tape.step(NOON + 200, -51) == NOON + 49


def test_a_packed_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(300)])
    whole = gzip.compress(path.read_bytes())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with opened(tmp_path / "cut.csv.gz") as tape:
        assert tape.first == NOON
        assert tape.last is not None
        assert NOON + 10 < tape.last < NOON + 299


@pytest.mark.usefixtures("small_chunks")
def test_a_torn_row_in_the_middle_costs_that_row_only(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(20)])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[11] = lines[11][:60]  # and the next one runs into it
    lines[21:21] = [b"\n", b"\0\0\0\xff\xfe\n", b'"no end,\n', b"x" * 300_000 + b"\n"]
    path.write_bytes(b"".join(lines))
    with opened(path) as tape:
        assert len(times_of(tape)) == 20
        for second in (0, 4, 8, 10, 19):
            read = known(tape.at(NOON + second))
            assert [card.utilization_gpu for card in read.gpus] == [second] * 2


def test_a_word_of_nvidia_smi_that_another_tool_wrote_into_a_log_is_unknown(tmp_path: Path) -> None:
    columns = GPU_HEADER.rstrip().split(b",")
    cards = lines_of([busy(0.0)])[0].splitlines(keepends=True)
    for place in range(2, len(columns)):
        cells = cards[0].rstrip().split(b",")
        cells[place] = b"[N/A]"
        path = tmp_path / f"{place}.csv"
        path.write_bytes(GPU_HEADER + b",".join(cells) + b"\r\n" + cards[1])
        mangled = sample_at(path).gpus[0]
        values = [getattr(mangled, field) for field in mangled.__struct_fields__]
        assert not any(isinstance(value, Unknown) for value in values), columns[place]


def test_zeros_that_a_crash_left_are_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(10)])
    size = path.stat().st_size
    read, asked = FileLines.read, []

    def counting(sheet: FileLines, start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return read(sheet, start, stop)

    shelf = RotatedLog(log_files(path))
    with closing(shelf):
        os.truncate(path, 2**28)
        monkeypatch.setattr(FileLines, "read", counting)
        shelf.refresh()
        assert 2**28 - size <= sum(asked) < 2**28
        assert len(asked) <= 2**28 // 2**18
        asked.clear()

        shelf.refresh()
        assert shelf.last == NOON + 9
        with path.open("ab") as file:
            file.write(bytes(1000))
        shelf.refresh()
        assert sum(asked) == 1000

        # Whoever continues the log cuts them off.
        os.truncate(path, size)
        with path.open("ab") as file:
            file.write(lines_of([busy(10)], began=NOON)[0])
        shelf.refresh()
        assert shelf.last == NOON + 10


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_a_huge_line_is_passed_over_without_being_held(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(20)])
    lines = path.read_bytes().splitlines(keepends=True)
    huge = 10_000_000
    tracemalloc.start()
    try:
        for zeros in (b"\n", lines[21]):  # on a line of its own, and run into by a row
            with path.open("wb") as file:
                file.write(b"".join(lines[:21]))
                file.truncate(file.tell() + huge)
                file.seek(0, os.SEEK_END)
                file.write(zeros + b"".join(lines[21 if zeros == b"\n" else 22 :]))
            with opened(path) as tape:
                assert len(times_of(tape)) == 20
                for second in (0, 9, 11, 19):
                    shown = known(tape.at(NOON + second))
                    assert {card.utilization_gpu for card in shown.gpus} == {second}
        assert tracemalloc.get_traced_memory()[1] < huge / 5
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reads", range(1, 12))
def test_a_log_that_cannot_be_read_from_some_moment_on_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(20)])
    left = iter(range(reads))
    pread = os.pread

    def cut_off(file: int, size: int, start: int) -> bytes:
        return pread(file, size, start) if next(left, None) is not None else b""

    monkeypatch.setattr(os, "pread", cut_off)
    with opened(path) as tape:
        assert len(times_of(tape)) <= 20
        tape.at(NOON + 10)


@pytest.mark.usefixtures("small_chunks")
def test_headings_in_the_middle_count_from_there(tmp_path: Path) -> None:
    gpus, _ = lines_of(busy(second) for second in range(20))
    lines = gpus.splitlines(keepends=True)
    moved = b"gpumon_log,news [%],utilization.gpu [%],index,uuid,timestamp\r\n"
    rows = b"".join(
        b'1,"a,b",%d,0,GPU-0,2023-11-14T13:%02d:00.000+00:00\r\n' % (minute, minute)
        for minute in range(60)
    )
    path = tmp_path / "run.csv"
    path.write_bytes(
        GPU_HEADER + b"".join(lines[:20]) + GPU_HEADER + b"".join(lines[20:]) + moved + rows
    )
    with opened(path) as tape:
        assert len(times_of(tape)) == 80
        before, after = (known(tape.at(NOON + second)) for second in (19, 3600 + 59 * 60))
    assert before.gpus[1].memory_used == GIB // 2
    assert (after.gpus[0].uuid, after.gpus[0].utilization_gpu) == ("GPU-0", 59)
    assert after.gpus[0].unknown["memory_used"] is Unknown.NOT_RECORDED


@pytest.mark.usefixtures("small_chunks")
def test_a_clock_set_forward_and_back_again_leaves_the_order(tmp_path: Path) -> None:
    shots = [busy(second) for second in range(90)]
    ahead = [replace(one, time=one.time + 500) for one in shots[20:30]]
    rows = b"".join(
        lines_of(part, began=part[0].time - second)[0]
        for part, second in ((shots[:20], 0), (ahead, 20), (shots[30:], 30))
    )
    path = tmp_path / "run.csv"
    path.write_bytes(GPU_HEADER + rows)
    with opened(path) as tape:
        times = times_of(tape)
        assert len(times) == 90
        assert times == sorted(set(times))
        assert ms(times[-1]) == NOON + 89
        for second, time_ in enumerate(times):
            read = tape.at(time_)
            assert read is not None
            assert read.gpus[0].utilization_gpu == second


def test_a_clock_set_back_between_two_parts_moves_what_was_before(tmp_path: Path) -> None:
    write_log(tmp_path / "run.part0001.csv", [busy(second) for second in range(40)])
    write_log(tmp_path / "run.csv", [busy(second, at=NOON - 1000) for second in range(50, 60)])
    with opened(tmp_path / "run.csv") as tape:
        times_of(tape)  # opens both
        times = times_of(tape)
        assert len(times) == 50
        assert times == sorted(set(times))
        assert tape.last == NOON - 941


# What happened


def test_what_happens_in_a_growing_log_is_found_too(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(0)])
    gpus, processes = lines_of([busy(1, pid=200)], began=NOON)
    with opened(path) as tape:
        read_whole(tape)
        for file, rows in ((path.with_suffix(".processes.csv"), processes), (path, gpus)):
            with file.open("ab") as end:
                end.write(rows)
        wait_until(lambda: len(tape.events(NOON, NOON + 1)) == 2)


def test_closing_ends_the_thread_and_closes_every_file(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(100)])
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    tape = open_log(path)
    tape.read_into(History({}), delay=0.0)
    generator = tape.between(NOON, NOON + 100, 10)
    next(generator)
    tape.close()
    tape.close()
    assert list(generator) == []
    assert tape.at(NOON) is None
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - numbers
    assert "gpumon-log" not in {thread.name for thread in threading.enumerate()}


# What is no log


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty: expected headings such as timestamp,index"),
        (b"\n\n\n", "is empty"),
        (b"hello world\nthis is no log\n", "in line 1, found 'hello world'"),
        (b'\n\n{"schema": 1}\n', "in line 3, found"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "in line 1, found '\ufffdELF"),
        (b"2026/11/21 15:22:34.123, 0, 55 %\n", "expected headings"),
        (b"a" * 500_000, "aaa…'"),
        (
            b"index, utilization.gpu [%]\n0, 5 %\n",
            "has no column timestamp in line 1, so the times of its rows are unknown: add",
        ),
        (b"Sat Nov 21 15:22:34 2026\n+----------+\n", "found 'Sat Nov 21 15:22:34 2026'"),
        ("timestamp, index\r\n2026/11/21 15:22:34, 0\r\n".encode("utf-16"), "is in UTF-16"),
        ("timestamp, index\n2026/11/21 15:22:34, 0\n".encode("utf-16-le"), "is in UTF-16"),
        ("timestamp, index\n2026/11/21 15:22:34, 0\n".encode("utf-16-be"), "is in UTF-16"),
        (b"timestamp, index\r2026/11/21 15:22:34, 0\r", "end in a carriage return alone"),
    ],
)
def test_a_file_that_is_no_log_gets_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        open_log(path)
    assert str(path) in caught.value.sentence
    assert says in caught.value.sentence
    assert caught.value.sentence.isprintable()


def test_a_log_that_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, says in (
        ("missing.csv", "There is no log at"),
        ("folder.csv", "is a directory"),
        ("pipe.csv", "no ordinary file"),
        ("not\0this.csv", "cannot be read"),
    ):
        with pytest.raises(RecordingError, match=says):
            open_log(tmp_path / name)


GPU_LINES, PROCESS_LINES = lines_of([busy(second) for second in range(30)])
GOOD, LISTS = GPU_HEADER + GPU_LINES, PROCESS_HEADER + PROCESS_LINES


def look_through(path: Path) -> None:
    """Use everything a tape offers; nothing but ``RecordingError`` may come of it."""
    try:
        tape = open_log(path)
    except RecordingError:
        return
    try:
        first, last = tape.first, tape.last
        if first is None or last is None:
            assert tape.at(0) is None
            return
        assert first <= last
        assert tape.at(first) is not None
        for time_ in (0, NOON, NOON + 15, first, last):
            read = known(tape.at(time_))
            assert first - 0.001 <= read.time <= last + 0.001
        times = [one.time for one in tape.between(first, last, 20)]
        assert times == sorted(set(times))
        assert first <= tape.step(NOON + 7, -3) <= last
        read_whole(tape)
    finally:
        tape.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cards=st.binary(max_size=2000), lists=st.binary(max_size=500))
@example(cards=b"timestamp,index\n", lists=b"")
@example(cards=b"timestamp,index\n2023-01-01T00:00:00Z,1\n", lists=b"timestamp,pid\n,\n")
@example(cards=b"index,timestamp\n9e999,0001-01-01\n1,9999-12-31T23:59:59\n", lists=b"")
def test_arbitrary_bytes_never_raise_anything_else(
    tmp_path: Path, cards: bytes, lists: bytes
) -> None:
    (tmp_path / "run.csv").write_bytes(cards)
    (tmp_path / "run.processes.csv").write_bytes(lists)
    look_through(tmp_path / "run.csv")
    for ending in (".gz", ".zst"):
        other = tmp_path / f"packed.csv{ending}"
        other.write_bytes(cards)
        look_through(other)


edits = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.floats(0, 1),
        st.integers(0, 400),
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b'"', b"\n", b",", b"\0", b"\r\n", b"timestamp,index\n", b"9" * 400, b"-1", b"nan"]
            ),
        ),
    ),
    min_size=1,
    max_size=8,
)


Edit: TypeAlias = tuple[int, float, int, bytes]


def mangled(data: bytes, edits: Iterable[Edit]) -> bytes:
    for _, share, length, put in edits:
        place = int(share * len(data))
        data = data[:place] + put + data[place + length :]
    return data


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=edits)
def test_mangled_logs_never_raise_anything_else(tmp_path: Path, edits: list[Edit]) -> None:
    for which, (name, whole) in enumerate((("run.csv", GOOD), ("run.processes.csv", LISTS))):
        of_file = (edit for edit in edits if edit[0] == which)
        (tmp_path / name).write_bytes(mangled(whole, of_file))
    look_through(tmp_path / "run.csv")


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=edits)
@example(edits=[(0, 0.125, 245, b"9" * 400), (0, 0.2238458039905576, 0, b"\n")])
@example(edits=[(0, (GOOD.index(b"12:00:26") + 14.5) / len(GOOD), 0, b"9" * 20 + b"\0")])
# The headings are a cell to the left of their values, and all GPUs have the bus id 1.
@example(edits=[(0, (GOOD.index(b"id,name") + 0.5) / len(GOOD), 3, b"")])
def test_replay_and_report_read_a_mangled_log_alike(tmp_path: Path, edits: list[Edit]) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(mangled(GOOD, edits))
    subject = ("index", "uuid", "pci.bus_id")
    wanted = ("utilization.gpu [%]", "memory.used [MiB]", "memory.total [MiB]", "power.draw [W]")
    # Of a GPU that has several rows in a sample the last one counts.
    told: dict[tuple[object, object], tuple[object, ...]] = {}
    numbers: Counter[object] = Counter()
    try:
        for time, at, uuid, bus_id, *cells in rows(path, (*subject, *wanted), processes=False):
            gpu_ = uuid or bus_id or f"GPU {numbers[time] if at is None else at}"
            told[time, gpu_] = tuple(cells)
            numbers[time] += 1
    except RecordingError:
        with pytest.raises(RecordingError):
            open_log(path)
        return
    with opened(path) as tape:
        shown = []
        for moment in times_of(tape):
            read = known(tape.at(moment))
            for card in read.gpus:
                values = (card.utilization_gpu, card.memory_used, card.memory_total)
                shown.append((*values, card.power_draw))
    assert [*told.values()] == shown


def read_damage(path: Path, columns: Sequence[CsvColumn], *, processes: bool) -> Damage:
    """The damage of a file that a report finds which reads all columns."""
    damage = Damage()
    names = [column.name for column in (*columns, HOSTNAME)]
    try:
        for _ in rows(path, names, processes=processes, damage=damage):
            pass
    except RecordingError as error:
        damage.refusal = error.sentence
    return damage


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=edits, seconds=st.integers(0, 30))
@example(edits=[(1, 0.0, 359, b""), (1, 0.0, 111, b"timestamp,index\n")], seconds=30)
def test_replay_counts_the_damage_of_a_mangled_log_as_a_report_does(
    tmp_path: Path, edits: list[Edit], seconds: int
) -> None:
    path = tmp_path / "run.csv"
    for which, (file, whole) in enumerate(((path, GOOD), (log_files(path).processes, LISTS))):
        of_file = (edit for edit in edits if edit[0] == which)
        file.write_bytes(mangled(whole[: len(whole) * seconds // 30], of_file))
    expected = {
        Path(file.name): read_damage(file, columns, processes=file is not path)
        for file, columns in ((path, GPU_COLUMNS), (log_files(path).processes, PROCESS_COLUMNS))
    }
    try:
        tape = open_log(path)
    except RecordingError:
        assert expected[Path("run.csv")].refusal
        return
    with closing(tape):
        read_whole(tape)
        told = tape.damage
    # Rows of one subject are counted by who joins them.
    assert re.sub(r"run\S* has \d+ rows? twice in a sample, which count once\. ?", "", told) == (
        " ".join(damage_notes(expected, most=1))
    )


def test_it_is_known_whether_all_of_a_log_was_looked_through(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(10)])
    with opened(path) as tape:
        read_whole(tape)
        assert tape.events_complete
    with opened(path) as tape:
        tape.read_into(History({}), delay=PATIENCE)
        assert not tape.events_complete


@pytest.mark.parametrize("name", ["host.cpu [%]", "host.memory.used [MiB]", "host.load.1"])
def test_a_machine_with_an_impossible_value_is_read_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.csv"
    # A log of another program.
    path.write_bytes(GOOD.replace(b"gpumon_log", b"version", 1))
    change_cells(path, *((row, name, "9" * 400) for row in range(3)))
    look_through(path)
