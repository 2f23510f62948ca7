"""Rules of the files of a log, each at its edges."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuUse
from gpumon.model.snapshot import Snapshot, Unknown
from gpumon.recording.csv import allocation_cells, file_lines
from gpumon.recording.csv.allocation_cells import users_cell
from gpumon.recording.csv.columns import PROCESS_COLUMNS, columns_of
from gpumon.recording.csv.file_lines import FileLines
from gpumon.recording.csv.headings import Header, first_header
from gpumon.recording.csv.log_messages import length, progress, size
from gpumon.recording.csv.log_session import LogReporter
from gpumon.recording.csv.parsers import EARLIEST, LATEST, parse_time
from gpumon.recording.csv.rows import ProcessRows
from gpumon.recording.csv.shared_keys import is_shared
from gpumon.recording.recorder import LogStatus
from gpumon.recording.recording import RecordingError
from gpumon.text.status_line import StatusLine
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, read_whole, rows, write_log
from tests.recording.csv.several import write_several


@pytest.mark.parametrize(("user", "pids"), [(None, ["1", "2", "3"]), ("ann", ["1"]), ("cy", [])])
def test_a_log_of_one_user_has_the_processes_of_that_user(
    user: str | None, pids: list[str]
) -> None:
    listed = (process(1), process(2, user="bo"), process(3, user=None))
    written = ProcessRows(user=user).of(snapshot(NOON, gpu(), processes=listed), 0.0)
    place = [column.name for column in PROCESS_COLUMNS].index("pid")
    assert [row[place] for row in csv.reader(written.decode().splitlines())] == pids


@pytest.mark.parametrize(
    ("cells", "is_same"),
    [
        (["timestamp", "index", "power.draw [W]"], True),
        ([" timestamp ", "0", "70"], True),
        (["2023-11-14", "index", "power.draw [W]"], False),
        (["timestamp", "index"], False),
    ],
)
def test_headings_that_are_written_again_are_known_by_their_time_and_number(
    cells: list[str], *, is_same: bool
) -> None:
    header = Header(["timestamp", "index", "power.draw [W]"], processes=False)
    assert header.is_same(cells) is is_same


def instances(read: Snapshot | None) -> list[tuple[int, int] | None]:
    assert read is not None
    return [use.instance for process in read.processes for use in process.uses]


@pytest.mark.parametrize("missing", ["gpu_instance", "compute_instance"])
def test_a_process_of_which_half_an_instance_is_known_is_on_the_whole_gpu(
    tmp_path: Path, missing: str
) -> None:
    use = GpuUse("GPU-0", 0, instance=(3, 0), memory_used=GIB)
    path = write_log(
        tmp_path / "run.csv", [snapshot(NOON, processes=(replace(process(), uses=(use,)),))]
    )
    with opened(path) as tape:
        assert instances(tape.at(NOON)) == [(3, 0)]
    listed = tmp_path / "run.processes.csv"
    header, row = csv.reader(listed.read_text().splitlines())
    row[header.index(columns_of([missing], processes=True)[0].name)] = ""
    with listed.open("w", newline="") as file:
        csv.writer(file).writerows([header, row])
    with opened(path) as tape:
        assert instances(tape.at(NOON)) == [None]


@pytest.mark.parametrize(
    ("field", "cells", "known"),
    [
        ("power_draw", ["70.5", "4294967", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "-1", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "nan", "80"], [70.5, None, 80.0]),
        ("power_draw", ["70.5", "", "80"], [70.5, None, 80.0]),
        ("power_draw", ["", "", "80"], [None, None, 80.0]),
        ("power_draw", ["70.5", "0", "80"], [70.5, 0.0, 80.0]),
    ],
)
def test_an_impossible_measurement_among_others_is_unknown(
    tmp_path: Path, field: str, cells: list[str], known: list[float | None]
) -> None:
    column = columns_of([field], processes=False)[0].name
    lines = [f"2023-11-14T12:00:{second:02}+00:00,0,{cell}" for second, cell in enumerate(cells)]
    path = tmp_path / "run.csv"
    path.write_text("\n".join([f"timestamp,index,{column}", *lines, ""]))
    assert [row[1] for row in rows(path, [column], processes=False)] == known


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (724, "12m04s"),
        (3599, "59m59s"),
        (3600, "1h00m00s"),
        (11524, "3h12m04s"),
        (86399, "23h59m59s"),
        (86400, "1d00h00m"),
        (184320, "2d03h12m"),
    ],
)
def test_a_log_says_durations_to_the_second(seconds: float, text: str) -> None:
    assert length(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1023000, "999.0 KiB"),
        (1024000, "1.0 MiB"),
        (1047527424, "999.0 MiB"),
        (1048576000, "1.0 GiB"),
    ],
)
def test_a_log_says_sizes_in_few_characters(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "share", "left"),
    [(0, "  0 %", "2m00s"), (30, " 25 %", "1m30s"), (150, "100 %", "0s")],
)
def test_the_progress_of_a_log_is_the_part_of_its_time(
    seconds: float, share: str, left: str
) -> None:
    assert progress(seconds, 120.0).endswith(f" {share}  {left} left")
    bar = progress(seconds, 120.0)[: -len(f" {share}  {left} left")]
    assert bar.count("█") == len(bar) * int(share[:3]) // 100


def test_a_log_says_once_that_it_has_begun_and_when_trouble_begins_and_ends() -> None:
    said: list[str] = []
    line = SimpleNamespace(say=said.append)
    reporter = LogReporter(cast("StatusLine", line), "it begins")
    reporter.report(None, None, ())
    assert said == []
    full = "the disk is full since {} s"
    for lost, trouble in enumerate((None, None, full.format(1), full.format(2), None, None)):
        reporter.report(cast("LogStatus", SimpleNamespace(lost=lost)), trouble, ())
    reporter.report(None, None, ["GPU 3 is lost"])
    begun, *timed = said
    assert begun == "it begins"
    assert [text.partition(" ")[2].partition(" ")[2] for text in timed] == [
        "2 samples lost · the disk is full since 1 s",
        "4 samples lost · it goes on",
        "GPU 3 is lost",
    ]


@pytest.mark.parametrize("tail", range(10))
@pytest.mark.parametrize("first", [b"", b"ab\n", b"ab\ncde\n"])
def test_the_last_complete_line_is_found_wherever_a_piece_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes, tail: int
) -> None:
    monkeypatch.setattr(file_lines, "PIECE", 4)
    path = tmp_path / "run.csv"
    path.write_bytes(first + b"x" * tail)
    lines = FileLines(path.open("rb"))
    try:
        assert lines.end_of_lines(0, lines.size) == len(first)
        # It is written to its end, and another is begun.
        with path.open("ab") as file:
            file.write(b"x\ny")
        assert lines.end_of_lines(len(first), lines.size) == len(first) + tail + 2
    finally:
        lines.close()


@pytest.mark.parametrize(("own", "is_refused"), [("", False), ("this is no log\n", True)])
def test_a_log_whose_own_file_is_none_is_refused_though_older_parts_can_be_read(
    tmp_path: Path, own: str, *, is_refused: bool
) -> None:
    write_log(tmp_path / "run.part0001.csv", [snapshot(NOON)])
    (tmp_path / "run.csv").write_text(own)
    (tmp_path / "run.part0002.csv").write_text("a broken part harms nobody\n")
    if is_refused:
        with pytest.raises(RecordingError), opened(tmp_path / "run.csv"):
            pass
    else:
        with opened(tmp_path / "run.csv") as tape:
            assert (tape.first, tape.last) == (NOON, NOON)


def test_a_log_of_several_machines_without_a_row_yet_has_no_sample(tmp_path: Path) -> None:
    with opened(write_several(tmp_path / "run.csv", [])) as tape:
        assert (tape.first, tape.last) == (None, None)


@pytest.mark.parametrize(("most", "cell"), [(7, "ann;bob"), (6, "ann"), (3, "ann"), (2, "")])
def test_a_cell_has_as_many_users_as_it_takes(
    monkeypatch: pytest.MonkeyPatch, most: int, cell: str
) -> None:
    monkeypatch.setattr(allocation_cells, "CELL_CHARACTERS", most)
    given = [Allocation("slurm", user=user) for user in ("ann", "bob")]
    assert users_cell(given) == cell


@pytest.mark.parametrize(
    ("moment", "is_read"),
    [(EARLIEST, True), (EARLIEST - 1, False), (LATEST, True), (LATEST + 1, False)],
)
def test_a_time_that_no_clock_shows_is_none(moment: float, *, is_read: bool) -> None:
    text = datetime.fromtimestamp(moment, timezone.utc).isoformat()
    if is_read:
        assert parse_time(text) == moment
    else:
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_time(text)


@pytest.mark.parametrize(
    ("line", "is_prefix"),
    [
        (b"0: timestamp,utilization.gpu [%]\n", True),
        (b"0: timestamp of a host,utilization.gpu [%]\n", False),
    ],
)
def test_what_a_program_writes_before_each_line_is_named(line: bytes, *, is_prefix: bool) -> None:
    with pytest.raises(RecordingError) as refused:
        first_header(line + b"0: 2023-11-14,5\n", "run.csv", processes=False)
    assert ("before the column timestamp" in str(refused.value)) is is_prefix


def test_no_error_of_a_gpu_is_known_only_in_a_log_of_gpumon(tmp_path: Path) -> None:
    own = write_log(tmp_path / "own.csv", [snapshot(NOON)])
    other = tmp_path / "other.csv"
    lines = ("timestamp,index,xid,utilization.gpu [%]", "2023-11-14T12:00:00+00:00,0,,5", "")
    other.write_text("\n".join(lines))
    for path, reason in ((own, None), (other, Unknown.NOT_RECORDED)):
        with opened(path) as tape:
            read = tape.at(NOON)
        assert read is not None
        assert (read.gpus[0].xid, read.gpus[0].unknown.get("xid")) == (None, reason)


@pytest.mark.parametrize("pace", [1.0, 0.7])
@pytest.mark.parametrize(("back", "shift"), [(0.0, 0.0), (0.02, 0.0), (60.0, 60.0)])
def test_a_clock_that_was_set_back_between_two_parts_moves_what_was_before(
    tmp_path: Path, pace: float, back: float, shift: float
) -> None:
    earlier = [snapshot(NOON), snapshot(NOON + pace)]
    later = [snapshot(NOON + 2 * pace - back), snapshot(NOON + 3 * pace - back)]
    write_log(tmp_path / "run.part0001.csv", earlier)
    write_log(tmp_path / "run.csv", later, began=NOON - back)
    with opened(tmp_path / "run.csv") as tape:
        first = tape.first
        assert first is not None
        # What only comes of adding and subtracting is no step of the clock.
        assert first == (pytest.approx(NOON - shift, abs=1e-4) if shift else NOON)
        assert tape.last == later[-1].time


def edited(path: Path, field: str, cells: Sequence[str]) -> None:
    """Give a column of gpumon's own log other cells."""
    with path.open(newline="") as file:
        header, *written = csv.reader(file)
    place = header.index(columns_of([field], processes=False)[0].name)
    for row, cell in zip(written, cells, strict=True):
        row[place] = cell
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *written])


