"""Snapshots of any content, as hypothesis draws them."""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from gpumon.model.number_types import TIMES
from gpumon.model.processes import GpuProcess, HolderScan, UnlistedHolder
from gpumon.model.snapshot import Gpu, Host, OwnCost, Reserved, Snapshot, Trouble, Unknown

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any text; half of a surrogate pair does not survive a stream."""


def _values(field: str, type_: Any) -> st.SearchStrategy[Any]:
    """Any value of a field of the model."""
    if field == "unknown":
        names = [*Gpu.__struct_fields__, "processes"]
        return st.dictionaries(st.sampled_from(names), st.sampled_from(Unknown), max_size=4)
    if get_origin(type_) is Annotated:
        kind, meta = get_args(type_)
        if kind is int:
            return st.integers(meta.ge, meta.le)
        return st.floats(meta.ge, meta.le) if kind is float else _values(field, kind)
    if type_ is str:
        return texts
    if type_ is bool:
        return st.booleans()
    if isinstance(type_, type) and issubclass(type_, Enum):
        return st.sampled_from(type_)
    if isinstance(type_, type) and issubclass(type_, Struct):
        return structs(type_)
    parts = get_args(type_)
    if get_origin(type_) in (Union, UnionType):
        known = [_values(field, part) for part in parts if part is not type(None)]
        return st.one_of(st.none(), *known)
    if parts[-1] is ...:
        return st.lists(_values(field, parts[0]), max_size=3).map(tuple)
    return st.tuples(*(_values(field, part) for part in parts))


@cache
def structs(struct: Any) -> st.SearchStrategy[Any]:
    """Any structure of a class; some of its fields keep their defaults."""
    needed = {one.name: _values(one.name, one.type) for one in fields(struct) if one.required}
    others = {one.name: _values(one.name, one.type) for one in fields(struct) if not one.required}
    return st.fixed_dictionaries(needed, optional=others).map(lambda told: struct(**told))


def _moved(rows: list[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Some of the rows, in any order."""
    return st.lists(st.sampled_from(rows), max_size=4, unique_by=id).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots that follow each other: rows come, go, move and change."""
    gpus = draw(st.lists(structs(Gpu), min_size=1, max_size=3))
    processes = draw(st.lists(structs(GpuProcess), min_size=1, max_size=4))
    suspects = draw(st.lists(structs(UnlistedHolder), min_size=1, max_size=2))
    taken: list[Snapshot] = []
    for _ in range(draw(st.integers(1, 4))):
        for row, rows in ((Gpu, gpus), (GpuProcess, processes), (UnlistedHolder, suspects)):
            at = draw(st.integers(0, len(rows) - 1))
            other = draw(structs(row))
            field = draw(st.sampled_from(rows[at].__struct_fields__))
            rows[at] = replace(rows[at], **{field: getattr(other, field)})
        holders = draw(st.none() | structs(HolderScan))
        if holders is not None:
            holders = replace(holders, suspects=draw(_moved(suspects)))
        taken.append(
            Snapshot(
                time=draw(st.floats(*TIMES)),
                host=draw(structs(Host)),
                gpus=draw(_moved(gpus)),
                processes=draw(_moved(processes)),
                processes_at=draw(st.none() | st.floats(*TIMES)),
                source=draw(texts),
                trouble=draw(st.none() | structs(Trouble)),
                cost=draw(st.none() | structs(OwnCost)),
                holders=holders,
                reserved=tuple(draw(st.lists(structs(Reserved), max_size=2))),
            )
        )
    return taken
