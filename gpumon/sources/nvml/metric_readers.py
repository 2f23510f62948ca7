"""What is asked of a card: which call gives which field, and how its answer is read.

What each call means and costs stands in nvml.h and in ``tests/driver/README.md``. A new metric is
a line in ``metrics.py`` and a question here.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from typing import TYPE_CHECKING

import pynvml

from gpumon.model.snapshot import Unknown
from gpumon.sources.nvml.mig import mig_question
from gpumon.sources.nvml.queries import FieldQuery, Pace, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.sources.nvml.card import NvmlCard
    from gpumon.system.clock import Clock

PCIE_THROUGHPUT_SECONDS = 0.020
"""nvml.h: the driver measures for 20 ms, and the caller waits."""

ARCHITECTURES: dict[int, str] = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    pynvml.NVML_DEVICE_ARCH_RUBIN: "Rubin",
}

COMPUTE_MODES: dict[int, str] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
}
"""The terms of nvidia-smi."""

RECOVERY_ACTIONS: dict[int, str] = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "None",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "Reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "Reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "Drain P2P",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "Drain and Reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "Recover IMEX Domain",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "Bus Reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "System Reboot",
}
"""The terms of nvidia-smi; any other action is shown as its number."""

INTEGRATED: frozenset[tuple[int, int]] = frozenset(
    {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}
)
"""Compute capabilities that only chips without memory of their own have: the Jetsons (Nano, TX2,
Xavier, Orin, Thor under both its numbers) and GB10 of DGX Spark. From NVIDIA's table at
developer.nvidia.com/cuda-gpus; Grace Hopper (9.0) has its own memory and is none of them."""

_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}


def questions(card: NvmlCard) -> Iterator[Query]:
    """Everything that is asked of a card, each with the older ways to ask it.

    Memory and power come first: they are what a person looks at.
    """
    yield from _fast(card)
    yield from _static(card)
    yield from _slow(card)
    yield from _rare(card)


def _fast(card: NvmlCard) -> Iterator[Query]:
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
    yield _field(
        card, "power_instant", pynvml.NVML_FI_DEV_POWER_INSTANT, convert=_thousandth, pace=Pace.SPOT
    )


def _static(card: NvmlCard) -> Iterator[Query]:
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


def _slow(card: NvmlCard) -> Iterator[Query]:
    slow = Pace.SLOW
    yield mig_question(card)
    for name in ("graphics", "memory", "video"):
        which = _CLOCKS[name]
        yield _number(card, f"clock_{name}", "nvmlDeviceGetClockInfo", which, pace=slow)
    yield _number(card, "pstate", "nvmlDeviceGetPerformanceState", convert=_pstate, pace=slow)
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    yield _wide(card, "energy", energy, convert=_thousandth, pace=slow)
    yield _field(card, "temperature_memory", pynvml.NVML_FI_DEV_MEMORY_TEMP, pace=slow)
    yield _field(
        card, "power_average", pynvml.NVML_FI_DEV_POWER_AVERAGE, convert=_thousandth, pace=slow
    )
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
    yield _pcie_bytes(card, "pcie_tx", pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, direction=0)
    yield _pcie_bytes(card, "pcie_rx", pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, direction=1)
    yield _nvlink_bytes(
        card,
        "nvlink_tx",
        kibibytes=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        byte_field=pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
    )
    yield _nvlink_bytes(
        card,
        "nvlink_rx",
        kibibytes=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        byte_field=pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
    )
    yield from _ecc_errors(card, 0, "volatile", slow)
    yield _field(
        card,
        "recovery_action",
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        convert=partial(_named, RECOVERY_ACTIONS),
        pace=slow,
    )


def _rare(card: NvmlCard) -> Iterator[Query]:
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
    return None if value == pynvml.NVML_PSTATE_UNKNOWN else value


def _named(names: dict[int, str], value: float) -> object:
    return names.get(int(value), f"unknown ({int(value)})")


def _architecture(value: float) -> object:
    return None if value == pynvml.NVML_DEVICE_ARCH_UNKNOWN else _named(ARCHITECTURES, value)


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
    card: NvmlCard,
    name: str,
    function: str,
    *which: int,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.FAST,
    cost: float = 0.0,
    otherwise: Query | None = None,
    answer: type[c_uint | c_ulonglong] = c_uint,
) -> Query:
    """A call that fills in one number."""
    value = answer()
    call = card.prepared(function, card.handle, *which, byref(value))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values[name] = convert(value.value)
        return code

    return Query((name,), ask, pace, otherwise, cost)


_wide = partial(_number, answer=c_ulonglong)
"""A call that fills in one number of eight bytes."""


def _numbers(
    card: NvmlCard,
    names: tuple[str | None, ...],
    function: str,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.SLOW,
) -> Query:
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

    return Query(tuple(name for name in names if name is not None), ask, pace)


def _text(card: NvmlCard, name: str, function: str) -> Query:
    def ask() -> int:
        code, text = card.text(function, card.handle)
        if not code:
            card.facts.values[name] = text
        return code

    return Query((name,), ask, Pace.ONCE)


def _field(
    card: NvmlCard,
    name: str,
    field: int,
    convert: Callable[[float], object] = _as_it_is,
    pace: Pace = Pace.FAST,
) -> FieldQuery:
    values = card.facts.values

    def keep(_kind: int, value: float) -> int:
        values[name] = convert(value)
        return pynvml.NVML_SUCCESS

    return FieldQuery((name,), field, keep, pace)


# Calls with a shape of their own


def _memory(card: NvmlCard) -> Query:
    """Version 2 keeps what the driver reserves apart; version 1 counts it as used.

    Where the library has version 2, ``memory_used`` is only ever that of version 2, also while the
    card refuses it: what is free, and the total, are the same in both. A library before version 2
    has an nvidia-smi that shows version 1.
    """
    same = ("memory_free", "memory_total")
    values = card.facts.values
    is_old_library = not card.has("nvmlDeviceGetMemoryInfo_v2")

    new = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    call_new = card.prepared("nvmlDeviceGetMemoryInfo_v2", card.handle, byref(new))

    def ask() -> int:
        code = call_new()
        if not code:
            total = new.total
            if not total:
                return pynvml.NVML_ERROR_NOT_SUPPORTED
            values["memory_total"] = total
            values["memory_unified"] = False
            values["memory_used"] = new.used
            values["memory_free"] = new.free
            values["memory_reserved"] = new.reserved
        return code

    old = pynvml.c_nvmlMemory_t()
    call_old = card.prepared("nvmlDeviceGetMemoryInfo", card.handle, byref(old))

    def ask_old() -> int:
        code = call_old()
        if not code:
            if not old.total:
                return pynvml.NVML_ERROR_NOT_SUPPORTED
            values["memory_total"] = old.total
            values["memory_unified"] = False
            values["memory_free"] = old.free
            if is_old_library:
                values["memory_used"] = old.used
        return code

    names = (*same, "memory_used", "memory_reserved")
    older = Query(names[:3] if is_old_library else same, ask_old, Pace.FAST)
    return Query(names, ask, Pace.FAST, older)


def _utilization(card: NvmlCard) -> Query:
    rates = pynvml.c_nvmlUtilization_t()
    call = card.prepared("nvmlDeviceGetUtilizationRates", card.handle, byref(rates))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values["utilization_gpu"] = rates.gpu
            values["utilization_memory"] = rates.memory
        return code

    return Query(("utilization_gpu", "utilization_memory"), ask, Pace.FAST)


def _temperature(card: NvmlCard) -> Query:
    answer = pynvml.c_nvmlTemperature_v1_t(
        version=pynvml.nvmlTemperature_v1, sensorType=pynvml.NVML_TEMPERATURE_GPU
    )
    call = card.prepared("nvmlDeviceGetTemperatureV", card.handle, byref(answer))
    values = card.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values["temperature_gpu"] = answer.temperature
        return code

    older = _number(
        card, "temperature_gpu", "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU
    )
    return Query(("temperature_gpu",), ask, Pace.FAST, older)


def _margin(card: NvmlCard) -> Query:
    """How far the chip is from its limit; cards before Ada have thresholds in °C instead."""
    answer = pynvml.c_nvmlMarginTemperature_v1_t(version=pynvml.nvmlMarginTemperature_v1)

    def ask() -> int:
        code = card.call("nvmlDeviceGetMarginTemperature", card.handle, byref(answer))
        if not code:
            card.facts.values["temperature_margin"] = answer.marginTemperature
        return code

    return Query(("temperature_margin",), ask, Pace.SLOW)


def _bus_id(card: NvmlCard) -> Query:
    """Both versions of the structure begin alike, and the numbers in it say all there is."""

    def older_or_newer(function: str, otherwise: Query | None = None) -> Query:
        def ask() -> int:
            info = pynvml.nvmlPciInfo_t()
            code = card.call(function, card.handle, byref(info))
            if not code:
                bus_id = f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"
                card.facts.values["pci_bus_id"] = card.bus_id = bus_id
            return code

        return Query(("pci_bus_id",), ask, Pace.ONCE, otherwise)

    return older_or_newer("nvmlDeviceGetPciInfo_v3", older_or_newer("nvmlDeviceGetPciInfo_v2"))


def _compute_capability(card: NvmlCard) -> Query:
    major, minor = ctypes.c_int(), ctypes.c_int()

    def ask() -> int:
        code = card.call(
            "nvmlDeviceGetCudaComputeCapability", card.handle, byref(major), byref(minor)
        )
        if not code:
            card.facts.values["compute_capability"] = f"{major.value}.{minor.value}"
            card.integrated = (major.value, minor.value) in INTEGRATED
        return code

    return Query(("compute_capability",), ask, Pace.ONCE)


def _power_limits(card: NvmlCard) -> Query:
    return _numbers(
        card,
        ("power_limit_min", "power_limit_max"),
        "nvmlDeviceGetPowerManagementLimitConstraints",
        convert=_thousandth,
        pace=Pace.ONCE,
    )


def _bar1(card: NvmlCard) -> Query:
    answer = pynvml.c_nvmlBAR1Memory_t()

    def ask() -> int:
        code = card.call("nvmlDeviceGetBAR1MemoryInfo", card.handle, byref(answer))
        if not code:
            card.facts.values["bar1_total"] = answer.bar1Total
            card.facts.values["bar1_used"] = answer.bar1Used
        return code

    return Query(("bar1_total", "bar1_used"), ask, Pace.RARE)


def _ecc_errors(card: NvmlCard, counter: int, since: str, pace: Pace) -> Iterator[Query]:
    """Those since the driver was loaded (``volatile``), or of the card's life (``aggregate``)."""
    for kind, corrected in enumerate(("corrected", "uncorrected")):
        name = f"ecc_{corrected}_{since}"
        yield _wide(card, name, "nvmlDeviceGetTotalEccErrors", kind, counter, pace=pace)


