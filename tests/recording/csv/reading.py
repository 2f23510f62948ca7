"""What the tests of reading logs share: logs written of snapshots, and what should be read back."""

from __future__ import annotations

import csv
import gzip
import math
import time
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from gpumon.findings import conditions
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import Gpu, Host, Snapshot, Unknown
from gpumon.recording.csv.columns import readable_column
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.recording import CsvRecording, open_log
from gpumon.recording.csv.rows import GpuRows, ProcessRows
from gpumon.recording.csv.tables import rows_of
from gpumon.recording.history import LOG_GPU_DEPTH, History
from gpumon.system.zstandard import zstd
from gpumon.text.formatting import printable
from tests.build import NOON, gpu, process, snapshot
from tests.known import known
from tests.log_headers import GPU_HEADER, PROCESS_HEADER
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from gpumon.recording.csv.damage import Damage

MILLISECOND = 0.001
_NOT_LOGGED = ("serial", "vbios_version", "architecture", "fan_speeds")


def lines_of(snapshots: Iterable[Snapshot], began: float | None = None) -> tuple[bytes, bytes]:
    """The rows of both files, without headings, of a log begun with the first sample, or earlier.

    ``began`` is the time at which ``elapsed [s]`` was 0.
    """
    cards, lists = GpuRows(), ProcessRows()
    gpus, processes = [], []
    for one in snapshots:
        began = one.time if began is None else began
        gpus.append(cards.of(one, one.time - began))
        processes.append(lists.of(one, one.time - began))
    return b"".join(gpus), b"".join(processes)


def write_log(path: Path, snapshots: Iterable[Snapshot], began: float | None = None) -> Path:
    """A log of some snapshots."""
    gpus, processes = lines_of(snapshots, began)
    path.write_bytes(GPU_HEADER + gpus)
    path.with_suffix(".processes.csv").write_bytes(PROCESS_HEADER + processes)
    return path


def pack(path: Path, ending: str = ".gz") -> Path:
    """Compress a file as logrotate would."""
    compress = gzip.compress if ending == ".gz" else zstd.compress
    packed = path.with_name(path.name + ending)
    packed.write_bytes(compress(path.read_bytes()))
    path.unlink()
    return packed


def rows(
    path: Path,
    wanted: Sequence[str],
    *,
    processes: bool = False,
    first: float = -math.inf,
    last: float = math.inf,
    damage: Damage | None = None,
) -> Iterator[tuple[object, ...]]:
    """The rows of a file as a report reads them: the time, then the values of the columns."""
    columns = [readable_column(name, processes=processes) for name in wanted]
    with closing(open_sheet(path, processes=processes)) as sheet:
        yield from chain.from_iterable(
            rows_of(sheet, columns, zip, first=first, last=last, damage=damage)
        )


def cuts(data: bytes, first: int) -> list[int]:
    """Where a file may break off from a place on: around line ends and commas, and in between."""

    def is_chosen(at: int) -> bool:
        return at % 5 == 0 or any(one in b"\n," for one in data[at - 1 : at + 1])

    return list(filter(is_chosen, range(first, len(data))))


def busy(second: float, *, pid: int = 100, at: float = NOON) -> Snapshot:
    """A sample of two cards whose first tells the second at which it was taken."""
    cards = tuple(
        gpu(index=index, utilization_gpu=int(second) % 100, sampled_at=at + second)
        for index in range(2)
    )
    return snapshot(at + second, *cards, processes=(process(pid, gpus=(0, 1)),))


def opened(path: Path, host: str | None = None) -> closing[CsvRecording]:
    """A log, closed at the end of the block."""
    return closing(open_log(path, host))


def sample_at(path: Path, time: float = NOON, host: str | None = None) -> Snapshot:
    """What a replay shows at a time."""
    with opened(path, host) as log:
        return known(log.at(time))


def change_cells(path: Path, *changes: tuple[int, str, str]) -> None:
    """Write other cells into a file: the number of the row, the column, and the text."""
    header, *rows = _cells(path)
    for row, column, text in changes:
        rows[row][header.index(column)] = text
    _write_cells(path, [header, *rows])


def drop_columns(path: Path, *names: str) -> None:
    """Take columns out of a file, as a log of an older version lacks them."""
    header, *rows = _cells(path)
    kept = [place for place, name in enumerate(header) if name not in names]
    assert len(kept) == len(header) - len(names)
    _write_cells(path, ([row[place] for place in kept] for row in (header, *rows)))


def _cells(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


def _write_cells(path: Path, rows: Iterable[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read_whole(tape: CsvRecording) -> History:
    """The history of a log, read to its end."""
    history = History(conditions(), gpu_depth=LOG_GPU_DEPTH)
    tape.read_into(history, delay=0.0)
    wait_until(lambda: tape.events_complete)
    return history


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def times_of(tape: CsvRecording) -> list[float]:
    """When the samples of a tape were taken, found by stepping through it."""
    if tape.first is None or tape.last is None:
        return []
    times = [tape.first]
    while times[-1] < tape.last:
        times.append(tape.step(times[-1], 1))
    return times


def assert_read_back(read: Snapshot, sampled: Snapshot) -> None:
    """Check that a snapshot is what it was before it was logged, as far as that is logged."""
    assert read.source == "replay"
    assert_near(read.time, sampled.time)
    assert_host(read.host, sampled.host)
    for after, before in zip(read.gpus, sampled.gpus, strict=True):
        assert_gpu(after, before)
    if sampled.processes_at is None:
        assert read.processes_at is None
    found = {one.id: one for one in read.processes}
    assert len(found) == len(read.processes) == len(sampled.processes)
    for one in sampled.processes:
        assert_process(found[one.id], one)


def assert_host(read: Host, host: Host) -> None:
    not_logged = dict.fromkeys(("library_version", "driver_since", "in_container", "nics"))
    logged = replace(host, **not_logged, pids_are_ours=True)
    if host.load is not None:
        for there, sampled in zip(known(read.load), host.load, strict=True):
            assert_near(there, sampled)
        logged = replace(logged, load=read.load)
    assert_fields(asdict(read), asdict(logged))


def assert_gpu(read: Gpu, gpu: Gpu) -> None:
    expected = asdict(replace(gpu, **dict.fromkeys(_NOT_LOGGED), unknown={}))
    assert_fields(asdict(replace(read, unknown={})), expected)
    for name, value in expected.items():
        if value is None and name not in {"xid", "xid_at", "status_since", "sampled_at"}:
            assert read.unknown[name] is Unknown.NOT_RECORDED
        else:
            assert name not in read.unknown
    assert ("processes" in read.unknown) == ("processes" in gpu.unknown)


def assert_process(read: GpuProcess, one: GpuProcess) -> None:
    place = one.place
    if place is not None:
        around = place.container and place.container.label
        assert (read.place and read.place.container and read.place.container.label) == around
        place = replace(place, container=None if read.place is None else read.place.container)
    command = tuple(printable(part) for part in one.command)
    logged = replace(one, place=None if place == Workload() else place, command=command)
    assert_fields(asdict(read), asdict(logged))


def assert_fields(read: dict[str, object], expected: dict[str, object]) -> None:
    for name, value in expected.items():
        if isinstance(value, float):
            rate = name.endswith(("_rx", "_tx"))
            assert_near(read[name], value, MILLISECOND * 2**20 if rate else MILLISECOND, name)
        else:
            assert read[name] == value, name


def assert_near(read: object, value: float, apart: float = MILLISECOND, name: str = "") -> None:
    assert isinstance(read, float), name
    assert abs(read - value) <= 1.01 * apart, (name, read, value)
