"""Makes the samples of a report from the history of a machine.

They are those that a log of the same snapshots has: its columns name the values, and its rules say
at which samples there is a list of processes.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpumon.model.snapshot import Unknown
from gpumon.recording.csv.columns import CLOCK_EVENTS_KNOWN, GpuRow, ProcessRow, columns_of
from gpumon.recording.csv.rows import ListPace
from gpumon.report.owners import Lookups
from gpumon.report.samples import (
    PROCESS_COLUMNS,
    USE_COLUMNS,
    GpuSample,
    ListedUse,
    MergedSample,
    SteadyGpu,
    SteadyUse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.archive import Archive
    from gpumon.recording.csv.columns import CsvColumn

_MOST_KNOWN = 4096
"""Objects that are kept because the next samples need the same."""
_GPU_FIELDS = SteadyGpu.__struct_fields__[:-1]
SteadyT = TypeVar("SteadyT")


def archived_samples(
    number: int, archive: Archive, first: float, lookups: Lookups | None, *, owners: bool
) -> Iterator[MergedSample]:
    """The samples of a history from a time on, as those of a log.

    Args:
        number: That of the log.
        archive: The history.
        first: The time.
        lookups: Completes the processes.
        owners: Whether the owners of processes are read.

    Raises:
        RecordingError: The history cannot be read.
    """
    began = archive.first
    if began is None:
        return
    fields = PROCESS_COLUMNS if owners else USE_COLUMNS
    gpus, lists = _Gpus(), _Lists(fields, lookups)
    for snapshot in archive.samples(first, math.inf):
        elapsed = snapshot.time - began
        samples = gpus.of(snapshot, elapsed)
        if not samples:
            continue
        host = samples[0].state.host_name
        merged = MergedSample(number, host, snapshot.time, elapsed, {}, began)
        merged.gpus = {sample.state.key: sample for sample in samples}
        merged.listed = lists.of(snapshot, elapsed)
        yield merged


def archived_lookups(archive: Archive, first: float, last: float) -> Lookups:
    """Where processes run, from the lists of a history from a time to another one.

    Raises:
        RecordingError: The history cannot be read.
    """
    lookups, lists = Lookups(), _Lists(PROCESS_COLUMNS, None)
    for snapshot in archive.samples(first, last):
        lookups.learn(use.process for use in lists.of(snapshot, snapshot.time))
    return lookups


class _Gpus:
    """Makes the samples of GPUs."""

    def __init__(self) -> None:
        fields = GpuSample.__struct_fields__[1:-1]
        self._own = _Values(columns_of(fields, processes=False))
        self._steady = _Steady(columns_of(_GPU_FIELDS, processes=False), SteadyGpu)

    def of(self, snapshot: Snapshot, elapsed: float) -> Sequence[GpuSample]:
        time, own, steady = snapshot.time, self._own, self._steady
        rows = [GpuRow(snapshot, gpu, elapsed) for gpu in snapshot.gpus]
        return [
            GpuSample(*(time, *own.read(own.take(row)), steady.of(row.gpu.uuid, row)))
            for row in rows
        ]


class _Lists:
    """Makes the lists of processes, at the samples at which a log has them.

    Args:
        fields: Those of each process.
        lookups: Completes the processes.
    """

    def __init__(self, fields: Iterable[str], lookups: Lookups | None) -> None:
        def make(*values: Any) -> SteadyUse:
            process = SteadyUse(*values)
            return process if lookups is None else lookups.complete(process)

        own = ListedUse.__struct_fields__[1:-1]
        self._own = _Values(columns_of(own, processes=True))
        self._steady = _Steady(columns_of(fields, processes=True), make)
        self._pace = ListPace()

    def of(self, snapshot: Snapshot, elapsed: float) -> list[ListedUse]:
        """The list; empty if there is none, or the last one is still valid."""
        uses = [(process, use) for process in snapshot.processes for use in process.uses]
        if not self._pace.is_due(uses, elapsed):
            return []
        found = [self._listed(snapshot, process, use, elapsed) for process, use in uses]
        # A forged one may have an impossible PID.
        known = [listed for listed in found if listed.process.pid is not None]
        return [*{listed.process.use: listed for listed in known}.values()]

    def _listed(
        self, snapshot: Snapshot, process: GpuProcess, use: GpuUse, elapsed: float
    ) -> ListedUse:
        row = ProcessRow(snapshot, process, use, elapsed)
        steady = self._steady.of((process.id, use.gpu_uuid, use.instance), row)
        own = self._own.read(self._own.take(row))
        return ListedUse(*(snapshot.time, *own, steady))


class _Value:
    """Turns the values of a column into those that a reader of the column gets."""

    def __init__(self, column: CsvColumn) -> None:
        self._column = column
        self._lowest, self._highest = column.possible
        self._known: dict[object, object] = {}

    def read(self, value: object) -> object:
        """The value of a column from that of the model; ``None`` if it is impossible."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            # False for NaN too.
            return value if self._lowest <= value <= self._highest else None
        if value not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = self._parsed(value)
        return self._known[value]

    def _parsed(self, value: object) -> object:
        cell = self._column.write(value)
        try:
            found = self._column.parse(cell) if cell else None
        except (ValueError, OverflowError, OSError):
            return None
        return None if isinstance(found, Unknown) else found


class _Values:
    """Takes the values of some columns from rows."""

    def __init__(self, columns: Sequence[CsvColumn]) -> None:
        self._values = [_Value(column) for column in columns]
        # All attributes are taken at once: that is much faster than each alone.
        paths: list[str] = []
        self._others: list[tuple[int, Callable[[Any], object]]] = []
        for place, column in enumerate(columns):
            is_plain = isinstance(column.value, attrgetter) and column is not CLOCK_EVENTS_KNOWN
            # Any attribute holds the place of a value that is taken otherwise.
            path = column.field if column.part == "log" else f"{column.part}.{column.field}"
            paths.append(path if is_plain else "elapsed")
            if not is_plain:
                # Only logs of other programs have that column.
                take = _unknown if column is CLOCK_EVENTS_KNOWN else column.value
                self._others.append((place, take))
        self._plain = attrgetter(*paths)

    def take(self, row: GpuRow | ProcessRow) -> list[object]:
        """The values of the model."""
        taken = [*self._plain(row)]
        for place, take in self._others:
            taken[place] = take(row)
        return taken

    def read(self, taken: Iterable[object]) -> list[Any]:
        """The values that a reader gets, see ``_Value``."""
        return [value.read(one) for value, one in zip(self._values, taken, strict=True)]


def _unknown(_: object) -> None:
    """The value that no snapshot has."""


class _Steady(Generic[SteadyT]):
    """Makes objects of some columns; one object for all rows that have the same values."""

    def __init__(self, columns: Sequence[CsvColumn], make: Callable[..., SteadyT]) -> None:
        self._values = _Values(columns)
        self._make = make
        self._newest: dict[object, tuple[list[object], SteadyT]] = {}

    def of(self, key: object, row: GpuRow | ProcessRow) -> SteadyT:
        """The object of a row of what has this key."""
        taken = self._values.take(row)
        newest = self._newest.get(key)
        if newest is not None and newest[0] == taken:
            return newest[1]
        if len(self._newest) >= _MOST_KNOWN:
            self._newest.clear()
        made = self._make(*self._values.read(taken))
        self._newest[key] = taken, made
        return made
