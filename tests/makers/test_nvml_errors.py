"""Each of the driver's errors has its reaction: the table of NVML's codes, row by row."""

from __future__ import annotations

import pytest

from gpumon.makers.backend import KEPT_SECONDS
from gpumon.makers.nvidia.gpu import NvmlGpu
from gpumon.makers.nvidia.library import Library
from gpumon.makers.nvidia.queries import REACTIONS, PollRate, Query, Reaction, SlowCallBudget
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus, Unknown
from tests.clock import HandClock
from tests.driver import GIB, Owner, h100, rtx4090
from tests.known import known
from tests.makers.nvml_room import Code, Furnish, Room, replace_function

POWER = "nvmlDeviceGetPowerUsage"
CLOCK = "nvmlDeviceGetClockInfo"
HANDLE = "nvmlDeviceGetHandleByIndex_v2"
MEMORY_INFO = "nvmlDeviceGetMemoryInfo_v2"
TEMPERATURE = "nvmlDeviceGetTemperatureV"
THROUGHPUT = "nvmlDeviceGetPcieThroughput"
UNSUPPORTED = [Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.OLD_VERSION]
FORBIDDEN = [Code.NO_PERMISSION, Code.OPERATING_SYSTEM]
REFUSALS = [*UNSUPPORTED, *FORBIDDEN]
PASSING = [Code.IN_USE, Code.MEMORY, Code.RESOURCES, Code.NOT_READY]


def test_every_code_that_has_a_reaction_of_its_own_is_in_the_table() -> None:
    assert set(REACTIONS) == {*(1, 2, 3, 4, 6, 7, 9, 12, 13), *range(15, 24), *(25, 26, 27)}
    assert Reaction.FAILING not in REACTIONS.values()


def test_a_reloaded_driver_is_initialised_anew_in_the_same_sample(opened: Furnish) -> None:
    room = opened(h100(), h100())
    before = room.sample()
    room.driver.reload()
    after = room.sample(60)
    assert after.trouble is None
    assert [gpu.status for gpu in after.gpus] == [GpuStatus.OK] * 2
    assert after.gpus[0].power_draw == before.gpus[0].power_draw
    assert before.host.driver_since is not None
    assert after.host.driver_since == pytest.approx(before.host.driver_since + 60, abs=0.2)


def test_what_was_learned_is_learned_anew_from_a_reloaded_driver(opened: Furnish) -> None:
    room = opened(rtx4090(temperature_slowdown=None))
    assert room.gpu().unknown["temperature_slowdown"] is Unknown.NOT_SUPPORTED
    room.card.temperature_slowdown = 97
    room.driver.reload()
    gpu = room.gpu()
    assert gpu.temperature_slowdown == 97
    assert "temperature_slowdown" not in gpu.unknown


def test_a_driver_that_stays_uninitialised_is_trouble_and_not_a_loop(sampled: Furnish) -> None:
    room = sampled(h100())
    room.driver.system.fail("nvmlDeviceGetCount_v2", Code.UNINITIALIZED)
    snapshot = room.samples(30)
    assert snapshot.trouble is not None
    assert room.calls("nvmlInit_v2") < 8
    room.driver.system.heal()
    assert room.sample(5).trouble is None


def test_a_stale_handle_is_enumerated_again(opened: Furnish) -> None:
    room = opened(h100(), rtx4090())
    kept = room.driver.cards[1].uuid
    room.driver.remove_card(0)
    room.sample()
    snapshot = room.sample()
    assert [(gpu.index, gpu.uuid) for gpu in snapshot.gpus] == [(0, kept)]


@pytest.mark.parametrize("code", [*UNSUPPORTED, Code.INVALID_ARGUMENT])
def test_what_a_card_does_not_do_is_unknown_and_remembered(opened: Furnish, code: int) -> None:
    room = opened(h100(), h100(), failing={CLOCK: code})
    first, second = room.samples(20).gpus
    assert (first.status, first.clock_sm) == (GpuStatus.OK, None)
    assert first.power_draw is not None
    assert first.unknown["clock_sm"] is Unknown.NOT_SUPPORTED
    assert room.card.times(CLOCK) == 4, "once for each clock"
    assert second.clock_sm is not None


