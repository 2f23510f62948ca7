"""What is asked of a card: which call gives which field, and how its answer is read.

What each call means and costs stands in nvml.h and in ``tests/driver/README.md``. A new metric is
a line in ``metrics.py`` and a question here.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from typing import TYPE_CHECKING

from gpumon.model import Unknown
from gpumon.sources.nvml.fields import UNSIGNED_LONG, UNSIGNED_LONG_LONG
from gpumon.sources.nvml.library import Code
from gpumon.sources.nvml.mig import mig_question
from gpumon.sources.nvml.reading import FieldReading, Pace, Reading
from gpumon.sources.nvml.structures import (
    TEMPERATURE_GPU,
    Bar1Memory,
    MarginTemperature,
    Memory,
    MemoryV2,
    PciInfo,
    Temperature,
    Utilization,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.clock import Clock
    from gpumon.sources.nvml.card import Card

PCIE_THROUGHPUT_SECONDS = 0.020
"""nvml.h: the driver measures for 20 ms, and the caller waits."""

ARCHITECTURES: dict[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""``NVML_DEVICE_ARCH_*`` of nvml.h."""

COMPUTE_MODES: dict[int, str] = {
    0: "Default",
    1: "Exclusive_Thread",
    2: "Prohibited",
    3: "Exclusive_Process",
}
"""``nvmlComputeMode_t``, in nvidia-smi's words."""

RECOVERY_ACTIONS: dict[int, str] = {
    0: "None",
    1: "Reset",
    2: "Reboot",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "Bus Reset",
    7: "System Reboot",
}
"""``nvmlDeviceGpuRecoveryAction_t``, in nvidia-smi's words; others are named by their number."""

INTEGRATED: frozenset[tuple[int, int]] = frozenset(
    {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}
)
"""Compute capabilities that only chips without memory of their own have: the Jetsons (Nano, TX2,
Xavier, Orin, Thor under both its numbers) and GB10 of DGX Spark. From NVIDIA's table at
developer.nvidia.com/cuda-gpus; Grace Hopper (9.0) has its own memory and is none of them."""

_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
"""``nvmlClockType_t``."""

_ARCHITECTURE_UNKNOWN = 2**32 - 1
_PSTATE_UNKNOWN = 32
_NVLINK_MAX_LINKS = 36


def questions(card: Card) -> Iterator[Reading]:
    """Everything that is asked of a card, each with the older ways to ask it.

    Memory and power come first: they are what a person looks at.
    """
    yield from _fast(card)
    yield from _static(card)
    yield from _slow(card)
    yield from _rare(card)


