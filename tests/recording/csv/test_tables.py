"""The rows of a log's files, as a report reads them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.processes import Container
from gpumon.recording.csv import file_lines, index, sample_finder
from gpumon.recording.csv.columns import (
    GPU_COLUMNS,
    PROCESS_COLUMNS,
    TEXT_CHARACTERS,
    CsvColumn,
    column_name,
    columns_of,
    quoted_cell,
    readable_column,
)
from gpumon.recording.csv.damage import Damage
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.parsers import arguments, container
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.csv.tables import rows_of
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import printable
from tests.build import GIB, NOON, process
from tests.log_headers import GPU_HEADER, PROCESS_HEADER
from tests.recording.csv.reading import busy, lines_of, rows, sample_at, write_log

WANTED = ("index", "uuid", "utilization.gpu [%]", "memory.used [MiB]", "elapsed [s]")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "CHUNK", 3000)
    monkeypatch.setattr(file_lines, "PROBE", 500)


def expected(seconds: range) -> list[tuple[object, ...]]:
    return [
        (NOON + second, card, f"GPU-{card}", second, GIB // 2, float(second))
        for second in seconds
        for card in range(2)
    ]


def test_the_rows_of_a_span_come_in_the_order_of_time(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(50)])
    assert list(rows(path, WANTED)) == expected(range(50))
    assert list(rows(path, WANTED, first=NOON + 20, last=NOON + 30.5)) == expected(range(20, 31))
    assert list(rows(path, WANTED, first=NOON + 100)) == []
    assert list(rows(path, WANTED, last=NOON - 1)) == []


def test_processes_in_the_models_units(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(9)])
    wanted = ("uuid", "pid", "used_gpu_memory [MiB]", "start_time", "visible", "container")
    read = list(rows(path.with_suffix(".processes.csv"), wanted, processes=True))
    assert read == [
        (NOON + second, f"GPU-{card}", 100, GIB, NOON - 86400, True, None)
        for second in (0, 4, 8)
        for card in range(2)
    ]


def test_a_column_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("timestamp,index,later [furlong]\n2023-11-14T12:00:00.000+00:00,3,9\n")
    assert list(rows(path, ("power.draw [W]", "index"))) == [(NOON, None, 3)]


def test_rows_are_the_same_read_a_column_at_a_time_or_one_by_one(tmp_path: Path) -> None:
    quoted = replace(process(100, gpus=(0, 1)), command=("python", "-c", 'print("a, b")'))
    samples = [replace(busy(second), processes=(quoted,)) for second in range(50)]
    path = write_log(tmp_path / "run.csv", samples)
    for file, columns in (
        (path, GPU_COLUMNS),
        (path.with_suffix(".processes.csv"), PROCESS_COLUMNS),
    ):
        content = file.read_bytes()
        place = content.index(b"\n", len(content) // 2) + 40
        for damaged, text in enumerate((content, content[:place] + b"\0" + content[place + 1 :])):
            at_once, most = read_rows(tmp_path / "first.csv", text, columns)
            # Rows whose time comes last are read one by one.
            parts = [line.partition(b",") for line in text.splitlines()]
            moved = b"".join([b"%s,%s\n" % (rest, stamp) for stamp, _, rest in parts])
            assert read_rows(tmp_path / "last.csv", moved, columns) == (at_once, 2)
            assert most > 2
            assert at_once[1].lines == damaged


def read_rows(
    path: Path, text: bytes, columns: Sequence[CsvColumn]
) -> tuple[tuple[list[tuple[object, ...]], Damage], int]:
    """The rows of a file, its damage, and the most rows that were read at once."""
    path.write_bytes(text)
    damage, counts = Damage(), list[int]()

    def count(*values: Sequence[object]) -> Iterable[tuple[object, ...]]:
        counts.append(len(values[0]))
        return zip(*values, strict=True)

    with closing(open_sheet(path, processes=columns is PROCESS_COLUMNS)) as sheet:
        found = [row for rows in rows_of(sheet, columns, count, damage=damage) for row in rows]
    return (found, damage), max(counts)


def test_a_header_written_again_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus, _ = lines_of(busy(second) for second in range(30))
    lines = gpus.splitlines(keepends=True)
    content = GPU_HEADER + b"".join(lines[:31]) + GPU_HEADER + b"".join(lines[31:])
    for sought in (index.HEADINGS_SOUGHT, 0):
        monkeypatch.setattr(index, "HEADINGS_SOUGHT", sought)
        (tmp_path / "run.csv").write_bytes(content)
        assert list(rows(tmp_path / "run.csv", WANTED)) == expected(range(30))


def test_columns_that_change_in_a_large_file_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "HEADINGS_SOUGHT", 0)
    gpus, _ = lines_of(busy(second) for second in range(30))
    newer = GPU_HEADER.replace(b"uuid", b"news,uuid", 1).replace(b",index", b",elder,index", 1)
    more, _ = lines_of([busy(second) for second in range(30, 60)], began=NOON)
    more = more.replace(b",GPU-", b",,GPU-").replace(b"+00:00,", b"+00:00,x,")
    (tmp_path / "run.csv").write_bytes(GPU_HEADER + gpus + newer + more)
    assert list(rows(tmp_path / "run.csv", WANTED)) == expected(range(60))


def test_a_line_break_in_a_quoted_cell_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.processes.csv"
    stamp = "2023-11-14T12:00:00.000+00:00"
    path.write_text(
        "timestamp,pid,command,name\n"
        f'{stamp},1,"python -c ""a\nb, c""",one\n{stamp},2,x,two\n'
        f'{stamp},3,"torn\n{stamp},4,x,four\n'
    )
    assert list(rows(path, ("pid", "command", "name"), processes=True)) == [
        (NOON, 1, 'python -c "a\nb, c"', "one"),
        (NOON, 2, "x", "two"),
        (NOON, 3, None, None),
        (NOON, 4, "x", "four"),
    ]


