"""What a sample of the NVML source holds, when it is asked, and what that costs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import pynvml
import pytest

from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.gpm import METRICS
from gpumon.makers.nvidia.gpu import NvmlGpu
from gpumon.makers.nvidia.metric_readers import metric_queries
from gpumon.makers.nvidia.queries import FieldQuery, Query
from gpumon.makers.source import SourceError
from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GPU_METRICS, GpuStatus, Unknown
from tests.clock import HandClock
from tests.command import run_program
from tests.driver import (
    GIB,
    MODELS,
    Model,
    Owner,
    Wave,
    a100,
    b200,
    gb10,
    h100,
    layout,
    owners,
    rtx4090,
    settle,
    v100,
)
from tests.known import known
from tests.makers.nvml_room import (
    PCIE_THROUGHPUT,
    BlockingClock,
    Code,
    Furnish,
    Room,
    join_watchers,
)
from tests.nvml_source import NvmlSource

RENAMED: dict[str, tuple[str, float]] = {
    "temperature_gpu": ("temperature", 1),
    "power_draw": ("power_usage", 1e-3),
    "power_instant": ("power_instant", 1e-3),
    "power_average": ("power_usage", 1e-3),
    "power_limit": ("power_limit_enforced", 1e-3),
    "power_limit_min": ("power_limit_min", 1e-3),
    "power_limit_max": ("power_limit_max", 1e-3),
    "remapped_rows_correctable": ("remapped_corrected", 1),
    "remapped_rows_uncorrectable": ("remapped_uncorrected", 1),
    "remapped_rows_pending": ("remapped_pending", 1),
    "remapped_rows_failure": ("remapped_failed", 1),
    "retired_pages_single_bit": ("retired_single_bit", 1),
    "retired_pages_double_bit": ("retired_double_bit", 1),
    "retired_pages_pending": ("retired_pending", 1),
}
"""Fields of the model whose name or unit is not the driver's."""

IN_WORDS = {
    *("index", "uuid", "name", "pci_bus_id", "architecture", "compute_capability"),
    *("vbios_version", "serial", "compute_mode", "recovery_action"),
}
DERIVED = {
    *("memory_free", "memory_unified", "energy", "pcie_rx", "pcie_tx", "nvlink_active"),
    *("nvlink_rx", "nvlink_tx", "nvlink_errors", "xid", "xid_at"),
}
AS_THE_DRIVER_SAYS: dict[str, tuple[str, float]] = RENAMED | {
    metric.field: (metric.field, 1)
    for metric in GPU_METRICS
    if metric.field in layout.METRICS.keys() - RENAMED.keys() - METRICS.keys() - IN_WORDS - DERIVED
}
"""Field of the model -> the driver's number, and how many model units it is worth."""


FLAGS = {
    *("ecc_mode", "remapped_pending", "remapped_failed", "retired_pending", "persistence_mode"),
    *("display_mode", "display_active", "mig_mode"),
}


