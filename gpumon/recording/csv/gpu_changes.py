"""Reads the GPU rows of one sample after the other, and parses only the cells that differ."""

from __future__ import annotations

from itertools import compress, count
from operator import ne
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.bounds import PARTS
from gpumon.model.metrics import Unit
from gpumon.model.snapshot import GPU_METRICS, Unknown
from gpumon.recording.csv.cells import DAMAGED
from gpumon.recording.csv.gpus import GpuReader, ParsedGpu, once_each
from gpumon.recording.csv.sample_rows import SampleRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu, Host
    from gpumon.recording.csv.cells import Cells
    from gpumon.recording.csv.damage import DamageCounter
    from gpumon.recording.csv.headings import Header

_INDEPENDENT = {
    metric.field
    for metric in GPU_METRICS
    if metric.unit not in (Unit.TEXT, Unit.TIME)
    and metric.field not in ("index", *(whole for _, whole in PARTS))
}
"""Fields whose cell alone gives their value, apart from ``PARTS``."""
_NO_VALUES = (Unknown, type(DAMAGED))
_STEADY = 1e-6
"""Seconds by which a difference of times may vary because times are floats."""


class _ReadRow(ParsedGpu, frozen=True, kw_only=True):
    """A row, and how it differs from the one that was read in the same place before.

    Attributes:
        place: Its place in the sample.
        changes: The fields that differ; ``None`` if the row was read as a whole.
    """

    place: int
    changes: dict[str, Any] | None = None


class _Last(Struct):
    """What was read last in one place of a sample.

    Attributes:
        cells: The cells of the row.
        late: Seconds by which the recording's times are ahead of those in the cells.
        row: The row.
        before: The GPU of the row before, and whether its processes are known; ``None`` if it was
            not made.
        gpu: Likewise of this row.
    """

    cells: list[str]
    late: float
    row: _ReadRow
    before: tuple[Gpu, bool] | None = None
    gpu: tuple[Gpu, bool] | None = None


class SequentialGpuReader(GpuReader):
    """A ``GpuReader`` that is fast where a row resembles the one of the sample before."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._last: dict[int, _Last] = {}
        self._first: list[str] = []
        self._cells_of: dict[int, tuple[str, Cells]] = {
            column.place: (column.field, column.cells)
            for column in self._columns
            if column.field in _INDEPENDENT
        }
        # The columns of the sample are read in its first row.
        self._common = {column.place for column in (*self._host_columns, *self._log_columns)}
        self._common.add(header.time)
        self._age = next((it for it in self._others if it.field == "age"), None)

    def read(
        self,
        lines: Sequence[bytes],
        time: float,
        wall: float,
        damage: DamageCounter | None = None,
    ) -> tuple[list[ParsedGpu], Host]:
        """See ``GpuReader.read``."""
        rows = self._whole_rows(lines)
        if not rows:
            return super().read(lines, time, wall, damage)
        host = self._begin(rows[0])
        gpus = [self._gpu(cells, at, time, wall) for at, cells in enumerate(rows)]
        if damage is not None:
            for at, gpu in enumerate(gpus):
                if gpu.flaw is not None:
                    damage.judge(SampleRow(rows[at], lines[at], at), gpu.flaw)
        return once_each(gpus, damage), host

    def _begin(self, cells: list[str]) -> Host:
        host, flaw = self._host_of(cells)
        # What is damaged there is counted in each row.
        self._first = cells if flaw is None and len(cells) >= self._header.width else []
        return host

    def _whole_rows(self, lines: Sequence[bytes]) -> list[list[str]]:
        """The cells of the rows; none if any line needs a closer look."""
        header = self._header
        text = b"\n".join(lines)
        if header.other is not None or b'"' in text or b"\0" in text or b"\r" in text:
            return []
        rows = [line.split(",") for line in text.decode("utf-8", "replace").split("\n")]
        stamp = rows[0][header.time] if len(rows[0]) == header.width else ""
        are_whole = all(len(row) == header.width and row[header.time] == stamp for row in rows)
        return rows if are_whole else []

    def gpu(self, parsed: ParsedGpu, *, listed: bool) -> Gpu:
        """See ``GpuReader.gpu``."""
        last = self._last[parsed.place] if isinstance(parsed, _ReadRow) else None
        if last is None or last.row is not parsed:
            return super().gpu(parsed, listed=listed)
        if last.row.changes is None or last.before is None or last.before[1] is not listed:
            gpu = super().gpu(parsed, listed=listed)
        else:
            gpu = replace(last.before[0], **last.row.changes)
        last.gpu = gpu, listed
        return gpu

    def _gpu(self, cells: list[str], number: int, time: float, wall: float) -> ParsedGpu:
        last = self._last.get(number)
        changes = None if last is None else self._changes(last, cells, time, time - wall)
        if last is None or changes is None:
            read = super()._gpu(cells, number, time, wall)
            if read.flaw is not None:
                # The same cells are damaged again in the next sample.
                self._last.pop(number, None)
                return read
            row = _ReadRow(
                *(read.values, read.missing, read.listed, read.allocated),
                accidents=read.accidents,
                place=number,
            )
            self._last[number] = _Last(cells, time - wall, row)
        else:
            before = last.row
            values = {**before.values, **changes}
            kept = before.missing, before.listed, before.allocated
            row = _ReadRow(values, *kept, accidents=before.accidents, place=number, changes=changes)
            self._last[number] = _Last(cells, last.late, row, last.gpu)
        return row

    def _changes(
        self, last: _Last, cells: list[str], time: float, late: float
    ) -> dict[str, Any] | None:
        """The fields that differ; ``None`` if the row must be read as a whole."""
        values, width = last.row.values, self._header.width
        if self._age is None or not self._first or min(len(cells), len(last.cells)) < width:
            return None
        if abs(late - last.late) > _STEADY:
            return None
        age = self._age.cells[cells[self._age.place]]
        if not isinstance(age, float):
            return None
        changes: dict[str, Any] = {"sampled_at": time - age}
        for place in compress(count(), map(ne, cells, last.cells)):
            if place in self._common and cells[place] == self._first[place]:
                continue
            if place == self._age.place:
                continue
            if place not in self._cells_of:
                return None
            field, read = self._cells_of[place]
            value = read[cells[place]]
            # What is unknown has a reason, which is kept elsewhere, and what is damaged is counted.
            if value is None or value.__class__ in _NO_VALUES or values[field] is None:
                return None
            changes[field] = value
        for field, whole in PARTS:
            most = values.get(whole)
            if field in changes and most is not None and changes[field] > most:
                return None
        return changes
