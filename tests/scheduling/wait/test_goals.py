"""Whether what is waited for has come, and who stands in the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.reservation.locks import Locks
from gpumon.scheduling.wait.goals import GpuGoal, HopelessError, gpus_in_use
from tests.build import GIB, NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.scheduling.wait.goals import Progress


def goal(kind: str = "free", asked: Requirements | None = None) -> GpuGoal:
    return GpuGoal(kind, asked or Requirements(), {}, None)


def test_a_busy_gpu_is_reported_with_its_holder_and_since_when() -> None:
    busy = snapshot(
        NOON, gpu(memory_used=40 * GIB), processes=(process(4711, memory_used=40 * GIB),)
    )
    near = goal().look(busy)
    assert near.done == ""
    assert near.holders == ("GPU 0: ann 40.0G for 1d00h",)
    assert near.sentences == ("GPU 0: ann's a process (4711) holds 40.0 GiB",)


def test_a_free_gpu_ends_the_wait() -> None:
    assert goal().look(snapshot(NOON, gpu())).done == "GPU 0 is free"


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
    near = two.look(snapshot(NOON, *cards, processes=(process(gpus=(1,)),)))
    assert (near.done, near.count) == ("", "1 of 2")
    assert two.look(snapshot(NOON, gpu(), gpu(index=1))).done == "GPU 0, GPU 1 are free"


def test_the_holder_of_a_reservation_is_named(tmp_path: Path) -> None:
    mine, theirs = (Locks(str(tmp_path / "locks"), {}) for _ in range(2))
    reservation = theirs.take(["GPU-0"], "train.py")
    waiting = GpuGoal("free", Requirements(), {}, mine)
    try:
        near = waiting.look(snapshot(time.time(), gpu()))
        assert near.done == ""
        assert near.holders[0].startswith("GPU 0: reserved by ")
        assert near.holders[0].endswith(" for 0s")
    finally:
        reservation.close()
    assert waiting.look(snapshot(time.time(), gpu())).done == "GPU 0 is free"
    mine.close()
    theirs.close()


def test_the_wait_ends_if_no_gpu_can_ever_qualify() -> None:
    with pytest.raises(HopelessError) as told:
        goal(asked=Requirements(models=("b200",))).look(snapshot(NOON, gpu()))
    assert "no GPU fits" in told.value.sentence
    assert "not b200" in told.value.table
    with pytest.raises(HopelessError):
        goal(asked=Requirements(least=2, most=2)).look(snapshot(NOON, gpu()))


def test_a_card_that_is_lost_or_hangs_is_waited_for() -> None:
    near = goal().look(snapshot(NOON, gpu(status=GpuStatus.LOST)))
    assert near.holders == ("GPU 0: it is lost: it fell off the bus",)
    near = goal().look(snapshot(NOON, gpu(status=GpuStatus.NO_ANSWER)))
    assert near.holders == ("GPU 0: it does not answer",)


@pytest.mark.parametrize("kind", ["idle", "cool"])
def test_reservations_do_not_matter_for_idle_and_cool(kind: str, tmp_path: Path) -> None:
    locks = Locks(str(tmp_path / "locks"), {})
    reservation = locks.take(["GPU-0"], "train.py")
    held = gpu(
        memory_used=40 * GIB, compute_mode="Exclusive_Process", mig_mode=True, temperature_gpu=40
    )
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    waiting = GpuGoal(kind, Requirements(stable=4.0), environment, locks)
    for second in range(5):
        near = waiting.look(snapshot(NOON + second, held, processes=(process(),)))
    assert near.done == f"GPU 0 is {kind}"
    reservation.close()
    locks.close()


def test_a_card_is_idle_once_nothing_ran_for_a_minute() -> None:
    waiting = goal("idle")
    seen: list[Progress] = []
    for second in range(0, 101, 5):
        busy = 80 if second < 20 else 0
        seen.append(waiting.look(snapshot(NOON + second, gpu(utilization_gpu=busy))))
        if seen[-1].done:
            break
    assert second == 80
    assert seen[4].left == pytest.approx(60)
    assert seen[-2].left == pytest.approx(5)
    assert seen[0].left is None


def test_one_moment_of_work_restarts_the_minute() -> None:
    waiting = goal("idle", Requirements(stable=10.0))
    left = []
    for second, busy in ((0, 0), (5, 0), (7, 1), (9, 0), (14, 0), (16, 0)):
        near = waiting.look(snapshot(NOON + second, gpu(utilization_gpu=busy)))
        assert near.done == ""
        left.append(near.left)
    assert left == [10, 5, None, 10, 5, 3]
    assert waiting.look(snapshot(NOON + 19, gpu())).done == "GPU 0 is idle"


def test_a_card_is_cool_by_its_temperature_alone() -> None:
    waiting = goal("cool")
    near = waiting.look(snapshot(NOON, gpu(temperature_gpu=51, utilization_gpu=100)))
    assert near.holders == ("GPU 0: 51 °C, at most 50 °C asked",)
    assert waiting.look(snapshot(NOON, gpu(temperature_gpu=50, utilization_gpu=100))).done
    warm = goal("cool", Requirements(temperature=60.0))
    assert warm.look(snapshot(NOON, gpu(temperature_gpu=60))).done


def test_only_the_cards_that_are_named_count() -> None:
    waiting = goal("cool", Requirements(only=parse_selection("1")))
    cards = gpu(temperature_gpu=30), gpu(index=1, temperature_gpu=80)
    near = waiting.look(snapshot(NOON, *cards))
    assert near.holders == ("GPU 1: 80 °C, at most 50 °C asked",)


def test_the_time_to_cool_is_estimated_once_there_is_a_trend() -> None:
    waiting = goal("cool")
    left = [
        waiting.look(snapshot(NOON + 5 * step, gpu(temperature_gpu=80 - step))).left
        for step in range(10)
    ]
    assert left[0] is None
    assert left[9] == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_estimate_for_several_gpus_is_that_of_the_last_needed_one() -> None:
    waiting = goal("cool", Requirements(least=2, most=2))
    for step in range(10):
        cards = gpu(temperature_gpu=70 - step), gpu(index=1, temperature_gpu=80 - step)
        near = waiting.look(snapshot(NOON + 5 * step, *cards))
    assert near.left == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_mark_changes_with_the_holders_and_not_with_time() -> None:
    waiting = goal()
    one = waiting.look(snapshot(NOON, gpu(memory_used=GIB), processes=(process(1),))).mark
    same = waiting.look(snapshot(NOON + 9, gpu(memory_used=2 * GIB), processes=(process(1),))).mark
    other = waiting.look(snapshot(NOON + 10, gpu(memory_used=GIB), processes=(process(2),))).mark
    assert one == same != other


def test_the_gpus_of_a_process_are_described_briefly() -> None:
    seen = snapshot(NOON, gpu(), gpu(index=3), processes=(process(7, gpus=(0, 3)),))
    assert gpus_in_use(seen, 7) == "2 GPUs (0, 3) 2.0G"
    assert gpus_in_use(seen, 8) == ""
