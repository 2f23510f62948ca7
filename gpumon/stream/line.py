"""The types that a line is decoded to: they are made of the tables, and decoding checks all values.

Keys that are not known here are skipped, because newer versions of gpumon may add some.
"""

from __future__ import annotations

from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.json import Decoder
from msgspec.structs import fields

from gpumon.export.as_json import identity_keys, json_key, json_keys
from gpumon.model.processes import HolderScan, Workload
from gpumon.model.snapshot import GPU_METRIC, Host, OwnCost, Trouble
from gpumon.stream.sample import MOST, MOST_EVENTS, Heartbeat
from gpumon.stream.tables import (
    GPUS,
    IDENTITIES,
    LATEST,
    MIG,
    PROCESSES,
    RESERVED,
    STATES,
    SUSPECTS,
    USES,
    Table,
    bounds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIME = "_unix_seconds"
_MOST_PARTS = 2**16
"""Items of a list within a cell, such as the arguments of a command line."""


def _either(*types: Any) -> Any:
    return Union[types]  # noqa: UP007 - the types are known at run time only


def _json_type(field: str, type_: Any) -> Any:
    """The type in JSON of a field of the model."""
    if type_ in (int, float):
        # Impossible values of a GPU become unknown, as those of GPUs here.
        low, high = bounds(field)
        if field in GPU_METRIC and field != "index" and not json_key(field).endswith(_TIME):
            low, high = -MOST, MOST
        return Annotated[type_, Meta(ge=low, le=high)]
    if isinstance(type_, type) and issubclass(type_, Enum):
        # Newer versions may have more words.
        return str
    parts = tuple(one if one is ... else _json_type(field, one) for one in get_args(type_))
    if get_origin(type_) in (Union, UnionType):
        return _either(*parts)
    if get_origin(type_) is tuple:
        meta = Meta(max_length=_MOST_PARTS)
        return Annotated[tuple[parts], meta] if ... in parts else tuple[parts]  # type: ignore[valid-type]  # as in _either
    return type_


def _struct(name: str, keys: Mapping[str, Any]) -> Any:
    """A structure that may lack any of its keys."""
    parts = [(key, _either(type_, UnsetType), UNSET) for key, type_ in keys.items()]
    return defstruct(name, parts, gc=False)


def _object(struct: type[Struct], *without: str) -> Any:
    """The structure of an object of the model."""
    names = json_keys(struct)
    keys: dict[str, Any] = {}
    for one in fields(struct):
        if one.name in IDENTITIES:
            number = _json_type("pid", int)
            keys |= dict.fromkeys(identity_keys(IDENTITIES[one.name]), number)
        elif one.name not in without:
            keys[names[one.name]] = _json_type(one.name, one.type)
    return _struct(struct.__name__, keys)


_CELLS = {"unknown": dict[str, str], "place": _either(_object(Workload), None)}


def _table(table: Table) -> Any:
    """The structure of a table: its rows, and its columns, each whole or in part."""
    most = Meta(max_length=table.most)
    row = Annotated[int, Meta(ge=0, lt=table.most)]
    count = Annotated[int, Meta(ge=0, le=table.most)]
    keys: dict[str, Any] = {"rows": _either(count, Annotated[list[_either(row, None)], most])}  # type: ignore[misc]  # as in _either
    for column in table.columns:
        cell = _CELLS.get(column.field) or _json_type(column.field, column.type)
        whole, part = list[cell], dict[row, cell]  # type: ignore[valid-type]  # as in _either
        keys[column.key] = _either(Annotated[whole, most], Annotated[part, most])
    return _struct(table.key, keys)


_SNAPSHOT = _struct(
    "Snapshot",
    {
        "time_unix_seconds": _json_type("time", float),
        "processes_at_unix_seconds": _either(_json_type("processes_at", float), None),
        "source": str,
        "host": _object(Host),
        "trouble": _either(_object(Trouble), None),
        "cost": _either(_object(OwnCost), None),
        "holders": _either(_object(HolderScan, "suspects"), None),
        **{table.key: _table(table) for table in (GPUS, MIG, PROCESSES, USES, SUSPECTS, RESERVED)},
    },
)


_STATES = _table(STATES)


class EventLine(Struct, gc=False):
    """An event in a line."""

    time_unix_seconds: Annotated[float, Meta(ge=0, le=LATEST)]
    kind: str
    sentence: str
    gpu_uuids: tuple[str, ...] = ()
    gpu_uuid: str = ""
    pid: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    start_time_ticks: Annotated[int, Meta(ge=0, le=MOST)] | None = None


class Line(Struct, gc=False):
    """A whole line."""

    sequence: Annotated[int, Meta(ge=1, le=MOST)]
    written_unix_seconds: Annotated[float, Meta(ge=0, le=LATEST)]
    full: bool = False
    gpumon: str = ""
    interval_seconds: Annotated[float, Meta(gt=0, le=MOST)] = 1.0
    dropped: Annotated[int, Meta(ge=0, le=MOST)] = 0
    heartbeat: Heartbeat | None = None
    events: Annotated[tuple[EventLine, ...], Meta(max_length=MOST_EVENTS)] = ()
    snapshot: _SNAPSHOT | UnsetType = UNSET  # type: ignore[valid-type]  # as in _either
    states: _STATES | UnsetType = UNSET  # type: ignore[valid-type]  # as in _either


decode_line = Decoder(Line).decode
"""Decodes a line.

Raises:
    ValueError: It is not JSON, or not UTF-8, or a value has the wrong type or is out of bounds.
    RecursionError: It is nested too deeply.
"""
