"""Alerts of GPUs that a job has and does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.allocations import Allocation
from tests.alerts.machine import Machine, alert
from tests.build import NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

ANN = Allocation("slurm", "88123", "ann", ("GPU-0",), since=NOON - 60)
BUSY = snapshot(NOON, gpu(utilization_gpu=80), gpu(index=1), processes=(process(sm=80),))
IDLE = snapshot(NOON, gpu(utilization_gpu=0), gpu(index=1))


def at(seen: Snapshot, *allocations: Allocation) -> Snapshot:
    return replace(seen, allocations=allocations)


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
        assert "slurm 88123 of ann has it" in machine.notices[0].sentence
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
