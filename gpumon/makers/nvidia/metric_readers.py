"""The queries of a GPU: which call reads which field, and how its value is converted.

nvml.h and ``tests/driver/README.md`` describe each call and its cost.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint
from functools import partial
from typing import TYPE_CHECKING

import pynvml

from gpumon.makers.nvidia.mig import mig_query
from gpumon.makers.nvidia.nvlink import nvlink_errors, nvlink_traffic, nvlinks
from gpumon.makers.nvidia.queries import PollRate, Query
from gpumon.makers.nvidia.query_builders import (
    counter_query,
    field_query,
    number_query,
    numbers_query,
    struct_query,
    text_query,
    wide_number_query,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.makers.nvidia.gpu import NvmlGpu

PCIE_THROUGHPUT_SECONDS = 0.020
"""The call blocks while the driver measures for 20 ms (nvml.h)."""

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
"""Compute capabilities that only GPUs without memory of their own have: the Jetsons (Nano, TX2,
Xavier, Orin, Thor with both its numbers) and GB10 of DGX Spark. From NVIDIA's table at
developer.nvidia.com/cuda-gpus. Grace Hopper (9.0) has memory of its own."""

_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}


def metric_queries(gpu: NvmlGpu) -> Iterator[Query]:
    """The queries of all metrics, each with its older alternatives.

    Memory and power come first, because users look at them first.
    """
    yield from _fast(gpu)
    yield from _static(gpu)
    yield from _slow(gpu)
    yield from _rare(gpu)


def _fast(gpu: NvmlGpu) -> Iterator[Query]:
    yield _memory(gpu)
    yield struct_query(
        gpu,
        "nvmlDeviceGetUtilizationRates",
        pynvml.c_nvmlUtilization_t(),
        {"utilization_gpu": "gpu", "utilization_memory": "memory"},
        PollRate.FAST,
    )
    yield number_query(gpu, "power_draw", "nvmlDeviceGetPowerUsage", convert=_thousandth)
    yield _temperature(gpu)
    yield number_query(gpu, "clock_sm", "nvmlDeviceGetClockInfo", _CLOCKS["sm"])
    yield wide_number_query(
        gpu,
        "clock_event_reasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
        otherwise=wide_number_query(
            gpu, "clock_event_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        ),
    )
    yield field_query(
        gpu,
        "power_instant",
        pynvml.NVML_FI_DEV_POWER_INSTANT,
        convert=_thousandth,
        rate=PollRate.DETAIL,
    )


def _static(gpu: NvmlGpu) -> Iterator[Query]:
    once = PollRate.ONCE
    yield text_query(gpu, "name", "nvmlDeviceGetName")
    yield _bus_id(gpu)
    yield number_query(gpu, "minor_number", "nvmlDeviceGetMinorNumber", rate=once)
    yield number_query(
        gpu,
        "architecture",
        "nvmlDeviceGetArchitecture",
        convert=_architecture,
        rate=once,
    )
    yield _compute_capability(gpu)
    yield text_query(gpu, "vbios_version", "nvmlDeviceGetVbiosVersion")
    yield text_query(gpu, "serial", "nvmlDeviceGetSerial")
    for threshold, name in enumerate(("temperature_shutdown", "temperature_slowdown")):
        yield number_query(gpu, name, "nvmlDeviceGetTemperatureThreshold", threshold, rate=once)
    yield numbers_query(
        gpu,
        ("power_limit_min", "power_limit_max"),
        "nvmlDeviceGetPowerManagementLimitConstraints",
        convert=_thousandth,
        rate=once,
    )
    for name, domain in _CLOCKS.items():
        yield number_query(gpu, f"clock_{name}_max", "nvmlDeviceGetMaxClockInfo", domain, rate=once)
    yield number_query(gpu, "pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", rate=once)
    yield number_query(gpu, "pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", rate=once)


def _slow(gpu: NvmlGpu) -> Iterator[Query]:
    slow = PollRate.SLOW
    yield mig_query(gpu)
    for name in ("graphics", "memory", "video"):
        which = _CLOCKS[name]
        yield number_query(gpu, f"clock_{name}", "nvmlDeviceGetClockInfo", which, rate=slow)
    yield number_query(gpu, "pstate", "nvmlDeviceGetPerformanceState", convert=_pstate, rate=slow)
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    yield wide_number_query(gpu, "energy", energy, convert=_thousandth, rate=slow)
    yield field_query(gpu, "temperature_memory", pynvml.NVML_FI_DEV_MEMORY_TEMP, rate=slow)
    yield field_query(
        gpu, "power_average", pynvml.NVML_FI_DEV_POWER_AVERAGE, convert=_thousandth, rate=slow
    )
    yield number_query(
        gpu, "power_limit", "nvmlDeviceGetEnforcedPowerLimit", convert=_thousandth, rate=slow
    )
    for name, function in (
        ("utilization_encoder", "nvmlDeviceGetEncoderUtilization"),
        ("utilization_decoder", "nvmlDeviceGetDecoderUtilization"),
        ("utilization_jpeg", "nvmlDeviceGetJpgUtilization"),
        ("utilization_ofa", "nvmlDeviceGetOfaUtilization"),
    ):
        # The second number is the sampling period.
        yield numbers_query(gpu, (name, None), function)
    # The distance to the temperature limit; GPUs before Ada have thresholds in °C instead.
    yield struct_query(
        gpu,
        "nvmlDeviceGetMarginTemperature",
        pynvml.c_nvmlMarginTemperature_v1_t(version=pynvml.nvmlMarginTemperature_v1),
        {"temperature_margin": "marginTemperature"},
        slow,
    )
    yield number_query(gpu, "fan_speed", "nvmlDeviceGetFanSpeed", rate=slow)
    yield _fans(gpu)
    yield _pcie_bytes(gpu, "pcie_tx", pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, direction=0)
    yield _pcie_bytes(gpu, "pcie_rx", pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, direction=1)
    yield from nvlink_traffic(gpu)
    yield from nvlink_errors(gpu)
    yield from _ecc_errors(gpu, 0, "volatile", slow)
    yield field_query(
        gpu,
        "recovery_action",
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        convert=partial(_named, RECOVERY_ACTIONS),
        rate=slow,
    )


def _rare(gpu: NvmlGpu) -> Iterator[Query]:
    rare = PollRate.RARE
    yield struct_query(
        gpu,
        "nvmlDeviceGetBAR1MemoryInfo",
        pynvml.c_nvmlBAR1Memory_t(),
        {"bar1_total": "bar1Total", "bar1_used": "bar1Used"},
        rare,
    )
    yield number_query(gpu, "pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", rate=rare)
    yield number_query(gpu, "pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", rate=rare)
    yield nvlinks(gpu)
    yield from _ecc_errors(gpu, 1, "aggregate", rare)
    # The second number is the mode after the next reset.
    yield numbers_query(gpu, ("ecc_mode", None), "nvmlDeviceGetEccMode", convert=bool, rate=rare)
    yield _remapped_rows(gpu)
    for cause, name in enumerate(("single", "double")):
        yield _retired_pages(gpu, f"retired_pages_{name}_bit", cause)
    for name, function in (
        ("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
        ("persistence_mode", "nvmlDeviceGetPersistenceMode"),
        ("display_mode", "nvmlDeviceGetDisplayMode"),
        ("display_active", "nvmlDeviceGetDisplayActive"),
    ):
        yield number_query(gpu, name, function, convert=bool, rate=rare)
    modes = partial(_named, COMPUTE_MODES)
    yield number_query(gpu, "compute_mode", "nvmlDeviceGetComputeMode", convert=modes, rate=rare)


# Conversions


def _thousandth(value: float) -> object:
    return value / 1000


def _pstate(value: float) -> object:
    return None if value == pynvml.NVML_PSTATE_UNKNOWN else value


def _named(names: dict[int, str], value: float) -> object:
    return names.get(int(value), f"unknown ({int(value)})")


def _architecture(value: float) -> object:
    return None if value == pynvml.NVML_DEVICE_ARCH_UNKNOWN else _named(ARCHITECTURES, value)


# Queries of their own


def _memory(gpu: NvmlGpu) -> Query:
    """Version 2 of the call separates the driver's reserved memory; version 1 counts it as used.

    If the library has version 2, ``memory_used`` never comes from version 1, even while the GPU
    refuses version 2; free and total memory are the same in both. With an older library,
    nvidia-smi shows version 1 too.
    """
    same = ("memory_free", "memory_total")
    values = gpu.facts.values
    is_old_library = not gpu.has("nvmlDeviceGetMemoryInfo_v2")

    new = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    call_new = gpu.prepared("nvmlDeviceGetMemoryInfo_v2", gpu.handle, byref(new))

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
    call_old = gpu.prepared("nvmlDeviceGetMemoryInfo", gpu.handle, byref(old))

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
    older = Query(names[:3] if is_old_library else same, ask_old, PollRate.FAST)
    return Query(names, ask, PollRate.FAST, older)


def _temperature(gpu: NvmlGpu) -> Query:
    return struct_query(
        gpu,
        "nvmlDeviceGetTemperatureV",
        pynvml.c_nvmlTemperature_v1_t(
            version=pynvml.nvmlTemperature_v1, sensorType=pynvml.NVML_TEMPERATURE_GPU
        ),
        {"temperature_gpu": "temperature"},
        PollRate.FAST,
        number_query(
            gpu, "temperature_gpu", "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU
        ),
    )


def _bus_id(gpu: NvmlGpu) -> Query:
    """Both versions of the structure start with the same numbers, which are sufficient."""

    def older_or_newer(function: str, otherwise: Query | None = None) -> Query:
        def ask() -> int:
            info = pynvml.nvmlPciInfo_t()
            code = gpu.call(function, gpu.handle, byref(info))
            if not code:
                bus_id = f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"
                gpu.facts.values["pci_bus_id"] = gpu.bus_id = bus_id
            return code

        return Query(("pci_bus_id",), ask, PollRate.ONCE, otherwise)

    return older_or_newer("nvmlDeviceGetPciInfo_v3", older_or_newer("nvmlDeviceGetPciInfo_v2"))


def _compute_capability(gpu: NvmlGpu) -> Query:
    major, minor = ctypes.c_int(), ctypes.c_int()

    def ask() -> int:
        code = gpu.call(
            "nvmlDeviceGetCudaComputeCapability", gpu.handle, byref(major), byref(minor)
        )
        if not code:
            gpu.facts.values["compute_capability"] = f"{major.value}.{minor.value}"
            gpu.integrated = (major.value, minor.value) in INTEGRATED
        return code

    return Query(("compute_capability",), ask, PollRate.ONCE)


def _ecc_errors(gpu: NvmlGpu, counter: int, since: str, rate: PollRate) -> Iterator[Query]:
    """Errors since the driver was loaded (``volatile``), or in the GPU's life (``aggregate``)."""
    for kind, corrected in enumerate(("corrected", "uncorrected")):
        name = f"ecc_{corrected}_{since}"
        yield wide_number_query(gpu, name, "nvmlDeviceGetTotalEccErrors", kind, counter, rate=rate)


