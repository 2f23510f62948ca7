"""The rule for a free GPU at each of its edges: what makes a GPU not free, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.availability import (
    Insider,
    Listed,
    NotFree,
    allocated_to_others,
    busy_sentence,
    is_busy_unlisted,
    is_full,
    listed_on,
    why_not_free,
)
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, GpuUse
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, Unknown
from tests.build import GIB, NOON, gpu, process

MIB = 2**20
NOT_EXPORTED: dict[str, Any] = {"unknown": {"processes": Unknown.NOT_EXPORTED}}
SLICE = MigInstance("MIG-1", 0, gpu_instance=7, compute_instance=0, memory_used=0)
SMALL, BIG = {"memory_total": 16 * GIB}, {"memory_total": 100 * GIB}
KNOWN = {"memory_reserved": GIB // 2}


def reasons(card: Gpu, listed: Listed | None, **given: Any) -> list[tuple[str, bool]]:
    return [(reason.kind, reason.is_unknown) for reason in why_not_free(card, listed, **given)]


@pytest.mark.parametrize(
    ("card", "listed", "given"),
    [
        (gpu(), Listed(), {}),
        (gpu(compute_mode="Exclusive_Process", recovery_action="None"), Listed(), {}),
        (gpu(memory_used=768 * MIB, **SMALL), Listed(), {}),
        (gpu(memory_used=GIB, **BIG), Listed(), {}),
        (gpu(memory_used=256 * MIB, **KNOWN), Listed(), {}),
        (gpu(memory_used=768 * MIB, display_active=True, **SMALL, **KNOWN), Listed(), {}),
        (gpu(memory_used=3 * GIB), Listed(memory=GIB), {"mine": Listed(1, 1, 2 * GIB)}),
        (gpu(memory_used=9 * GIB, utilization_gpu=9), Listed(), {"mine": Listed(1, 1, 9 * GIB)}),
        (gpu(memory_used=768 * MIB, **SMALL), Listed(1, 0, 768 * MIB), {}),
        (gpu(display_active=True, utilization_gpu=9), Listed(2, 0, 9 * GIB), {}),
        (gpu(memory_used=None, memory_unified=True), Listed(1, 0, GIB // 2), {}),
        (gpu(utilization_gpu=None, mig_mode=True), Listed(), {}),
        (gpu(utilization_gpu=None, mig=(SLICE,)), Listed(), {}),
        (
            gpu(utilization_gpu=None, unknown={"utilization_gpu": Unknown.NOT_SUPPORTED}),
            Listed(),
            {},
        ),
        (gpu(memory_used=9 * GIB, utilization_gpu=9), Listed(), {"mig": SLICE}),
        (gpu(memory_used=768 * MIB, **SMALL, **NOT_EXPORTED), None, {}),
        (gpu(memory_used=9 * GIB, utilization_gpu=9, **NOT_EXPORTED), None, {"mig": SLICE}),
    ],
    ids=[
        *("nothing", "exclusive", "the driver's share", "a hundredth", "the driver's own"),
        *("a display's memory", "own memory", "own work", "a small renderer", "a desktop"),
        *("host memory", "MIG mode", "MIG devices", "never a utilisation", "a MIG device"),
        *("metrics", "a MIG device by metrics"),
    ],
)
def test_what_leaves_a_gpu_free(card: Gpu, listed: Listed | None, given: dict[str, Any]) -> None:
    assert reasons(card, listed, **given) == []


@pytest.mark.parametrize(
    ("card", "listed", "given", "kind", "is_unknown"),
    [
        (gpu(status=GpuStatus.FAILING), Listed(), {}, "status", False),
        (gpu(), Listed(), {"old": True}, "old", True),
        (gpu(), Listed(), {"reserved": True}, "reserved", False),
        (gpu(remapped_rows_failure=True), Listed(), {}, "health", False),
        (gpu(remapped_rows_pending=True), Listed(), {}, "health", False),
        (gpu(retired_pages_pending=True), Listed(), {}, "health", False),
        (gpu(ecc_uncorrected_volatile=1), Listed(), {}, "health", False),
        (gpu(recovery_action="Reset"), Listed(), {}, "health", False),
        (gpu(compute_mode="Prohibited"), Listed(), {}, "mode", False),
        (gpu(), None, {}, "processes", True),
        (gpu(), Listed(1, 1, 0), {}, "processes", False),
        (gpu(memory_used=None), Listed(), {}, "memory", True),
        (gpu(memory_used=768 * MIB + 1, **SMALL), Listed(), {}, "memory", False),
        (gpu(memory_used=GIB + 1, **BIG), Listed(), {}, "memory", False),
        (gpu(memory_used=256 * MIB + 1, **KNOWN), Listed(), {}, "memory", False),
        (gpu(memory_used=GIB), Listed(1, 0, None), {}, "memory", True),
        (gpu(memory_used=GIB), Listed(), {"mine": Listed(1, 1, None)}, "memory", True),
        (gpu(memory_used=GIB, **SMALL), Listed(1, 0, 768 * MIB + 1), {}, "processes", False),
        (gpu(memory_unified=True), Listed(1, 0, None), {}, "processes", True),
        (gpu(utilization_gpu=None), Listed(), {}, "busy", True),
        (gpu(utilization_gpu=1), Listed(), {}, "busy", False),
        (gpu(memory_used=None, **NOT_EXPORTED), None, {}, "memory", True),
        (gpu(memory_used=768 * MIB + 1, **SMALL, **NOT_EXPORTED), None, {}, "memory", False),
        (gpu(utilization_gpu=None, **NOT_EXPORTED), None, {}, "busy", True),
        (gpu(utilization_gpu=1, **NOT_EXPORTED), None, {}, "busy", False),
    ],
    ids=[
        *("status", "old values", "reserved", "row not replaced", "row pending", "page pending"),
        *("ECC error", "recovery action", "prohibited", "no list", "a computing process"),
        *("memory unknown", "unlisted memory", "more than a hundredth", "without the driver's"),
        *("a renderer's size unknown", "own size unknown", "a large renderer", "host memory"),
        *("utilisation unknown", "work of nobody", "metrics: memory unknown", "metrics: memory"),
        *("metrics: utilisation unknown", "metrics: work"),
    ],
)
def test_what_does_not_leave_a_gpu_free(
    card: Gpu, listed: Listed | None, given: dict[str, Any], kind: str, *, is_unknown: bool
) -> None:
    assert reasons(card, listed, **given) == [(kind, is_unknown)]


def test_that_a_job_may_have_it_comes_last_and_that_it_has_it_early() -> None:
    card, busy = gpu(compute_mode="Prohibited"), Listed(1, 1, 0)
    for is_unknown, order in (
        (False, ["mode", "allocated", "reserved", "processes"]),
        (True, ["mode", "reserved", "processes", "allocated"]),
    ):
        allocated = NotFree("allocated", "slurm has it", is_unknown)
        found = reasons(card, busy, allocated=allocated, reserved=True)
        assert [kind for kind, _ in found] == order


def used(*uses: GpuUse, type_: str = "C") -> GpuProcess:
    return replace(process(type_=type_), uses=uses)


HERE, ELSEWHERE = GpuUse("GPU-0", 0, memory_used=GIB), GpuUse("GPU-1", 1, memory_used=GIB)
IN_SLICE = GpuUse("GPU-0", 0, (7, 0), memory_used=2 * GIB)
NO_SIZE = GpuUse("GPU-0", 0, memory_used=None)


@pytest.mark.parametrize(
    ("processes", "mig", "expected"),
    [
        ([], None, Listed(0, 0, 0)),
        ([used(ELSEWHERE)], None, Listed(0, 0, 0)),
        ([used(HERE, ELSEWHERE), used(HERE, type_="G")], None, Listed(2, 1, 2 * GIB)),
        ([used(HERE), used(IN_SLICE, type_="C+G")], None, Listed(2, 2, 3 * GIB)),
        ([used(HERE), used(IN_SLICE)], SLICE, Listed(1, 1, 2 * GIB)),
        ([used(NO_SIZE), used(HERE)], None, Listed(2, 2, None)),
        ([used(ELSEWHERE, type_="G")], None, Listed(0, 0, 0)),
    ],
    ids=["none", "elsewhere", "both", "of a slice", "on a slice", "size unknown", "drawing"],
)
def test_the_list_of_a_gpu_counts_what_is_on_it(
    processes: list[GpuProcess], mig: MigInstance | None, expected: Listed
) -> None:
    assert listed_on(processes, gpu(), mig) == expected


JOB = Allocation("slurm", "5", "ann", ("GPU-0",))


@pytest.mark.parametrize(
    ("allocation", "asker", "own"),
    [
        (JOB, Insider(), False),
        (JOB, Insider("ann"), True),
        (JOB, Insider("bo"), False),
        (Allocation("slurm", "5", None, ("GPU-0",)), Insider(), False),
        (JOB, Insider("bo", frozenset({("slurm", "5")})), True),
        (JOB, Insider("ann", frozenset({("slurm", "6")})), False),
        (JOB, Insider("ann", frozenset({("lsf", "5")})), False),
        (
            Allocation("slurm", "5+1", "ann", ("GPU-0",)),
            Insider(None, frozenset({("slurm", "5")})),
            True,
        ),
        (
            Allocation("slurm", "4_1", "ann", ("GPU-0",), number="9"),
            Insider(None, frozenset({("slurm", "9")})),
            True,
        ),
        (
            Allocation("slurm", None, "ann", ("GPU-0",)),
            Insider(None, frozenset({("slurm", "5")})),
            False,
        ),
    ],
)
def test_whose_an_allocation_is(allocation: Allocation, asker: Insider, *, own: bool) -> None:
    assert asker.has(allocation) is own
    assert (allocated_to_others([allocation], gpu(), NOON, asker=asker) is None) is own


@pytest.mark.parametrize(
    ("since", "until", "is_share", "sentence"),
    [
        (None, None, False, "slurm 5 of ann has it"),
        (None, None, True, "slurm 5 of ann has a part of it"),
        (NOON - 3600, None, False, "slurm 5 of ann has had it for 1h00m"),
        (None, NOON + 3600, False, "slurm 5 of ann has it, 1h00m left at most"),
        (None, NOON, False, "slurm 5 of ann has it, past its time limit"),
    ],
)
def test_what_is_said_of_an_allocation(
    since: float | None, until: float | None, sentence: str, *, is_share: bool
) -> None:
    job = Allocation("slurm", "5", "ann", ("GPU-0",), since=since, until=until, is_share=is_share)
    assert allocated_to_others([job], gpu(), NOON) == NotFree("allocated", sentence)


@pytest.mark.parametrize(
    ("card", "listed", "expected"),
    [
        (gpu(utilization_gpu=1), Listed(), True),
        (gpu(utilization_gpu=0), Listed(), False),
        (gpu(utilization_gpu=1), Listed(1, 0, 0), False),
        (gpu(utilization_gpu=1, display_active=True), Listed(), False),
        (gpu(utilization_gpu=None), Listed(), None),
        (gpu(utilization_gpu=1), None, None),
    ],
)
def test_work_of_nobody_needs_work_and_an_empty_list(
    card: Gpu, listed: Listed | None, expected: bool | None
) -> None:
    assert is_busy_unlisted(card, listed) is expected


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (4.9, 100, True),
        (5, 100, False),
        (0, 100, True),
        (None, 100, None),
        (5, None, None),
        (5, 0, None),
    ],
)
def test_a_gpu_is_full_below_its_share(
    free: float | None, total: float | None, expected: bool | None
) -> None:
    assert is_full(free, total, 0.05) is expected


def test_who_is_not_seen_depends_on_the_container() -> None:
    assert busy_sentence(7, in_container=False) == "7 % busy, by nobody that the driver lists"
    assert busy_sentence(7, in_container=True) == "7 % busy, by nobody visible from this container"
