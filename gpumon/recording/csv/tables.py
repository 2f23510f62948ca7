"""Reads the rows of a log's file, for reports."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from gpumon.model.bounds import PARTS
from gpumon.recording.csv.cells import DAMAGED, IMPOSSIBLE, Cells, read_moment
from gpumon.recording.csv.clocks import STEADY
from gpumon.recording.csv.compression import open_file
from gpumon.recording.csv.headings import LONGEST_LINE, as_header, cells_of, row_of, whole_lines
from gpumon.recording.csv.index import CsvFile
from gpumon.recording.csv.nvidia_smi import is_lost_gpu, is_message
from gpumon.recording.csv.repeats import Repeats
from gpumon.text.time_parsing import day_and_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from gpumon.recording.csv.columns import CsvColumn
    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.index import Chunk, SampleSpan
    from gpumon.recording.csv.timeline import Timeline


RowT = TypeVar("RowT")


class Damage(Struct):
    """What of a file could not be read, is left out, or is to be mentioned.

    Attributes:
        lines: Number of damaged lines.
        first: 1-based number of the first one; ``None`` if there is none.
        repeated: Number of rows that repeat another row of their sample.
        flaw: What is wrong with the whole file, such as a wrong checksum; ``None`` if nothing is.
        refusal: Why the file was not read at all, in a sentence; ``None`` if it was.
        impossible: Number of whole lines with a value that no hardware can have.
        first_impossible: 1-based number of the first one.
        messages: Number of messages of nvidia-smi between the rows.
        first_message: The first one, with its 1-based line number.
        has_lost_message: Whether any of them is on a GPU that nvidia-smi cannot open.
        unassigned: Number of rows whose GPU is not known.
        first_unassigned: 1-based line number of the first one.
        unread: Headings of columns that have no meaning for gpumon although it lacks values.
        again: Number of samples that repeat earlier ones.
        first_again: 1-based line number of the first one.
        overlapping: Another file that may be of the same GPUs at the same time, or of others.
        before: Number of lines before the headings.
    """

    lines: int = 0
    first: int | None = None
    repeated: int = 0
    flaw: str | None = None
    refusal: str | None = None
    impossible: int = 0
    first_impossible: int | None = None
    messages: int = 0
    first_message: tuple[int, str] | None = None
    has_lost_message: bool = False
    unassigned: int = 0
    first_unassigned: int | None = None
    unread: tuple[str, ...] = ()
    again: int = 0
    first_again: int | None = None
    overlapping: Path | None = None
    before: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return self.is_in_lines or self.flaw is not None

    @property
    def is_in_lines(self) -> bool:
        """Whether there is more than a flaw: who reads a part of the file finds a part of it."""
        counts = (self.lines, self.repeated, self.impossible, self.messages, self.unassigned)
        return any((*counts, self.before, self.again, self.unread, self.refusal, self.overlapping))


def samples(
    path: Path,
    wanted: Sequence[CsvColumn],
    make: Callable[..., RowT],
    *,
    processes: bool,
    first: float = -math.inf,
    last: float = math.inf,
    damage: Damage | None = None,
) -> Iterator[list[RowT]]:
    """The rows of one file in order, one list per sample.

    Times are those of a recording: seconds since the epoch that never run backwards. Values are in
    the model's units; ``None`` if the cell is empty or the column is missing. Rows and cells that
    cannot be read are skipped and counted as damage; an unfinished last line is skipped too.

    Args:
        path: The file: CSV, or compressed CSV by its suffix ``.gz`` or ``.zst``.
        wanted: The columns to read.
        make: Makes a row from its time and the values of the wanted columns.
        processes: Whether it is the process file.
        first: Skip samples before this time.
        last: Skip samples after this time.
        damage: Counts the damaged lines.

    Raises:
        RecordingError: It is not a log file, or cannot be opened.
    """
    with contextlib.ExitStack() as ending:
        damage = Damage() if damage is None else damage
        sheet = open_sheet(path, ending, processes=processes, damage=damage)
        rows = partial(map, make)
        yield from rows_of(sheet, wanted, rows, first=first, last=last, damage=damage)


def open_sheet(
    path: Path,
    ending: contextlib.ExitStack,
    *,
    processes: bool,
    damage: Damage,
    timeline: Timeline | None = None,
) -> CsvFile:
    """Open a file, and note what is wrong with it.

    Args:
        path: The file.
        ending: Closes it.
        processes: Whether it is the process file.
        damage: Receives its flaw.
        timeline: See ``CsvFile``.

    Raises:
        RecordingError: It is not a log file, or cannot be opened.
    """
    file, flaw = open_file(path)
    ending.callback(file.close)
    sheet = CsvFile(file, str(path), processes=processes, timeline=timeline)
    if flaw is None and sheet.is_torn:
        flaw = "ends in the middle of a line, which is left out"
    if flaw is not None:
        last = sheet.last
        until = "" if last is None else f"; its last sample is of {day_and_time(last.wall)}"
        damage.flaw = flaw + until
    return sheet


def rows_of(
    sheet: CsvFile,
    wanted: Sequence[CsvColumn],
    make: Callable[..., Iterable[RowT]],
    *,
    first: float = -math.inf,
    last: float = math.inf,
    before: int = 0,
    damage: Damage | None = None,
) -> Iterator[list[RowT]]:
    """The rows of an open file; see ``samples``.

    Args:
        sheet: The file.
        wanted: See ``samples``.
        make: Makes rows from their times and from the values of each wanted column.
        first: Skip samples before this time, except the last ones.
        last: Skip samples after this time.
        before: How many samples before ``first`` are not skipped.
        damage: Counts the damaged lines.
    """
    readers = [Cells(column.parse, damaged=DAMAGED) for column in wanted]
    seen = _Seen(sheet, Damage() if damage is None else damage, processes=sheet.processes)
    set_back = sheet.set_back
    plan: _Plan | None = None
    chunk = sheet.at(first + set_back)
    if first == -math.inf:
        seen.begin(sheet.before_first())
    skipped = 0 if chunk is None else sum(run.onward - set_back < first for run in chunk.runs)
    while chunk is not None and skipped < before and (earlier := sheet.before(chunk)) is not None:
        chunk = earlier
        skipped += len(chunk.runs)
    skipped = max(0, skipped - before)
    while chunk is not None:
        if plan is None or plan.header is not chunk.header:
            plan = _Plan(chunk.header, wanted, readers, seen, processes=sheet.processes)
        seen.begin(chunk)
        times = [run.onward - set_back for run in chunk.runs]
        table = plan.table(chunk, times)
        rows = None if table is None else list(make(*table))
        for run, time, step in zip(chunk.runs, times, _steps(times), strict=True):
            if time > last:
                return
            seen.see(run)
            if skipped:
                skipped -= 1
                continue
            if rows is not None:
                yield rows[run.first : run.stop]
            elif found := [*plan.rows(chunk, run, time, step)]:
                yield list(make(*zip(*found, strict=True)))
        chunk = sheet.after(chunk)


def _steps(times: Sequence[float]) -> list[float]:
    """Seconds from each sample to the next; of the last one, those before it."""
    steps = [after - before for before, after in pairwise(times)]
    return [*steps, steps[-1] if steps else math.inf]


class _Seen:
    """Counts the damaged lines of a file, and keeps the number of the first one."""

    def __init__(self, sheet: CsvFile, damage: Damage, *, processes: bool) -> None:
        self._sheet = sheet
        self._damage = damage
        self._processes = processes
        self._chunk: Chunk | None = None
        goes_back = sheet.set_back > STEADY and not processes
        self._repeats = Repeats(sheet.set_back) if goes_back else None

    def see(self, run: SampleSpan) -> None:
        """Note a sample that repeats an earlier one, as where a file was appended to itself."""
        if self._repeats is None or self._chunk is None:
            return
        count = self._repeats.see(self._chunk, run)
        self._damage.again += count
        if count and self._damage.first_again is None and self._repeats.start is not None:
            self._damage.first_again = self._line_number_in(*self._repeats.start)

    def begin(self, chunk: Chunk) -> None:
        """Move to a chunk."""
        self._chunk = chunk
        if chunk.header.other is not None:
            self._damage.unread = chunk.header.other.unread
        if not chunk.runs:
            before = self._sheet.lines_before
            for place, line in enumerate(chunk.lines):
                self.skip(line, place, is_before=place < before)

    def skip(self, line: bytes, place: int, *, is_before: bool = False) -> None:
        """Note a line without a row: it is damage unless it is empty or a header."""
        if not line.strip():
            return
        if self._chunk is not None and self._is_header(line, self._chunk.header):
            return
        text = line.decode("utf-8", "replace")
        if not self._processes and is_message(text):
            damage = self._damage
            damage.messages += 1
            damage.has_lost_message = damage.has_lost_message or is_lost_gpu(text)
            if damage.first_message is None:
                damage.first_message = self._line_number(place), text.strip()
            return
        if is_before:
            self._damage.before += 1
        else:
            self.add(line, place)

    def _is_header(self, line: bytes, header: Header) -> bool:
        if header.other is not None and header.is_same(header.split(line)):
            return True
        return b"timestamp" in line and as_header(line, processes=self._processes) is not None

    def add(self, line: bytes, place: int) -> None:
        """Note a damaged row, which may consist of several joined lines."""
        chunk, damage = self._chunk, self._damage
        if chunk is None:
            return
        damage.lines += 1 + line.count(b"\n") + chunk.passed.get(place, 0)
        if damage.first is None:
            damage.first = self._line_number(place)

    def add_impossible(self, place: int) -> None:
        """Note a row with a value that no hardware can have."""
        self._damage.impossible += 1
        if self._damage.first_impossible is None:
            self._damage.first_impossible = self._line_number(place)

    def add_unassigned(self, place: int) -> None:
        """Note a row of which nobody can tell the GPU."""
        self._damage.unassigned += 1
        if self._damage.first_unassigned is None:
            self._damage.first_unassigned = self._line_number(place)

    def _line_number(self, place: int) -> int:
        return 0 if self._chunk is None else self._line_number_in(self._chunk, place)

    def _line_number_in(self, chunk: Chunk, place: int) -> int:
        passed = sum(count for at, count in chunk.passed.items() if at < place)
        return self._sheet.line_number(chunk.start) + place + passed


class _Plan:
    """How to read the wanted cells of the rows below one header."""

    def __init__(
        self,
        header: Header,
        wanted: Sequence[CsvColumn],
        readers: Sequence[Cells],
        seen: _Seen,
        *,
        processes: bool,
    ) -> None:
        self.header = header
        self._seen = seen
        self._wanted = wanted
        self._commas = header.width - 1
        self._cells = [
            (header.places[column.name], cells)
            if column.name in header.places
            else (header.time, _NOTHING)
            for column, cells in zip(wanted, readers, strict=True)
        ]
        # The counter of energy goes on after such a value, so a report must tell it from none.
        self._impossible = [None, *(math.inf if it.field == "energy" else None for it in wanted)]
        self._split = max([header.time, *(place for place, _ in self._cells)]) + 1
        # The time comes before the values.
        # The host has fields of the same names, such as its memory.
        places = {
            column.field: 1 + place for place, column in enumerate(wanted) if column.part == "gpu"
        }
        self._limits = [
            (places[part], places[whole])
            for part, whole in ([] if processes else PARTS)
            if part in places and whole in places
        ]

    def table(self, chunk: Chunk, times: Sequence[float]) -> list[Sequence[object]] | None:
        """The time and the values of each line of a chunk, by column.

        ``None`` if its lines must be read one by one: some are damaged, or are not of the sample
        that they are in, or have times of their own as nvidia-smi's rows do. The times are those
        of the samples.
        """
        header, lines = self.header, chunk.lines
        if header.other is not None or header.time != 0 or chunk.passed:
            return None
        cells = _plain_cells(lines, header.width)
        if cells is None:
            return None
        step = header.width + 1
        stamps = cells[::step]
        line_times: list[object] = [None] * len(lines)
        for run, time in zip(chunk.runs, times, strict=True):
            count = run.stop - run.first
            if stamps[run.first : run.stop].count(stamps[run.first]) != count:
                return None
            line_times[run.first : run.stop] = [time] * count
        damaged = sum(values.found_damage for _, values in self._cells)
        table: list[Sequence[object]] = [line_times]
        each = chunk.runs[0].stop - chunk.runs[0].first
        for column, (place, values) in zip(self._wanted, self._cells, strict=True):
            table.append(
                [None] * len(lines)
                if values is _NOTHING
                else _column_values(column, cells[place::step], values, each)
            )
        if damaged != sum(values.found_damage for _, values in self._cells):
            return None
        for part, whole in self._limits:
            pairs: Iterator[tuple[Any, Any]] = zip(table[part], table[whole], strict=True)
            if any(
                most is not None and value is not None and value > most for value, most in pairs
            ):
                return None
        return table

    def rows(
        self, chunk: Chunk, run: SampleSpan, time: float, step: float
    ) -> Iterator[tuple[object, ...]]:
        """The rows of a sample, which all are less than a step after its time."""
        lines = chunk.lines[run.first : run.stop]
        if self.header.other is not None:
            for row in self.header.other.rows(lines):
                if row.is_message or not (row.cells or row.is_expected or row.is_unassigned):
                    self._seen.skip(row.line, run.first + row.number)
                if row.cells is not None:
                    # Each of nvidia-smi's rows of one sample has its own time.
                    late = row.wall - run.wall
                    at = time + (late if 0 <= late < step else 0.0)
                    place = row.line, run.first + row.number
                    yield self._row(row.cells, at, place, is_whole=row.is_whole)
                elif row.is_unassigned:
                    self._seen.add_unassigned(run.first + row.number)
            return
        header = self.header
        # The first line of a sample is a row; a line with another time is not.
        stamp = header.stamp(lines[0])[0]
        begin = stamp + b","
        together = header.time == 0
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
                wall = read_moment(cells[header.time]) if len(cells) > header.time else None
                if wall is None:
                    self._seen.skip(line, at_line)
                    continue
                at += max(0.0, wall - run.wall)
            yield self._row(cells, at, (line, at_line), is_whole=is_whole)

    def _row(
        self, cells: Sequence[str], at: float, line: tuple[bytes, int], *, is_whole: bool
    ) -> tuple[object, ...]:
        """A row at a time, from its cells; a damaged one is noted by its line and its place."""
        row: tuple[object, ...]
        try:
            row = (at, *[values[cells[place]] for place, values in self._cells])
        except IndexError:
            found = len(cells)
            row = (at, *(v[cells[place]] if place < found else None for place, v in self._cells))
        known = self._without_damage(row)
        if DAMAGED in row or not is_whole:
            self._seen.add(*line)
        elif known is not row:
            self._seen.add_impossible(line[1])
        return known

    def _without_damage(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """The row without the values that cannot be read or are impossible."""
        if DAMAGED in row or IMPOSSIBLE in row:
            row = tuple(
                [
                    None if value is DAMAGED else other if value is IMPOSSIBLE else value
                    for value, other in zip(row, self._impossible, strict=True)
                ]
            )
        for part, whole in self._limits:
            if _is_above(row[part], row[whole]):
                row = (*row[:part], None, *row[part + 1 :])
        return row


def _plain_cells(lines: Sequence[bytes], width: int) -> list[str] | None:
    """The cells of all lines, with one more between two lines.

    ``None`` if any line does not have exactly that many cells, or is hard to read.
    """
    block = b",\n,".join(lines)
    if b"\0" in block or b"\r" in block or max(map(len, lines)) > LONGEST_LINE:
        return None
    quoted: list[int] = []
    if b'"' in block:
        quoted = [place for place, line in enumerate(lines) if b'"' in line]
        # Cells of the right number, replaced below.
        plain = [*lines]
        for place in quoted:
            plain[place] = b"," * (width - 1)
        block = b",\n,".join(plain)
    cells = block.decode("utf-8", "replace").split(",")
    step = width + 1
    if len(cells) != len(lines) * step - 1 or cells[width::step] != ["\n"] * (len(lines) - 1):
        return None
    for place in quoted:
        line = lines[place]
        found = [] if line.count(b'"') % 2 else cells_of(line)
        if len(found) != width:
            return None
        cells[place * step : place * step + width] = found
    return cells


def _column_values(
    column: CsvColumn, texts: list[str], values: Cells, each: int
) -> Sequence[object]:
    """The values of a column of a chunk.

    Args:
        column: The column.
        texts: Its cells.
        values: The values of the cells that were parsed before.
        each: The number of rows of a sample, if all samples have as many.
    """
    if texts[each:] == texts[:-each] and not len(texts) % each:
        # The cells of each GPU do not change here.
        return [values[text] for text in texts[:each]] * (len(texts) // each)
    if column.is_real:
        # Measurements seldom repeat, so remembering them costs more than parsing them.
        with contextlib.suppress(ValueError):
            numbers = [float(text) if text else None for text in texts]
            known = [number for number in numbers if number is not None]
            lowest, highest = column.possible
            # The sum is NaN if any number is; that is neither above nor below another.
            if lowest <= min(known) and max(known) <= highest and math.isfinite(sum(known)):
                return numbers
    return [*map(values.__getitem__, texts)]


def _is_above(value: object, most: object) -> bool:
    return isinstance(value, (int, float)) and isinstance(most, (int, float)) and value > most


_NOTHING = Cells(lambda _: None)
