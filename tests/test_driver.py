"""What the simulated driver promises to the tests that stand on it."""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from tests.absent import ABSENT
from tests.driver import (
    FUNCTIONS,
    GIB,
    METRICS,
    MODELS,
    Driver,
    Mig,
    Owner,
    Wave,
    a100,
    gb10,
    h100,
    h100_mig,
    owners,
    rtx4090,
    settle,
    v100,
)
from tests.driver.build import build, build_owner
from tests.screen import PATIENCE

ROOT = Path(__file__).resolve().parents[1]

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 1, 2, 3, 4
NOT_FOUND, INSUFFICIENT_SIZE, NOT_LOADED, TIMEOUT = 6, 7, 9, 10
LOST, MISMATCH, VERSION_MISMATCH, UNKNOWN = 15, 18, 25, 999


@pytest.fixture
def driver() -> Iterator[Driver]:
    """One H100, seen by pynvml in this process."""
    with Driver([h100()]) as driver:
        driver.attach()
        pynvml.nvmlInit()
        yield driver


def code_of(call: Callable[..., object], *arguments: object) -> int:
    """Returns the NVML return code of a pynvml call."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def handle(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def raw(name: str, *arguments: object) -> int:
    """Calls a function past pynvml."""
    return int(pynvml._nvmlGetFunctionPointer(name)(*arguments))


def in_a_program(driver: Driver, code: str) -> str:
    """Runs pynvml code in a process of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", f"from pynvml import *\n{code}"],
        env=driver.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Values


def test_a_program_reads_what_the_test_has_set() -> None:
    with Driver([h100(), rtx4090()], driver_version="555.42.02") as driver:
        driver.cards[1].memory_used = 3 * GIB
        code = """nvmlInit(); h = nvmlDeviceGetHandleByIndex(1)
print(nvmlSystemGetDriverVersion(), nvmlDeviceGetName(h), nvmlDeviceGetUUID(h), sep="|")
print(nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2).used)"""
        said, used = in_a_program(driver, code).splitlines()
        assert said == f"555.42.02|NVIDIA GeForce RTX 4090|{driver.cards[1].uuid}"
        assert int(used) == 3 * GIB


def test_a_running_client_sees_a_change_at_once(driver: Driver) -> None:
    card, h = driver.cards[0], handle()
    assert pynvml.nvmlDeviceGetPowerUsage(h) == 71_300
    card.power_usage = 650_000
    assert pynvml.nvmlDeviceGetPowerUsage(h) == 650_000


def test_python_computes_the_moving_value_that_the_driver_says(driver: Driver) -> None:
    card, h = driver.cards[0], handle()
    card.power_usage = Wave(500_000, 120_000, period=3.0, phase=0.2)
    for tenth in range(60):
        driver.set_clock(tenth / 10)
        assert pynvml.nvmlDeviceGetPowerUsage(h) == card.power_usage


def test_a_wave_moves_with_the_clock(driver: Driver) -> None:
    driver.cards[0].wave("temperature", 60, 10, period=4.0)
    driver.set_clock(1.0)
    assert pynvml.nvmlDeviceGetTemperature(handle(), 0) == 70
    driver.set_clock(3.0)
    assert pynvml.nvmlDeviceGetTemperature(handle(), 0) == 50


def test_energy_is_power_times_time_and_never_falls(driver: Driver) -> None:
    card, h = driver.cards[0], handle()
    driver.set_clock(100.0)
    card.power_usage = 400_000
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(h)
    driver.set_clock(110.0)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(h) - before == 4_000_000
    card.power_usage = 100_000
    driver.set_clock(111.0)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(h) - before == 4_100_000
    assert card.total("power_usage") == pynvml.nvmlDeviceGetTotalEnergyConsumption(h)


def test_the_first_memory_struct_counts_the_reserved_as_used(driver: Driver) -> None:
    driver.cards[0].memory_used = 10 * GIB
    first = pynvml.nvmlDeviceGetMemoryInfo(handle())
    second = pynvml.nvmlDeviceGetMemoryInfo(handle(), pynvml.nvmlMemory_v2)
    assert second.used == 10 * GIB
    assert first.used == second.used + second.reserved
    assert first.free == second.free == second.total - second.used - second.reserved