def _fans(card: NvmlCard) -> Query:
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

    return Query(("fan_speeds",), ask, Pace.SLOW)


def _nvlinks(card: NvmlCard) -> Query:
    most = 1

    def ask() -> int:
        nonlocal most
        links = active = 0
        state = c_uint()
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            code = card.call("nvmlDeviceGetNvLinkState", card.handle, link, byref(state))
            missing = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
            if code in missing and links >= most:
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
        return pynvml.NVML_SUCCESS

    return Query(("nvlink_count", "nvlink_active"), ask, Pace.RARE)


def _remapped_rows(card: NvmlCard) -> Query:
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

    return Query(names, ask, Pace.RARE)


def _retired_pages(card: NvmlCard, name: str, cause: int) -> Query:
    """Only how many: the list itself is never taken, so a size that does not suffice is fine."""

    def ask() -> int:
        count = c_uint()
        code = card.call("nvmlDeviceGetRetiredPages", card.handle, cause, byref(count), None)
        if code in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE}:
            card.facts.values[name] = count.value
            return pynvml.NVML_SUCCESS
        return code

    return Query((name,), ask, Pace.RARE)


# Traffic


def _traffic(
    card: NvmlCard, name: str, field: int, unit: int, otherwise: Query | None, scope: int = 0
) -> FieldQuery:
    """A cumulative counter of traffic, in units of so many bytes, as a rate."""
    rate = _Rate(card.clock)

    def keep(kind: int, counter: float) -> int:
        # Four bytes wrap several times between two readings of a busy link.
        if kind not in {
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG,
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        }:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        per_second = rate.since_last(counter * unit)
        if per_second is None:
            card.facts.miss((name,), Unknown.NOT_READ)
        else:
            if card.facts.values.get(name) is None:
                card.facts.found((name,))
            card.facts.values[name] = per_second
        return pynvml.NVML_SUCCESS

    return FieldQuery((name,), field, keep, Pace.SLOW, otherwise, scope)


def _pcie_bytes(card: NvmlCard, name: str, field: int, direction: int) -> Query:
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


def _nvlink_bytes(card: NvmlCard, name: str, kibibytes: int, byte_field: int) -> Query:
    """Up to NVLink 4 one counter in KiB; NVLink 5 has another, in bytes."""
    every = FieldQuery.ALL_LINKS
    newer = _traffic(card, name, byte_field, 1, None, scope=every)
    return _traffic(card, name, kibibytes, 1024, newer, scope=every)
