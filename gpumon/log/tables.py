"""The rows of a log's file, one after another: what a report adds up."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.log.cells import DAMAGED, LIMITS, Cells, column_cells, read_moment
from gpumon.log.headings import as_header, row_of, whole_lines
from gpumon.log.index import Sheet
from gpumon.log.packed import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpumon.log.headings import Header
    from gpumon.log.index import Chunk, Run


class Damage(Struct):
    """The lines of a file that could not be read, or not in all that was wanted of them.

    Attributes:
        lines: How many there are.
        first: Number of the first one in the file, from 1; ``None`` while there is none.
    """

    lines: int = 0
    first: int | None = None


def rows(
    path: Path,
    wanted: Sequence[str],
    *,
    processes: bool,
    first: float | None = None,
    last: float | None = None,
    damage: Damage | None = None,
) -> Iterator[tuple[object, ...]]:
    """The rows of one file in their order: the time, then the values of the wanted columns.

    Times are as on a tape: seconds since the epoch that never run backwards. Values are in the
    model's units: bytes, percent, watts, joules, seconds, true or false, seconds since the epoch
    for times, text; ``None`` where the cell is empty or there is no such column. Rows and cells
    that cannot be read are left out, and counted as damage; a last line that does not end is left
    out too.

    Args:
        path: The file: CSV, or that compressed, by its ending ``.gz`` or ``.zst``.
        wanted: Names of ``columns.GPU_COLUMNS``, or of ``columns.PROCESS_COLUMNS``.
        processes: Whether it is the processes' file.
        first: Leave out samples from before this time.
        last: And from after this one.
        damage: Where to count the lines that are damaged.

    Raises:
        TapeError: It is no such file, or cannot be opened.
    """
    begin = -math.inf if first is None else first
    end = math.inf if last is None else last
    readers = [
        column_cells(name, processes=processes, reasons=False, damaged=DAMAGED) for name in wanted
    ]
    file = open_file(path)
    with contextlib.closing(file):
        sheet = Sheet(file, str(path), processes=processes)
        seen = _Seen(sheet, Damage() if damage is None else damage, processes=processes)
        set_back = sheet.set_back
        plan: _Plan | None = None
        chunk = sheet.at(begin + set_back)
        if begin == -math.inf:
            seen.begin(sheet.before_first())
        while chunk is not None:
            if plan is None or plan.header is not chunk.header:
                plan = _Plan(chunk.header, wanted, readers, seen)
            seen.begin(chunk)
            for run in chunk.runs:
                time = run.onward - set_back
                if time > end:
                    return
                if time >= begin:
                    yield from plan.rows(chunk, run, time)
            chunk = sheet.after(chunk)


class _Seen:
    """Counts the damaged lines of a file, and knows where the first one is.

    Args:
        sheet: The file.
        damage: Where to count.
        processes: Whether it is the processes' file.
    """

    def __init__(self, sheet: Sheet, damage: Damage, *, processes: bool) -> None:
        self._sheet = sheet
        self._damage = damage
        self._processes = processes
        self._chunk: Chunk | None = None

    def begin(self, chunk: Chunk) -> None:
        """Go on to a chunk."""
        self._chunk = chunk
        if not chunk.runs:
            for place, line in enumerate(chunk.lines):
                self.skip(line, place)

    def skip(self, line: bytes, place: int) -> None:
        """A line of the chunk is no row: that is damage where it is neither empty nor a heading."""
        if not line.strip():
            return
        if b"timestamp" in line and as_header(line, processes=self._processes) is not None:
            return
        self.add(line, place)

    def add(self, line: bytes, place: int) -> None:
        """A line of the chunk is damaged, which may be several lines joined."""
        chunk, damage = self._chunk, self._damage
        if chunk is None:
            return
        damage.lines += 1 + line.count(b"\n") + chunk.passed.get(place, 0)
        if damage.first is None:
            passed = sum(count for at, count in chunk.passed.items() if at < place)
            damage.first = self._sheet.line_number(chunk.start) + place + passed


class _Plan:
    """How to read the wanted cells of the rows below one heading."""

    def __init__(
        self, header: Header, wanted: Sequence[str], readers: Sequence[Cells], seen: _Seen
    ) -> None:
        self.header = header
        self._seen = seen
        self._commas = header.width - 1
        self._cells = [
            (header.places[name], cells) if name in header.places else (header.time, _NOTHING)
            for name, cells in zip(wanted, readers, strict=True)
        ]
        self._split = max([header.time, *(place for place, _ in self._cells)]) + 1
        # The time goes before the values.
        self._limits = [
            (1 + wanted.index(part), 1 + wanted.index(whole))
            for part, whole in LIMITS.items()
            if part in wanted and whole in wanted
        ]

    def rows(self, chunk: Chunk, run: Run, time: float) -> Iterator[tuple[object, ...]]:
        """The rows of a sample."""
        header = self.header
        lines = chunk.lines[run.first : run.stop]
        # The first line of a sample is a row of it; what has another time is no row.
        stamp = header.stamp(lines[0])[0]
        begin = stamp + b","
        together = header.key is None and header.time == 0
        quoted = b'"' in b"".join(lines)
        following = run.first
        for line in whole_lines(lines, header) if quoted else lines:
            at_line = following
            following += 1 + (line.count(b"\n") if quoted else 0)
            if together and not line.startswith(begin) and header.stamp(line)[0] != stamp:
                self._seen.skip(line, at_line)
                continue
            if line.count(b",") == self._commas and b'"' not in line and b"\0" not in line:
                cells = line.decode("utf-8", "replace").rstrip("\r").split(",", self._split)
                is_whole = True
            else:
                cells = row_of(line, header)
                is_whole = (
                    len(cells) >= header.width and not line.count(b'"') % 2 and b"\0" not in line
                )
            at = time
            if not together or len(cells) <= header.time:
                # nvidia-smi's rows of one sample each have a time of their own.
                wall = read_moment(cells[header.time]) if len(cells) > header.time else None
                if wall is None:
                    self._seen.skip(line, at_line)
                    continue
                at += max(0.0, wall - run.wall)
            row: tuple[object, ...]
            try:
                row = (at, *[values[cells[place]] for place, values in self._cells])
            except IndexError:
                found = len(cells)
                row = (
                    at,
                    *(v[cells[place]] if place < found else None for place, v in self._cells),
                )
            known = self._without_damage(row)
            if known is not row or not is_whole:
                self._seen.add(line, at_line)
            yield known

    def _without_damage(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """The row without the values that cannot be read, or be right."""
        if DAMAGED in row:
            row = tuple([None if value is DAMAGED else value for value in row])
        for part, whole in self._limits:
            if _is_above(row[part], row[whole]):
                row = (*row[:part], None, *row[part + 1 :])
        return row


def _is_above(value: object, most: object) -> bool:
    return isinstance(value, (int, float)) and isinstance(most, (int, float)) and value > most


_NOTHING = Cells(lambda _: None)
