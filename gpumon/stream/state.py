"""The state of the other machine, changed by each line."""

from __future__ import annotations

from enum import Enum
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET
from msgspec.structs import astuple, fields, replace

from gpumon.export.as_json import identity_keys, json_key, json_keys
from gpumon.findings.finding import FindingKind, Severity
from gpumon.model.processes import HolderScan, HoldReason, ProcessId, Workload
from gpumon.model.snapshot import Gpu, GpuStatus, Host, OwnCost, Snapshot, Trouble, Unknown
from gpumon.stream.sample import StreamError
from gpumon.stream.tables import (
    BELOW,
    GPUS,
    IDENTITIES,
    MIG,
    PROCESSES,
    RESERVED,
    STATES,
    SUSPECTS,
    USES,
)
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Struct

    from gpumon.stream.line import Line
    from gpumon.stream.sample import GpuState
    from gpumon.stream.tables import StreamColumn, Table


class StreamState:
    """What all lines since the last full one say together."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._mig, self._uses = _Rows(MIG), _Rows(USES)
        self._gpus, self._processes = _Rows(GPUS, self._mig), _Rows(PROCESSES, self._uses)
        self._suspects, self._reserved = _Rows(SUSPECTS), _Rows(RESERVED)
        self._states = _Rows(STATES)

    @property
    def states(self) -> tuple[GpuState, ...]:
        """The state of each GPU."""
        return self._states.rows

    def apply(self, line: Line) -> Snapshot:
        """The snapshot after a line.

        Raises:
            StreamError: The line does not fit the lines before.
        """
        self._states.apply(line.states)
        told, before = line.snapshot, self._snapshot
        if told is UNSET:
            if before is None:
                raise StreamError("it has no snapshot")
            return before
        for rows in (self._mig, self._uses, self._gpus, self._processes):
            rows.apply(getattr(told, rows.table.key))
        for rows in (self._suspects, self._reserved):
            rows.apply(getattr(told, rows.table.key))
        changes = {
            "gpus": self._gpus.rows,
            "processes": self._processes.rows,
            "reserved": self._reserved.rows,
            "host": _object(Host, told.host, before and before.host),
            "trouble": _object(Trouble, told.trouble, before and before.trouble),
            "cost": _object(OwnCost, told.cost, before and before.cost),
            "holders": _holders(told.holders, before and before.holders, self._suspects.rows),
        }
        for field in ("time", "processes_at", "source"):
            value = getattr(told, _SNAPSHOT_KEYS[field])
            if value is not UNSET:
                changes[field] = value
        self._snapshot = _made(Snapshot, before, changes)
        return self._snapshot


def _made(row: type[Struct], before: Any, changes: dict[str, Any]) -> Any:
    """A structure with other values in some fields, or a new one."""
    if before is not None:
        return replace(before, **changes)
    try:
        return row(**changes)
    except TypeError:
        needed = (one.name for one in fields(row) if one.required and one.name not in changes)
        raise StreamError(f"a {row.__name__} has no {next(needed)}") from None


_SNAPSHOT_KEYS = json_keys(Snapshot)


def _object(struct: type[Struct], told: Any, before: Any) -> Any:
    """An object of the snapshot after a line; ``None`` where there is none."""
    if told is UNSET:
        if before is None and struct is Host:
            raise StreamError("it has no host")
        return before
    if told is None:
        return None
    changes = {
        field: value
        for field, key in json_keys(struct).items()
        if (value := getattr(told, key, UNSET)) is not UNSET
    }
    return _made(struct, before, changes)


def _holders(told: Any, before: HolderScan | None, suspects: tuple[Any, ...]) -> HolderScan | None:
    scan: HolderScan | None = _object(HolderScan, told, before)
    if scan is None or scan.suspects is suspects:
        return scan
    return replace(scan, suspects=suspects)


class _Rows:
    """The rows of a table."""

    def __init__(self, table: Table, below: _Rows | None = None) -> None:
        self.table = table
        self.rows: tuple[Any, ...] = ()
        self._below = below
        self._hung: tuple[Any, ...] = ()
        self._field = next((one.field for one in table.columns if one.field in BELOW), "")
        self._counts: list[int] = []
        self._in_parts = tuple({one.field for one in table.columns if one.part is not None})

    def apply(self, told: Any) -> None:
        """Change the rows as a line says; the rows below them must have been changed before.

        Raises:
            StreamError: The line does not fit the rows.
        """
        below = self._below
        if told is UNSET and (below is None or below.rows is self._hung):
            return
        rows: list[Any] = list(self.rows)
        changes: dict[int, dict[Any, Any]] = {}
        if told is not UNSET:
            if told.rows is not UNSET:
                rows = self._ordered(told.rows)
            for column, cells in zip(self.table.columns, astuple(told)[1:], strict=True):
                if cells is not UNSET:
                    self._collect(column, cells, len(rows), changes)
        if below is not None:
            self._hang(below.rows, rows, changes)
        for at, row in enumerate(rows):
            if at in changes or row is None:
                rows[at] = self._row(row, changes.get(at, {}))
        if changes or len(rows) != len(self.rows) or not all(map(is_, rows, self.rows)):
            self.rows = tuple(rows)

    def _ordered(self, order: int | list[int | None]) -> list[Any]:
        """The rows in a new order: each was one of the rows before, or is new."""
        if isinstance(order, int):
            order = [None] * order
        if any(place is not None and place >= len(self.rows) for place in order):
            raise StreamError(f"{self.table.key} has no such row")
        if self._below is not None:
            self._counts = [0 if place is None else self._counts[place] for place in order]
        return [None if place is None else self.rows[place] for place in order]

    def _collect(
        self, column: StreamColumn, cells: Any, count: int, changes: dict[int, dict[Any, Any]]
    ) -> None:
        """Add the new values of a column to the changes of each row."""
        is_whole = isinstance(cells, list)
        fits = len(cells) == count if is_whole else max(cells, default=-1) < count
        if not fits:
            raise StreamError(
                f"{self.table.key}.{column.key} does not fit its {counted(count, 'row')}"
            )
        values = enumerate(cells) if is_whole else cells.items()
        if column.field == self._field:
            for at, value in values:
                self._counts[at] = value
            return
        name = column.field if column.part is None else (column.field, column.part)
        model = _MODEL.get(column.field)
        for at, value in values:
            known = changes.get(at)
            if known is None:
                known = changes[at] = {}
            known[name] = value if model is None else model(value)

    def _hang(
        self, below: tuple[Any, ...], rows: list[Any], changes: dict[int, dict[Any, Any]]
    ) -> None:
        """Give each row its rows below."""
        self._hung = below
        end = 0
        for at, row in enumerate(rows):
            start, end = end, end + self._counts[at]
            part = below[start:end]
            if row is None or getattr(row, self._field) != part:
                changes.setdefault(at, {})[self._field] = part
        if end != len(below):
            raise StreamError(f"{self.table.key} has {end} {self._field}, not {len(below)}")

    def _row(self, row: Any, changes: dict[Any, Any]) -> Any:
        for field in self._in_parts:
            names = (field, 0), (field, 1)
            if names[0] in changes or names[1] in changes:
                before = _parts(None if row is None else getattr(row, field))
                first, second = (
                    changes.pop(name, old) for name, old in zip(names, before, strict=True)
                )
                changes[field] = _joined(field, first, second)
        if changes.get("id", self) is None:
            raise StreamError(f"{self.table.key} has a row without its pid")
        return _made(self.table.row, row, changes)


def _parts(value: Any) -> tuple[Any, Any]:
    if isinstance(value, ProcessId):
        return value.pid, value.start_time
    return value or (None, None)


def _joined(field: str, first: int | None, second: int | None) -> Any:
    """A process or a MIG instance of its parts."""
    if field in IDENTITIES:
        return None if first is None else ProcessId(first, second)
    return None if first is None or second is None else (first, second)


def _place(told: Any) -> Workload | None:
    if told is None:
        return None
    known: dict[str, Any] = {}
    for field, key in json_keys(Workload).items():
        if field in IDENTITIES:
            pid, start_time = (getattr(told, part) for part in identity_keys(field))
            if pid is not UNSET:
                known[field] = ProcessId(pid, None if start_time is UNSET else start_time)
        elif (value := getattr(told, key)) is not UNSET:
            known[field] = value
    return Workload(**known)


_FIELDS = {json_key(field): field for field in (*Gpu.__struct_fields__, "processes")}


def _unknown(told: dict[str, str]) -> dict[str, Unknown]:
    return {_FIELDS[key]: _reason(word) for key, word in told.items() if key in _FIELDS}


_Word = TypeVar("_Word", bound=Enum)


def _words(known: Mapping[str, _Word], other: _Word) -> Callable[[str], _Word]:
    """Finds the meaning of a word; newer versions may have others."""
    return lambda word: known.get(word, other)


def _values(words: type[_Word]) -> dict[str, _Word]:
    return {one.value: one for one in words}


_reason = _words(_values(Unknown), Unknown.NOT_READ)
_MODEL: dict[str, Callable[[Any], Any]] = {
    "unknown": _unknown,
    "place": _place,
    "status": _words(_values(GpuStatus), GpuStatus.FAILING),
    "reason": _words(_values(HoldReason), HoldReason.HOLDS),
    "kind": _words(_values(FindingKind), FindingKind.UNKNOWN),
    "severity": _words({one.name.lower(): one for one in Severity}, Severity.NOTE),
}
"""Makes the value of a field from its JSON, where that is not the value."""