SMALL = ("pstate", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
"""Metrics whose values are low."""


def distinct(make: Callable[..., Model], first: int, low: int) -> Model:
    """A card no two of whose numbers are alike, so that none is taken for another.

    They begin with ``first``, and those that are low with ``low``.
    """
    numbers = [metric for metric, value in make().numbers.items() if value is not None]
    told = {metric for metric, _ in AS_THE_DRIVER_SAYS.values()} - FLAGS
    changes = {metric: first + place for place, metric in enumerate(numbers) if metric in told}
    others = {metric: low + place for place, metric in enumerate(SMALL)}
    # More than any part of it.
    others |= {metric: 10**9 * first + len(metric) for metric in ("memory_total", "bar1_total")}
    others |= {"nvlink_count": 12}
    changes |= {metric: value for metric, value in others.items() if metric in changes}
    return make(**changes, **{flag: 1 for flag in FLAGS - {"mig_mode"} if flag in numbers})


def test_every_metric_of_the_table_is_read() -> None:
    told = {*AS_THE_DRIVER_SAYS, *IN_WORDS, *DERIVED, *METRICS}
    assert told == {metric.field for metric in GPU_METRICS if metric.is_for(MAKER)}


@pytest.mark.parametrize("make", [h100, a100, b200, v100, rtx4090])
def test_every_number_is_the_drivers(opened: Furnish, make: Callable[..., Model]) -> None:
    room = opened(distinct(make, 20, 1), distinct(make, 31, 7))
    for card, gpu in zip(room.driver.cards, room.sample().gpus, strict=True):
        for field, (metric, unit) in AS_THE_DRIVER_SAYS.items():
            expected = card.get(metric)
            if expected is None:
                assert getattr(gpu, field) is None, field
                assert gpu.unknown[field] is Unknown.NOT_SUPPORTED, field
            else:
                assert getattr(gpu, field) == pytest.approx(expected * unit), field
                assert field not in gpu.unknown, field


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_the_first_sample_holds_all_that_does_not_make_it_wait(
    opened: Furnish, model: Callable[..., Model]
) -> None:
    room = opened(model())
    gpu = room.gpu(0.0)
    for field, (metric, unit) in AS_THE_DRIVER_SAYS.items():
        if gpu.mig_mode and field.startswith("utilization"):
            continue
        if gpu.memory_unified and field in {"memory_total", "memory_used"}:
            continue
        expected, value = room.card.get(metric), getattr(gpu, field)
        assert value == (None if expected is None else pytest.approx(expected * unit)), field
        assert (field in gpu.unknown) == (value is None), field
    assert room.calls(PCIE_THROUGHPUT) == 0


def test_garbage_is_not_looked_for_in_what_a_sample_leaves(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(os.getpid(), memory=2**30)])
    snapshot = room.sample()
    (process,) = snapshot.processes
    left = (snapshot, snapshot.host, *snapshot.gpus, process, process.id, *process.uses)
    assert not any(map(gc.is_tracked, left))


def test_what_a_card_is_is_said_in_the_fields_own_words(opened: Furnish) -> None:
    room = opened(h100())
    gpu, card = room.gpu(), room.card
    assert (gpu.index, gpu.uuid, gpu.pci_bus_id) == (0, card.uuid, card.bus_id)
    assert (gpu.name, gpu.architecture) == ("NVIDIA H100 80GB HBM3", "Hopper")
    assert (gpu.compute_capability, gpu.vbios_version) == ("9.0", "96.00.89.00.01")
    assert (gpu.serial, gpu.nvlink_active, gpu.nvlink_count) == (card.serial, 18, 18)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(
            h100(compute_mode=3, recovery_action=4),
            {"compute_mode": "Exclusive_Process", "recovery_action": "Drain and Reset"},
            id="modes",
        ),
        *(
            pytest.param(h100(recovery_action=number), {"recovery_action": name}, id=name)
            for number, name in (
                *((5, "Recover IMEX Domain"), (6, "Bus Reset"), (7, "System Reboot")),
                (77, "unknown (77)"),
            )
        ),
        pytest.param(
            h100(compute_mode=9, architecture=42),
            {"compute_mode": "unknown (9)", "architecture": "unknown (42)"},
            id="numbers without a name",
        ),
        pytest.param(h100(architecture=2**32 - 1), {"architecture": None}, id="no architecture"),
        pytest.param(h100(pstate=32), {"pstate": None}, id="no performance state"),
        pytest.param(
            h100(name=b"bad \xff\x1b[31mname", serial=b"\xc3("),
            {"name": "bad \ufffd\x1b[31mname", "serial": "\ufffd("},
            id="escape sequences and broken UTF-8",
        ),
        pytest.param(
            rtx4090(fan_speed=112),
            {"fan_speed": 112, "fan_speeds": (112, 112)},
            id="a fan above 100 %",
        ),
        pytest.param(
            h100(nvlink_down=0b101), {"nvlink_active": 16, "nvlink_count": 18}, id="links down"
        ),
    ],
)
def test_what_the_driver_says_is_shown_as(
    opened: Furnish, model: Model, expected: dict[str, object]
) -> None:
    gpu = opened(model).gpu()
    assert {field: getattr(gpu, field) for field in expected} == expected


def test_the_host_names_the_versions(opened: Furnish) -> None:
    room = opened(h100(), driver_version="580.65.06", cuda_version=13_010)
    host = room.sample().host
    versions = (host.driver_version, host.library_version, host.cuda_version)
    assert versions == ("580.65.06", "12.580.65.06", "13.1")
    assert host.driver_since == pytest.approx(room.clock.time(), abs=0.2)
    assert host.memory_total
    assert host.cpu_count