def test_texts_may_be_bytes_that_are_no_utf8(driver: Driver) -> None:
    name = b"\x1b[31mH100 \xff\xfe"
    driver.cards[0].name = name
    buffer = ctypes.create_string_buffer(96)
    assert raw("nvmlDeviceGetName", handle(), buffer, 96) == 0
    assert buffer.value == name


def test_none_takes_a_metric_from_the_card(driver: Driver) -> None:
    driver.cards[0].power_usage = None
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, handle()) == NOT_SUPPORTED
    assert driver.value(0, "power_usage") is None


def test_a_misspelt_metric_is_an_error_that_names_the_right_one(driver: Driver) -> None:
    with pytest.raises(AttributeError, match="memory_used"):
        driver.cards[0].memry_used = 1
    with pytest.raises(KeyError, match="nvmlDeviceGetTemperature"):
        driver.cards[0].fail("nvmlDeviceGetTemprature", UNKNOWN)


def test_field_values_carry_their_own_codes_and_types(driver: Driver) -> None:
    driver.set_clock(20.0)
    driver.cards[0].temperature_memory = 77
    driver.cards[0].fail_field(186, UNKNOWN)
    ids = [82, 186, 194, 185, 9]
    memory, instant, slowdown, average, absent = pynvml.nvmlDeviceGetFieldValues(handle(), ids)
    assert (memory.nvmlReturn, memory.value.uiVal) == (0, 77)
    assert instant.nvmlReturn == UNKNOWN
    assert (slowdown.valueType, slowdown.value.siVal) == (pynvml.NVML_VALUE_TYPE_SIGNED_INT, -2)
    assert average.value.uiVal == driver.cards[0].power_usage
    assert absent.nvmlReturn == NOT_SUPPORTED


def test_counters_of_fields_grow_with_their_rates(driver: Driver) -> None:
    driver.set_clock(0.0)
    driver.cards[0].pcie_tx = 1_000
    driver.cards[0].nvlink_tx = 18_000
    driver.set_clock(2.0)
    wanted = [197, (138, 0xFFFFFFFF), (138, 3)]
    pcie, links, one_link = pynvml.nvmlDeviceGetFieldValues(handle(), wanted)
    assert pcie.value.ullVal == 2_000_000
    assert links.value.ullVal == 36_000
    assert one_link.value.ullVal == 2_000


# Models


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_card_that_clients_can_name(name: str, driver: Driver) -> None:
    driver.add_card(MODELS[name]())
    h = handle(1)
    assert pynvml.nvmlDeviceGetName(h)
    assert pynvml.nvmlDeviceGetPciInfo(h).busId == driver.cards[1].bus_id
    assert pynvml.nvmlDeviceGetPowerUsage(h) > 0


def test_models_lack_what_their_cards_lack(driver: Driver) -> None:
    for model in (rtx4090(), gb10(), v100(), a100()):
        driver.add_card(model)
    consumer, unified, volta, ampere = (handle(i) for i in range(1, 5))
    assert code_of(pynvml.nvmlDeviceGetEccMode, consumer) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetSerial, consumer) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetFanSpeed_v2(consumer, 1) == 30
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, unified) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetEnforcedPowerLimit, unified) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetMigMode, volta) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetRetiredPages(volta, 1) == []
    assert code_of(pynvml.nvmlDeviceGetFanSpeed, ampere) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetTemperatureThreshold(ampere, 1) == 89


def test_sixty_four_cards_are_all_told_apart() -> None:
    with Driver([h100()] * 64) as driver:
        assert len({card.bus_id for card in driver.cards}) == 64
        assert len({card.uuid for card in driver.cards}) == 64


def test_a_new_card_in_an_old_slot_starts_counting_from_nothing(driver: Driver) -> None:
    driver.set_clock(1_000.0)
    driver.remove_card(0)
    driver.add_card(a100())
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle()) == 0


# Strictness


