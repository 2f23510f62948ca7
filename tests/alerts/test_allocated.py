"""Alerts of GPUs that a job has and does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.allocations import Allocation
from tests.alerts.machine import Machine, alert, hot
from tests.build import NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

ANN = Allocation("slurm", "88123", "ann", ("GPU-0",), since=NOON - 60)
NEW = replace(ANN, since=NOON + 60)
"""One that begins while gpumon watches."""
BUSY = snapshot(NOON, gpu(utilization_gpu=80), gpu(index=1), processes=(process(sm=80),))
IDLE = snapshot(NOON, gpu(utilization_gpu=0), gpu(index=1))


def at(seen: Snapshot, *allocations: Allocation) -> Snapshot:
    return replace(seen, allocations=allocations)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("allocated and idle>1h", 1),
        ("allocated idle>1h user:ann", 1),
        ("allocated idle>1h user:bo", 0),
        ("allocated and idle>3h", 0),
    ],
)
def test_a_job_that_does_not_use_its_gpu_is_reported_once(when: str, expected: int) -> None:
    machine = Machine(alert(when))
    assert machine.show(60, at(BUSY, ANN), 5.0) == []
    assert machine.show(3500, at(IDLE, ANN), 5.0) == []
    machine.show(3600, at(IDLE, ANN), 5.0)
    assert len(machine.notices) == expected
    if expected:
        assert "slurm 88123 of ann has had it" in machine.notices[0].sentence
        assert machine.notices[0].user == "ann"


def test_a_free_gpu_that_is_idle_is_no_job_without_use() -> None:
    machine = Machine(alert("allocated and idle>1h"))
    machine.show(60, at(BUSY), 5.0)
    machine.show(7200, at(IDLE), 5.0)
    assert machine.notices == []


def test_of_a_gpu_that_was_idle_before_it_is_not_known_for_how_long() -> None:
    machine = Machine(alert("allocated and idle<1h"))
    machine.show(600, at(IDLE, ANN), 5.0)
    assert machine.notices == []


@pytest.mark.parametrize(
    ("before", "when", "seconds", "expected"),
    [
        (BUSY, "allocated and idle<1h", 600, 1),
        (IDLE, "allocated and idle<1h", 600, 0),
        (IDLE, "allocated and !idle>1h", 600, 0),
        (IDLE, "allocated and idle>1h", 3600, 1),
    ],
)
def test_a_gpu_that_was_idle_from_the_start_on_is_idle_for_at_least_so_long(
    before: Snapshot, when: str, seconds: int, expected: int
) -> None:
    machine = Machine(alert(when))
    machine.show(60, at(before), 5.0)
    machine.show(seconds, at(IDLE, NEW), 5.0)
    assert len(machine.notices) == expected


def test_without_a_utilization_it_is_not_known_whether_a_gpu_is_idle() -> None:
    machine = Machine(alert("allocated and idle<1h"))
    machine.show(60, at(BUSY), 5.0)
    machine.show(60, at(snapshot(NOON, gpu(utilization_gpu=None)), NEW), 5.0)
    assert machine.notices == []


@pytest.mark.parametrize(
    ("allocation", "user"),
    [
        (replace(NEW, user="a\x1b[31mb"), "a�[31mb"),
        (replace(NEW, user=None), None),
        (Allocation("slurm", "5", "bo", unplaced=1), None),
    ],
)
def test_the_owner_is_named_where_it_is_known_and_safe_to_print(
    allocation: Allocation, user: str | None
) -> None:
    machine = Machine(alert("allocated gpu:0"))
    machine.show(60, at(IDLE), 5.0)
    machine.show(60, at(IDLE, allocation), 5.0)
    assert [notice.user for notice in machine.notices] == [user]


def test_each_gpu_has_the_users_of_its_own_jobs() -> None:
    machine = Machine(alert("allocated user:ann"))
    machine.show(60, at(IDLE), 5.0)
    machine.show(60, at(IDLE, replace(NEW, user="bo"), replace(NEW, devices=("GPU-1",))), 5.0)
    assert [notice.gpu_uuid for notice in machine.notices] == ["GPU-1"]


def test_another_fault_of_a_gpu_is_not_that_of_its_jobs_owner() -> None:
    machine = Machine(alert("hot"))
    machine.show(60, at(BUSY, ANN), 5.0)
    machine.show(60, at(replace(BUSY, gpus=(hot(),)), ANN), 5.0)
    assert [notice.user for notice in machine.notices] == [None]
