"""Makes the lines of a stream."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

import gpumon
from gpumon.export.as_json import encoded, identity_keys, json_keys
from gpumon.model.processes import ProcessId
from gpumon.stream.sample import MOST_EVENTS, MOST_LINE, SCHEMA, Heartbeat
from gpumon.stream.tables import (
    GPUS,
    MIG,
    PROCESSES,
    RESERVED,
    STATES,
    SUSPECTS,
    USES,
    Table,
    checked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from msgspec import Struct

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Event
    from gpumon.stream.sample import GpuState

FULL_AGAIN = 60.0
"""Seconds after which a line has the whole state again."""
_MOST_CHANGES = 8 * 2**20
"""Bytes of changes after which a line has the whole state again: a reader accepts twice as many."""


class StreamWriter:
    """Makes one line of each sample: what changed since the line before, or all of it.

    A line that would be longer than ``MOST_LINE`` loses the command lines, as all lines after it.

    Args:
        interval: Seconds between samples, for the reader.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._sequence = 0
        self._full_at: float | None = None
        self._changes = 0
        self._commands = True
        self._forget()

    def _forget(self) -> None:
        """Begin anew: the next changes are everything."""
        self._snapshot: Snapshot | None = None
        self._objects: dict[str, dict[str, Any] | None] = {}
        self._tables = {
            table: _Rows(table)
            for table in (GPUS, MIG, PROCESSES, USES, SUSPECTS, RESERVED, STATES)
        }

    def line(
        self,
        snapshot: Snapshot,
        written_at: float,
        *,
        events: Sequence[Event] = (),
        states: Sequence[GpuState] = (),
        heartbeat: Heartbeat | None = None,
        dropped: int = 0,
    ) -> bytes:
        """The next line, with its line break.

        Args:
            snapshot: The sample; of a heartbeat without a new sample the one before.
            written_at: The time now, in seconds since the epoch.
            events: What happened since the line before; of too many the newest.
            states: The state of each GPU.
            heartbeat: Why there are no fresh values.
            dropped: Number of samples left out since the line before; then the line has all.
        """
        self._sequence += 1
        line: dict[str, Any] = {
            "schema": SCHEMA,
            "sequence": self._sequence,
            "written_unix_seconds": written_at,
        }
        if dropped:
            line["dropped"] = dropped
        if heartbeat is not None:
            line["heartbeat"] = {"reason": heartbeat.reason, "age_seconds": heartbeat.age}
        if events:
            line["events"] = [_event(event) for event in events[-MOST_EVENTS:]]
        text = None
        if not (dropped or self._is_due(written_at)):
            text = self._encoded(line, snapshot, states)
            self._changes += len(text)
        if text is None or len(text) > MOST_LINE or self._changes > _MOST_CHANGES:
            line |= {"full": True, "gpumon": gpumon.__version__, "interval_seconds": self._interval}
            text = self._full(line, snapshot, states)
            self._full_at, self._changes = written_at, 0
        return text + b"\n"

    def _is_due(self, now: float) -> bool:
        # A clock that was set back makes it due, too.
        return self._full_at is None or not 0 <= now - self._full_at < FULL_AGAIN

    def _full(self, line: dict[str, Any], snapshot: Snapshot, states: Sequence[GpuState]) -> bytes:
        self._forget()
        text = self._encoded(line, snapshot, states)
        if len(text) > MOST_LINE and self._commands:
            self._commands = False
            return self._full(line, snapshot, states)
        return text

    def _encoded(
        self, line: dict[str, Any], snapshot: Snapshot, states: Sequence[GpuState]
    ) -> bytes:
        parts = {"snapshot": self._snapshot_changes(snapshot), "states": self._rows(STATES, states)}
        return encoded(line | {key: part for key, part in parts.items() if part}).encode()

    def _snapshot_changes(self, snapshot: Snapshot) -> dict[str, Any]:
        if snapshot is self._snapshot:
            return {}
        before, self._snapshot = self._snapshot, snapshot
        keys = json_keys(type(snapshot))
        told: dict[str, Any] = {}
        for field in ("time", "processes_at", "source"):
            value = getattr(snapshot, field)
            if before is None or value != getattr(before, field):
                told[keys[field]] = value
        for field in ("host", "trouble", "cost", "holders"):
            part = getattr(snapshot, field)
            if before is None or part is not getattr(before, field):
                self._tell_object(told, field, part)
        processes = snapshot.processes
        suspects = () if snapshot.holders is None else snapshot.holders.suspects
        if not self._commands:
            processes = tuple(replace(one, command=()) for one in processes)
            suspects = tuple(replace(one, command=()) for one in suspects)
        tables = {
            GPUS: self._rows(GPUS, snapshot.gpus),
            MIG: self._below(MIG, GPUS, snapshot.gpus, lambda gpu: gpu.mig),
            USES: self._below(USES, PROCESSES, processes, lambda process: process.uses),
            PROCESSES: self._rows(PROCESSES, processes),
            SUSPECTS: self._rows(SUSPECTS, suspects),
            RESERVED: self._rows(RESERVED, snapshot.reserved),
        }
        return told | {table.key: changes for table, changes in tables.items() if changes}

    def _tell_object(self, told: dict[str, Any], field: str, part: Struct | None) -> None:
        """Add what changed of an object that is no row."""
        before = self._objects.get(field)
        now = None if part is None else _values(part)
        self._objects[field] = now
        if now is None:
            if before is not None:
                told[field] = None
            return
        if before is None:
            told[field] = {key: value for key, value in now.items() if value is not None}
        elif changed := {key: value for key, value in now.items() if value != before[key]}:
            told[field] = changed

    def _rows(self, table: Table, rows: Sequence[Struct]) -> dict[str, Any]:
        known = self._tables[table]
        if known.rows is rows:
            return {}
        return known.changes(rows, [table.identity(row) for row in rows])

    def _below(
        self,
        table: Table,
        above: Table,
        owners: Sequence[Any],
        rows_of: Callable[[Any], Sequence[Struct]],
    ) -> dict[str, Any]:
        """The changes of a table of rows below rows."""
        keys = [
            (above.identity(owner), table.identity(row))
            for owner in owners
            for row in rows_of(owner)
        ]
        return self._tables[table].changes(list(chain.from_iterable(map(rows_of, owners))), keys)