@pytest.mark.parametrize("code", UNSUPPORTED)
def test_the_older_way_is_asked_instead_in_the_same_sample(opened: Furnish, code: int) -> None:
    room = opened(h100(temperature=61), failing={TEMPERATURE: code})
    for gpu in (room.gpu(), room.gpu()):
        assert (gpu.temperature_gpu, gpu.unknown.get("temperature_gpu")) == (61, None)
    assert room.calls(TEMPERATURE) == 1


@pytest.mark.parametrize("code", UNSUPPORTED)
@pytest.mark.parametrize("answered", [True, False])
def test_used_memory_never_contains_the_reserve_where_the_card_can_tell_them_apart(
    opened: Furnish, code: int, answered: bool
) -> None:
    room = opened(h100(memory_used=GIB), failing={} if answered else {MEMORY_INFO: code})
    card = room.card
    usual = room.gpu()
    card.fail(MEMORY_INFO, code)
    for gpu in (room.gpu(), room.gpu()):
        assert (gpu.memory_used, gpu.memory_reserved) == (None, None)
        assert gpu.unknown["memory_used"] is Unknown.NOT_SUPPORTED
        assert gpu.memory_total == usual.memory_total == card.memory_total
        assert gpu.memory_free == usual.memory_free is not None
        assert "memory_free" not in gpu.unknown
    card.heal()
    gpu = room.gpu(10)
    assert (gpu.memory_used, gpu.memory_reserved) == (GIB, card.memory_reserved)
    assert "memory_used" not in gpu.unknown
    older = room.calls("nvmlDeviceGetMemoryInfo")
    room.samples(5)
    assert room.calls("nvmlDeviceGetMemoryInfo") == older, "it is needed no longer"


@pytest.mark.parametrize("code", REFUSALS)
def test_a_second_in_which_all_is_refused_leaves_no_trace(opened: Furnish, code: int) -> None:
    room = opened(h100(power_usage=250_000, memory_used=GIB), owners=[Owner(4_000_001, memory=GIB)])
    before = room.samples(60).gpus[0]
    for fault, samples, values in ((code, 10, (None, None)), (0, 20, (250.0, GIB))):
        room.card.fail(None, fault)
        gpu = room.samples(samples).gpus[0]
        assert (gpu.power_draw, gpu.memory_used) == values
    snapshot = room.samples(140)
    after = snapshot.gpus[0]
    assert after.unknown == before.unknown
    fields = before.__struct_fields__
    known_now = {name for name in fields if getattr(after, name) is not None}
    assert known_now == {name for name in fields if getattr(before, name) is not None}
    assert [process.memory_used for process in snapshot.processes] == [GIB]


@pytest.mark.slow
@pytest.mark.parametrize("code", REFUSALS)
def test_what_a_card_once_answered_is_asked_less_and_less(sampled: Furnish, code: int) -> None:
    room = sampled(h100())
    room.card.fail(POWER, code)
    room.sample()
    before = room.calls(POWER)
    asked_after = []
    for half in range(440):
        room.sample(0.5)
        if room.calls(POWER) > before:
            before = room.calls(POWER)
            asked_after.append((half + 1) / 2)
    assert asked_after == pytest.approx([1, 6, 36, 96, 156, 216], abs=0.7)


@pytest.mark.slow
@pytest.mark.parametrize("code", REFUSALS)
def test_what_a_card_never_answered_is_asked_again_seldom(sampled: Furnish, code: int) -> None:
    room = sampled(h100(), failing={POWER: code})
    room.samples(1000, seconds=1.0)
    assert room.calls(POWER) == 6
    room.card.heal()
    assert room.samples(2, seconds=300).gpus[0].power_draw is not None
    assert "power_draw" not in room.gpu().unknown


