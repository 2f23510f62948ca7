"""Snapshots as the rows of a log: which of them, and in which bytes."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from gpumon.log.columns import GPU_COLUMNS, PROCESS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.model import Gpu, GpuProcess, GpuUse, ProcessId, Snapshot

    _UseId = tuple[ProcessId, str, tuple[int, int] | None, bool]

LIST_SECONDS = 4.0
"""How old the last written list may become: the history trusts one of ``FRESH_SECONDS`` seconds."""
LIST_BYTES = 64 * 2**20
"""How far a process's GPU memory moves before the list is written at once."""

_OF_SAMPLE = frozenset(
    (
        "timestamp",
        "host",
        "driver_version",
        "cuda_version",
        "host.cpu [%]",
        "host.cpu.count",
        "host.load.1",
        "host.load.5",
        "host.load.15",
        "host.memory.used [MiB]",
        "host.memory.total [MiB]",
        "elapsed [s]",
        "gpumon_log",
    )
)
"""Columns that say the same of every card, and are made once."""

_METRICS = [
    (place, column.metric.field, column.write)
    for place, column in enumerate(GPU_COLUMNS)
    if column.metric is not None
]
_SHARED = [
    (place, column.write) for place, column in enumerate(GPU_COLUMNS) if column.name in _OF_SAMPLE
]
_OWN = [
    (place, column.write)
    for place, column in enumerate(GPU_COLUMNS)
    if column.metric is None and column.name not in _OF_SAMPLE
]


def as_csv(rows: Iterable[Iterable[str]]) -> bytes:
    """Rows of cells as lines of a file; no cell holds a line break."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


GPU_HEADER = as_csv([[column.name for column in GPU_COLUMNS]])
PROCESS_HEADER = as_csv([[column.name for column in PROCESS_COLUMNS]])


class GpuRows:
    """Makes the rows of the cards. Most cells are what they were a sample before, and are kept."""

    def __init__(self) -> None:
        self._cards: dict[str, _Card] = {}

    def of(self, snapshot: Snapshot, elapsed: float) -> bytes:
        """A row for each card.

        Args:
            snapshot: The sample.
            elapsed: Seconds since the log began to be written.
        """
        cards = {gpu.uuid: self._cards.get(gpu.uuid) or _Card() for gpu in snapshot.gpus}
        self._cards = cards
        shared = [
            (place, write(snapshot, gpu, elapsed))
            for gpu in snapshot.gpus[:1]
            for place, write in _SHARED
        ]
        return as_csv(
            cards[gpu.uuid].cells(snapshot, gpu, elapsed, shared) for gpu in snapshot.gpus
        )


class _Card:
    """The cells last written of a card, and the values of the metrics among them."""

    def __init__(self) -> None:
        self._cells = [""] * len(GPU_COLUMNS)
        self._values: list[object] = [None] * len(GPU_COLUMNS)

    def cells(
        self, snapshot: Snapshot, gpu: Gpu, elapsed: float, shared: list[tuple[int, str]]
    ) -> list[str]:
        cells, values = self._cells, self._values
        for place, field, write in _METRICS:
            value = getattr(gpu, field)
            if value != values[place]:
                values[place] = value
                cells[place] = write(snapshot, gpu, elapsed)
        for place, write in _OWN:
            cells[place] = write(snapshot, gpu, elapsed)
        for place, cell in shared:
            cells[place] = cell
        return cells


class ProcessRows:
    """Makes the list of processes, at the samples at which it is time to write one.

    That is when a process came to a card or left one, when it was found out where one runs, when
    the GPU memory of one has moved by ``LIST_BYTES``, and when the last list is ``LIST_SECONDS``
    old.

    Args:
        commands: Whether to write command lines.
        user: Write the processes of this user only.
    """

    def __init__(self, *, commands: bool = True, user: str | None = None) -> None:
        self._columns = [
            column.write if commands or column.name != "command" else None
            for column in PROCESS_COLUMNS
        ]
        self._user = user
        self._written: dict[_UseId, int | None] | None = None
        self._written_at = 0.0

    def of(self, snapshot: Snapshot, elapsed: float) -> bytes:
        """The whole list, or nothing where the one before will do.

        Args:
            snapshot: The sample.
            elapsed: Seconds since the log began to be written.
        """
        uses = list(self._uses(snapshot))
        holdings = {
            (one.id, use.gpu_uuid, use.instance, one.place is None): use.memory_used
            for one, use in uses
        }
        if elapsed - self._written_at < LIST_SECONDS and self._still_true(holdings):
            return b""
        self._written, self._written_at = holdings, elapsed
        return as_csv(self._cells(snapshot, one, use, elapsed) for one, use in uses)

    def forget(self) -> None:
        """The list last made is not where the next row goes: make one at the next sample."""
        self._written = None

    def _uses(self, snapshot: Snapshot) -> Iterator[tuple[GpuProcess, GpuUse]]:
        for one in snapshot.processes:
            if self._user is None or one.user == self._user:
                for use in one.uses:
                    yield one, use

    def _still_true(self, holdings: dict[_UseId, int | None]) -> bool:
        written = self._written
        return (
            written is not None
            and written.keys() == holdings.keys()
            and not any(_moved(written[which], size) for which, size in holdings.items())
        )

    def _cells(
        self, snapshot: Snapshot, process: GpuProcess, use: GpuUse, elapsed: float
    ) -> list[str]:
        return [
            write(snapshot, process, use, elapsed) if write is not None else ""
            for write in self._columns
        ]


def _moved(before: int | None, now: int | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) >= LIST_BYTES