@pytest.mark.usefixtures("driver")
def test_a_thread_that_outlived_its_driver_does_not_shut_the_next_one_down() -> None:
    go, is_client = threading.Event(), threading.Event()
    codes: list[int] = []

    def outlive() -> None:
        pynvml.nvmlDeviceGetCount()
        is_client.set()
        go.wait(PATIENCE)
        codes.append(raw("nvmlShutdown"))

    late = threading.Thread(target=outlive)
    late.start()
    assert is_client.wait(PATIENCE)
    with Driver([h100(), h100()]) as following:
        following.attach()
        pynvml.nvmlInit()
        go.set()
        late.join()
        assert codes == [UNINITIALIZED]
        assert pynvml.nvmlDeviceGetCount() == 2


@pytest.mark.usefixtures("driver")
def test_before_init_everything_is_uninitialized() -> None:
    h = handle()
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetName, h) == UNINITIALIZED
    assert code_of(pynvml.nvmlDeviceGetCount) == UNINITIALIZED
    assert code_of(pynvml.nvmlShutdown) == UNINITIALIZED


@pytest.mark.usefixtures("driver")
def test_a_wrong_struct_version_is_refused() -> None:
    memory = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2 + 1)
    temperature = pynvml.c_nvmlTemperature_v1_t(version=0)
    margin = pynvml.c_nvmlMarginTemperature_v1_t(version=0)
    for name, struct in (
        ("nvmlDeviceGetMemoryInfo_v2", memory),
        ("nvmlDeviceGetTemperatureV", temperature),
        ("nvmlDeviceGetMarginTemperature", margin),
    ):
        assert raw(name, handle(), ctypes.byref(struct)) == VERSION_MISMATCH


@pytest.mark.usefixtures("driver")
def test_null_and_invented_handles_are_invalid() -> None:
    value = ctypes.c_uint()
    assert raw("nvmlDeviceGetPowerUsage", handle(), None) == INVALID_ARGUMENT
    assert raw("nvmlDeviceGetPowerUsage", None, ctypes.byref(value)) == INVALID_ARGUMENT
    invented = ctypes.c_void_p(0x1234)
    assert raw("nvmlDeviceGetPowerUsage", invented, ctypes.byref(value)) == INVALID_ARGUMENT
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 7) == INVALID_ARGUMENT


@pytest.mark.usefixtures("driver")
def test_a_short_text_buffer_is_insufficient() -> None:
    buffer = ctypes.create_string_buffer(4)
    assert raw("nvmlDeviceGetName", handle(), buffer, 4) == INSUFFICIENT_SIZE


def test_cards_are_found_by_uuid_serial_and_bus(driver: Driver) -> None:
    card = driver.add_card(a100())
    for find, key in (
        (pynvml.nvmlDeviceGetHandleByUUID, card.uuid),
        (pynvml.nvmlDeviceGetHandleBySerial, card.serial),
        (pynvml.nvmlDeviceGetHandleByPciBusId, card.bus_id),
    ):
        assert pynvml.nvmlDeviceGetIndex(find(key.encode())) == 1
    assert code_of(pynvml.nvmlDeviceGetHandleByUUID, b"GPU-none") == NOT_FOUND


# Processes


def test_each_list_has_the_processes_of_its_type(driver: Driver) -> None:
    driver.cards[0].processes = [
        Owner(11, 1 * GIB),
        Owner(12, 2 * GIB, type="G"),
        Owner(13, None, type="C+G"),
        Owner(14, 3 * GIB, type="M"),
    ]
    h = handle()
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses(h)
    graphics = pynvml.nvmlDeviceGetGraphicsRunningProcesses(h)
    mps = pynvml.nvmlDeviceGetMPSComputeRunningProcesses(h)
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(11, GIB), (13, None)]
    assert [p.pid for p in graphics] == [12, 13]
    assert [p.pid for p in mps] == [14]


def test_a_small_process_buffer_is_told_the_size_it_needs(driver: Driver) -> None:
    driver.cards[0].processes = [Owner(pid) for pid in range(100, 105)]
    count = ctypes.c_uint(3)
    entries = (pynvml.c_nvmlProcessInfo_v3_t * 3)()
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    assert raw(name, handle(), ctypes.byref(count), entries) == INSUFFICIENT_SIZE
    assert count.value == 5