def test_cells_that_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    header = b"timestamp,index,utilization.gpu [%],power.draw [W],clocks_event_reasons.active\n"
    stamp = b"2023-11-14T12:00:0%d.000+00:00"
    bad = [
        b"zero,1e999,nan,0xfffffffffffffffffffff",
        b"\xff\xfe,5 MiB,-,-0x4",
        b"1,\0" + b"7" * 5 + b",inf,0x4",
        b"1,2,3,4,5,6",
        b"9" * 5000 + b",1_0,0b1,4",
        b"1,2",
    ]
    path.write_bytes(
        header + b"".join(b"%s,%s\n" % (stamp % number, cells) for number, cells in enumerate(bad))
    )
    wanted = ("index", "utilization.gpu [%]", "power.draw [W]", "clocks_event_reasons.active")
    damage = Damage()
    read = list(rows(path, wanted, damage=damage))
    assert damage == Damage(len(bad), first=2)
    assert [row[1:] for row in read] == [
        (None, None, None, None),
        (None, None, None, None),
        (1, None, None, 4),
        (None, 10, None, 4),
        (1, None, None, None),
    ]


def test_a_last_line_without_an_end_is_no_row(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(10)])
    whole = path.read_bytes()
    for cut in (1, 30, 200):
        path.write_bytes(whole[:-cut])
        assert list(rows(path, WANTED)) == expected(range(10))[:-1]


def test_every_column_of_the_log_is_known() -> None:
    for columns, processes in ((GPU_COLUMNS, False), (PROCESS_COLUMNS, True)):
        for column in columns:
            assert column_name(column.name, processes=processes) == column.name


VISIBLE = st.characters(exclude_categories=["C", "M", "Z"]) | st.sampled_from(" \"'$=-+@\\")


@given(command=st.lists(st.text(VISIBLE), max_size=6))
def test_a_command_comes_back_as_its_arguments(command: list[str]) -> None:
    written = quoted_cell(command)
    read = written and readable_column("command", processes=True).parse(written)
    assert arguments(str(read)) == tuple(map(printable, command))


def test_a_command_that_was_cut_ends_where_it_was_cut() -> None:
    written = quoted_cell(("sh", "-c", "a b " * 2000))
    assert len(written) == TEXT_CHARACTERS
    name, option, script = arguments(written)
    assert (name, option) == ("sh", "-c")
    assert script == ("a b " * 2000)[: len(script)]
    assert arguments("it's") == ("its",)
    assert arguments("a\\") == ("a\\",)


@pytest.mark.parametrize(
    "around",
    [
        Container("docker", name="llama-ft"),
        Container("docker", id="0123456789ab"),
        Container("lxc", name="web 1"),
        Container("kubernetes", pod="train-0"),
        Container("podman"),
    ],
    ids=lambda around: around.label,
)
def test_a_container_comes_back_from_its_cell(around: Container) -> None:
    assert container(around.label) == around


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=3000), headed=st.booleans(), processes=st.booleans())
def test_arbitrary_bytes_raise_nothing_else(
    tmp_path: Path, content: bytes, headed: bool, processes: bool
) -> None:
    path = tmp_path / "any.csv"
    header = PROCESS_HEADER if processes else GPU_HEADER
    path.write_bytes(header + content if headed else content)
    try:
        wanted = [column.name for column in (PROCESS_COLUMNS if processes else GPU_COLUMNS)]
        times = [float(str(row[0])) for row in rows(path, wanted, processes=processes)]
    except RecordingError:
        return
    assert times == sorted(times)


IMPOSSIBLE = [
    ("utilization_gpu", ("-1", "101", "4294967295")),
    ("memory_used", ("-1", "24577", "4294967295")),
    ("memory_total", ("-1", "1e12")),
    ("temperature_gpu", ("-300", "4294967295")),
    ("power_draw", ("-1", "4294967")),
    ("clock_sm", ("-1", "4294967295")),
    ("fan_speed", ("-1", "4294967295")),
    ("pstate", ("P16", "P-1")),
]