def test_what_is_taken_up_again_before_its_turn_came_is_asked_once() -> None:
    turns, reading = SlowCallBudget(), Query(("pcie_rx",), lambda: 0, PollRate.SLOW, cost=0.02)
    clock = HandClock()
    gpu = NvmlGpu(Library(clock), clock, "GPU-0", 0, turns.add)
    turns.add(gpu, reading)
    assert list(turns.take(0.0)) == [], "there is no time for it yet"
    turns.add(gpu, reading)
    assert [turn.query for turn in turns.take(1.0)] == [reading]


def test_the_number_of_links_is_not_what_an_error_cut_off(opened: Furnish) -> None:
    room = opened(h100())
    assert room.gpu().nvlink_count == 18
    states: list[int] = []

    def fifth_refused(*arguments: object) -> int:
        states.append(1)
        return Code.NOT_SUPPORTED if len(states) == 5 else answer(*arguments)

    answer = replace_function(room, "nvmlDeviceGetNvLinkState", fifth_refused)
    counts = {room.gpu(1.0).nvlink_count for _ in range(30)}
    assert counts == {18, None}
    assert room.gpu().nvlink_count == 18


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlSystemGetDriverVersion", "driver_version"),
        ("nvmlSystemGetNVMLVersion", "library_version"),
        ("nvmlSystemGetCudaDriverVersion_v2", "cuda_version"),
    ],
)
@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.UNKNOWN])
def test_a_version_that_is_not_told_at_first_is_told_later(
    furnish: Furnish, function: str, field: str, code: int
) -> None:
    room = furnish(h100())
    room.driver.system.fail(function, code)
    room.open()
    first = room.sample().host
    room.driver.system.heal()
    later = room.sample(3).host
    assert (getattr(first, field) is None, getattr(later, field) is None) == (True, False)
    assert later.driver_since == first.driver_since
    before = room.calls(function)
    room.samples(20, seconds=3.0)
    assert room.calls(function) == before


def test_a_field_the_driver_does_not_know_leaves_the_others(opened: Furnish) -> None:
    room = opened(h100())
    room.card.fail_field(82, Code.NOT_SUPPORTED)
    gpu = room.samples(3).gpus[0]
    assert gpu.temperature_memory is None
    assert gpu.unknown["temperature_memory"] is Unknown.NOT_SUPPORTED
    assert gpu.power_instant is not None


def test_a_driver_without_field_values_leaves_everything_else(opened: Furnish) -> None:
    missing = {"nvmlDeviceGetFieldValues": Code.FUNCTION_NOT_FOUND}
    room = opened(h100(pcie_rx=7), failing=missing)
    room.card.latency(THROUGHPUT, 0)
    gpu = room.samples(40).gpus[0]
    assert gpu.power_draw is not None
    assert {gpu.unknown[field] for field in ("power_instant", "nvlink_rx")} == {
        Unknown.NOT_SUPPORTED
    }
    assert gpu.pcie_rx == 7000


def test_the_older_way_does_not_inherit_why_the_newer_one_had_no_answer(opened: Furnish) -> None:
    room = opened(h100())
    room.card.fail(TEMPERATURE, Code.UNKNOWN)
    assert room.samples(4).gpus[0].unknown["temperature_gpu"] is Unknown.NO_ANSWER
    room.card.fail(TEMPERATURE, Code.NOT_SUPPORTED)
    gpu = room.gpu(5)
    assert gpu.temperature_gpu is not None
    assert "temperature_gpu" not in gpu.unknown