def test_a_growing_list_is_caught_up_with_by_larger_buffers(driver: Driver) -> None:
    driver.cards[0].processes = [Owner(pid) for pid in range(100, 110)]
    driver.cards[0].grow_processes(20)
    room, tries = 4, 0
    code = INSUFFICIENT_SIZE
    while code == INSUFFICIENT_SIZE:
        tries, room = tries + 1, room * 2
        count = ctypes.c_uint(room)
        entries = (pynvml.c_nvmlProcessInfo_v3_t * room)()
        code = raw(
            "nvmlDeviceGetComputeRunningProcesses_v3", handle(), ctypes.byref(count), entries
        )
    assert (code, count.value) == (0, 10)
    assert tries > 2


def test_early_535_drivers_have_a_longer_process_struct(driver: Driver) -> None:
    driver.use_long_process_structs()
    driver.cards[0].processes = [Owner(100), Owner(101), Owner(102)]
    pids = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle())]
    assert pids != [100, 101, 102]


def test_a_list_has_at_most_950_processes(driver: Driver) -> None:
    driver.cards[0].processes = [Owner(pid) for pid in range(1, 2001)]
    assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle())) == 950


def test_utilisation_comes_once_for_each_sample(driver: Driver) -> None:
    driver.cards[0].processes = [
        Owner(5, sm=40, sampled_us=1_000),
        Owner(6),
        Owner(7, sm=2, sampled_us=900),
    ]
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle(), 0)
    assert [(s.pid, s.smUtil, s.timeStamp) for s in samples] == [(5, 40, 1_000), (7, 2, 900)]
    newer = pynvml.nvmlDeviceGetProcessUtilization(handle(), 900)
    assert [s.pid for s in newer] == [5]
    assert code_of(pynvml.nvmlDeviceGetProcessUtilization, handle(), 1_000) == NOT_FOUND


@pytest.mark.slow
def test_readers_never_see_half_a_list(driver: Driver) -> None:
    card = driver.cards[0]
    lists = [[Owner(pid + 1, memory=size) for pid in range(300)] for size in (1, 2)]
    card.processes = lists[0]
    code = """from pynvml import *
nvmlInit(); h = nvmlDeviceGetHandleByIndex(0)
lists = [nvmlDeviceGetComputeRunningProcesses(h) for _ in range(200)]
assert all(len({p.usedGpuMemory for p in l}) == 1 for l in lists)"""
    with subprocess.Popen([sys.executable, "-c", code], env=driver.env()) as reader:
        while reader.poll() is None:
            for now in lists:
                card.processes = now
    assert reader.returncode == 0


# Faults


def test_a_lost_card_leaves_the_others_running(driver: Driver) -> None:
    driver.add_card(h100())
    first, second = handle(0), handle(1)
    driver.cards[0].lost = True
    assert code_of(pynvml.nvmlDeviceGetTemperature, first, 0) == LOST
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 0) == LOST
    assert pynvml.nvmlDeviceGetTemperature(second, 0) == 34
    assert pynvml.nvmlDeviceGetCount() == 2


def test_a_function_fails_until_told_otherwise(driver: Driver) -> None:
    card, h = driver.cards[0], handle()
    card.fail("nvmlDeviceGetTemperature", UNKNOWN)
    assert code_of(pynvml.nvmlDeviceGetTemperature, h, 0) == UNKNOWN
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, h) == 0
    card.fail("nvmlDeviceGetTemperature", 0)
    assert code_of(pynvml.nvmlDeviceGetTemperature, h, 0) == 0


def test_a_hung_call_returns_when_released_and_holds_up_no_other(driver: Driver) -> None:
    card, h = driver.cards[0], handle()
    card.hang("nvmlDeviceGetPowerUsage")
    done = threading.Event()

    def call() -> None:
        pynvml.nvmlDeviceGetPowerUsage(h)
        done.set()

    caller = threading.Thread(target=call)
    caller.start()
    assert pynvml.nvmlDeviceGetTemperature(h, 0) == 34
    assert not done.wait(0.05)
    card.release()
    caller.join(PATIENCE)
    assert done.is_set()


