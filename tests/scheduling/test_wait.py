"""Whether what is waited for has come, and who stands in the way."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, cast

import pytest

from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.select import table
from gpumon.scheduling.wait import ConditionWait, gpus_in_use
from gpumon.scheduling.waiting import TimeLimit, WaitResult
from gpumon.text.status_line import StatusLine
from tests.build import GIB, NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.gpu_sampler import GpuSampler


def goal(
    kind: str = "free",
    asked: Requirements | None = None,
    environment: Mapping[str, str] = {},
    locks: Locks | None = None,
) -> ConditionWait:
    """A wait that judges samples, but takes none."""
    sampler = cast("GpuSampler", None)
    return ConditionWait(
        sampler,
        kind,
        asked or Requirements(),
        environment,
        locks,
        None,
        TimeLimit(math.inf),
        StatusLine(None),
    )


def done(waiting: ConditionWait, seen: Snapshot) -> str:
    """The sentence that the GPUs are there; empty while they are not."""
    result = waiting.judge(seen)
    return "" if result is None else str(waiting.reported(result, verbose=False))


def test_a_busy_gpu_is_reported_with_its_holder_and_since_when() -> None:
    busy = snapshot(
        NOON, gpu(memory_used=40 * GIB), processes=(process(4711, memory_used=40 * GIB),)
    )
    waiting = goal()
    assert done(waiting, busy) == ""
    assert waiting.holders == ("GPU 0: ann 40.0G for 1d00h",)
    assert waiting.reasons() == ["GPU 0: ann's a process (4711) holds 40.0 GiB"]


def test_a_free_gpu_ends_the_wait() -> None:
    assert done(goal(), snapshot(NOON, gpu())) == "GPU 0 is free."


def test_the_goal_is_worded_in_singular_or_plural() -> None:
    assert goal().words == "1 free GPU"
    assert goal("idle", Requirements(least=1, most=4)).words == "1 to 4 idle GPUs"
    assert goal(asked=Requirements(least=2, most=2, mig=True)).words == "2 free MIG devices"


def test_an_unknown_condition_is_an_error_and_not_another_condition() -> None:
    with pytest.raises(KeyError):
        goal("warm")


def test_several_cards_are_counted_until_there_are_enough() -> None:
    two = goal(asked=Requirements(least=2, most=2))
    cards = gpu(), gpu(index=1, memory_used=20 * GIB)
    assert done(two, snapshot(NOON, *cards, processes=(process(gpus=(1,)),))) == ""
    assert two.count == "1 of 2"
    assert done(two, snapshot(NOON, gpu(), gpu(index=1))) == "GPU 0, GPU 1 are free."


def test_the_holder_of_a_reservation_is_named(tmp_path: Path) -> None:
    mine, theirs = (Locks(str(tmp_path / "locks"), {}) for _ in range(2))
    reservation = theirs.take(["GPU-0"], "train.py")
    waiting = goal(locks=mine)
    try:
        assert done(waiting, snapshot(time.time(), gpu())) == ""
        assert waiting.holders[0].startswith("GPU 0: reserved by ")
        assert waiting.holders[0].endswith(" for 0s")
    finally:
        reservation.close()
    assert done(waiting, snapshot(time.time(), gpu())) == "GPU 0 is free."
    mine.close()
    theirs.close()


def test_the_wait_ends_if_no_gpu_can_ever_qualify() -> None:
    waiting = goal(asked=Requirements(models=("b200",)))
    assert waiting.judge(snapshot(NOON, gpu())) is WaitResult.NOTHING_FITS
    assert waiting.refusal == "no GPU fits; 1 GPU requested. Waiting does not change that."
    assert "not b200" in table(waiting.verdicts)
    two = goal(asked=Requirements(least=2, most=2))
    assert two.judge(snapshot(NOON, gpu())) is WaitResult.NOTHING_FITS


def test_a_card_that_is_lost_or_hangs_is_waited_for() -> None:
    waiting = goal()
    assert done(waiting, snapshot(NOON, gpu(status=GpuStatus.LOST))) == ""
    assert waiting.holders == ("GPU 0: it is lost: it fell off the bus",)
    assert done(waiting, snapshot(NOON, gpu(status=GpuStatus.NO_ANSWER))) == ""
    assert waiting.holders == ("GPU 0: it does not answer",)


@pytest.mark.parametrize("kind", ["idle", "cool"])
def test_reservations_do_not_matter_for_idle_and_cool(kind: str, tmp_path: Path) -> None:
    locks = Locks(str(tmp_path / "locks"), {})
    reservation = locks.take(["GPU-0"], "train.py")
    held = gpu(
        memory_used=40 * GIB, compute_mode="Exclusive_Process", mig_mode=True, temperature_gpu=40
    )
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    waiting = goal(kind, Requirements(stable=4.0), environment, locks)
    for second in range(5):
        told = done(waiting, snapshot(NOON + second, held, processes=(process(),)))
    assert told == f"GPU 0 is {kind}."
    reservation.close()
    locks.close()


def test_a_card_is_idle_once_nothing_ran_for_a_minute() -> None:
    waiting = goal("idle")
    left: list[float | None] = []
    for second in range(0, 101, 5):
        busy = 80 if second < 20 else 0
        if done(waiting, snapshot(NOON + second, gpu(utilization_gpu=busy))):
            break
        left.append(waiting.left)
    assert second == 80
    assert left[4] == pytest.approx(60)
    assert left[-1] == pytest.approx(5)
    assert left[0] is None


def test_one_moment_of_work_restarts_the_minute() -> None:
    waiting = goal("idle", Requirements(stable=10.0))
    left = []
    for second, busy in ((0, 0), (5, 0), (7, 1), (9, 0), (14, 0), (16, 0)):
        assert done(waiting, snapshot(NOON + second, gpu(utilization_gpu=busy))) == ""
        left.append(waiting.left)
    assert left == [10, 5, None, 10, 5, 3]
    assert done(waiting, snapshot(NOON + 19, gpu())) == "GPU 0 is idle."


def test_a_card_is_cool_by_its_temperature_alone() -> None:
    waiting = goal("cool")
    assert done(waiting, snapshot(NOON, gpu(temperature_gpu=51, utilization_gpu=100))) == ""
    assert waiting.holders == ("GPU 0: 51 °C, at most 50 °C required",)
    assert done(waiting, snapshot(NOON, gpu(temperature_gpu=50, utilization_gpu=100)))
    warm = goal("cool", Requirements(temperature=60.0))
    assert done(warm, snapshot(NOON, gpu(temperature_gpu=60)))


def test_only_the_cards_that_are_named_count() -> None:
    waiting = goal("cool", Requirements(only=parse_selection("1")))
    cards = gpu(temperature_gpu=30), gpu(index=1, temperature_gpu=80)
    assert done(waiting, snapshot(NOON, *cards)) == ""
    assert waiting.holders == ("GPU 1: 80 °C, at most 50 °C required",)


def test_the_time_to_cool_is_estimated_once_there_is_a_trend() -> None:
    waiting = goal("cool")
    left: list[float | None] = []
    for step in range(10):
        waiting.judge(snapshot(NOON + 5 * step, gpu(temperature_gpu=80 - step)))
        left.append(waiting.left)
    assert left[0] is None
    assert left[9] == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_estimate_for_several_gpus_is_that_of_the_last_needed_one() -> None:
    waiting = goal("cool", Requirements(least=2, most=2))
    for step in range(10):
        cards = gpu(temperature_gpu=70 - step), gpu(index=1, temperature_gpu=80 - step)
        waiting.judge(snapshot(NOON + 5 * step, *cards))
    assert waiting.left == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_mark_changes_with_the_holders_and_not_with_time() -> None:
    waiting = goal()
    marks = []
    for second, used, pid in ((0, GIB, 1), (9, 2 * GIB, 1), (10, GIB, 2)):
        seen = snapshot(NOON + second, gpu(memory_used=used), processes=(process(pid),))
        waiting.judge(seen)
        marks.append(waiting.mark())
    assert marks[0] == marks[1] != marks[2]


def test_the_gpus_of_a_process_are_described_briefly() -> None:
    seen = snapshot(NOON, gpu(), gpu(index=3), processes=(process(7, gpus=(0, 3)),))
    assert gpus_in_use(seen, 7) == "2 GPUs (0, 3) 2.0G"
    assert gpus_in_use(seen, 8) == ""
