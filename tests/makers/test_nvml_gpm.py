"""How much of a GPU works, as GPM tells it between two samples of its counters."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pynvml
import pytest

from gpumon.makers.nvidia.gpm import METRICS, GpmSampler
from gpumon.makers.nvidia.gpu import NvmlGpu
from gpumon.makers.nvidia.library import Library
from gpumon.makers.source import CallGivenUpError
from gpumon.model.snapshot import GpuStatus, Unknown
from tests.driver import a100, h100, h100_mig
from tests.makers.nvml_room import (
    FUNCTION_NOT_FOUND,
    LOST,
    MEMORY,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    Room,
    replace_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu

    Furnish = Callable[..., Room]

SAMPLE = "nvmlGpmSampleGet"
MIG_SAMPLE = "nvmlGpmMigSampleGet"
BUSY_BUT_EMPTY = {
    "sm_active": 8,
    "sm_occupancy": 3,
    "tensor_active": 1,
    "fp64_active": 0,
    "fp32_active": 4,
    "fp16_active": 2,
    "dram_active": 6,
}


def shares(gpu: Gpu) -> dict[str, float | None]:
    return {name: getattr(gpu, name) for name in METRICS}


def later(room: Room, seconds: float = 1.0, index: int = 0) -> Gpu:
    """The card after so many seconds, in which the counters of the driver go on too."""
    pass_time(room, seconds)
    return room.gpu(0.0, index)


def pass_time(room: Room, seconds: float) -> None:
    room.clock.now += seconds
    room.driver.set_clock(room.clock.now)


def opened(room: Room) -> Gpu:
    room.open(profiled=True)
    return later(room)


def test_the_values_are_those_between_two_samples_in_percent(furnish: Furnish) -> None:
    room = furnish(h100(**BUSY_BUT_EMPTY))
    first = opened(room)
    assert shares(first) == dict.fromkeys(METRICS)
    assert {first.unknown[name] for name in METRICS} == {Unknown.NOT_READ}
    second = later(room)
    assert shares(second) == BUSY_BUT_EMPTY
    assert not METRICS.keys() & second.unknown.keys()
    room.driver.cards[0].sm_active = 90
    assert later(room).sm_active == pytest.approx((8 + 90) / 2)
    assert later(room).sm_active == 90


def test_they_are_read_once_a_second_however_often_is_sampled(furnish: Furnish) -> None:
    room = furnish(h100())
    opened(room)
    before = room.calls(SAMPLE)
    for _ in range(100):
        later(room, 0.1)
    assert 9 <= room.calls(SAMPLE) - before <= 11


def test_two_samples_are_never_closer_than_a_fifth_of_a_second(opened: Furnish) -> None:
    room = opened(h100())
    gpu = NvmlGpu(Library(room.clock), room.clock, "GPU-0", 0, lambda *_: None)
    gpu.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpu.profile_with(GpmSampler(gpu))

    def calls_after(seconds: float) -> int:
        pass_time(room, seconds)
        gpu.ask_all(gpu.profile, room.clock.now)
        return room.calls(SAMPLE)

    assert [calls_after(seconds) for seconds in (0.0, 1.0)] == [1, 2]
    assert gpu.answers.values["sm_active"] == 0
    assert [calls_after(seconds) for seconds in (0.15, 0.1)] == [2, 3]
    assert gpu.answers.values["sm_active"] == 0
    gpu.stop_asking()


def test_who_neither_shows_nor_logs_them_does_not_ask(opened: Furnish) -> None:
    room = opened(h100())
    gpu = later(room)
    assert gpu.unknown["sm_active"] is Unknown.NOT_READ
    assert room.calls(SAMPLE) == room.calls("nvmlGpmSampleAlloc") == 0


def test_a_gpu_before_hopper_is_asked_for_its_support_only(furnish: Furnish) -> None:
    room = furnish(a100(), h100())
    opened(room)
    for _ in range(8):
        gpu = later(room)
    assert {gpu.unknown[name] for name in METRICS} == {Unknown.NOT_SUPPORTED}
    assert room.driver.cards[0].calls()["nvmlGpmQueryDeviceSupport"].calls == 1
    assert SAMPLE not in room.driver.cards[0].calls()
    assert room.gpu(0.0, 1).sm_active == 0


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        (SAMPLE, NO_PERMISSION, Unknown.NO_PERMISSION),
        (SAMPLE, NOT_SUPPORTED, Unknown.NOT_SUPPORTED),
        ("nvmlGpmQueryDeviceSupport", NO_PERMISSION, Unknown.NO_PERMISSION),
        ("nvmlGpmQueryDeviceSupport", FUNCTION_NOT_FOUND, Unknown.NOT_SUPPORTED),
        (SAMPLE, MEMORY, Unknown.NO_ANSWER),
    ],
)
def test_a_refusal_is_unknown_with_its_reason_and_concerns_this_gpu_only(
    furnish: Furnish, function: str, code: int, reason: Unknown
) -> None:
    room = furnish(h100(sm_active=80), h100(sm_active=70))
    room.driver.cards[0].fail(function, code)
    opened(room)
    gpu = later(room)
    assert {gpu.unknown[name] for name in METRICS} == {reason}
    assert gpu.status is GpuStatus.OK
    assert room.gpu(0.0, 1).sm_active == 70
    room.driver.cards[0].fail(function, 0)
    for _ in range(12):
        gpu = later(room)
    assert gpu.sm_active == 80
    assert "sm_active" not in gpu.unknown


def test_a_refused_gpu_is_asked_again_less_and_less_often(furnish: Furnish) -> None:
    room = furnish(h100())
    room.driver.cards[0].fail(SAMPLE, NO_PERMISSION)
    opened(room)
    for _ in range(360):
        later(room)
    assert room.calls(SAMPLE) <= 4


def test_one_value_that_is_not_told_leaves_the_others(furnish: Furnish) -> None:
    room = furnish(h100(sm_active=50, fp64_active=None))
    opened(room)
    gpu = later(room)
    assert gpu.sm_active == 50
    assert gpu.fp64_active is None
    assert gpu.unknown["fp64_active"] is Unknown.NOT_SUPPORTED


def test_after_a_pause_the_mean_does_not_reach_back(furnish: Furnish) -> None:
    room = furnish(h100(sm_active=10))
    opened(room)
    later(room)
    room.driver.cards[0].fail(SAMPLE, UNKNOWN)
    later(room)
    room.driver.cards[0].fail(SAMPLE, 0)
    room.driver.cards[0].sm_active = 90
    for _ in range(3):
        gpu = later(room)
    assert gpu.sm_active == 90


def test_every_buffer_is_freed_when_a_gpu_goes_and_at_the_end(furnish: Furnish) -> None:
    room = furnish(h100(), h100_mig())
    opened(room)
    later(room)
    room.driver.cards[0].lost = True
    later(room)
    assert room.calls("nvmlGpmSampleFree") == 2
    room.driver.cards[0].lost = False
    for _ in range(8):
        later(room)
    assert room.gpu(0.0).sm_active == 0
    room.driver.cards[1].set_mig([])
    for _ in range(3):
        later(room)
    room.sources[0].close()
    assert room.calls("nvmlGpmSampleAlloc") == room.calls("nvmlGpmSampleFree") > 6


def test_a_lost_gpu_has_no_values(furnish: Furnish) -> None:
    room = furnish(h100(sm_active=50))
    opened(room)
    assert later(room).sm_active == 50
    room.driver.cards[0].fail(SAMPLE, LOST)
    gpu = later(room)
    assert gpu.status is GpuStatus.LOST
    assert (gpu.sm_active, gpu.unknown["sm_active"]) == (None, Unknown.GPU_LOST)


def test_a_gpu_whose_sample_hangs_is_given_up_and_its_buffers_stay(furnish: Furnish) -> None:
    room = furnish(h100(), h100(sm_active=70))
    source = room.open(profiled=True)
    later(room)
    room.driver.cards[0].hang(SAMPLE)
    pass_time(room, 1.0)

    def sample() -> None:
        with pytest.raises(CallGivenUpError):
            source.sample()

    thread = threading.Thread(target=sample)
    thread.start()
    deadline = time.monotonic() + 60
    while (call := source.current_call) is None or call.function != SAMPLE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert source.give_up(call)
    other = later(room, index=1)
    freed = room.driver.calls().get("nvmlGpmSampleFree")
    assert freed is None or freed.calls == 0
    other = later(room, index=1)
    assert other.sm_active == 70
    assert room.gpu(0.0).status is GpuStatus.NO_ANSWER
    room.driver.cards[0].release()
    thread.join(60)
    assert not thread.is_alive()


def test_mig_devices_have_values_of_their_own(furnish: Furnish) -> None:
    room = furnish(h100_mig(sm_active=33))
    room.driver.cards[0].mig[1].shares[:] = [62.0, 30.0, 20.0, 55.0, 0.0, 10.0, 5.0]
    opened(room)
    for _ in range(3):
        gpu = later(room)
    assert gpu.sm_active == 33
    first, second, *_ = gpu.mig
    assert first.sm_active == 0
    assert (second.sm_active, second.sm_occupancy, second.tensor_active) == (62, 30, 20)
    assert (second.dram_active, second.fp32_active) == (55, 10)
    # They are still there after the list of MIG devices was read again.
    room.clock.now += 0.5
    assert room.gpu(0.0).mig[1].sm_active == 62


def test_instances_are_read_where_the_gpu_as_a_whole_refuses(furnish: Furnish) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    card.fail(SAMPLE, NOT_SUPPORTED)
    card.mig[1].shares[0] = 62.0
    opened(room)
    for _ in range(40):
        gpu = later(room)
    assert (gpu.sm_active, gpu.unknown["sm_active"]) == (None, Unknown.NOT_SUPPORTED)
    assert [one.sm_active for one in gpu.mig][:2] == [0, 62]
    card.mig[1].shares[0] = 10.0
    later(room)
    assert later(room).mig[1].sm_active == 10


def test_instances_that_refuse_have_no_values_and_are_asked_less_and_less_often(
    furnish: Furnish,
) -> None:
    room = furnish(h100_mig(sm_active=40))
    opened(room)
    for _ in range(3):
        gpu = later(room)
    assert gpu.mig[0].sm_active == 0
    room.driver.cards[0].fail(MIG_SAMPLE, NO_PERMISSION)
    before = room.calls(MIG_SAMPLE)
    for _ in range(120):
        gpu = later(room)
    assert {one.sm_active for one in gpu.mig} == {None}
    assert gpu.sm_active == 40
    instances = len({one.gpu_instance for one in gpu.mig})
    assert room.calls(MIG_SAMPLE) - before <= 5 * instances


def test_a_slow_gpu_is_asked_less_often(furnish: Furnish) -> None:
    room = furnish(h100())
    room.open(profiled=True)

    def slow(*arguments: object) -> int:
        pass_time(room, 0.1)
        return answer(*arguments)

    answer = replace_function(room, SAMPLE, slow)
    for _ in range(100):
        later(room, 0.4)
    # A tenth of a second is the twentieth part of two.
    assert 18 <= room.calls(SAMPLE) <= 21
