"""Among which GPUs is chosen: those that somebody has allotted, and that stayed free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.makers.amd import MAKER as AMD_MAKER
from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
from gpumon.scheduling.choose import (
    GAP_SECONDS,
    StabilityWindow,
    UncertainAllocationError,
    allowance,
    look_back,
)
from gpumon.scheduling.eligibility import Candidate, Circumstances, Eligibility, judge
from gpumon.scheduling.requirements import Requirements
from tests.build import NOON, gpu, snapshot

ALIKE = [gpu(index=index, uuid=f"GPU-{index}a") for index in range(4)]
MIXED = [*ALIKE[:2], gpu(index=2, uuid="GPU-2a", name="NVIDIA T400")]
SLICES = tuple(
    MigInstance(f"MIG-{n}", index=n, gpu_instance=7 + n, compute_instance=0) for n in range(3)
)
CUT = gpu(index=0, uuid="GPU-0a", mig=SLICES, mig_mode=True)


def left(value: str | None, gpus: list[Gpu], order: str | None = None) -> list[int]:
    environment = {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": order}
    found = allowance({k: v for k, v in environment.items() if v is not None}, gpus)
    return [one.index for one in gpus if found.allows(Candidate(one))]


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,1", [1, 2]),
        ("GPU-3,GPU-0", [0, 3]),
        ("", []),
        ("1,9,2", [1]),
        ("NoDevFiles", []),
    ],
)
def test_only_the_cards_of_the_allocation_are_left(value: str | None, indices: list[int]) -> None:
    assert left(value, ALIKE) == indices


def test_indices_of_different_cards_are_read_only_where_that_is_certain() -> None:
    with pytest.raises(UncertainAllocationError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID too"):
        left("0", MIXED)
    assert left("0", MIXED, "PCI_BUS_ID") == [0]
    assert left("GPU-2a", MIXED) == [2]
    assert left("", MIXED) == []


def test_of_several_mig_devices_each_may_be_taken_and_no_other() -> None:
    found = allowance({"CUDA_VISIBLE_DEVICES": "MIG-0,MIG-2"}, [CUT])
    assert [mig.index for mig in SLICES if found.allows(Candidate(CUT, mig))] == [0, 2]
    assert not found.allows(Candidate(CUT))


def test_an_allocated_gpu_includes_its_mig_devices() -> None:
    found = allowance({"CUDA_VISIBLE_DEVICES": "GPU-0a"}, [CUT])
    assert all(found.allows(Candidate(CUT, mig)) for mig in SLICES)


AMD = [
    gpu(index=4 + n, uuid=f"GPU-c0ffee000000000{n}", name="AMD Instinct MI210") for n in range(2)
]


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1"}, [0, 1, 2, 3, 5]),
        ({"HIP_VISIBLE_DEVICES": "0"}, [0, 1, 2, 3, 4]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2a", "ROCR_VISIBLE_DEVICES": AMD[0].uuid}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "0"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1, 4, 5]),
        ({"CUDA_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "0"}, [2, 4]),
    ],
)
def test_each_maker_has_its_own_allocation(environment: dict[str, str], indices: list[int]) -> None:
    found = allowance(environment, [*ALIKE, *AMD])
    assert [one.index for one in (*ALIKE, *AMD) if found.allows(Candidate(one))] == indices


def test_the_variable_that_leaves_a_gpu_out_is_named() -> None:
    found = allowance({"ROCR_VISIBLE_DEVICES": "1"}, [*ALIKE, *AMD])
    assert found.reasons == {AMD_MAKER: "ROCR_VISIBLE_DEVICES leaves it out"}
    found = allowance({"HIP_VISIBLE_DEVICES": "1,7"}, AMD)
    assert found.reasons[AMD_MAKER].startswith("HIP_VISIBLE_DEVICES leaves it out (the list ends")


# Free, and stayed free


ASKED = Requirements(utilization=10)


def look(at: float, *busy: int) -> tuple[float, tuple[Eligibility, ...]]:
    cards = [
        gpu(index=index, utilization_gpu=90 if index in busy else 0, memory_used=0)
        for index in range(2)
    ]
    return at, judge(snapshot(NOON + at, *cards), ASKED, Circumstances())


def told(stability: StabilityWindow) -> list[str | None]:
    return [None if one.refusal is None else one.refusal.sentence for one in stability.verdicts()]


def test_no_gpu_is_stable_before_the_whole_time_was_observed() -> None:
    stability = StabilityWindow(60)
    for at in range(0, 60, 5):
        stability.add(*look(at))
        assert stability.left == 60 - at
        assert told(stability) == [f"it fits, watched for {at}s of 1m"] * 2
    stability.add(*look(60))
    assert (stability.left, told(stability)) == (0, [None, None])


def test_one_busy_moment_counts_for_as_long_as_asked_and_no_longer() -> None:
    stability = StabilityWindow(20)
    for at in range(0, 80, 5):
        stability.add(*look(at, *((1,) if at == 40 else ())))
        if 40 < at < 65 and stability.left == 0:
            assert told(stability) == [
                None,
                f"it fits now, but {at - 40}s ago: 90 % utilised, at most 10 % required",
            ]
    assert told(stability) == [None, None]


def test_an_unobserved_time_does_not_count_as_stable() -> None:
    stability = StabilityWindow(20)
    stability.add(*look(0))
    stability.add(*look(1 + GAP_SECONDS))
    assert stability.left == 20
    stability.add(*look(0.0))
    assert stability.left == 20, "the clock was set back"


class Log:
    """Samples that somebody has written."""

    first = last = None
    events_complete = True

    def __init__(self, *samples: Snapshot) -> None:
        self._samples = samples

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        assert most > 100
        return (one for one in self._samples if first <= one.time <= last)


def test_a_log_that_reaches_up_to_now_replaces_the_observation() -> None:
    idle = [gpu(index=index, memory_used=0) for index in range(2)]
    samples = [snapshot(NOON + at, *idle[: 1 if at < 30 else 2]) for at in range(0, 65, 5)]
    stability = StabilityWindow(60)
    look_back(
        stability,
        Log(*samples),  # type: ignore[arg-type]  # the rest of a tape is not asked for
        NOON + 60,
        lambda one: judge(one, ASKED, Circumstances()),
    )
    assert stability.left == 0
    assert told(stability) == [None, "it fits now, but was not there all the time"]
