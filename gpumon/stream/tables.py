"""The tables that a line is made of: their columns, under the keys of the JSON export.

A table has a row for each GPU, process and so on. A row is a structure of the model;
``Table.cells`` takes it apart into values of one column each. Not every field is one column:

* a process, such as ``GpuProcess.id``, and a MIG instance have a column for each of their parts;
* rows below a row, such as ``GpuProcess.uses``, are a table of their own; here is their number;
* ``unknown`` and ``place`` are objects in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import NODEFAULT
from msgspec.structs import astuple, fields

from gpumon.export.as_json import (
    INSTANCE_KEYS,
    identity_keys,
    json_key,
    json_keys,
    unknown_json,
    workload_json,
)
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, UnlistedHolder, Workload
from gpumon.model.snapshot import GPU_METRIC, Gpu, MigInstance, Reserved
from gpumon.stream.sample import MOST, GpuState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from msgspec import Struct

LATEST = 2e11
"""The latest time, in seconds since the epoch: in the year 8307. Python's calendar ends in 9999."""

IDENTITIES = {"id": "", "parent": "parent", "launcher": "launcher"}
"""Fields that hold a ``ProcessId``, and whose PID their keys name."""
BELOW = {"mig": MigInstance, "uses": GpuUse}
"""Fields that hold rows of another table."""
_NOBODY = (None, None)


def bounds(field: str) -> tuple[float, float]:
    """The lowest and the highest number in a field of the model; anything else is damage."""
    if json_key(field).endswith("_unix_seconds"):
        return 0, LATEST
    low, high = GPU_METRIC[field].possible if field in GPU_METRIC else (0, MOST)
    return max(low, -MOST), min(high, MOST)


def checked(field: str, value: Any) -> Any:
    """The value of a field, ``None`` if it is a number that no reader accepts."""
    if type(value) not in (int, float):
        return value
    low, high = bounds(field)
    return value if low <= value <= high else None


class StreamColumn(NamedTuple):
    """A column of a table.

    Attributes:
        key: Its JSON key.
        field: The field of the model that it is, or a part of.
        part: Which part of the field; ``None`` if it is all of it.
        type: The type of its values in the model; ``int`` for a number of rows.
        told: Makes the JSON of a value that is not JSON yet; ``None`` if every value is.
        bounds: The lowest and the highest number; ``None`` if its values are no numbers.
    """

    key: str
    field: str
    part: int | None
    type: Any
    told: Callable[[Any], Any] | None = None
    bounds: tuple[float, float] | None = None

    def tell_all(self, values: Iterable[Any]) -> list[Any]:
        """The JSON of values of this column."""
        if self.told is not None:
            return [self.told(value) for value in values]
        if self.bounds is None:
            return list(values)
        low, high = self.bounds
        return [value if value is None or low <= value <= high else None for value in values]


class Table:
    """A table.

    Args:
        key: Its JSON key.
        row: The class of its rows.
        most: The highest number of rows.
        identity: What is the same in a row of the next sample that is about the same thing.
    """

    def __init__(
        self, key: str, row: type[Struct], most: int, identity: Callable[[Any], Hashable]
    ) -> None:
        self.key = key
        self.row = row
        self.most = most
        self.identity = identity
        self.columns: list[StreamColumn] = []
        self._apart: list[tuple[int, Callable[[Any], tuple[Any, ...]]]] = []
        without: list[Any] = []
        for place, one in enumerate(fields(row)):
            self._add(place, one.name, one.type)
            default = one.default if one.default_factory is NODEFAULT else one.default_factory()
            without.append(None if default is NODEFAULT else default)
        # From the right, so that a field taken apart does not move those that follow.
        self._apart.reverse()
        self.blank = self._split(without)
        """The cells of a row of which nothing was told yet."""

    def _add(self, place: int, field: str, type_: Any) -> None:
        if field in IDENTITIES or field == "instance":
            keys = INSTANCE_KEYS if field == "instance" else identity_keys(IDENTITIES[field])
            self._apart.append((place, _instance if field == "instance" else _identity))
            self.columns += [
                StreamColumn(key, field, part, int | None, bounds=bounds(field))
                for part, key in enumerate(keys)
            ]
        elif field in BELOW:
            self._apart.append((place, _count))
            self.columns.append(StreamColumn(field, field, None, int, bounds=bounds(field)))
        else:
            is_number = type_ in {int, float, int | None, float | None}
            limits = bounds(field) if is_number else None
            told = _OBJECTS.get(field)
            self.columns.append(
                StreamColumn(json_keys(self.row)[field], field, None, type_, told, limits)
            )

    def cells(self, row: Struct) -> list[Any]:
        """The values of a row, one for each column."""
        return self._split(list(astuple(row)))

    def _split(self, cells: list[Any]) -> list[Any]:
        for place, apart in self._apart:
            cells[place : place + 1] = apart(cells[place])
        return cells


def _identity(process: ProcessId | None) -> tuple[int | None, int | None]:
    return _NOBODY if process is None else (process.pid, process.start_time)


def _instance(parts: tuple[int, int] | None) -> tuple[int | None, int | None]:
    return parts or _NOBODY


def _count(rows: tuple[Struct, ...] | None) -> tuple[int]:
    return (len(rows or ()),)


def _place(place: Workload | None) -> dict[str, Any] | None:
    return None if place is None else _known(workload_json(place))


def _known(told: dict[str, Any]) -> dict[str, Any]:
    """What is known of an object."""
    parts = {
        key: _known(value) if isinstance(value, dict) else value for key, value in told.items()
    }
    return {key: value for key, value in parts.items() if value not in (None, {})}


_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "unknown": unknown_json,
    "place": _place,
    "severity": lambda severity: severity.name.lower(),
}


def _use_identity(use: GpuUse) -> Hashable:
    return use.gpu_uuid, use.instance


GPUS = Table("gpus", Gpu, 2**10, lambda gpu: gpu.uuid)
MIG = Table("mig", MigInstance, 2**13, lambda instance: instance.uuid)
PROCESSES = Table("processes", GpuProcess, 2**14, lambda process: process.id)
USES = Table("uses", GpuUse, 2**16, _use_identity)
SUSPECTS = Table("suspects", UnlistedHolder, 2**14, lambda suspect: suspect.id)
RESERVED = Table("reserved", Reserved, 2**13, lambda one: (one.gpu_uuid, one.mig_uuid))
STATES = Table("states", GpuState, 2**10, lambda state: state.gpu_uuid)