def _fast(card: Card) -> Iterator[Reading]:
    yield _memory(card)
    yield _utilization(card)
    yield _number(card, "power_draw", "nvmlDeviceGetPowerUsage", convert=_thousandth)
    yield _temperature(card)
    yield _number(card, "clock_sm", "nvmlDeviceGetClockInfo", _CLOCKS["sm"])
    yield _wide(
        card,
        "clock_event_reasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
        otherwise=_wide(card, "clock_event_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    )
    yield _field(card, "power_instant", 186, convert=_thousandth, pace=Pace.SPOT)


def _static(card: Card) -> Iterator[Reading]:
    once = Pace.ONCE
    yield _text(card, "name", "nvmlDeviceGetName")
    yield _bus_id(card)
    yield _number(card, "minor_number", "nvmlDeviceGetMinorNumber", pace=once)
    yield _number(
        card,
        "architecture",
        "nvmlDeviceGetArchitecture",
        convert=_architecture,
        pace=once,
    )
    yield _compute_capability(card)
    yield _text(card, "vbios_version", "nvmlDeviceGetVbiosVersion")
    yield _text(card, "serial", "nvmlDeviceGetSerial")
    for threshold, name in enumerate(("temperature_shutdown", "temperature_slowdown")):
        yield _number(card, name, "nvmlDeviceGetTemperatureThreshold", threshold, pace=once)
    yield _power_limits(card)
    for name, domain in _CLOCKS.items():
        yield _number(card, f"clock_{name}_max", "nvmlDeviceGetMaxClockInfo", domain, pace=once)
    yield _number(card, "pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", pace=once)
    yield _number(card, "pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", pace=once)


def _slow(card: Card) -> Iterator[Reading]:
    slow = Pace.SLOW
    yield mig_question(card)
    for name in ("graphics", "memory", "video"):
        which = _CLOCKS[name]
        yield _number(card, f"clock_{name}", "nvmlDeviceGetClockInfo", which, pace=slow)
    yield _number(card, "pstate", "nvmlDeviceGetPerformanceState", convert=_pstate, pace=slow)
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    yield _wide(card, "energy", energy, convert=_thousandth, pace=slow)
    yield _field(card, "temperature_memory", 82, pace=slow)
    yield _field(card, "power_average", 185, convert=_thousandth, pace=slow)
    yield _number(
        card, "power_limit", "nvmlDeviceGetEnforcedPowerLimit", convert=_thousandth, pace=slow
    )
    for name, function in (
        ("utilization_encoder", "nvmlDeviceGetEncoderUtilization"),
        ("utilization_decoder", "nvmlDeviceGetDecoderUtilization"),
        ("utilization_jpeg", "nvmlDeviceGetJpgUtilization"),
        ("utilization_ofa", "nvmlDeviceGetOfaUtilization"),
    ):
        # The second number is the sampling period.
        yield _numbers(card, (name, None), function)
    yield _margin(card)
    yield _number(card, "fan_speed", "nvmlDeviceGetFanSpeed", pace=slow)
    yield _fans(card)
    yield _pcie_bytes(card, "pcie_tx", 197, direction=0)
    yield _pcie_bytes(card, "pcie_rx", 198, direction=1)
    yield _nvlink_bytes(card, "nvlink_tx", kibibytes=138, byte_field=202)
    yield _nvlink_bytes(card, "nvlink_rx", kibibytes=139, byte_field=204)
    yield from _ecc_errors(card, 0, "volatile", slow)
    yield _field(card, "recovery_action", 230, convert=partial(_named, RECOVERY_ACTIONS), pace=slow)


def _rare(card: Card) -> Iterator[Reading]:
    rare = Pace.RARE
    yield _bar1(card)
    yield _number(card, "pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", pace=rare)
    yield _number(card, "pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", pace=rare)
    yield _nvlinks(card)
    yield from _ecc_errors(card, 1, "aggregate", rare)
    # The second number is the mode after the next reset.
    yield _numbers(card, ("ecc_mode", None), "nvmlDeviceGetEccMode", convert=bool, pace=rare)
    yield _remapped_rows(card)
    for cause, name in enumerate(("single", "double")):
        yield _retired_pages(card, f"retired_pages_{name}_bit", cause)
    for name, function in (
        ("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
        ("persistence_mode", "nvmlDeviceGetPersistenceMode"),
        ("display_mode", "nvmlDeviceGetDisplayMode"),
        ("display_active", "nvmlDeviceGetDisplayActive"),
    ):
        yield _number(card, name, function, convert=bool, pace=rare)
    modes = partial(_named, COMPUTE_MODES)
    yield _number(card, "compute_mode", "nvmlDeviceGetComputeMode", convert=modes, pace=rare)


# What an answer means


def _as_it_is(value: float) -> object:
    return value


def _thousandth(value: float) -> object:
    return value / 1000


def _pstate(value: float) -> object:
    return None if value == _PSTATE_UNKNOWN else value


def _named(names: dict[int, str], value: float) -> object:
    return names.get(int(value), f"unknown ({int(value)})")


def _architecture(value: float) -> object:
    return None if value == _ARCHITECTURE_UNKNOWN else _named(ARCHITECTURES, value)


class _Rate:
    """How fast a counter grows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None

    def since_last(self, counter: float) -> float | None:
        """Units a second since the previous call; ``None`` at the first, or when it went back.

        A counter goes back when the driver is loaded anew, or wraps: nothing can be said then.
        """
        now = self._clock.monotonic()
        last, self._last = self._last, (now, counter)
        if last is None or now <= last[0] or counter < last[1]:
            return None
        return (counter - last[1]) / (now - last[0])


# One call, one number


def _number(
    card: Card,
    name: str,
    function: str,
    *which: int,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.FAST,
    cost: float = 0.0,
    otherwise: Reading | None = None,
    answer: type[c_uint | c_ulonglong] = c_uint,
) -> Reading:
    """A call that fills in one number."""
    value = answer()
    call = card.prepared(function, card.handle, *which, byref(value))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values[name] = convert(value.value)
        return code

    return Reading((name,), ask, pace, otherwise, cost)


_wide = partial(_number, answer=c_ulonglong)
"""A call that fills in one number of eight bytes."""


def _numbers(
    card: Card,
    names: tuple[str | None, ...],
    function: str,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.SLOW,
) -> Reading:
    """A call that fills in several numbers; those without a name are of no interest."""
    numbers = [(name, c_uint()) for name in names]
    call = card.prepared(function, card.handle, *(byref(number) for _, number in numbers))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            for name, number in numbers:
                if name is not None:
                    values[name] = convert(number.value)
        return code

    return Reading(tuple(name for name in names if name is not None), ask, pace)


def _text(card: Card, name: str, function: str) -> Reading:
    def ask() -> int:
        code, text = card.text(function, card.handle)
        if not code:
            card.facts.values[name] = text
        return code

    return Reading((name,), ask, Pace.ONCE)


def _field(
    card: Card,
    name: str,
    field: int,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.FAST,
) -> FieldReading:
    values = card.facts.values

    def keep(_kind: int, value: float) -> int:
        values[name] = convert(value)
        return Code.SUCCESS

    return FieldReading((name,), field, keep, pace)


# Calls with a shape of their own


def _memory(card: Card) -> Reading:
    """Version 2 keeps what the driver reserves apart; version 1 counts it as used.

    Where the library has version 2, ``memory_used`` is only ever that of version 2, also while the
    card refuses it: what is free, and the total, are the same in both. A library before version 2
    has an nvidia-smi that shows version 1.
    """
    same = ("memory_free", "memory_total")
    values = card.facts.values
    is_old_library = not card.has("nvmlDeviceGetMemoryInfo_v2")

    new = MemoryV2(version=MemoryV2.VERSION)
    call_new = card.prepared("nvmlDeviceGetMemoryInfo_v2", card.handle, byref(new))

    def ask() -> int:
        code = call_new()
        if not code:
            total = new.total
            if not total:
                return Code.NOT_SUPPORTED
            values["memory_total"] = total
            values["memory_unified"] = False
            values["memory_used"] = new.used
            values["memory_free"] = new.free
            values["memory_reserved"] = new.reserved
        return code

    old = Memory()
    call_old = card.prepared("nvmlDeviceGetMemoryInfo", card.handle, byref(old))

    def ask_old() -> int:
        code = call_old()
        if not code:
            if not old.total:
                return Code.NOT_SUPPORTED
            values["memory_total"] = old.total
            values["memory_unified"] = False
            values["memory_free"] = old.free
            if is_old_library:
                values["memory_used"] = old.used
        return code

    names = (*same, "memory_used", "memory_reserved")
    older = Reading(names[:3] if is_old_library else same, ask_old, Pace.FAST)
    return Reading(names, ask, Pace.FAST, older)


def _utilization(card: Card) -> Reading:
    rates = Utilization()
    call = card.prepared("nvmlDeviceGetUtilizationRates", card.handle, byref(rates))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values["utilization_gpu"] = rates.gpu
            values["utilization_memory"] = rates.memory
        return code

    return Reading(("utilization_gpu", "utilization_memory"), ask, Pace.FAST)


def _temperature(card: Card) -> Reading:
    answer = Temperature(version=Temperature.VERSION, sensorType=TEMPERATURE_GPU)
    call = card.prepared("nvmlDeviceGetTemperatureV", card.handle, byref(answer))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values["temperature_gpu"] = answer.temperature
        return code

    older = _number(card, "temperature_gpu", "nvmlDeviceGetTemperature", TEMPERATURE_GPU)
    return Reading(("temperature_gpu",), ask, Pace.FAST, older)


def _margin(card: Card) -> Reading:
    """How far the chip is from its limit; cards before Ada have thresholds in °C instead."""
    answer = MarginTemperature(version=MarginTemperature.VERSION)

    def ask() -> int:
        code = card.call("nvmlDeviceGetMarginTemperature", card.handle, byref(answer))
        if not code:
            card.facts.values["temperature_margin"] = answer.marginTemperature
        return code

    return Reading(("temperature_margin",), ask, Pace.SLOW)


def _bus_id(card: Card) -> Reading:
    """Both versions of the structure begin alike, and the numbers in it say all there is."""

    def older_or_newer(function: str, otherwise: Reading | None = None) -> Reading:
        def ask() -> int:
            info = PciInfo()
            code = card.call(function, card.handle, byref(info))
            if not code:
                bus_id = f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"
                card.facts.values["pci_bus_id"] = card.bus_id = bus_id
            return code

        return Reading(("pci_bus_id",), ask, Pace.ONCE, otherwise)

    return older_or_newer("nvmlDeviceGetPciInfo_v3", older_or_newer("nvmlDeviceGetPciInfo_v2"))


def _compute_capability(card: Card) -> Reading:
    major, minor = ctypes.c_int(), ctypes.c_int()

    def ask() -> int:
        code = card.call(
            "nvmlDeviceGetCudaComputeCapability", card.handle, byref(major), byref(minor)
        )
        if not code:
            card.facts.values["compute_capability"] = f"{major.value}.{minor.value}"
            card.integrated = (major.value, minor.value) in INTEGRATED
        return code

    return Reading(("compute_capability",), ask, Pace.ONCE)


def _power_limits(card: Card) -> Reading:
    return _numbers(
        card,
        ("power_limit_min", "power_limit_max"),
        "nvmlDeviceGetPowerManagementLimitConstraints",
        convert=_thousandth,
        pace=Pace.ONCE,
    )


def _bar1(card: Card) -> Reading:
    answer = Bar1Memory()

    def ask() -> int:
        code = card.call("nvmlDeviceGetBAR1MemoryInfo", card.handle, byref(answer))
        if not code:
            card.facts.values["bar1_total"] = answer.bar1Total
            card.facts.values["bar1_used"] = answer.bar1Used
        return code

    return Reading(("bar1_total", "bar1_used"), ask, Pace.RARE)


def _ecc_errors(card: Card, counter: int, since: str, pace: Pace) -> Iterator[Reading]:
    """Those since the driver was loaded (``volatile``), or of the card's life (``aggregate``)."""
    for kind, corrected in enumerate(("corrected", "uncorrected")):
        name = f"ecc_{corrected}_{since}"
        yield _wide(card, name, "nvmlDeviceGetTotalEccErrors", kind, counter, pace=pace)


def _fans(card: Card) -> Reading:
    speed = c_uint()

    def ask() -> int:
        count = c_uint()
        code = card.call("nvmlDeviceGetNumFans", card.handle, byref(count))
        speeds: list[int] = []
        for fan in range(count.value if not code else 0):
            code = card.call("nvmlDeviceGetFanSpeed_v2", card.handle, fan, byref(speed))
            if code:
                return code
            speeds.append(speed.value)
        if not code:
            card.facts.values["fan_speeds"] = tuple(speeds)
        return code

    return Reading(("fan_speeds",), ask, Pace.SLOW)


def _nvlinks(card: Card) -> Reading:
    most = 1

    def ask() -> int:
        nonlocal most
        links = active = 0
        state = c_uint()
        for link in range(_NVLINK_MAX_LINKS):
            code = card.call("nvmlDeviceGetNvLinkState", card.handle, link, byref(state))
            if code in {Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT} and links >= most:
                # The first that is not there ends the list. Links do not become fewer: a refusal
                # before the last known one is an error.
                break
            if code:
                return code
            links += 1
            active += state.value
        most = max(links, most)
        card.facts.values["nvlink_count"] = links
        card.facts.values["nvlink_active"] = active
        return Code.SUCCESS

    return Reading(("nvlink_count", "nvlink_active"), ask, Pace.RARE)


def _remapped_rows(card: Card) -> Reading:
    names = (
        "remapped_rows_correctable",
        "remapped_rows_uncorrectable",
        "remapped_rows_pending",
        "remapped_rows_failure",
    )
    numbers = tuple(c_uint() for _ in names)

    def ask() -> int:
        code = card.call("nvmlDeviceGetRemappedRows", card.handle, *map(byref, numbers))
        if not code:
            correctable, uncorrectable, pending, failure = (number.value for number in numbers)
            card.facts.values.update(
                zip(
                    names,
                    (correctable, uncorrectable, bool(pending), bool(failure)),
                    strict=True,
                )
            )
        return code

    return Reading(names, ask, Pace.RARE)


def _retired_pages(card: Card, name: str, cause: int) -> Reading:
    """Only how many: the list itself is never taken, so a size that does not suffice is fine."""

    def ask() -> int:
        count = c_uint()
        code = card.call("nvmlDeviceGetRetiredPages", card.handle, cause, byref(count), None)
        if code in {Code.SUCCESS, Code.INSUFFICIENT_SIZE}:
            card.facts.values[name] = count.value
            return Code.SUCCESS
        return code

    return Reading((name,), ask, Pace.RARE)


# Traffic


def _traffic(
    card: Card, name: str, field: int, unit: int, otherwise: Reading | None, scope: int = 0
) -> FieldReading:
    """A cumulative counter of traffic, in units of so many bytes, as a rate."""
    rate = _Rate(card.clock)

    def keep(kind: int, counter: float) -> int:
        # Four bytes wrap several times between two readings of a busy link.
        if kind not in {UNSIGNED_LONG, UNSIGNED_LONG_LONG}:
            return Code.NOT_SUPPORTED
        per_second = rate.since_last(counter * unit)
        if per_second is None:
            card.facts.miss((name,), Unknown.NOT_READ)
        else:
            if card.facts.values.get(name) is None:
                card.facts.found((name,))
            card.facts.values[name] = per_second
        return Code.SUCCESS

    return FieldReading((name,), field, keep, Pace.SLOW, otherwise, scope)


def _pcie_bytes(card: Card, name: str, field: int, direction: int) -> Reading:
    """By counters, which do not block; else by the call that measures for 20 ms, in KB/s."""
    measured = _number(
        card,
        name,
        "nvmlDeviceGetPcieThroughput",
        direction,
        convert=lambda kilobytes: kilobytes * 1000.0,
        pace=Pace.SLOW,
        cost=PCIE_THROUGHPUT_SECONDS,
    )
    return _traffic(card, name, field, 1, measured)


def _nvlink_bytes(card: Card, name: str, kibibytes: int, byte_field: int) -> Reading:
    """Up to NVLink 4 one counter in KiB; NVLink 5 has another, in bytes."""
    every = FieldReading.ALL_LINKS
    newer = _traffic(card, name, byte_field, 1, None, scope=every)
    return _traffic(card, name, kibibytes, 1024, newer, scope=every)