class _Rows:
    """What the lines before said of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.rows: Sequence[Struct] = ()
        self._keys: Sequence[Hashable] = []
        self._cells: list[list[Any]] = []

    def changes(self, rows: Sequence[Struct], keys: Sequence[Hashable]) -> dict[str, Any]:
        """What changed in the rows, by key of JSON."""
        told: dict[str, Any] = {}
        before: list[int | None] = list(range(len(rows)))
        if keys != self._keys:
            places = {key: place for place, key in enumerate(self._keys)}
            before = [places.get(key) for key in keys]
            is_new = all(place is None for place in before)
            told["rows"] = len(rows) if is_new else before
        cells: list[list[Any]] = []
        changed: dict[int, dict[int, Any]] = {}
        for at, (row, place) in enumerate(zip(rows, before, strict=True)):
            if place is not None and self.rows[place] is row:
                cells.append(self._cells[place])
                continue
            was = self._table.blank if place is None else self._cells[place]
            now = self._table.cells(row)
            cells.append(now)
            for number, value in enumerate(now):
                if value is not was[number] and value != was[number]:
                    changed.setdefault(number, {})[at] = value
        self.rows, self._keys, self._cells = rows, keys, cells
        for number, values in changed.items():
            column = self._table.columns[number]
            if 2 * len(values) > len(rows):
                told[column.key] = column.tell_all([row[number] for row in cells])
            else:
                told[column.key] = dict(zip(values, column.tell_all(values.values()), strict=True))
        return told


def _values(part: Struct) -> dict[str, Any]:
    """The fields of an object by JSON key, without rows."""
    return {
        key: checked(field, getattr(part, field))
        for field, key in json_keys(type(part)).items()
        if field != "suspects"
    }


def _event(event: Event) -> dict[str, Any]:
    subject = event.subject
    about: dict[str, Any] = {"gpu_uuid": subject}
    if isinstance(subject, ProcessId):
        about = dict(zip(identity_keys(), (subject.pid, subject.start_time), strict=True))
    return {
        "time_unix_seconds": event.time,
        "kind": event.kind,
        **about,
        "sentence": event.sentence,
        "gpu_uuids": event.gpus,
    }