@pytest.mark.parametrize("wrong", ["4294967", "-1", "nan", "inf", ""])
def test_an_impossible_measurement_is_unknown_where_a_column_is_read_at_once(
    tmp_path: Path, wrong: str
) -> None:
    path = write_log(
        tmp_path / "run.csv", [snapshot(NOON + second, gpu(power_draw=1.0)) for second in range(3)]
    )
    edited(path, "power_draw", ["70.5", wrong, "80"])
    column = columns_of(["power_draw"], processes=False)[0].name
    assert [row[1] for row in rows(path, [column], processes=False)] == [70.5, None, 80.0]


def test_more_memory_in_use_than_there_is_counts_as_damage(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [snapshot(NOON + second) for second in range(3)])
    edited(path, "memory_used", ["1024", "99999999", "1024"])
    with opened(path) as tape:
        read = tape.at(NOON + 1)
        assert read is not None
        assert read.gpus[0].memory_used is None
        assert read.gpus[0].unknown["memory_used"] is Unknown.IMPOSSIBLE
        read_whole(tape)
        assert "line 3" in tape.damage


@pytest.mark.parametrize(
    ("before", "is_read"),
    [
        ("2023-11-14T12:00:00+00:00", True),
        ("2023-11-14T12:00:00+00:00,the driver is loaded", True),
        ("2023-11-14T12:00:00+00:00,0,5", False),
    ],
)
def test_rows_before_the_headings_may_have_other_columns(before: str, *, is_read: bool) -> None:
    block = f"{before}\ntimestamp,index,utilization.gpu [%]\n".encode()
    if is_read:
        place, header = first_header(block, "run.csv", processes=False)
        assert (place, header.width) == (len(before) + 1, 3)
    else:
        with pytest.raises(RecordingError):
            first_header(block, "run.csv", processes=False)