CODES = [
    pytest.param(code, values, asked, reason, again, id=str(code))
    for codes, values, asked, reason, again in (
        (UNSUPPORTED, [None] * 4, 2, Unknown.NOT_SUPPORTED, 60),
        (FORBIDDEN, [None] * 4, 2, Unknown.NO_PERMISSION, 60),
        ([Code.NOT_FOUND, Code.NO_DATA], [None] * 4, 50, None, 0.1),
        (PASSING, [250.0] * 4, 4, Unknown.NO_ANSWER, 5),
        ([Code.UNKNOWN, 10, 4242], [250.0, 250.0, None, None], 7, Unknown.NO_ANSWER, 5),
    )
    for code in codes
]
"""A code, the power that the samples 1, 2, 3 and 50 with it have, how often it was asked by then,
why it is unknown later, and in how many seconds at most it is known again after the last error."""


@pytest.mark.parametrize(("code", "values", "asked", "reason", "again"), CODES)
def test_each_error_makes_one_value_unknown_with_its_reason_until_it_ends(
    sampled: Furnish,
    code: int,
    values: list[float | None],
    asked: int,
    reason: Unknown | None,
    again: float,
) -> None:
    room = sampled(h100(power_usage=250_000))
    room.card.reset_counters()
    room.card.fail(POWER, code)
    first = [room.gpu().power_draw for _ in range(50)]
    assert [*first[:3], first[-1]] == values
    assert room.calls(POWER) == asked
    gpu = room.samples(20, seconds=1 + KEPT_SECONDS / 10).gpus[0]
    assert (gpu.power_draw, gpu.unknown.get("power_draw")) == (None, reason)
    assert gpu.status is GpuStatus.OK, "one value is not the GPU"
    room.card.heal()
    room.card.power_usage = 90_000
    gpu = room.gpu(again)
    assert (gpu.power_draw, gpu.unknown.get("power_draw")) == (90.0, None)


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        *((code, GpuStatus.NO_PERMISSION, Unknown.NO_PERMISSION) for code in FORBIDDEN),
        (Code.UNKNOWN, GpuStatus.FAILING, Unknown.NO_ANSWER),
        (Code.LOST, GpuStatus.LOST, Unknown.GPU_LOST),
    ],
)
def test_a_card_that_cannot_be_opened_leaves_the_others(
    opened: Furnish, code: int, status: GpuStatus, reason: Unknown
) -> None:
    room = opened(h100(), h100(), failing={HANDLE: code})
    barred, sound = room.sample().gpus
    assert (barred.index, barred.uuid, barred.status) == (0, "index-0", status)
    assert barred.unknown["memory_used"] is reason
    assert sound.status is GpuStatus.OK
    room.card.heal()
    assert [(gpu.uuid, gpu.status) for gpu in room.sample(6).gpus] == [
        (card.uuid, GpuStatus.OK) for card in room.driver.cards
    ]


def test_without_permission_for_any_card_there_is_nothing_to_open(opened: Furnish) -> None:
    with pytest.raises(SourceError, match="no permission"):
        opened(h100(), failing={HANDLE: Code.NO_PERMISSION})


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.NO_DATA])
def test_a_list_that_is_not_there_is_empty(opened: Furnish, code: int) -> None:
    room = opened(h100(), owners=[Owner(4_000_001, memory=GIB)])
    assert room.processes()
    room.card.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)
    assert not room.processes()


def test_a_driver_that_goes_is_trouble_until_it_is_back(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(4_000_001, memory=GIB)])
    assert room.sample().processes
    room.driver.unload()
    for snapshot in (room.sample(), room.sample()):
        assert (snapshot.gpus, snapshot.processes) == ((), ())
        assert "not loaded" in known(snapshot.trouble).sentence
        assert "modprobe" in known(snapshot.trouble).advice
    before = room.calls("nvmlInit_v2")
    room.samples(300)
    assert room.calls("nvmlInit_v2") - before == pytest.approx(6, abs=1), "every five seconds"
    room.driver.reload()
    back = room.sample(5.0)
    assert back.trouble is None
    assert back.gpus[0].power_draw is not None
    assert back.processes
    assert back.host.driver_since == pytest.approx(room.clock.time(), abs=0.01)