def test_reserved_memory_is_not_used_memory(opened: Furnish) -> None:
    room = opened(h100(memory_used=5 * GIB))
    gpu, reserved = room.gpu(), room.card.memory_reserved
    assert (gpu.memory_used, gpu.memory_reserved) == (5 * GIB, reserved)
    assert gpu.memory_total == 5 * GIB + known(gpu.memory_free) + known(reserved)


def test_energy_is_the_drivers_counter_in_joules(opened: Furnish) -> None:
    room = opened(h100(power_usage=300_000))
    assert room.gpu().energy == pytest.approx(room.card.total("power_usage") / 1000)


# Paces


def test_static_values_are_asked_once(opened: Furnish) -> None:
    room = opened(*[h100()] * 3)
    room.samples(60)
    for function in (
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetTemperatureThreshold",
    ):
        assert room.calls(function) in {3, 6, 12}, function


def test_a_static_value_that_could_not_be_read_is_asked_again(opened: Furnish) -> None:
    room = opened(h100(), failing={"nvmlDeviceGetName": 999})
    assert room.gpu().name is None
    room.card.heal()
    assert room.gpu(seconds=3).name == "NVIDIA H100 80GB HBM3"


def test_fast_values_are_read_at_every_sample(opened: Furnish) -> None:
    room = opened(h100())
    for watts in (100, 200, 300):
        room.card.power_usage = watts * 1000
        assert room.gpu().power_draw == watts


def test_what_nobody_shows_is_read_once_a_second_unless_somebody_keeps_it(opened: Furnish) -> None:
    room = opened(h100())
    kept = []
    for sample in range(21):
        room.card.power_instant = sample * 1000
        kept.append(room.sample(full=sample >= 18).gpus[0].power_instant)
    assert kept == [0.0] * 10 + [10.0] * 8 + [18.0, 19.0, 20.0]


@pytest.mark.parametrize(
    ("metric", "value", "field", "expected", "samples"),
    [
        ("power_limit_enforced", 500_000, "power_limit", 500.0, 21),
        ("temperature_memory", 71, "temperature_memory", 71, 21),
        ("persistence_mode", 0, "persistence_mode", False, 101),
    ],
)
def test_slow_values_follow_within_their_period(
    sampled: Furnish, metric: str, value: int, field: str, expected: object, samples: int
) -> None:
    room = sampled(*[h100()] * 8)
    for card in room.driver.cards:
        setattr(card, metric, value)
    before = room.calls("nvmlDeviceGetPersistenceMode")
    assert {getattr(gpu, field) for gpu in room.samples(samples).gpus} == {expected}
    assert room.calls("nvmlDeviceGetPersistenceMode") - before <= 2 * 8, "a mode hardly changes"


def test_a_mode_that_was_not_told_is_asked_for_again_soon(sampled: Furnish) -> None:
    room = sampled(h100())
    room.card.persistence_mode = 0
    room.card.fail("nvmlDeviceGetPersistenceMode", Code.UNKNOWN)
    room.samples(120)
    room.card.heal()
    assert room.gpu(7.0).persistence_mode is False


def test_slow_questions_are_spread_over_the_samples(opened: Furnish) -> None:
    room = opened(*[h100()] * 8)
    room.samples(5)
    slow = (
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetEncoderUtilization",
    )
    counts = []
    for _ in range(20):
        before = sum(map(room.calls, slow))
        room.sample()
        counts.append(sum(map(room.calls, slow)) - before)
    assert sum(counts) == pytest.approx(24, abs=3)
    assert max(counts) <= 4


@pytest.mark.parametrize(
    ("samples", "seconds", "lists"),
    [pytest.param(31, 0.1, 4, id="once a second"), pytest.param(6, 1.0, 6, id="at slower samples")],
)
def test_how_often_processes_are_listed(
    opened: Furnish, samples: int, seconds: float, lists: int
) -> None:
    room = opened(h100())
    room.samples(samples, seconds)
    assert room.calls("nvmlDeviceGetComputeRunningProcesses_v3") == lists