def test_closing_the_driver_frees_whoever_hangs_in_it() -> None:
    with Driver([h100()]) as driver:
        driver.cards[0].hang("nvmlDeviceGetPowerUsage")
        code = "nvmlInit(); gpu = nvmlDeviceGetHandleByIndex(0); print('asks', flush=True)"
        program = subprocess.Popen(
            [sys.executable, "-c", f"from pynvml import *\n{code}; nvmlDeviceGetPowerUsage(gpu)"],
            env=driver.env(),
            stdout=subprocess.PIPE,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == b"asks\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.3)
    assert program.wait(PATIENCE) == 0
    program.stdout.close()


def test_latency_is_spent_in_the_call(driver: Driver) -> None:
    driver.cards[0].latency("nvmlDeviceGetFanSpeed", 0.02)
    h = handle()
    started = time.perf_counter()
    code_of(pynvml.nvmlDeviceGetFanSpeed, h)
    assert time.perf_counter() - started >= 0.02


def test_pcie_throughput_takes_its_20_ms(driver: Driver) -> None:
    driver.cards[0].pcie_rx = 12_345
    started = time.perf_counter()
    assert pynvml.nvmlDeviceGetPcieThroughput(handle(), 1) == 12_345
    assert time.perf_counter() - started >= 0.02


def test_random_unknowns_come_at_their_rate_and_again_with_their_seed(driver: Driver) -> None:
    h = handle()

    def draw() -> list[int]:
        driver.random_unknown(0.3, seed=7)
        return [code_of(pynvml.nvmlDeviceGetPowerUsage, h) for _ in range(500)]

    codes = draw()
    assert 100 < codes.count(UNKNOWN) < 200
    assert draw() == codes


@pytest.mark.parametrize("code", [NOT_LOADED, MISMATCH, NO_PERMISSION])
def test_init_fails_as_told(driver: Driver, code: int) -> None:
    driver.fail_init(code)
    assert code_of(pynvml.nvmlInit) == code
    assert pynvml.nvmlDeviceGetCount() == 1, "clients from before go on"
    assert pynvml.nvmlSystemGetNVMLVersion() == "12.570.124.06"


def test_without_a_state_file_no_driver_is_loaded() -> None:
    with Driver() as driver:
        environ = driver.env()
        del environ["NVML_SIM_STATE"]
        code = "import pynvml; pynvml.nvmlInit()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
        )
    assert "NVMLError_DriverNotLoaded" in done.stderr


def test_a_client_that_outlives_the_driver_has_to_init_again(driver: Driver) -> None:
    h = handle()
    driver.unload()
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, h) == NOT_LOADED
    assert code_of(pynvml.nvmlInit) == NOT_LOADED
    driver.reload()
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, h) == UNINITIALIZED
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetPowerUsage(handle()) == 71_300


def test_handles_go_stale_when_their_card_goes(driver: Driver) -> None:
    driver.add_card(a100())
    first, second = handle(0), handle(1)
    driver.remove_card(0)
    assert code_of(pynvml.nvmlDeviceGetName, first) == INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetIndex(second) == 0
    driver.add_card(v100(), index=0)
    assert pynvml.nvmlDeviceGetIndex(second) == 1
    assert code_of(pynvml.nvmlDeviceGetName, first) == INVALID_ARGUMENT, "even in the old slot"


def test_an_old_driver_lacks_symbols() -> None:
    with Driver([h100()], without=["nvmlDeviceGetMemoryInfo_v2"]) as driver:
        code = """nvmlInit(); h = nvmlDeviceGetHandleByIndex(0)
try: nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)
except NVMLError as error: print(error.value)
print(nvmlDeviceGetMemoryInfo(h).total)"""
        assert in_a_program(driver, code).split() == ["13", str(driver.cards[0].memory_total)]


# Events


def test_an_xid_reaches_a_waiting_client(driver: Driver) -> None:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(), pynvml.nvmlEventTypeXidCriticalError, events)
    threading.Timer(0.05, driver.cards[0].xid, [79]).start()
    event = pynvml.nvmlEventSetWait_v2(events, 5_000)
    assert (event.eventType, event.eventData) == (pynvml.nvmlEventTypeXidCriticalError, 79)
    assert pynvml.nvmlDeviceGetIndex(event.device) == 0
    pynvml.nvmlEventSetFree(events)


def test_waiting_for_events_ends_with_the_timeout(driver: Driver) -> None:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(), pynvml.nvmlEventTypeXidCriticalError, events)
    driver.cards[0].event(pynvml.nvmlEventTypeClock)
    started = time.perf_counter()
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 50) == TIMEOUT
    assert 0.05 <= time.perf_counter() - started < PATIENCE


