"""Reads the GPU rows of a sample back into GPUs and their host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from gpumon.model.bounds import PARTS
from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Unknown
from gpumon.recording.csv.cells import Cells
from gpumon.recording.csv.columns import (
    CLOCK_EVENTS_KNOWN,
    GPU_COLUMNS,
    readable_column,
    readable_columns,
)
from gpumon.recording.csv.headings import row_of, whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.recording.csv.headings import Header

_HOST_COLUMNS = tuple(column for column in GPU_COLUMNS if column.part == "host")
_METRIC_COLUMNS = tuple(
    column for column in readable_columns(processes=False) if column.metric is not None
)
_STATUSES = {status.value: status for status in GpuStatus}
_EVENTS = frozenset(("xid", "xid_at"))
"""Fields that are empty as long as nothing has happened: gpumon writes them whenever it has."""
_PATTERNS_KEPT = 256


class ParsedGpu(Struct, frozen=True):
    """A GPU of a sample, before it is known whether its processes are known.

    Attributes:
        values: Its fields by name.
        missing: The fields that are unknown, and those whose row says why.
        listed: How many processes its list held; ``None`` where there was no list.
    """

    values: dict[str, Any]
    missing: tuple[tuple[str, ...], tuple[tuple[str, Unknown], ...]]
    listed: int | None

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
        self._columns = [
            _FieldCells(
                column.field,
                header.places[column.name],
                Cells(column.parse, reasons=not self._is_ours),
            )
            for column in _METRIC_COLUMNS
            if column.name in header.places
        ]
        self._fields = [column.field for column in self._columns]
        absent = [one.field for one in _METRIC_COLUMNS if one.field not in self._fields]
        self._never = (*absent, "fan_speeds")
        self._events = _EVENTS if self._is_ours else frozenset()
        self._status = self._column("status")
        self._since = self._column("status.since")
        self._age = self._column("age [s]")
        self._listed = self._column("processes")
        self._mig = self._column("mig.devices")
        self._events_known = self._column(CLOCK_EVENTS_KNOWN.name)
        self._host_columns = [self._column(column.name) for column in _HOST_COLUMNS]
        self._hosts: dict[tuple[object, ...], Host] = {}
        self._unknown: dict[tuple[object, ...], Mapping[str, Unknown]] = {}

    def read(
        self, lines: Sequence[bytes], time: float, wall: float
    ) -> tuple[list[ParsedGpu], Host]:
        """The GPUs of a sample, and their host.

        Args:
            lines: Its rows, possibly with other lines among them.
            time: The time of the sample in the recording.
            wall: The wall-clock time of the sample, which the times in its cells refer to.
        """
        found: list[ParsedGpu] = []
        host = None
        for cells in self._rows(lines):
            found.append(self._gpu(cells, len(found), time, wall))
            host = host or self._host(cells)
        return once_each(found), host or Host("")

    def _rows(self, lines: Sequence[bytes]) -> Iterator[list[str]]:
        """The cells of the rows of a sample."""
        header = self._header
        if header.other is not None:
            yield from (row.cells for row in header.other.rows(lines) if row.cells is not None)
            return
        stamp = header.stamp(lines[0])[0]
        for line in whole_lines(lines, header):
            if header.stamp(line)[0] == stamp:
                cells = row_of(line, header)
                if len(cells) > header.time:
                    yield cells

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

    def _column(self, name: str) -> tuple[int, Cells] | None:
        place = self._header.places.get(name)
        if place is None:
            return None
        return place, Cells(readable_column(name, processes=False).parse)

    def _gpu(self, cells: list[str], number: int, time: float, wall: float) -> ParsedGpu:
        width = len(cells)
        read = [
            column.cells[cells[column.place]] if column.place < width else None
            for column in self._columns
        ]
        values: dict[str, Any] = dict(zip(self._fields, read, strict=True))
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
        known = _value(self._events_known, cells)
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
        since = _value(self._since, cells)
        age = _value(self._age, cells)
        values["status"] = self._status_of(cells)
        values["status_since"] = None if since is None else since + late
        values["sampled_at"] = _sampled_at(time, age, is_ours=self._is_ours)
        mig = _value(self._mig, cells)
        if mig:
            values["mig"] = mig
        return ParsedGpu(values, (missing, told), _value(self._listed, cells))

    def _status_of(self, cells: list[str]) -> GpuStatus:
        return _STATUSES.get(_value(self._status, cells) or "", GpuStatus.OK)

    def _host(self, cells: list[str]) -> Host:
        found = tuple([_value(column, cells) for column in self._host_columns])
        host = self._hosts.get(found)
        if host is None:
            if len(self._hosts) >= _PATTERNS_KEPT:
                self._hosts.clear()
            facts = [(one.field, value) for one, value in zip(_HOST_COLUMNS, found, strict=True)]
            load = tuple(value for field, value in facts if field == "load")
            known = {field: value for field, value in facts if value is not None}
            known["load"] = None if None in load else load
            host = self._hosts[found] = Host(**{"name": "", **known})
        return host


def once_each(rows: list[ParsedGpu]) -> list[ParsedGpu]:
    """The rows of a sample; of a GPU that has several only the last one, as in a report."""
    by_gpu = {row.uuid: row for row in rows}
    return rows if len(by_gpu) == len(rows) else [*by_gpu.values()]


def _value(column: tuple[int, Cells] | None, cells: list[str]) -> Any:
    if column is None or column[0] >= len(cells):
        return None
    return column[1][cells[column[0]]]


def _sampled_at(time: float, age: float | None, *, is_ours: bool) -> float | None:
    if age is None:
        return None if is_ours else time
    return time - age