def test_fields_are_read_in_one_call_a_sample(sampled: Furnish) -> None:
    room = sampled(h100())
    before = room.calls("nvmlDeviceGetFieldValues")
    room.samples(4, seconds=0.01)
    assert room.calls("nvmlDeviceGetFieldValues") - before == 4


def test_no_field_is_asked_whose_number_was_given_away_anew() -> None:
    fields = {reading.field for reading in all_questions() if isinstance(reading, FieldQuery)}
    assert fields == {52, 59, 82, 185, 186, 138, 139, 197, 198, 202, 204, 230}


def all_questions() -> Iterator[Query]:
    """What may be asked of a card, older ways included."""
    card = NvmlGpu(_NoLibrary(), HandClock(), "GPU-0", 0, lambda *_: None)  # type: ignore[arg-type] # asks nothing
    for question in metric_queries(card):
        reading: Query | None = question
        while reading is not None:
            yield reading
            reading = reading.otherwise


class _NoLibrary:
    hanging: Mapping[str, float] = {}

    def has(self, _: str) -> bool:
        return True

    def call(self, *_: object) -> int:
        raise AssertionError

    ask = text = call

    def prepared(self, *_: object) -> Callable[[], int]:
        return self.call

    reader = prepared


@pytest.mark.parametrize("cards", [1, 2, 8])
def test_ten_samples_a_second_hold_though_pcie_calls_block(furnish: Furnish, cards: int) -> None:
    room = furnish(*(a100(pcie_rx=2_000, pcie_tx=1_000) for _ in range(cards)))
    clock = room.clock = BlockingClock(room.driver.cards)
    source = room.open()
    room.sample(0.0)
    began, start = clock.blocked(), clock.monotonic()
    seconds = 30
    for _ in range(seconds * 10):
        before = clock.blocked()
        deadline = clock.monotonic() + 0.1
        source.sample()
        assert clock.blocked() - before <= 1
        assert clock.monotonic() < deadline
        clock.now += deadline - clock.monotonic()
    spent = 0.020 * (clock.blocked() - began)
    assert spent / (clock.monotonic() - start) <= 0.055
    for gpu in source.sample().gpus:
        assert (gpu.pcie_rx, gpu.pcie_tx) == (2_000_000.0, 1_000_000.0)


def test_time_that_was_not_used_is_not_saved_for_a_burst(furnish: Furnish) -> None:
    room = furnish(*[h100()] * 8)
    clock = room.clock = BlockingClock(room.driver.cards)
    source = room.open()
    room.samples(100)
    assert clock.blocked() == 0, "these have counters"
    for card in room.driver.cards:
        for field in (197, 198):
            card.fail_field(field, Code.NOT_SUPPORTED)
    for _ in range(100):
        before = clock.blocked()
        clock.now += 0.1
        source.sample()
        assert clock.blocked() - before <= 1
    assert clock.blocked() >= 16


def test_with_seconds_between_samples_nothing_waits_for_many_of_them(furnish: Furnish) -> None:
    room = furnish(*[a100()] * 8)
    clock = room.clock = BlockingClock(room.driver.cards)
    source = room.open()
    for _ in range(3):
        source.sample()
        clock.now += 5.0
    assert all(gpu.pcie_rx is not None for gpu in source.sample().gpus)


def test_a_call_that_turns_out_dear_is_paid_from_the_same_purse(furnish: Furnish) -> None:
    room = furnish(*[h100()] * 8)
    clock = room.clock = BlockingClock(room.driver.cards, "nvmlDeviceGetBAR1MemoryInfo", 0.030)
    source = room.open()
    source.sample()
    before = clock.blocked()
    for _ in range(200):
        clock.now += 0.1
        source.sample()
    spent = 0.030 * (clock.blocked() - before)
    assert 0 < spent <= 0.055 * (20 + spent)


def test_pcie_traffic_comes_from_counters_that_do_not_block(opened: Furnish) -> None:
    room = opened(h100(pcie_rx=3_000, pcie_tx=500))
    assert room.gpu(0.0).unknown["pcie_rx"] is Unknown.NOT_READ
    room.driver.set_clock(14.0)
    gpu = room.gpu(4.0)
    assert (gpu.pcie_rx, gpu.pcie_tx) == pytest.approx((3_000_000, 500_000))
    assert "pcie_rx" not in gpu.unknown
    assert room.calls(PCIE_THROUGHPUT) == 0