@pytest.mark.usefixtures("driver")
def test_events_no_card_can_report_are_not_supported() -> None:
    events = pynvml.nvmlEventSetCreate()
    kind = pynvml.nvmlEventTypeGpuRecoveryAction
    assert code_of(pynvml.nvmlDeviceRegisterEvents, handle(), kind, events) == NOT_SUPPORTED


def test_a_lost_card_ends_the_waiting_for_its_events(driver: Driver) -> None:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(), pynvml.nvmlEventTypeXidCriticalError, events)
    driver.cards[0].xid(79)
    driver.cards[0].lost = True
    assert pynvml.nvmlEventSetWait_v2(events, 1_000).eventData == 79
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 1_000) == LOST


# MIG


def test_mig_instances_are_children_with_handles_of_their_own(driver: Driver) -> None:
    card = driver.add_card(h100_mig())
    parent = handle(1)
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(parent) == 7
    child = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    card.mig[0].memory_used = 7 * GIB
    assert pynvml.nvmlDeviceIsMigDeviceHandle(child)
    assert pynvml.nvmlDeviceGetName(child) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert pynvml.nvmlDeviceGetUUID(child) == card.mig[0].uuid.decode()
    assert pynvml.nvmlDeviceGetMemoryInfo(child, pynvml.nvmlMemory_v2).used == 7 * GIB
    assert pynvml.nvmlDeviceGetGpuInstanceId(child) == 2
    assert pynvml.nvmlDeviceGetAttributes_v2(child).multiprocessorCount == 60
    back = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(child)
    assert pynvml.nvmlDeviceGetUUID(back) == card.uuid
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, 2) == NOT_FOUND


def test_a_mig_parent_has_no_utilisation(driver: Driver) -> None:
    driver.add_card(h100_mig())
    for call in (pynvml.nvmlDeviceGetUtilizationRates, pynvml.nvmlDeviceGetEncoderUtilization):
        assert code_of(call, handle(1)) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetProcessUtilization, handle(1), 0) == NOT_SUPPORTED


def test_an_instance_lists_its_own_processes_and_the_parent_all(driver: Driver) -> None:
    card = driver.add_card(h100_mig())
    card.processes = [
        Owner(21, gpu_instance=2, compute_instance=0),
        Owner(22, gpu_instance=5, compute_instance=0),
    ]
    parent = handle(1)
    child = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 1)
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(child)] == [22]
    assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(parent)) == 2


def test_instance_handles_go_stale_when_the_layout_changes(driver: Driver) -> None:
    card = driver.add_card(h100_mig())
    parent = handle(1)
    child = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    card.set_mig([Mig("7g.80gb", 0, memory_total=79 * GIB)])
    assert code_of(pynvml.nvmlDeviceGetUUID, child) == INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetUUID(parent) == card.uuid


# Counting


def test_calls_and_their_time_are_counted_by_function_and_card(driver: Driver) -> None:
    driver.add_card(h100())
    first, second = handle(0), handle(1)
    driver.reset_counters()
    driver.cards[0].latency("nvmlDeviceGetPowerUsage", 0.001)
    for h in (first, first, second):
        pynvml.nvmlDeviceGetPowerUsage(h)
    assert driver.calls()["nvmlDeviceGetPowerUsage"].calls == 3
    assert driver.calls()["nvmlDeviceGetPowerUsage"].seconds >= 0.002
    assert driver.cards[1].calls()["nvmlDeviceGetPowerUsage"].calls == 1
    driver.reset_counters()
    assert driver.calls() == {}


def test_a_call_costs_next_to_nothing(driver: Driver) -> None:
    h, costs = handle(), []
    for _ in range(10):  # so that some are measured while nobody else has the processor
        driver.reset_counters()
        for _ in range(200):
            pynvml.nvmlDeviceGetPowerUsage(h)
        calls, seconds = driver.calls()["nvmlDeviceGetPowerUsage"]
        costs.append(seconds / calls)
    assert min(costs) < 20e-6


def test_every_function_that_is_counted_is_exported(driver: Driver) -> None:
    library = ctypes.CDLL(str(driver.library))
    assert all(hasattr(library, name) for name in FUNCTIONS)
    assert len(FUNCTIONS) > 100