def _fans(gpu: NvmlGpu) -> Query:
    speed = c_uint()

    def ask() -> int:
        count = c_uint()
        code = gpu.call("nvmlDeviceGetNumFans", gpu.handle, byref(count))
        speeds: list[int] = []
        for fan in range(count.value if not code else 0):
            code = gpu.call("nvmlDeviceGetFanSpeed_v2", gpu.handle, fan, byref(speed))
            if code:
                return code
            speeds.append(speed.value)
        if not code:
            gpu.facts.values["fan_speeds"] = tuple(speeds)
        return code

    return Query(("fan_speeds",), ask, PollRate.SLOW)


def _remapped_rows(gpu: NvmlGpu) -> Query:
    names = (
        "remapped_rows_correctable",
        "remapped_rows_uncorrectable",
        "remapped_rows_pending",
        "remapped_rows_failure",
    )
    numbers = tuple(c_uint() for _ in names)

    def ask() -> int:
        code = gpu.call("nvmlDeviceGetRemappedRows", gpu.handle, *map(byref, numbers))
        if not code:
            correctable, uncorrectable, pending, failure = (number.value for number in numbers)
            gpu.facts.values.update(
                zip(
                    names,
                    (correctable, uncorrectable, bool(pending), bool(failure)),
                    strict=True,
                )
            )
        return code

    return Query(names, ask, PollRate.RARE)


def _retired_pages(gpu: NvmlGpu, name: str, cause: int) -> Query:
    """Reads only the count, so ``INSUFFICIENT_SIZE`` for the list is a success."""

    def ask() -> int:
        count = c_uint()
        code = gpu.call("nvmlDeviceGetRetiredPages", gpu.handle, cause, byref(count), None)
        if code in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE}:
            gpu.facts.values[name] = count.value
            return pynvml.NVML_SUCCESS
        return code

    return Query((name,), ask, PollRate.RARE)


# Traffic


def _pcie_bytes(gpu: NvmlGpu, name: str, field: int, direction: int) -> Query:
    """Uses counters, which do not block; else the call that measures for 20 ms, in KB/s."""
    measured = number_query(
        gpu,
        name,
        "nvmlDeviceGetPcieThroughput",
        direction,
        convert=lambda kilobytes: kilobytes * 1000.0,
        rate=PollRate.SLOW,
        cost=PCIE_THROUGHPUT_SECONDS,
    )
    return counter_query(gpu, name, field, 1, measured)