def test_a_library_that_misses_its_parts_is_trouble(opened: Furnish) -> None:
    room = opened(h100())
    room.driver.system.fail("nvmlDeviceGetCount_v2", Code.LIBRARY_NOT_FOUND)
    assert "libnvidia-ml.so.1" in known(room.sample(3).trouble).sentence


@pytest.mark.parametrize(
    ("code", "status"),
    [(Code.LOST, GpuStatus.LOST), (Code.RESET_REQUIRED, GpuStatus.RESET_REQUIRED)],
)
def test_a_lost_card_leaves_the_others(opened: Furnish, code: int, status: GpuStatus) -> None:
    room = opened(h100(memory_used=GIB), rtx4090(), h100(memory_used=GIB))
    for card in room.driver.cards:
        card.processes = [Owner(4_000_001 + card.index, memory=GIB)]
    assert room.sample().gpus[1].fan_speeds is not None
    room.driver.cards[1].fail(None, code)
    lost_at = room.clock.time()
    snapshot = room.samples(20)
    gpu = snapshot.gpus[1]
    assert (gpu.status, gpu.name) == (status, "NVIDIA GeForce RTX 4090")
    assert gpu.status_since == pytest.approx(lost_at, abs=0.2)
    for field in ("memory_used", "fan_speed", "fan_speeds", "ecc_mode"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] is Unknown.GPU_LOST
    for other in (snapshot.gpus[0], snapshot.gpus[2]):
        assert (other.status, other.memory_used) == (GpuStatus.OK, GIB)
    assert {process.id.pid for process in snapshot.processes} == {4_000_001, 4_000_003}


def test_a_lost_card_is_asked_every_five_seconds_and_may_come_back(sampled: Furnish) -> None:
    room = sampled(h100(memory_used=GIB), h100())
    card = room.card
    card.lost = True
    room.sample()
    card.reset_counters()
    assert room.samples(100).gpus[0].status is GpuStatus.LOST
    assert sum(spent.calls for spent in card.calls().values()) == pytest.approx(2, abs=1)
    card.lost = False
    gpu = room.gpu(6)
    assert (gpu.status, gpu.memory_used) == (GpuStatus.OK, GIB)
    assert gpu.status_since == pytest.approx(room.clock.time())
    assert "memory_used" not in gpu.unknown


def test_of_a_card_that_is_back_all_that_moves_is_known_at_once(opened: Furnish) -> None:
    room = opened(h100())
    room.sample(full=False)
    room.card.lost = True
    room.sample(full=False)
    room.card.lost = False
    room.card.power_instant = 333_000
    for _ in range(100):
        gpu = room.sample(full=False).gpus[0]
        if gpu.status is GpuStatus.OK:
            break
    assert gpu.power_instant == 333.0


def test_a_card_that_only_seems_to_be_back_stays_lost_since_then(sampled: Furnish) -> None:
    room = sampled(h100(), h100())
    room.card.fail("nvmlDeviceGetTemperatureV", Code.LOST)
    first = room.gpu()
    later = room.samples(300).gpus[0]
    assert later.status is first.status is GpuStatus.LOST
    assert later.status_since == first.status_since
    assert later.name == first.name is not None


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, GpuStatus.OK) for code in (Code.UNKNOWN, *PASSING)),
        (Code.NO_PERMISSION, GpuStatus.NO_PERMISSION),
        (Code.RESET_REQUIRED, GpuStatus.RESET_REQUIRED),
    ],
)
def test_looking_for_a_lost_card_leaves_those_whose_handles_are_not_taken_away(
    opened: Furnish, code: int, status: GpuStatus
) -> None:
    room = opened(h100(), h100())
    room.driver.cards[1].lost = True
    room.sample()
    room.card.fail(HANDLE, code)
    first, lost = room.sample(6).gpus
    assert (first.status, lost.status) == (status, GpuStatus.LOST)
    assert (first.power_draw is not None) == (status is GpuStatus.OK)


