"""What ``select`` does with GPUs that a scheduler gave to jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpumon.model.allocations import Allocation
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.eligibility import Eligibility
from gpumon.scheduling.requirements import Requirements
from gpumon.system.system import user_name
from gpumon.text.formatting import printable
from tests.build import NOON, gpu, process, snapshot
from tests.known import known

GPUS = tuple(gpu(index=index) for index in range(4))
ANN = Allocation("slurm", "88123", "ann", ("GPU-1",), since=NOON - 3600, until=NOON + 7200)


INSIDE = {"SLURM_JOB_ID": "88123"}


def verdicts(
    *allocations: Allocation,
    environment: Mapping[str, str] | None = None,
    requirements: Requirements | None = None,
) -> tuple[Eligibility, ...]:
    seen = replace(snapshot(NOON, *GPUS), allocations=allocations)
    return Chooser(requirements or Requirements(), environment or {}).judge(seen)


def fitting(found: tuple[Eligibility, ...]) -> list[int]:
    return [verdict.candidate.gpu.index for verdict in found if verdict.fits]


def refused(verdict: Eligibility) -> str:
    """Why a GPU does not fit."""
    return known(verdict.refusal).sentence


def test_a_gpu_of_somebody_elses_job_is_refused_with_its_end() -> None:
    found = verdicts(ANN)
    assert fitting(found) == [0, 2, 3]
    refusal = known(found[1].refusal)
    assert refusal.kind == "allocated"
    assert refusal.sentence == "slurm 88123 of ann has had it for 1h00m, 2h00m left at most"
    assert refusal.passing


def test_ones_own_gpu_is_not_refused() -> None:
    mine = replace(ANN, user=user_name(os.geteuid()))
    assert fitting(verdicts(mine)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("job", "environment"),
    [
        ("88123", {}),
        ("88100_3", {"SLURM_ARRAY_JOB_ID": "88100", "SLURM_ARRAY_TASK_ID": "3"}),
        ("88123+1", {}),
        ("88123+\x1b[2J", {}),
    ],
)
def test_inside_a_job_only_its_gpus_fit(job: str, environment: dict[str, str]) -> None:
    found = verdicts(replace(ANN, job=job), environment={**INSIDE, **environment})
    assert fitting(found) == [1]
    assert refused(found[0]) == f"it is not one of this job's GPUs (slurm {printable(job)})"


def test_as_many_gpus_are_left_as_jobs_have_somewhere() -> None:
    somewhere = Allocation("slurm", "5", "bo", unplaced=2)
    found = verdicts(ANN, somewhere)
    assert fitting(found) == [0]
    assert refused(found[3]) == "2 GPUs of this machine are slurm 5's, which ones is not known"
    # Those that do not fit anyway are not counted as left.
    chosen = Requirements(least=1, most=1)
    assert fitting(verdicts(ANN, somewhere, requirements=chosen)) == [0]


def test_while_it_is_not_known_how_many_a_job_has_nothing_fits() -> None:
    found = verdicts(Allocation("slurm", "5", unplaced=None))
    assert fitting(found) == []
    assert refused(found[0]) == "whether slurm 5 has GPUs of this machine is not known"


def test_a_job_name_cannot_write_to_the_terminal() -> None:
    assert refused(verdicts(replace(ANN, job="1\x1b[2J", user="a\nb"))[1]).isprintable()


def test_sharing_a_gpu_of_somebody_elses_job_is_refused_too() -> None:
    seen = replace(snapshot(NOON, *GPUS, processes=(process(),)), allocations=(ANN,))
    found = Chooser(Requirements(free=2**30), {}).judge(seen)
    assert not found[1].fits
    assert found[0].fits


MINE = replace(ANN, user=user_name(os.geteuid()), devices=(), unplaced=1)


@pytest.mark.parametrize("environment", [{}, INSIDE])
def test_any_gpu_may_be_the_one_of_ones_own_job(environment: dict[str, str]) -> None:
    assert fitting(verdicts(MINE, environment=environment)) == [0, 1, 2, 3]


def test_inside_a_job_that_slurm_does_not_list_the_others_count_as_ever() -> None:
    assert fitting(verdicts(replace(ANN, job="5"), environment=INSIDE)) == [0, 2, 3]


SLURM, KUBERNETES = Allocation("slurm", unplaced=None), Allocation("kubernetes", unplaced=None)


@pytest.mark.parametrize(
    ("allocations", "sentence"),
    [
        (
            [replace(ANN, until=NOON - 1, devices=("GPU-3",))],
            "slurm 88123 of ann has had it for 1h00m, past its time limit",
        ),
        ([SLURM], "which GPUs slurm has given to jobs is not known"),
        (
            [replace(SLURM, unplaced=4)],
            "4 GPUs of this machine are allocated by slurm, which ones is not known",
        ),
        ([SLURM, KUBERNETES], "which GPUs slurm and kubernetes have given to jobs is not known"),
        (
            [replace(SLURM, unplaced=1), replace(KUBERNETES, unplaced=2)],
            "3 GPUs of this machine are allocated by slurm and kubernetes, which ones is not known",
        ),
        (
            [replace(SLURM, job="5"), replace(KUBERNETES, job="a/b", unplaced=1)],
            "whether slurm 5 and kubernetes a/b have GPUs of this machine is not known",
        ),
        ([replace(SLURM, scheduler="\x1b[2J")], "which GPUs �[2J has given to jobs is not known"),
        # One's own job is not named.
        (
            [MINE, Allocation("slurm", "5", "bo", unplaced=4)],
            "4 GPUs of this machine are slurm 5's, which ones is not known",
        ),
    ],
)
def test_what_is_known_of_jobs_is_said(allocations: list[Allocation], sentence: str) -> None:
    assert refused(verdicts(*allocations)[-1]) == sentence
