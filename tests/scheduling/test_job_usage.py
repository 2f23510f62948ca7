"""What a job had of its cards, and what of that nobody knows."""

from __future__ import annotations

import time

import pytest

from gpumon.model.processes import GpuProcess
from gpumon.model.snapshot import GpuStatus, Snapshot, Unknown
from gpumon.scheduling.eligibility import Candidate
from gpumon.scheduling.job_usage import JobUsage, full_sentence, gpu_summary, unused_warning
from tests.build import GIB, gpu, process, snapshot

JOB, OTHER = 100, 200


def begin(**card: object) -> tuple[JobUsage, float]:
    """A job that begins now, and when that is."""
    before = snapshot(time.time(), gpu(**card))
    tally = JobUsage([Candidate(before.gpus[0])], _of_job, before)
    return tally, before.time


def _of_job(processes: object) -> tuple[GpuProcess, ...]:
    assert isinstance(processes, tuple)
    return tuple(one for one in processes if one.id.pid == JOB)


def look(at: float, *processes: GpuProcess, **card: object) -> Snapshot:
    return snapshot(at, gpu(**card), processes=processes)


def test_a_sample_counts_until_the_next_one() -> None:
    tally, now = begin(energy=1000.0)
    for second, (memory, sm) in enumerate([(2, 10), (6, 90)], 1):
        job = process(JOB, memory_used=memory * GIB, sm=sm)
        tally.add(look(now + second, job, process(OTHER, memory_used=GIB), energy=1000.0))
    tally.add(look(now + 4, energy=3_601_000.0), over=True)
    (card,) = tally.gpus
    # 2 GiB for a second, 6 GiB for two.
    assert card.memory.mean == (2 * 1 + 6 * 2) / 3 * GIB
    assert card.memory.peak == 6 * GIB
    assert card.sm.mean == (10 * 1 + 90 * 2) / 3
    assert gpu_summary(card) == (
        "GPU 0: memory peak 6.0 GiB, mean 4.7 GiB of 80.0 GiB · SM mean 63 % · "
        "not throttled · 1.000 kWh"
    )


@pytest.mark.parametrize(
    ("joules", "told"), [(1.8, "0.00 Wh"), (20_880.0, "5.80 Wh"), (1.8e5, "50.0 Wh")]
)
def test_the_energy_of_a_short_job_is_in_watt_hours(joules: float, told: str) -> None:
    tally, now = begin(energy=1000.0)
    tally.add(look(now + 1, process(JOB), energy=1000.0))
    tally.add(look(now + 2, energy=1000.0 + joules), over=True)
    (card,) = tally.gpus
    assert gpu_summary(card).endswith(f" · {told}")


def test_values_that_were_never_observed_are_unknown_and_not_zero() -> None:
    tally, now = begin(energy=None, power_draw=None)
    listed_before = snapshot(now + 1, gpu(power_draw=None), processes_at=now - 0.5)
    tally.add(listed_before)
    tally.add(look(now + 2, power_draw=None), over=True)
    (card,) = tally.gpus
    assert card.memory.peak is None
    assert gpu_summary(card) == (
        "GPU 0: memory unknown · SM mean unknown · not throttled · energy unknown"
    )


def test_an_invisible_process_may_belong_to_the_job() -> None:
    tally, now = begin()
    tally.add(look(now + 1, process(OTHER, visible=False)))
    tally.add(look(now + 2), over=True)
    assert tally.gpus[0].memory.peak is None


def test_a_job_that_is_on_no_list_never_used_its_card() -> None:
    tally, now = begin(memory_used=GIB)
    tally.add(look(now + 1, memory_used=GIB))
    tally.add(look(now + 2, memory_used=GIB), over=True)
    (card,) = tally.gpus
    assert gpu_summary(card).startswith("GPU 0: not used by the job · ")
    assert unused_warning(tally.gpus) == (
        "warning: the job never used GPU 0, as far as a sample every second shows; "
        "it may have run on the CPU"
    )


def test_unused_gpus_are_named() -> None:
    cards = gpu(), gpu(index=1)
    before = snapshot(time.time(), *cards)
    tally = JobUsage([Candidate(card) for card in cards], _of_job, before)
    tally.add(snapshot(before.time + 1, *cards, processes=(process(JOB),)))
    assert unused_warning(tally.gpus) == (
        "warning: the job never used GPU 1, as far as a sample every second shows"
    )


@pytest.mark.parametrize(
    ("processes", "card"),
    [
        # A container's process is no child of the client that started it.
        ((process(OTHER),), {}),
        ((process(OTHER, visible=False),), {}),
        # Where the driver does not list a process its memory still shows.
        ((), {"memory_used": 4 * GIB}),
        # What is repeated while a call hangs tells nothing of now.
        ((), {"status": GpuStatus.NO_ANSWER}),
        ((), {"unknown": {"processes": Unknown.NO_ANSWER}}),
    ],
)
def test_an_unobserved_job_is_not_reported_as_unused(
    processes: tuple[GpuProcess, ...], card: dict[str, object]
) -> None:
    tally, now = begin(memory_used=GIB)
    tally.add(look(now + 1, *processes, **{"memory_used": GIB, **card}))
    assert "memory unknown" in gpu_summary(tally.gpus[0])
    tally.add(look(now + 2, memory_used=GIB))
    tally.add(look(now + 3, memory_used=GIB), over=True)
    assert "memory unknown · SM mean unknown" in gpu_summary(tally.gpus[0])
    assert unused_warning(tally.gpus) == (
        "warning: the job was not seen on GPU 0: whether it used that GPU is unknown"
    )


MINE = process(JOB, memory_used=40 * GIB)
HIS = process(OTHER, memory_used=38 * GIB, user="bo")


def test_of_equally_full_moments_the_newest_tells_who_held_the_gpu() -> None:
    """The first list with a process may be newer than the memory that it took."""
    tally, now = begin()
    tally.add(look(now + 1, MINE, memory_free=GIB // 2))
    tally.add(look(now + 2, MINE, HIS, memory_free=GIB // 2))
    assert "38.0 GiB by bo's" in (full_sentence(tally.gpus[0]) or "")


FULL = (
    "GPU 0 had 0.5 of 80.0 GiB free when it ended; 40.0 GiB held by the job itself, "
    "38.0 GiB by bo's a process (200)."
)


@pytest.mark.parametrize(("free", "told"), [(GIB // 2, FULL), (2 * GIB, None), (None, None)])
def test_only_a_full_gpu_is_reported(free: int | None, told: str | None) -> None:
    tally, now = begin()
    tally.add(look(now + 1, MINE, HIS, memory_free=free))
    assert full_sentence(tally.gpus[0]) == told
