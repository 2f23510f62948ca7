"""Free, and stayed free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.scheduling.choose import GAP_SECONDS, StabilityWindow, look_back
from gpumon.scheduling.eligibility import Circumstances, judge
from gpumon.scheduling.requirements import Requirements
from tests.build import NOON, gpu, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.eligibility import Eligibility

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