def test_a_handle_that_hangs_blames_the_card_that_was_there(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    source = room.open()
    room.driver.cards[1].lost = True
    room.sample()
    blamed = []

    def handle(*arguments: object) -> int:
        assert source.current_call is not None
        blamed.append(source.current_call.gpu_uuid)
        return answer(*arguments)

    answer = replace_function(room, HANDLE, handle)
    room.sample(6)
    assert blamed == [card.uuid for card in room.driver.cards]


def test_a_mismatch_at_run_time_names_both_versions(mismatched: Room) -> None:
    room = mismatched
    room.open(proc=str(room.proc))
    room.sample()
    room.card.fail(POWER, Code.MISMATCH)
    trouble = known(room.sample().trouble)
    assert "580.65.06" in trouble.sentence
    assert "570.124.06" in trouble.sentence
    assert "Reboot" in trouble.advice
    room.card.heal()
    assert room.sample(6).trouble is None


@pytest.fixture
def mismatched(furnish: Furnish) -> Room:
    """A library and a kernel module of different versions."""
    room = furnish(h100(), driver_version="580.65.06")
    file = room.proc / "driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    return room


def test_a_card_that_answers_nothing_is_failing_and_recovers(sampled: Furnish) -> None:
    room = sampled(h100(), h100())
    room.card.fail(None, Code.UNKNOWN)
    failing, sound = room.samples(4).gpus
    assert failing.status is GpuStatus.FAILING
    assert failing.unknown["memory_used"] is Unknown.NO_ANSWER
    assert failing.unknown["power_instant"] is Unknown.NO_ANSWER
    assert sound.status is GpuStatus.OK
    since = failing.status_since
    assert room.samples(30).gpus[0].status_since == since
    room.card.heal()
    gpu = room.gpu(5)
    assert gpu.status is GpuStatus.OK
    assert gpu.memory_used is not None
    assert gpu.power_instant is not None


def test_errors_at_random_never_make_a_zero(furnish: Furnish) -> None:
    room = furnish(h100(power_usage=250_000, memory_used=GIB, utilization_gpu=50))
    room.driver.random_unknown(0.4, seed=7)
    room.open()
    for _ in range(200):
        gpu = room.gpu()
        assert gpu.power_draw in {250.0, None}
        assert gpu.memory_used in {GIB, None}
        assert gpu.utilization_gpu in {50, None}
    room.driver.random_unknown(0.0)
    gpu = room.gpu(6)
    assert (gpu.power_draw, gpu.memory_used, gpu.utilization_gpu) == (250.0, GIB, 50)


# When it is opened


@pytest.mark.parametrize(
    ("code", "sentence", "advice"),
    [
        (Code.NOT_LOADED, "not loaded", "modprobe"),
        (Code.NO_PERMISSION, "no permission", "/dev/nvidia"),
        (Code.OPERATING_SYSTEM, "no permission", "/dev/nvidia"),
        (Code.LIBRARY_NOT_FOUND, "libnvidia-ml.so.1", "container"),
        (Code.MISMATCH, "library is version 580.65.06", "Reboot"),
        (Code.MISMATCH, "module 570.124.06", "Reboot"),
        (Code.UNKNOWN, "999", "dmesg"),
    ],
)
def test_a_driver_that_cannot_be_opened_says_why_and_what_to_do(
    mismatched: Room, code: int, sentence: str, advice: str
) -> None:
    mismatched.driver.fail_init(code)
    source = mismatched.new_source(proc=str(mismatched.proc))
    with pytest.raises(SourceError) as caught:
        source.open()
    assert sentence in caught.value.sentence
    assert advice in caught.value.advice
    mismatched.driver.fail_init(0)
    source.open()
    assert source.sample().gpus


def test_a_driver_without_cards_says_so(furnish: Furnish) -> None:
    room = furnish()
    with pytest.raises(SourceError, match="no GPUs"):
        room.open()
