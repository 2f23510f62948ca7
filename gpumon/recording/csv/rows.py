"""Converts snapshots to the rows of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.csv.columns import (
    GPU_COLUMNS,
    HOSTNAME,
    PROCESS_COLUMNS,
    CsvColumn,
    GpuRow,
    ProcessRow,
)
from gpumon.text.csv_cells import csv_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
    from gpumon.model.snapshot import Snapshot

    _UseId = tuple[ProcessId, str, tuple[int, int] | None, bool]

LIST_SECONDS = 4.0
"""How old the last written list may become: the history trusts one of ``FRESH_SECONDS`` seconds."""
LIST_BYTES = 64 * 2**20
"""How far a process's GPU memory moves before the list is written at once."""

_OWN = [(place, column) for place, column in enumerate(GPU_COLUMNS) if column.part == "gpu"]


def as_csv(rows: Iterable[Iterable[str]]) -> bytes:
    """Rows of cells as lines of a file; no cell contains a line break."""
    return csv_text(rows).encode()


class LogColumns(Struct, frozen=True):
    """The columns of the two files of a log."""

    gpus: tuple[CsvColumn, ...]
    processes: tuple[CsvColumn, ...]

    @property
    def gpu_header(self) -> bytes:
        """The first line of the GPU file."""
        return as_csv([[column.name for column in self.gpus]])

    @property
    def process_header(self) -> bytes:
        """The first line of the process file."""
        return as_csv([[column.name for column in self.processes]])


ONE_MACHINE = LogColumns(GPU_COLUMNS, PROCESS_COLUMNS)
SEVERAL_MACHINES = LogColumns((*GPU_COLUMNS, HOSTNAME), (*PROCESS_COLUMNS, HOSTNAME))


class GpuRows:
    """Writes the rows of the GPUs. Reuses the cells of values that have not changed.

    Args:
        hostname: The machine in a log of several; ``None`` in a log of one.
    """

    def __init__(self, hostname: str | None = None) -> None:
        self._hostname = hostname
        self._columns = (ONE_MACHINE if hostname is None else SEVERAL_MACHINES).gpus
        # These have the same cell in every row of a sample.
        self._shared = [
            (place, column) for place, column in enumerate(self._columns) if column.part != "gpu"
        ]
        self._gpus: dict[str, _Gpu] = {}

    def of(self, snapshot: Snapshot, elapsed: float) -> bytes:
        """One row per GPU; ``elapsed`` are the seconds since the log began to be written."""
        count = len(self._columns)
        gpus = {gpu.uuid: self._gpus.get(gpu.uuid) or _Gpu(count) for gpu in snapshot.gpus}
        self._gpus = gpus
        rows = [GpuRow(snapshot, gpu, elapsed, self._hostname) for gpu in snapshot.gpus]
        shared = [(place, column.cell(row)) for row in rows[:1] for place, column in self._shared]
        return as_csv(gpus[row.gpu.uuid].cells(row, shared) for row in rows)


class _Gpu:
    """The cells last written for a GPU, and their values."""

    def __init__(self, count: int) -> None:
        self._cells = [""] * count
        self._values: list[object] = [None] * count

    def cells(self, row: GpuRow, shared: list[tuple[int, str]]) -> list[str]:
        cells, values = self._cells, self._values
        for place, column in _OWN:
            value = column.value(row)
            if value != values[place]:
                values[place] = value
                cells[place] = column.write(value)
        for place, cell in shared:
            cells[place] = cell
        return cells


class ListPace:
    """Finds the samples that need a new list of processes.

    That is when a process starts or stops using a GPU, when the lookup of where one runs has
    finished, when its GPU memory has changed by ``LIST_BYTES``, and when the last list is
    ``LIST_SECONDS`` old.
    """

    def __init__(self) -> None:
        self._written: dict[_UseId, int | None] | None = None
        self._written_at = 0.0

    def is_due(self, uses: Iterable[tuple[GpuProcess, GpuUse]], elapsed: float) -> bool:
        """Whether a sample needs a list, which is the last one from then on.

        Args:
            uses: The processes of the sample, with each GPU that they use.
            elapsed: Seconds since any fixed time.
        """
        holdings = {
            (one.id, use.gpu_uuid, use.instance, one.place is None): use.memory_used
            for one, use in uses
        }
        if elapsed - self._written_at < LIST_SECONDS and self._still_true(holdings):
            return False
        self._written, self._written_at = holdings, elapsed
        return True

    def forget(self) -> None:
        """Need a list at the next sample."""
        self._written = None

    def _still_true(self, holdings: dict[_UseId, int | None]) -> bool:
        written = self._written
        return (
            written is not None
            and written.keys() == holdings.keys()
            and not any(_moved(written[which], size) for which, size in holdings.items())
        )


class ProcessRows:
    """Writes the list of processes, at the samples that need a new list, see ``ListPace``.

    Args:
        commands: Whether to write command lines.
        user: Write the processes of this user only.
        hostname: The machine in a log of several; ``None`` in a log of one.
    """

    def __init__(
        self, *, commands: bool = True, user: str | None = None, hostname: str | None = None
    ) -> None:
        self._hostname = hostname
        log = ONE_MACHINE if hostname is None else SEVERAL_MACHINES
        self._columns = [
            column if commands or column.field != "command" else None for column in log.processes
        ]
        self._user = user
        self._pace = ListPace()

    def of(self, snapshot: Snapshot, elapsed: float) -> bytes:
        """The complete list, or nothing if the previous list is still valid; see ``GpuRows.of``."""
        uses = list(self._uses(snapshot))
        if not self._pace.is_due(uses, elapsed):
            return b""
        rows = (ProcessRow(snapshot, one, use, elapsed, self._hostname) for one, use in uses)
        return as_csv(
            ["" if column is None else column.cell(row) for column in self._columns] for row in rows
        )

    def forget(self) -> None:
        """Write a list at the next sample, because the last one is in another file."""
        self._pace.forget()

    def _uses(self, snapshot: Snapshot) -> Iterator[tuple[GpuProcess, GpuUse]]:
        for one in snapshot.processes:
            if self._user is None or one.user == self._user:
                for use in one.uses:
                    yield one, use


def _moved(before: int | None, now: int | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) >= LIST_BYTES
