"""A block gives back what was put into it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import (
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
)
from gpumon.model.snapshot import (
    Gpu,
    Host,
    Reserved,
    Snapshot,
)
from gpumon.model.time_shift import time_fields
from gpumon.recording.encoded import SnapshotEncoder
from gpumon.recording.memory.block import Block
from gpumon.stream import GpuState
from tests.build import NOON, gpu, process, snapshot


def opened(snapshots: list[Snapshot], shift: float = 0.0) -> list[Snapshot]:
    encoder = SnapshotEncoder()
    return Block([encoder.encode(snapshot) for snapshot in snapshots]).open(shift)


PLAIN: dict[object, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**64 - 1)),
    float: st.one_of(
        st.floats(allow_nan=False),
        st.integers(0, 10**9).map(lambda number: number / 1000),
        st.floats(NOON, NOON + 100),
    ),
    # Command lines hold bytes that are no UTF-8 as halves of surrogate pairs.
    str: st.text(st.characters(), max_size=5),
}


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type of the model."""
    kind, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if kind is tuple and inner[-1] is ...:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if kind is tuple:
        return st.tuples(*map(values, inner))
    if kind is Mapping:
        return st.dictionaries(*map(values, inner), max_size=2)
    if inner:
        return st.one_of(*map(values, inner))
    return st.sampled_from(hint) if issubclass(hint, Enum) else structs(hint)


hints_of = cache(get_type_hints)


@st.composite
def structs(draw: st.DrawFn, kind: type[Struct]) -> Any:
    """A struct in which a few of its fields are not as by default."""
    hints = hints_of(kind)
    needed = [field.name for field in fields(kind) if field.required]
    others = sorted(set(kind.__struct_fields__) - set(needed))
    chosen = draw(st.lists(st.sampled_from(others), max_size=8, unique=True)) if others else []
    return kind(**{name: draw(values(hints[name])) for name in (*needed, *chosen)})


SNAPSHOTS = st.builds(
    replace,
    structs(Snapshot),
    time=st.floats(NOON, NOON + 100),
    gpus=st.lists(structs(Gpu), min_size=1, max_size=3).map(tuple),
    processes=st.lists(structs(GpuProcess), max_size=2).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SNAPSHOTS, min_size=1, max_size=6))
def test_what_goes_into_a_block_comes_out_of_it(snapshots: list[Snapshot]) -> None:
    assert opened(snapshots) == snapshots


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1e300])
def test_a_value_that_is_out_of_bounds_comes_back(odd: float) -> None:
    given = [snapshot(NOON + n, gpu(power_draw=odd if n % 2 else 1.5)) for n in range(6)]

    assert [str(one.gpus[0].power_draw) for one in opened(given)] == ["1.5", str(odd)] * 3


@pytest.mark.slow
def test_a_fraction_where_the_model_has_none_comes_back() -> None:
    odd: Any = 1.5
    many = tuple(gpu(index=number) for number in range(2000))
    given = [
        snapshot(NOON, gpu(memory_used=odd), processes=(process(1, sm=odd),)),
        snapshot(NOON + 1, *many),
    ]

    assert opened(given) == given


def test_a_list_that_was_read_once_is_encoded_once() -> None:
    listed = (process(1), process(2))
    encoder = SnapshotEncoder()
    first, second = (
        encoder.encode(snapshot(NOON + n, processes=listed, processes_at=NOON)) for n in range(2)
    )
    third = encoder.encode(snapshot(NOON + 2, processes=(process(1),), processes_at=NOON + 2))

    assert second.processes is first.processes
    assert third.processes is not second.processes
    assert third.holders is first.holders
    shared = len(first.processes) + len(first.holders)
    assert second.bytes_after(first) == first.bytes_after(None) - shared


def test_equal_values_of_a_process_take_memory_once_afterwards() -> None:
    lists = [snapshot(NOON + n, processes=(process(1), process(2))) for n in range(3)]

    first, *others = opened(lists)
    assert len({id(one.processes) for one in (first, *others)}) == 3
    for other in others:
        for again, process_ in zip(other.processes, first.processes, strict=True):
            assert again.id is process_.id
            assert again.uses is process_.uses


def test_every_time_in_a_snapshot_moves_with_its_block() -> None:
    card = gpu(sampled_at=NOON, status_since=NOON - 1, xid=79, xid_at=NOON - 2)
    suspect = UnlistedHolder(ProcessId(8, 9), ("GPU-a",), HoldReason.ORPHAN, "why")
    reserved = Reserved("GPU-a", since=NOON - 8)
    allocation = Allocation("slurm", "7", since=NOON - 9, until=NOON + 9)
    nic = Nic("mlx5_0", NicKind.ROCE, errors_at=NOON - 10, link_lost_at=NOON - 11)
    accident = Accident(NOON - 12, AccidentKind.RESET)
    whole = replace(
        snapshot(NOON, card, processes=(process(1, started_at=NOON - 3),), processes_at=NOON - 4),
        host=Host("ada", driver_since=NOON - 5, nics=(nic,)),
        holders=HolderScan(NOON - 6, (replace(suspect, started_at=NOON - 7),)),
        reserved=(reserved,),
        allocations=(allocation,),
        accidents=(accident,),
    )
    bare = snapshot(NOON + 1, gpu(), processes_at=None)

    moved = opened([whole, bare], shift=-100.0)
    assert moved[0] == replace(
        whole,
        time=NOON - 100,
        gpus=(replace(card, sampled_at=NOON - 100, status_since=NOON - 101, xid_at=NOON - 102),),
        processes=(process(1, started_at=NOON - 103),),
        processes_at=NOON - 104,
        host=Host(
            "ada",
            driver_since=NOON - 105,
            nics=(replace(nic, errors_at=NOON - 110, link_lost_at=NOON - 111),),
        ),
        holders=HolderScan(NOON - 106, (replace(suspect, started_at=NOON - 107),)),
        reserved=(replace(reserved, since=NOON - 108),),
        allocations=(replace(allocation, since=NOON - 109, until=NOON - 91),),
        accidents=(replace(accident, time=NOON - 112),),
    )
    assert moved[1] == replace(bare, time=NOON - 99)


def test_every_field_that_is_named_as_a_time_is_declared_as_one() -> None:
    for kind in (
        *(Snapshot, Host, Nic, Gpu, GpuProcess, HolderScan, UnlistedHolder, Reserved, GpuState),
        Accident,
    ):
        named = tuple(
            field
            for field in kind.__struct_fields__
            if field in {"time", "at", "since"} or field.endswith(("_at", "_since"))
        )
        assert time_fields(kind) == named
