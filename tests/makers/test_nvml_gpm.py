"""How much of a GPU works, as GPM tells it between two samples of its counters."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from gpumon.makers.nvidia.gpm import METRICS, GpmSampler
from gpumon.makers.nvidia.gpu import NvmlGpu
from gpumon.makers.nvidia.library import Library
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from tests.driver import Model, a100, h100, h100_mig
from tests.makers.nvml_room import Code, Furnish, Room, replace_function, sampling

SAMPLE = "nvmlGpmSampleGet"
MIG_SAMPLE = "nvmlGpmMigSampleGet"
BUSY_BUT_EMPTY = dict(zip(METRICS, (8, 3, 1, 0, 4, 2, 6), strict=True))


def shares(gpu: Gpu) -> dict[str, float | None]:
    return {name: getattr(gpu, name) for name in METRICS}


def later(room: Room, seconds: float = 1.0, index: int = 0, *, times: int = 1) -> Gpu:
    """The card after so many seconds, in which the counters of the driver go on too."""
    for _ in range(times):
        pass_time(room, seconds)
        snapshot = room.sample(0.0)
    return snapshot.gpus[index]


def pass_time(room: Room, seconds: float) -> None:
    room.clock.now += seconds
    room.driver.set_clock(room.clock.now)


@pytest.fixture
def profiled(opened: Furnish) -> Furnish:
    """Makes a room as `opened` does, whose counters were sampled once."""

    def make(*models: Model, **more: Any) -> Room:
        room = opened(*models, profiled=True, **more)
        later(room)
        return room

    return make


def test_the_values_are_those_between_two_samples_in_percent(profiled: Furnish) -> None:
    room = profiled(h100(**BUSY_BUT_EMPTY))
    first = room.gpu(0.0)
    assert shares(first) == dict.fromkeys(METRICS)
    assert {first.unknown[name] for name in METRICS} == {Unknown.NOT_READ}
    second = later(room)
    assert shares(second) == BUSY_BUT_EMPTY
    assert not METRICS.keys() & second.unknown.keys()
    room.card.sm_active = 90
    assert later(room).sm_active == pytest.approx((8 + 90) / 2)
    assert later(room).sm_active == 90


def test_they_are_read_once_a_second_however_often_is_sampled(profiled: Furnish) -> None:
    room = profiled(h100())
    before = room.calls(SAMPLE)
    later(room, 0.1, times=100)
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


def test_a_gpu_before_hopper_is_asked_for_its_support_only(profiled: Furnish) -> None:
    room = profiled(a100(), h100())
    gpu = later(room, times=8)
    assert {gpu.unknown[name] for name in METRICS} == {Unknown.NOT_SUPPORTED}
    assert room.card.times("nvmlGpmQueryDeviceSupport") == 1
    assert room.card.times(SAMPLE) == 0
    assert room.gpu(0.0, 1).sm_active == 0


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        (SAMPLE, Code.NO_PERMISSION, Unknown.NO_PERMISSION),
        (SAMPLE, Code.NOT_SUPPORTED, Unknown.NOT_SUPPORTED),
        ("nvmlGpmQueryDeviceSupport", Code.NO_PERMISSION, Unknown.NO_PERMISSION),
        ("nvmlGpmQueryDeviceSupport", Code.FUNCTION_NOT_FOUND, Unknown.NOT_SUPPORTED),
        (SAMPLE, Code.MEMORY, Unknown.NO_ANSWER),
    ],
)
def test_a_refusal_is_unknown_with_its_reason_and_concerns_this_gpu_only(
    profiled: Furnish, function: str, code: int, reason: Unknown
) -> None:
    room = profiled(h100(sm_active=80), h100(sm_active=70), failing={function: code})
    gpu = later(room)
    assert {gpu.unknown[name] for name in METRICS} == {reason}
    assert gpu.status is GpuStatus.OK
    assert room.gpu(0.0, 1).sm_active == 70
    room.card.fail(function, 0)
    gpu = later(room, times=12)
    assert gpu.sm_active == 80
    assert "sm_active" not in gpu.unknown


def test_a_refused_gpu_is_asked_again_less_and_less_often(profiled: Furnish) -> None:
    room = profiled(h100(), failing={SAMPLE: Code.NO_PERMISSION})
    later(room, times=360)
    assert room.calls(SAMPLE) <= 4


def test_one_value_that_is_not_told_leaves_the_others(profiled: Furnish) -> None:
    gpu = later(profiled(h100(sm_active=50, fp64_active=None)))
    assert (gpu.sm_active, gpu.fp64_active) == (50, None)
    assert gpu.unknown["fp64_active"] is Unknown.NOT_SUPPORTED


def test_after_a_pause_the_mean_does_not_reach_back(profiled: Furnish) -> None:
    room = profiled(h100(sm_active=10))
    later(room)
    room.card.fail(SAMPLE, Code.UNKNOWN)
    later(room)
    room.card.fail(SAMPLE, 0)
    room.card.sm_active = 90
    assert later(room, times=3).sm_active == 90


def test_every_buffer_is_freed_when_a_gpu_goes_and_at_the_end(profiled: Furnish) -> None:
    room = profiled(h100(), h100_mig())
    later(room)
    room.card.lost = True
    later(room)
    assert room.calls("nvmlGpmSampleFree") == 2
    room.card.lost = False
    assert later(room, times=8).sm_active == 0
    room.driver.cards[1].set_mig([])
    later(room, times=3)
    room.sources[0].close()
    assert room.calls("nvmlGpmSampleAlloc") == room.calls("nvmlGpmSampleFree") > 6


def test_a_lost_gpu_has_no_values(profiled: Furnish) -> None:
    room = profiled(h100(sm_active=50))
    assert later(room).sm_active == 50
    room.card.fail(SAMPLE, Code.LOST)
    gpu = later(room)
    assert gpu.status is GpuStatus.LOST
    assert (gpu.sm_active, gpu.unknown["sm_active"]) == (None, Unknown.GPU_LOST)


def test_a_gpu_whose_sample_hangs_is_given_up_and_its_buffers_stay(profiled: Furnish) -> None:
    room = profiled(h100(), h100(sm_active=70))
    pass_time(room, 1.0)
    hanging = sampling(room, room.card, SAMPLE)
    assert room.sources[0].give_up(hanging.call)
    later(room)
    assert room.calls("nvmlGpmSampleFree") == 0
    assert later(room, index=1).sm_active == 70
    assert room.gpu(0.0).status is GpuStatus.NO_ANSWER
    hanging.ends()


def test_mig_devices_have_values_of_their_own(profiled: Furnish) -> None:
    room = profiled(h100_mig(sm_active=33))
    room.card.mig[1].shares[:] = [62.0, 30.0, 20.0, 55.0, 0.0, 10.0, 5.0]
    gpu = later(room, times=3)
    assert gpu.sm_active == 33
    first, second, *_ = gpu.mig
    assert first.sm_active == 0
    assert (second.sm_active, second.sm_occupancy, second.tensor_active) == (62, 30, 20)
    assert (second.dram_active, second.fp32_active) == (55, 10)
    # They are still there after the list of MIG devices was read again.
    assert room.gpu(0.5).mig[1].sm_active == 62


def test_instances_are_read_where_the_gpu_as_a_whole_refuses(profiled: Furnish) -> None:
    room = profiled(h100_mig(), failing={SAMPLE: Code.NOT_SUPPORTED})
    room.card.mig[1].shares[0] = 62.0
    gpu = later(room, times=40)
    assert (gpu.sm_active, gpu.unknown["sm_active"]) == (None, Unknown.NOT_SUPPORTED)
    assert [instance.sm_active for instance in gpu.mig][:2] == [0, 62]
    room.card.mig[1].shares[0] = 10.0
    assert later(room, times=2).mig[1].sm_active == 10


def test_instances_that_refuse_have_no_values_and_are_asked_less_often(profiled: Furnish) -> None:
    room = profiled(h100_mig(sm_active=40))
    assert later(room, times=3).mig[0].sm_active == 0
    room.card.fail(MIG_SAMPLE, Code.NO_PERMISSION)
    before = room.calls(MIG_SAMPLE)
    gpu = later(room, times=120)
    assert {instance.sm_active for instance in gpu.mig} == {None}
    assert gpu.sm_active == 40
    instances = len({instance.gpu_instance for instance in gpu.mig})
    assert room.calls(MIG_SAMPLE) - before <= 5 * instances


def test_a_slow_gpu_is_asked_less_often(opened: Furnish) -> None:
    room = opened(h100(), profiled=True)

    def slow(*arguments: object) -> int:
        pass_time(room, 0.1)
        return answer(*arguments)

    answer = replace_function(room, SAMPLE, slow)
    later(room, 0.4, times=100)
    # A tenth of a second is the twentieth part of two.
    assert 18 <= room.calls(SAMPLE) <= 21