def test_a_counter_of_four_bytes_is_no_measure_of_traffic() -> None:
    four, eight = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    counters = {138, 139, 197, 198, 202, 204}
    for reading in all_questions():
        if isinstance(reading, FieldQuery) and reading.field in counters:
            assert reading.keep(four, 5) == Code.NOT_SUPPORTED
            assert reading.keep(eight, 5) == pynvml.NVML_SUCCESS


@pytest.mark.parametrize("model", [h100, b200], ids=["NVLink 4", "NVLink 5"])
def test_nvlink_traffic_is_the_difference_of_two_counters(
    sampled: Furnish, model: Callable[..., Model]
) -> None:
    room = sampled(model(nvlink_rx=8_192, nvlink_tx=1_024))
    room.sample(2.1)
    room.driver.set_clock(12.0)
    gpu = room.gpu(2.0)
    assert gpu.nvlink_rx == pytest.approx(8_192 * 1024, rel=1e-4)
    assert gpu.nvlink_tx == pytest.approx(1_024 * 1024, rel=1e-6)


def test_nvlink_errors_are_replays_and_recoveries_of_all_links(opened: Furnish) -> None:
    room = opened(h100(nvlink_replays=7), b200(), rtx4090())
    assert room.gpu().nvlink_errors == 7
    room.card.nvlink_recoveries = 2
    counted, *others = room.sample(5.0).gpus
    assert counted.nvlink_errors == 9
    for other in others:
        assert other.nvlink_errors is None
        assert other.unknown["nvlink_errors"] is Unknown.NOT_SUPPORTED


def test_a_counter_that_went_back_gives_no_rate(opened: Furnish) -> None:
    room = opened(h100(nvlink_rx=8_192))
    room.driver.set_clock(100.0)
    room.samples(2, seconds=2.1)
    room.driver.set_clock(50.0)
    gpu = room.gpu(2.1)
    assert (gpu.nvlink_rx, gpu.unknown["nvlink_rx"]) == (None, Unknown.NOT_READ)
    room.driver.set_clock(52.1)
    assert room.gpu(2.1).nvlink_rx == pytest.approx(8_192 * 1024, rel=1e-4)


def test_a_card_that_does_not_do_something_is_asked_once(opened: Furnish) -> None:
    room = opened(gb10(), h100())
    room.samples(60)
    memory = "nvmlDeviceGetMemoryInfo_v2"
    for function in (memory, "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFanSpeed"):
        assert room.card.times(function) == 1
    assert room.driver.cards[1].times(memory) == 60


def test_a_snapshot_never_changes(opened: Furnish) -> None:
    room = opened(h100(memory_used=GIB))
    first = room.sample()
    unknown = dict(first.gpus[0].unknown)
    room.card.memory_used = 2 * GIB
    room.card.fail("nvmlDeviceGetClockInfo", Code.NOT_SUPPORTED)
    room.card.lost = True
    room.samples(5)
    assert first.gpus[0].memory_used == GIB
    assert first.gpus[0].unknown == unknown


def test_a_sample_of_eight_cards_asks_no_more_than_it_says(opened: Furnish) -> None:
    room = opened(*[h100()] * 8)
    room.samples(30)
    room.driver.reset_counters()
    room.samples(100)
    calls = sum(spent.calls for spent in room.driver.calls().values())
    # Twelve calls a card and sample; the slow and the medium ones are the rest.
    assert calls / 100 / 8 < 12 + 6


def test_older_variants_are_asked_where_newer_ones_are_missing(opened: Furnish) -> None:
    newer = [
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetPciInfo_v3",
    ]
    card = h100(temperature=61, clock_event_reasons=0x20)
    room = opened(card, failing=dict.fromkeys(newer, Code.FUNCTION_NOT_FOUND))
    for _ in range(2):
        gpu = room.gpu()
        assert (gpu.temperature_gpu, gpu.clock_event_reasons) == (61, 0x20)
        assert gpu.pci_bus_id == room.card.bus_id
    assert [room.calls(function) for function in newer] == [1, 1, 1]