def test_a_gpu_whose_memory_is_all_in_use_is_no_damage(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [snapshot(NOON)])
    total = gpu().memory_total
    assert total is not None
    edited(path, "memory_used", [str(total // 2**20)])
    with opened(path) as tape:
        read = tape.at(NOON)
        assert read is not None
        assert read.gpus[0].memory_used == total
        read_whole(tape)
        assert tape.damage == ""


PAIRS = [second + part for second in range(8) for part in (0.0, 0.1)]
EVEN = [0.5 * place for place in range(16)]


@pytest.mark.parametrize(
    ("walls", "names", "values", "gap", "precision", "shared"),
    [
        # A name that comes back again and again is that of another GPU; one that stays is new.
        (EVEN, "ABAB" * 4, None, None, 1.0, True),
        (EVEN, "A" * 8 + "B" * 8, None, None, 1.0, False),
        (EVEN, "A" * 8 + "BA" + "A" * 6, None, None, 1.0, False),
        (EVEN[:5], "ABABA", None, None, 1.0, True),
        (EVEN, "ABCDEFGHIJKLMNOP", None, None, 1.0, False),
        # More rows of a sample than programs that log into one file.
        ([0, 0.001, 0.002], "AAA", None, None, 0.001, True),
        ([0, 0.001], "AA", None, None, 0.001, False),
        ([0, 1, 1.001, 1.002], "AAAA", None, None, 0.001, False),
        ([0, 0.001, 0.002], "AAA", None, None, 1.0, False),
        ([0, 0.1, 0.2, 5, 5.1, 5.2, 10], "A" * 7, None, 1.0, 0.001, True),
        ([0, 0.1, 5, 5.1, 10], "A" * 5, None, 1.0, 0.001, False),
        ([0, 0.1, 0.2], "AAA", None, 1.0, 0.001, False),
        ([0, 0.1, 0.2, 5, 5.1, 5.2, 10, 15, 15.1, 20], "A" * 10, None, 1.0, 0.001, False),
        # Values that go up and down from row to row, in rows that come in pairs.
        (PAIRS, "A" * 16, [10, 90] * 8, None, 1.0, True),
        (PAIRS, "A" * 16, [90, 91] * 8, None, 1.0, False),
        (PAIRS, "A" * 16, [None] * 16, None, 1.0, False),
        (PAIRS, "A" * 16, range(16), None, 1.0, False),
        (EVEN, "A" * 16, [10, 90] * 8, None, 1.0, False),
        (PAIRS[:12], "A" * 12, [10, 90] * 6, None, 1.0, False),
    ],
)
def test_rows_with_one_key_are_of_several_gpus_if_they_differ_again_and_again(
    walls: list[float],
    names: str,
    values: Sequence[float | None] | None,
    gap: float | None,
    precision: float,
    *,
    shared: bool,
) -> None:
    measured = [(value,) for value in values or [5.0] * len(walls)]
    assert is_shared(walls, [(name,) for name in names], measured, gap, precision) is shared