@pytest.mark.parametrize(("field", "cells"), IMPOSSIBLE, ids=[field for field, _ in IMPOSSIBLE])
def test_a_value_that_no_card_can_have_is_unknown_to_every_reader(
    tmp_path: Path, field: str, cells: Sequence[str]
) -> None:
    column = columns_of([field], processes=False)[0].name
    path = tmp_path / "run.csv"
    head = "timestamp,index,memory.total [MiB]," if field != "memory_total" else "timestamp,index,"
    total = "24576," if field != "memory_total" else ""
    for text in cells:
        path.write_text(f"{head}{column}\n2023-11-14T12:00:00+00:00,0,{total}{text}\n")
        damage = Damage()
        wanted = (column, "memory.total [MiB]")
        [row] = rows(path, wanted, damage=damage)
        assert row[1] is None, text
        assert damage == Damage(impossible=1, first_impossible=2)
        assert getattr(sample_at(path).gpus[0], field) is None, text


def test_a_machine_with_less_memory_than_its_gpu_has_no_damaged_lines(tmp_path: Path) -> None:
    taken = busy(0)
    host = replace(taken.host, memory_total=GIB // 4, memory_used=GIB // 8)
    path = write_log(tmp_path / "run.csv", [replace(taken, host=host)])
    damage = Damage()
    wanted = [column.name for column in GPU_COLUMNS]
    found = rows(path, wanted, damage=damage)
    place = 1 + wanted.index("memory.used [MiB]")
    assert [row[place] for row in found] == [GIB // 2] * len(taken.gpus)
    assert damage == Damage()


@pytest.mark.slow
def test_damaged_lines_are_counted_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.csv"
    header, *good = (
        write_log(path, [busy(second) for second in range(200)]).read_bytes().splitlines(True)
    )
    garbage, empty = b"garbage\n", b"\r\n\n"
    torn = good[7][:60] + b"\n"
    junk = b"x\n" * 500_000
    for name, before, bad, after in (
        ("none", b"", b"", b"".join(good)),
        ("before all", empty, garbage, b"".join(good)),
        ("between", b"".join(good[:8]) + empty + header, garbage + torn, b"".join(good[8:])),
        ("at the end", b"".join(good) + empty, garbage * 2, b""),
        ("nothing else", empty, b",,,\n" * 3, b""),
        ("very long", b"".join(good[:8]), b"x" * 400_000 + b"\n", b"".join(good[8:])),
        ("very many", b"".join(good[:8]) + empty, junk, b"".join(good[8:])),
        ("zeros", b"".join(good[:8]), bytes(1000) + b"\n", b"".join(good[8:])),
    ):
        path.write_bytes(header + before + bad + after)
        expected = Damage()
        if bad:
            expected = Damage(bad.count(b"\n"), first=2 + before.count(b"\n"))
        for chunk in (index.CHUNK, 3000):
            with monkeypatch.context() as patched:
                patched.setattr(index, "CHUNK", chunk)
                patched.setattr(file_lines, "PIECE", chunk)
                damage = Damage()
                list(rows(path, WANTED, damage=damage))
            assert damage == expected, (name, chunk)


def test_a_log_that_grows_while_it_is_read_does_not_end_within_a_line(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [busy(second) for second in range(1000)])
    damage = Damage()
    for number, _ in enumerate(rows(path, WANTED, damage=damage)):
        if number == 10:
            with path.open("ab") as end:
                end.write(lines_of([busy(1000)])[0])
    assert number > 100
    assert damage == Damage()


@pytest.mark.slow
@pytest.mark.parametrize("junk", [b"\n", b"x\n", b'"\n', b"timestamp,\n"])
def test_junk_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, junk: bytes) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(sample_finder, "read_moment", looked_at.append)
    path = tmp_path / "run.csv"
    path.write_bytes(b"timestamp,index\n" + junk * 200_000)
    with closing(RotatedLog(log_files(path))):
        assert len(looked_at) < 4000


@pytest.mark.slow
def test_a_quote_that_nobody_closes_costs_no_more_than_its_lines(tmp_path: Path) -> None:
    def seconds(lines: int) -> float:
        path = tmp_path / "run.csv"
        row = b"2023-11-14T12:00:00+00:00,0"
        path.write_bytes(b'timestamp,index,name\n%s,"H100\n' % row + b"\n" * lines + row + b",A\n")
        began = time.process_time()
        assert len(list(rows(path, ("index",)))) == 2
        return time.process_time() - began

    # Four times as many take four times as long, not sixteen times.
    assert min(seconds(60_000) for _ in range(2)) < 9 * min(seconds(15_000) for _ in range(4))
