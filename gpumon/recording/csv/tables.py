"""Reads the rows of a log's file, for reports."""

from __future__ import annotations

import contextlib
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.model.bounds import PARTS
from gpumon.recording.csv.cells import DAMAGED, IMPOSSIBLE, Cells
from gpumon.recording.csv.damage import Damage, DamageCounter, flaw_in
from gpumon.recording.csv.headings import LONGEST_LINE, cells_of
from gpumon.recording.csv.index import pieces
from gpumon.recording.csv.sample_rows import sample_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.recording.csv.columns import CsvColumn
    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.index import Chunk, CsvFile, SampleSpan


RowT = TypeVar("RowT")


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
    """The rows of a file in order, one list per sample.

    Times are those of a recording: seconds since the epoch that never run backwards. Values are in
    the model's units; ``None`` if the cell is empty or the column is missing. Rows and cells that
    cannot be read are skipped and counted as damage; an unfinished last line is skipped too.

    Args:
        sheet: The file.
        wanted: The columns to read.
        make: Makes rows from their times and from the values of each wanted column.
        first: Skip samples before this time, except the last ones.
        last: Skip samples after this time.
        before: How many samples before ``first`` are not skipped.
        damage: Counts the damaged lines.
    """
    readers = [Cells(column.parse, damaged=DAMAGED) for column in wanted]
    counter = DamageCounter(Damage() if damage is None else damage)
    set_back = sheet.set_back
    plan: _Plan | None = None
    chunk = sheet.at(first + set_back)
    if first == -math.inf:
        counter.begin(sheet, sheet.before_first())
    skipped = 0 if chunk is None else sum(run.onward - set_back < first for run in chunk.runs)
    while chunk is not None and skipped < before and (earlier := sheet.before(chunk)) is not None:
        chunk = earlier
        skipped += len(chunk.runs)
    skipped = max(0, skipped - before)
    while chunk is not None:
        if plan is None or plan.header is not chunk.header:
            plan = _Plan(chunk.header, wanted, readers, counter, processes=sheet.processes)
        counter.begin(sheet, chunk)
        for runs in pieces(chunk):
            times = [run.onward - set_back for run in runs]
            is_read = skipped < len(runs) and times[0] <= last
            table = plan.table(chunk, runs, times) if is_read else None
            rows = None if table is None else list(make(*table))
            for run, time, step in zip(runs, times, _steps(times), strict=True):
                if time > last:
                    return
                counter.see(run)
                if skipped:
                    skipped -= 1
                elif rows is not None:
                    yield rows[run.first - runs[0].first : run.stop - runs[0].first]
                elif found := [*plan.rows(chunk, run, time, step)]:
                    yield list(make(*zip(*found, strict=True)))
        chunk = sheet.after(chunk)


def _steps(times: Sequence[float]) -> list[float]:
    """Seconds from each sample to the next; of the last one, those before it."""
    steps = [after - before for before, after in pairwise(times)]
    return [*steps, steps[-1] if steps else math.inf]


class _Plan:
    """How to read the wanted cells of the rows below one header."""

    def __init__(
        self,
        header: Header,
        wanted: Sequence[CsvColumn],
        readers: Sequence[Cells],
        counter: DamageCounter,
        *,
        processes: bool,
    ) -> None:
        self.header = header
        self._counter = counter
        self._wanted = wanted
        self._cells = [
            (header.places[column.name], cells)
            if column.name in header.places
            else (header.time, _NOTHING)
            for column, cells in zip(wanted, readers, strict=True)
        ]
        # The counter of energy goes on after such a value, so a report must tell it from none.
        self._impossible = [None, *(math.inf if it.field == "energy" else None for it in wanted)]
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

    def table(
        self, chunk: Chunk, runs: Sequence[SampleSpan], times: Sequence[float]
    ) -> list[Sequence[object]] | None:
        """The time and the values of each line of samples that follow each other, by column.

        ``None`` if its lines must be read one by one: some are damaged, or are not of the sample
        that they are in, or have times of their own as nvidia-smi's rows do. The times are those
        of the samples.
        """
        header, first = self.header, runs[0].first
        if header.other is not None or header.time != 0 or chunk.passed:
            return None
        lines = chunk.lines[first : runs[-1].stop]
        cells = _plain_cells(lines, header.width)
        if cells is None:
            return None
        step = header.width + 1
        stamps = cells[::step]
        line_times: list[object] = []
        for run, time in zip(runs, times, strict=True):
            count, place = run.stop - run.first, run.first - first
            if stamps[place : place + count].count(stamps[place]) != count:
                return None
            line_times += [time] * count
        damaged = sum(values.found_damage for _, values in self._cells)
        table: list[Sequence[object]] = [line_times]
        each = runs[0].stop - first
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
        for row in sample_rows(lines, self.header, self._counter, run.wall):
            at = time + (row.late if 0 <= row.late < step else 0.0)
            values: tuple[object, ...]
            try:
                values = (at, *[cells[row.cells[place]] for place, cells in self._cells])
            except IndexError:
                found = len(row.cells)
                values = (
                    at,
                    *(
                        cells[row.cells[place]] if place < found else None
                        for place, cells in self._cells
                    ),
                )
            known = self._without_damage(values)
            flaw = flaw_in(values)
            self._counter.judge(row, IMPOSSIBLE if flaw is None and known is not values else flaw)
            yield known

    def _without_damage(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """The row without the values that cannot be read or are impossible."""
        if flaw_in(row) is not None:
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