def test_every_metric_is_one_that_some_model_has() -> None:
    placed = {"minor_number", "pci_bus", "board_id", "pcie_switch", "numa_node"}
    optional = {"temperature_acoustic", "nvlink_peers"}
    given = {m for make in MODELS.values() for m, v in make().numbers.items() if v is not None}
    assert set(METRICS) - given - placed - optional == set()
    assert not math.isnan(sum(v for v in h100().numbers.values() if isinstance(v, int | float)))


# Owners


def test_a_hundred_owners_start_in_no_time_under_their_own_names() -> None:
    started = time.process_time()
    with owners(100, ["python", "train.py", "--config", "big.yaml"]) as alive:
        assert time.process_time() - started < 2
        command = Path(f"/proc/{alive[50].pid}/cmdline").read_bytes()
        assert command == b"python\0train.py\0--config\0big.yaml\0"
    assert all(process.returncode is not None for process in alive)


def test_owners_can_be_heavy_stubborn_and_have_children() -> None:
    with owners(1, rss_mib=32, stubborn=True, children=2, device=os.devnull) as (owner,):
        process = psutil.Process(owner.pid)
        assert process.memory_info().rss > 32 * 2**20
        assert len(process.children()) == 2
        assert os.devnull in [os.path.realpath(f"/proc/{owner.pid}/fd/{n}") for n in range(3, 6)]
        owner.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            owner.wait(0.1)


def test_no_owner_is_left_when_its_starter_is_killed() -> None:
    code = """import os, signal
from tests.driver import owners
with owners(3) as started:
    print(*(process.pid for process in started), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    deadline = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "an owner lives on"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_settled_owners_account_for_the_memory_in_use(driver: Driver) -> None:
    driver.add_card(h100_mig())
    settle(driver, range(1000, 1020))
    for card in driver.cards:
        assert card.memory_used == sum(owner.memory or 0 for owner in card.processes)
    assert sum(len(card.processes) for card in driver.cards) == 20


# Peers and people


def test_two_drivers_serve_one_process_one_after_the_other() -> None:
    for name in ("First", "Second"):
        with Driver([h100(name=name)]) as driver:
            driver.attach()
            pynvml.nvmlInit()
            assert pynvml.nvmlDeviceGetName(handle()) == name
            pynvml.nvmlShutdown()


def peer(name: str) -> str:
    """Returns the path of another monitor, or skips the test."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


def test_gpustat_runs_on_it() -> None:
    with Driver([h100(memory_used=5 * GIB), rtx4090(), h100_mig()]) as driver:
        out = subprocess.check_output([peer("gpustat"), "--json"], env=driver.env())
    cards = json.loads(out)["gpus"]
    assert [card["name"] for card in cards][1] == "NVIDIA GeForce RTX 4090"
    assert cards[0]["temperature.gpu"] == 34


def test_nvitop_runs_on_it() -> None:
    with Driver([h100(), h100_mig(), gb10()]) as driver, owners(4) as alive:
        settle(driver, [process.pid for process in alive])
        command = [peer("nvitop"), "--once", "--ascii"]
        out = subprocess.check_output(command, env=driver.env(), text=True)
    assert "H100 80GB HBM3" in out
    assert "3g.40gb" in out
    assert str(alive[0].pid) in out


def test_the_command_line_runs_a_program_on_a_simulated_machine() -> None:
    program = "from pynvml import *; nvmlInit(); print(nvmlDeviceGetCount())"
    options = ["--cards", "h100:2,gb10", "--processes", "3", "--alive", "--fault", "hot:1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.driver", *options, "--", sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "3"


@pytest.mark.slow
def test_it_compiles_to_the_same_bytes_where_there_is_nothing_but_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build()
    monkeypatch.setattr(sys.modules[build.__module__], "CACHE", tmp_path)
    # The compiler takes its own parts from its cache, and compiles the driver anew.
    monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "zig"))
    monkeypatch.setenv("PATH", ABSENT)
    monkeypatch.delenv("HOME", raising=False)
    assert build() != before
    assert build().read_bytes() == before.read_bytes()
    assert build_owner().exists()
