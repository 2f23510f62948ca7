"""The rows of a log's file, one after another: what a report adds up."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from gpumon.recording.csv.cells import Cells, column_cells, read_moment
from gpumon.recording.csv.compression import open_file
from gpumon.recording.csv.headings import row_of, whole_lines
from gpumon.recording.csv.index import CsvFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.index import Chunk, SampleSpan


def rows(
    path: Path,
    wanted: Sequence[str],
    *,
    processes: bool,
    first: float | None = None,
    last: float | None = None,
) -> Iterator[tuple[object, ...]]:
    """The rows of one file in their order: the time, then the values of the wanted columns.

    Times are as on a tape: seconds since the epoch that never run backwards. Values are in the
    model's units: bytes, percent, watts, joules, seconds, true or false, seconds since the epoch
    for times, text; ``None`` where the cell is empty or there is no such column. Rows and cells
    that cannot be read are left out, and so is a last line that does not end.

    Args:
        path: The file: CSV, or that compressed, by its ending ``.gz`` or ``.zst``.
        wanted: Names of ``columns.GPU_COLUMNS``, or of ``columns.PROCESS_COLUMNS``.
        processes: Whether it is the processes' file.
        first: Leave out samples from before this time.
        last: And from after this one.

    Raises:
        TapeError: It is no such file, or cannot be opened.
    """
    begin = -math.inf if first is None else first
    end = math.inf if last is None else last
    readers = [column_cells(name, processes=processes, reasons=False) for name in wanted]
    file = open_file(path)
    with contextlib.closing(file):
        sheet = CsvFile(file, str(path), processes=processes)
        set_back = sheet.set_back
        plan: _Plan | None = None
        chunk = sheet.at(begin + set_back)
        while chunk is not None:
            if plan is None or plan.header is not chunk.header:
                plan = _Plan(chunk.header, wanted, readers)
            for run in chunk.runs:
                time = run.onward - set_back
                if time > end:
                    return
                if time >= begin:
                    yield from plan.rows(chunk, run, time)
            chunk = sheet.after(chunk)


class _Plan:
    """How to read the wanted cells of the rows below one heading."""

    def __init__(self, header: Header, wanted: Sequence[str], readers: Sequence[Cells]) -> None:
        self.header = header
        self._commas = header.width - 1
        self._cells = [
            (header.places[name], cells) if name in header.places else (header.time, _NOTHING)
            for name, cells in zip(wanted, readers, strict=True)
        ]
        self._split = max([header.time, *(place for place, _ in self._cells)]) + 1

    def rows(self, chunk: Chunk, run: SampleSpan, time: float) -> Iterator[tuple[object, ...]]:
        """The rows of a sample."""
        header = self.header
        lines = chunk.lines[run.first : run.stop]
        # The first line of a sample is a row of it; what has another time is no row.
        stamp = header.stamp(lines[0])[0] + b","
        together = header.key is None and header.time == 0
        for line in lines if b'"' not in b"".join(lines) else whole_lines(lines, header):
            if together and not line.startswith(stamp):
                continue
            if line.count(b",") == self._commas and b'"' not in line and b"\0" not in line:
                cells = line.decode("utf-8", "replace").rstrip("\r").split(",", self._split)
            else:
                cells = row_of(line, header)
            if len(cells) <= header.time:
                continue
            at = time
            if not together:
                # nvidia-smi's rows of one sample each have a time of their own.
                wall = read_moment(cells[header.time])
                if wall is None:
                    continue
                at += max(0.0, wall - run.wall)
            try:
                yield (at, *[values[cells[place]] for place, values in self._cells])
            except IndexError:
                found = len(cells)
                yield (
                    at,
                    *(v[cells[place]] if place < found else None for place, v in self._cells),
                )


_NOTHING = Cells(lambda _: None)
