"""Reads the GPU rows of a sample back into GPUs and their host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from gpumon.model.bounds import PARTS
from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Unknown
from gpumon.recording.csv.allocation_cells import AllocatedGpu
from gpumon.recording.csv.cells import DAMAGED, IMPOSSIBLE, Cells
from gpumon.recording.csv.columns import (
    CLOCK_EVENTS_KNOWN,
    GPU_COLUMNS,
    HOSTNAME,
    readable_columns,
)
from gpumon.recording.csv.damage import flaw_in
from gpumon.recording.csv.sample_rows import sample_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model.accidents import Accident
    from gpumon.recording.csv.columns import CsvColumn
    from gpumon.recording.csv.damage import DamageCounter
    from gpumon.recording.csv.headings import Header

_HOST_COLUMNS = tuple(column for column in GPU_COLUMNS if column.part == "host")
_LOADS = sum(column.field == "load" for column in _HOST_COLUMNS)
_METRIC_COLUMNS = tuple(
    column for column in readable_columns(processes=False) if column.metric is not None
)
_OTHER_COLUMNS = (
    *(column for column in GPU_COLUMNS if column.part == "gpu" and column.metric is None),
    CLOCK_EVENTS_KNOWN,
)
_LOG_COLUMNS = (*(column for column in GPU_COLUMNS if column.part == "log"), HOSTNAME)
_STATUSES = {status.value: status for status in GpuStatus}
_EVENTS = frozenset(("xid", "xid_at"))
"""Fields that are empty as long as nothing has happened: gpumon writes them whenever it has."""
_ALLOCATED = ("allocations", "allocated_jobs", "allocated_users")
_PATTERNS_KEPT = 256


class ParsedGpu(Struct, frozen=True):
    """A GPU of a sample, before it is known whether its processes are known.

    Attributes:
        values: Its fields by name.
        missing: The fields that are unknown, and those whose row says why.
        listed: How many processes its list held; ``None`` where there was no list.
        allocated: What it says of the jobs that it is allocated to.
        flaw: See ``damage.flaw_in``.
        accidents: The accidents in it, by the clock of its cells.
    """

    values: dict[str, Any]
    missing: tuple[tuple[str, ...], tuple[tuple[str, Unknown], ...]]
    listed: int | None
    allocated: AllocatedGpu = AllocatedGpu()
    flaw: object = None
    accidents: tuple[Accident, ...] = ()

    @property
    def uuid(self) -> str:
        """The UUID, which identifies the GPU."""
        uuid: str = self.values["uuid"]
        return uuid


class _FieldCells(NamedTuple):
    field: str
    place: int
    cells: Cells


class GpuReader:
    """Reads the rows below one header. Not thread-safe.

    Args:
        header: The header.
        reason: Why the fields that have no column, or an empty cell, are unknown.
    """

    def __init__(self, header: Header, reason: Unknown = Unknown.NOT_RECORDED) -> None:
        self._header = header
        self._reason = reason
        self._is_ours = "gpumon_log" in header.places
        self._columns = self._readers(_METRIC_COLUMNS, reasons=not self._is_ours)
        self._fields = [column.field for column in self._columns]
        absent = [one.field for one in _METRIC_COLUMNS if one.field not in self._fields]
        self._never = (*absent, "fan_speeds")
        self._events = _EVENTS if self._is_ours else frozenset()
        self._others = self._readers(_OTHER_COLUMNS)
        self._host_columns = self._readers(_HOST_COLUMNS)
        self._log_columns = self._readers(_LOG_COLUMNS)
        self._hosts: dict[tuple[object, ...], Host] = {}
        self._unknown: dict[tuple[object, ...], Mapping[str, Unknown]] = {}

    def _readers(self, columns: Iterable[CsvColumn], *, reasons: bool = False) -> list[_FieldCells]:
        """Those of the columns that the rows have."""
        places = self._header.places
        return [
            _FieldCells(
                column.field,
                places[column.name],
                Cells(column.parse, reasons=reasons, damaged=DAMAGED),
            )
            for column in columns
            if column.name in places
        ]

    def read(
        self,
        lines: Sequence[bytes],
        time: float,
        wall: float,
        damage: DamageCounter | None = None,
    ) -> tuple[list[ParsedGpu], Host]:
        """The GPUs of a sample, and their host.

        Args:
            lines: Its rows, possibly with other lines among them.
            time: The time of the sample in the recording.
            wall: The wall-clock time of the sample, which the times in its cells refer to.
            damage: Counts what is damaged.
        """
        found: list[ParsedGpu] = []
        host = None
        for row in sample_rows(lines, self._header, damage, wall):
            host = host or self._begin(row.cells)
            gpu = self._gpu(row.cells, len(found), time, wall)
            if damage is not None:
                damage.judge(row, gpu.flaw)
            found.append(gpu)
        return once_each(found, damage), host or Host("")

    def _begin(self, cells: list[str]) -> Host:
        """Begin with the first row of a sample; returns the host."""
        return self._host_of(cells)[0]

    def gpu(self, parsed: ParsedGpu, *, listed: bool) -> Gpu:
        """The GPU, with its processes marked as known or unknown."""
        key = (parsed.missing, listed)
        unknown = self._unknown.get(key)
        if unknown is None:
            if len(self._unknown) >= _PATTERNS_KEPT:
                self._unknown.clear()
            fields, told = parsed.missing
            reasons = dict.fromkeys((*self._never, *fields), self._reason)
            reasons.update(told)
            if not listed:
                reasons["processes"] = self._reason
            unknown = self._unknown[key] = reasons
        return Gpu(**parsed.values, unknown=unknown)

    def _gpu(self, cells: list[str], number: int, time: float, wall: float) -> ParsedGpu:
        impossible = None if self._is_ours else Unknown.IMPOSSIBLE
        read, flaw = self._read(self._columns, cells, impossible)
        values: dict[str, Any] = dict(zip(self._fields, read, strict=True))
        read, other_flaw = self._read(self._others, cells)
        others: dict[str, Any] = {
            column.field: value for column, value in zip(self._others, read, strict=True)
        }
        flaw = flaw_in((flaw, other_flaw, self._host_of(cells)[1]))
        told: tuple[tuple[str, Unknown], ...] = ()
        if not self._is_ours:
            told = tuple(
                (field, value) for field, value in values.items() if isinstance(value, Unknown)
            )
            for field, _ in told:
                values[field] = None
        for field, whole in PARTS:
            value, most = values.get(field), values.get(whole)
            if value is not None and most is not None and value > most:
                values[field] = None
                told = (*told, (field, Unknown.IMPOSSIBLE))
                flaw = flaw or IMPOSSIBLE
        known = others.get("clock_events_known")
        if known is not None and not (
            values["clock_event_reasons"] or known & HARMFUL_CLOCK_EVENTS
        ):
            # That no other reason is active does not show that the GPU is not slowed down.
            values["clock_event_reasons"] = None
        missing = tuple(
            [
                field
                for field, value in values.items()
                if value is None and field not in self._events
            ]
        )
        if values.get("index") is None:
            values["index"] = number
        if values.get("uuid") is None:
            values["uuid"] = values.get("pci_bus_id") or f"GPU {values['index']}"
        late = time - wall
        if values.get("xid_at") is not None:
            values["xid_at"] += late
        since, age = others.get("status_since"), others.get("age")
        values["status"] = _STATUSES.get(others.get("status") or "", GpuStatus.OK)
        values["status_since"] = None if since is None else since + late
        values["sampled_at"] = _sampled_at(time, age, is_ours=self._is_ours)
        if others.get("mig"):
            values["mig"] = others["mig"]
        allocated = AllocatedGpu(*map(others.get, _ALLOCATED))
        accidents = others.get("accidents") or ()
        listed = others.get("processes")
        return ParsedGpu(values, (missing, told), listed, allocated, flaw, accidents)

    def _read(
        self,
        columns: Sequence[_FieldCells],
        cells: list[str],
        impossible: Unknown | None = None,
    ) -> tuple[list[Any], object]:
        """The values of some columns in a row, and see ``damage.flaw_in``.

        ``impossible`` stands for a value that no hardware has.
        """
        width = len(cells)
        values = [
            column.cells[cells[column.place]] if column.place < width else None
            for column in columns
        ]
        flaw = flaw_in(values)
        if flaw is not None:
            values = [
                None if value is DAMAGED else impossible if value is IMPOSSIBLE else value
                for value in values
            ]
        return values, flaw

    def _host_of(self, cells: list[str]) -> tuple[Host, object]:
        """The host of a sample, from a row, and see ``damage.flaw_in`` of what is of the sample."""
        read, flaw = self._read(self._host_columns, cells)
        found = tuple(read)
        host = self._hosts.get(found)
        if host is None:
            if len(self._hosts) >= _PATTERNS_KEPT:
                self._hosts.clear()
            facts = [
                (column.field, value)
                for column, value in zip(self._host_columns, found, strict=True)
            ]
            load = tuple(value for field, value in facts if field == "load")
            known: dict[str, Any] = {field: value for field, value in facts if value is not None}
            known["load"] = load if len(load) == _LOADS and None not in load else None
            host = self._hosts[found] = Host(**{"name": "", **known})
        return host, flaw_in((flaw, self._read(self._log_columns, cells)[1]))


def once_each(rows: list[ParsedGpu], damage: DamageCounter | None = None) -> list[ParsedGpu]:
    """The rows of a sample; of a GPU that has several only the last one, as in a report."""
    by_gpu = {row.uuid: row for row in rows}
    if damage is not None:
        damage.add_repeated(len(rows) - len(by_gpu))
    return rows if len(by_gpu) == len(rows) else [*by_gpu.values()]


def _sampled_at(time: float, age: float | None, *, is_ours: bool) -> float | None:
    if age is None:
        return None if is_ours else time
    return time - age
