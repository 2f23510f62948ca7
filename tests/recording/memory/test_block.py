"""A block gives back what was put into it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import (
    Container,
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import (
    Gpu,
    GpuStatus,
    Host,
    MigInstance,
    OwnCost,
    Reserved,
    Snapshot,
    Trouble,
    Unknown,
)
from gpumon.model.time_shift import time_fields
from gpumon.recording.encoded import SnapshotEncoder
from gpumon.recording.memory.block import Block
from gpumon.stream import GpuState
from tests.build import NOON, gpu, process, snapshot


def opened(snapshots: list[Snapshot], shift: float = 0.0) -> list[Snapshot]:
    encoder = SnapshotEncoder()
    return Block([encoder.encode(snapshot) for snapshot in snapshots]).open(shift)


# Command lines hold bytes that are no UTF-8 as halves of surrogate pairs.
TEXTS = st.text(st.characters(), max_size=5)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
WHOLE = st.one_of(st.none(), st.integers(0, 200), NUMBERS)
FRACTIONS = st.one_of(
    st.none(),
    st.floats(allow_nan=False),
    st.integers(0, 10**9).map(lambda number: number / 1000),
    st.floats(NOON, NOON + 100),
)
IDS = st.builds(ProcessId, st.integers(1, 5), WHOLE)
GPUS = st.builds(
    Gpu,
    index=st.integers(0, 3),
    uuid=st.sampled_from(["GPU-a", "GPU-b"]),
    status=st.sampled_from(GpuStatus),
    sampled_at=FRACTIONS,
    unknown=st.dictionaries(st.sampled_from(["xid", "energy"]), st.sampled_from(Unknown)),
    mig=st.lists(st.builds(MigInstance, TEXTS, NUMBERS, memory_used=WHOLE), max_size=2).map(tuple),
    name=st.one_of(st.none(), TEXTS),
    memory_used=WHOLE,
    power_draw=FRACTIONS,
    fan_speeds=st.one_of(st.none(), st.lists(st.integers(0, 100), max_size=3).map(tuple)),
    ecc_mode=st.one_of(st.none(), st.booleans()),
)
PROCESSES = st.builds(
    GpuProcess,
    id=IDS,
    type=st.sampled_from(["C", "G"]),
    uses=st.lists(
        st.builds(GpuUse, TEXTS, st.integers(0, 3), st.sampled_from([None, (1, 0)]), WHOLE),
        max_size=3,
    ).map(tuple),
    command=st.lists(TEXTS, max_size=3).map(tuple),
    cpu_percent=FRACTIONS,
    place=st.one_of(st.none(), st.builds(Workload, st.builds(Container, TEXTS), launcher=IDS)),
)
SCANS = st.builds(
    HolderScan,
    st.floats(NOON, NOON + 100),
    st.lists(
        st.builds(UnlistedHolder, IDS, st.just(("GPU-a",)), st.sampled_from(HoldReason), TEXTS),
        max_size=2,
    ).map(tuple),
)
SNAPSHOTS = st.builds(
    Snapshot,
    time=st.floats(NOON, NOON + 100),
    host=st.builds(Host, TEXTS, cpu_percent=FRACTIONS),
    gpus=st.lists(GPUS, max_size=3).map(tuple),
    processes=st.lists(PROCESSES, max_size=3).map(tuple),
    processes_at=FRACTIONS,
    source=TEXTS,
    trouble=st.one_of(st.none(), st.builds(Trouble, TEXTS, TEXTS)),
    cost=st.one_of(st.none(), st.builds(OwnCost, FRACTIONS)),
    holders=st.one_of(st.none(), SCANS),
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
