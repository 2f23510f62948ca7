"""Alerts of GPUs that a job has and does not use."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.alerts.notice import Notice
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import Snapshot
from tests.alerts.machine import Machine, alert, hot
from tests.build import NOON, gpu, process, snapshot

ANN = Allocation("slurm", "88123", "ann", ("GPU-0",), since=NOON - 60)
NEW = replace(ANN, since=NOON + 60)
"""One that begins while gpumon watches."""
BUSY = snapshot(NOON, gpu(utilization_gpu=80), gpu(index=1), processes=(process(sm=80),))
IDLE = snapshot(NOON, gpu(utilization_gpu=0), gpu(index=1))


def at(seen: Snapshot, *allocations: Allocation) -> Snapshot:
    return replace(seen, allocations=allocations)


def notices(when: str, *course: tuple[float, Snapshot]) -> list[Notice]:
    """The notices of an alert where these are seen one after the other, each for so long."""
    machine = Machine(alert(when))
    return [notice for time, seen in course for notice in machine.show(time, seen, 5.0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "idle", "users"),
    [
        ("allocated and idle>1h", 3500, []),
        ("allocated and idle>1h", 7100, ["ann"]),
        ("allocated idle>1h user:ann", 3500, []),
        ("allocated idle>1h user:ann", 7100, ["ann"]),
        ("allocated idle>1h user:bo", 7100, []),
        ("allocated and idle>3h", 7100, []),
    ],
)
def test_a_job_without_use_of_its_gpu_is_reported(when: str, idle: float, users: list[str]) -> None:
    found = notices(when, (60, at(BUSY, ANN)), (idle, at(IDLE, ANN)))
    assert [notice.user for notice in found] == users
    assert all("slurm 88123 of ann has had it" in notice.sentence for notice in found)


def test_a_free_gpu_that_is_idle_is_no_job_without_use() -> None:
    assert notices("allocated and idle>1h", (60, at(BUSY)), (7200, at(IDLE))) == []


def test_of_a_gpu_that_was_idle_before_it_is_not_known_for_how_long() -> None:
    assert notices("allocated and idle<1h", (600, at(IDLE, ANN))) == []


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
    assert len(notices(when, (60, at(before)), (seconds, at(IDLE, NEW)))) == expected


def test_without_a_utilization_it_is_not_known_whether_a_gpu_is_idle() -> None:
    unknown = at(snapshot(NOON, gpu(utilization_gpu=None)), NEW)
    assert notices("allocated and idle<1h", (60, at(BUSY)), (60, unknown)) == []


@pytest.mark.parametrize(
    ("allocation", "user"),
    [
        (replace(NEW, user="a\x1b[31mb"), "a�[31mb"),
        (replace(NEW, user=None), None),
        (Allocation("slurm", "5", "bo", unplaced=1), None),
    ],
)
def test_a_known_owner_is_named_safely(allocation: Allocation, user: str | None) -> None:
    (notice,) = notices("allocated gpu:0", (60, at(IDLE)), (60, at(IDLE, allocation)))
    assert notice.user == user


def test_each_gpu_has_the_users_of_its_own_jobs() -> None:
    both = at(IDLE, replace(NEW, user="bo"), replace(NEW, devices=("GPU-1",)))
    (notice,) = notices("allocated user:ann", (60, at(IDLE)), (60, both))
    assert notice.gpu_uuid == "GPU-1"


def test_another_fault_of_a_gpu_is_not_that_of_its_jobs_owner() -> None:
    became_hot = (60, at(replace(BUSY, gpus=(hot(),)), ANN))
    (notice,) = notices("hot", (60, at(BUSY, ANN)), became_hot)
    assert notice.user is None