def test_only_the_cards_that_were_chosen_are_read(opened: Furnish) -> None:
    room = opened(*[h100()] * 4, selection=parse_selection("1,3"))
    assert [gpu.index for gpu in room.samples(30).gpus] == [1, 3]
    assert not room.card.calls()
    assert not room.driver.cards[2].calls()


def test_a_card_may_be_chosen_by_the_beginning_of_its_uuid(furnish: Furnish) -> None:
    room = furnish(h100(), a100(), rtx4090())
    uuid = room.driver.cards[1].uuid
    room.open(parse_selection(uuid[:12].upper()))
    assert [gpu.uuid for gpu in room.sample().gpus] == [uuid]


def test_a_choice_without_a_card_says_which_there_are(opened: Furnish) -> None:
    with pytest.raises(SourceError) as caught:
        opened(h100(), rtx4090(), selection=parse_selection("7"))
    assert "There is no GPU 7" in caught.value.sentence
    assert caught.value.advice == "This machine has GPUs 0 to 1."


def test_open_and_close_may_be_called_again(furnish: Furnish) -> None:
    room = furnish(h100())
    source = room.open()
    source.open()
    assert room.sample().gpus
    source.close()
    source.close()
    source.open()
    assert room.sample().gpus[0].status is GpuStatus.OK


def test_closing_gives_back_every_reference_on_the_driver(furnish: Furnish) -> None:
    room = furnish(h100())
    source = room.open()
    room.sample()
    source.close()
    join_watchers()
    assert room.calls("nvmlShutdown") == room.calls("nvmlInit_v2") == 2


def test_a_source_that_was_never_opened_may_be_closed() -> None:
    source = NvmlSource()
    source.close()
    assert source.current_call is None
    assert source.driver_seconds == 0.0


def test_time_inside_the_driver_is_counted(furnish: Furnish) -> None:
    room = furnish(a100())
    room.clock = BlockingClock(room.driver.cards)
    source = room.open()
    source.sample()
    for _ in range(9):
        room.clock.now += 0.1
        source.sample()
    blocked = room.calls(PCIE_THROUGHPUT)
    assert blocked
    assert source.driver_seconds == pytest.approx(0.020 * blocked)


def output(room: Room, code: str) -> str:
    """What a program prints on a machine whose first GPU this process uses."""
    room.card.processes = [Owner(os.getpid(), memory=GIB)]
    return run_program([sys.executable, "-c", code], room.driver.env(), check=True).stdout


def test_a_sample_needs_neither_psutil_nor_what_the_binding_never_calls(furnish: Furnish) -> None:
    code = (
        "import sys; from gpumon.makers.machine import this_machine;"
        "source = this_machine(); source.open(); assert source.sample().processes; source.close();"
        "print({'ctypes.util', 'psutil', 'textual', 'rich'} & sys.modules.keys())"
    )
    assert output(furnish(h100()), code) == "set()\n"


_STARVED = """
import resource, sys
from gpumon.makers.machine import this_machine

LATER = {"gpumon.makers.accidents", "gpumon.host.cgroup_memory"}
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
source = this_machine()
source.open()
source.sample(full=False)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
missing = LATER - sys.modules.keys()
starved = [len(source.sample().gpus) for _ in range(3)]
still_missing = LATER - sys.modules.keys()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
source.sample()
print(bool(missing), still_missing == missing, starved, LATER - sys.modules.keys())
"""


def test_a_lack_of_files_ends_no_sampling_and_who_needs_one_tries_again(furnish: Furnish) -> None:
    assert output(furnish(h100(), h100()), _STARVED) == "True True [2, 2, 2] set()\n"


def test_a_busy_machine_reads_as_it_is(opened: Furnish) -> None:
    room = opened(*[h100(power_usage=Wave(600_000, 50_000, 3))] * 8)
    with owners(16) as started:
        pids = [process.pid for process in started]
        settle(room.driver, pids)
        snapshot = room.sample()
        for card, gpu in zip(room.driver.cards, snapshot.gpus, strict=True):
            assert gpu.memory_used == card.memory_used
            assert gpu.power_draw == (card.power_usage or 0) / 1000
        assert {process.id.pid for process in snapshot.processes} == set(pids)
