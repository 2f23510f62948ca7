"""What NVML is asked of a GPU: a row for each value, with the function of ``pynvml``.

nvml.h and ``tests/driver/README.md`` describe each call and its cost.
"""

from __future__ import annotations

import math
import struct
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pynvml as nvml
from msgspec import Struct

from gpumon.makers.nvidia.library import undecoded
from gpumon.makers.nvidia.mig import mig_query
from gpumon.makers.nvidia.queries import FieldQuery, PollRate, Query
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import GPU_METRIC, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpumon.makers.nvidia.gpu import NvmlGpu

PCIE_THROUGHPUT_SECONDS = 0.020
"""The call blocks while the driver measures for 20 ms (nvml.h)."""

ARCHITECTURES: dict[int, str] = {
    nvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    nvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    nvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    nvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    nvml.NVML_DEVICE_ARCH_TURING: "Turing",
    nvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    nvml.NVML_DEVICE_ARCH_ADA: "Ada",
    nvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    nvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    nvml.NVML_DEVICE_ARCH_RUBIN: "Rubin",
}

COMPUTE_MODES: dict[int, str] = {
    nvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    nvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
    nvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
}
"""The terms of nvidia-smi."""

RECOVERY_ACTIONS: dict[int, str] = {
    nvml.NVML_GPU_RECOVERY_ACTION_NONE: "None",
    nvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "Reset",
    nvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "Reboot",
    nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "Drain P2P",
    nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "Drain and Reset",
    nvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "Recover IMEX Domain",
    nvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "Bus Reset",
    nvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "System Reboot",
}
"""The terms of nvidia-smi; any other action is shown as its number."""

_RATES = {
    Tier.STATIC: PollRate.ONCE,
    Tier.FAST: PollRate.FAST,
    Tier.MEDIUM: PollRate.DETAIL,
    Tier.SLOW: PollRate.SLOW,
}


class MetricRow(Struct, frozen=True):
    """Values that one call returns."""

    names: tuple[str, ...]  # Fields of ``Gpu``.
    reader: Callable[[NvmlGpu], Callable[[], Any]]  # Makes the call, which raises ``NVMLError``.
    rate: PollRate | None = None  # How often; ``None`` is by the tier of the metric.
    convert: Callable[[Any], Any] | None = None  # Gives the value, or one for each name.
    older: MetricRow | None = None  # What is read while it is not supported.
    cost: float = 0.0  # Seconds that it blocks.


class Field(Struct, frozen=True):
    """The value of one or more fields of ``nvmlDeviceGetFieldValues``, which are added up."""

    name: str  # The field of ``Gpu``.
    numbers: tuple[int, ...]  # In nvml.h.
    rate: PollRate | None = None  # See ``MetricRow``.
    convert: Callable[[float], Any] | None = None
    older: MetricRow | Field | None = None
    unit: int = 0  # Bytes in a unit of a counter, whose value is the bytes per second.
    scope: int = 0  # See ``FieldQuery``.


def metric_queries(gpu: NvmlGpu) -> Iterator[Query]:
    """The queries of all metrics, each with its older alternatives."""
    yield _query(gpu, _memory(gpu))
    for row in _ROWS:
        if isinstance(row, Field):
            yield from _field_queries(gpu, row)
        else:
            yield _query(gpu, row)
    yield mig_query(gpu)


def _query(gpu: NvmlGpu, row: MetricRow) -> Query:
    read, convert, values = row.reader(gpu), row.convert, gpu.answers.values
    names, name = row.names, row.names[0]
    has_one = len(names) == 1

    def ask() -> int:
        try:
            value = read() if convert is None else convert(read())
        except nvml.NVMLError as error:
            return error.value
        if has_one:
            values[name] = value
        else:
            values.update(zip(names, value, strict=True))
        return nvml.NVML_SUCCESS

    older = None if row.older is None else _query(gpu, row.older)
    return Query(names, ask, row.rate or _RATES[GPU_METRIC[name].tier], older, row.cost)


def _field_queries(gpu: NvmlGpu, row: Field) -> Iterator[Query]:
    rate = row.rate or _RATES[GPU_METRIC[row.name].tier]
    older = None
    if isinstance(row.older, Field):
        older = next(_field_queries(gpu, row.older))
    elif row.older is not None:
        older = _query(gpu, row.older)
    keep_rate, keep_sum = _keep_rate(gpu, row), _keep_sum(gpu, row)
    for number in row.numbers:
        keep = keep_rate if row.unit else partial(keep_sum, number)
        yield FieldQuery((row.name,), number, keep, rate, older, row.scope)


def _keep_sum(gpu: NvmlGpu, row: Field) -> Callable[[int, int, float], int]:
    values, parts = gpu.answers.values, dict[int, float]()

    def keep(number: int, _kind: int, value: float) -> int:
        parts[number] = value
        if len(parts) == len(row.numbers):
            total = sum(parts.values())
            values[row.name] = total if row.convert is None else row.convert(total)
        return nvml.NVML_SUCCESS

    return keep


def _keep_rate(gpu: NvmlGpu, row: Field) -> Callable[[int, float], int]:
    name, values, last = row.name, gpu.answers.values, (math.inf, 0.0)

    def keep(kind: int, counter: float) -> int:
        nonlocal last
        # A 32-bit counter of a busy link wraps several times between two queries.
        if kind not in {
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG,
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        }:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        (since, before), now = last, gpu.clock.monotonic()
        last = now, counter
        if now <= since or counter < before:
            # The first reading, or one after the driver was reloaded or the counter wrapped.
            gpu.answers.miss((name,), Unknown.NOT_READ)
            return nvml.NVML_SUCCESS
        if values.get(name) is None:
            gpu.answers.found((name,))
        # A fraction of a byte is noise, which a stream would send.
        values[name] = float(round((counter - before) * row.unit / (now - since)))
        return nvml.NVML_SUCCESS

    return keep


# Conversions


def _thousandth(value: float) -> float:
    return value / 1000


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


def _first(values: Sequence[int]) -> int:
    """The second number is the sampling period, or the mode after the next reset."""
    return values[0]


def _sizes(sizes: Sequence[int]) -> Sequence[int]:
    """The first is the memory's size: a GPU without memory of its own has 0."""
    if not sizes[0]:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return sizes


def _pstate(state: int) -> int | None:
    return None if state == nvml.NVML_PSTATE_UNKNOWN else state


def _named(names: dict[int, str], value: float) -> str:
    return names.get(int(value), f"unknown ({int(value)})")


def _architecture(value: int) -> str | None:
    return None if value == nvml.NVML_DEVICE_ARCH_UNKNOWN else _named(ARCHITECTURES, value)


def _bus_id(info: Any) -> str:
    return f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"


# Rows


def _row(names: str, function: Callable[..., Any], *arguments: int, **rest: Any) -> MetricRow:
    """A row of a function of ``pynvml``, which takes the handle and the arguments."""

    def reader(gpu: NvmlGpu) -> Callable[[], Any]:
        return gpu.reader(function, gpu.handle, *arguments)

    return MetricRow(tuple(names.split()), reader, **rest)


def _field(name: str, *numbers: int, **rest: Any) -> Field:
    return Field(name, numbers, **rest)


def _hot_row(
    names: str,
    function: str,
    answer: Callable[[], Any],
    *members: str,
    arguments: tuple[int, ...] = (),
    **rest: Any,
) -> MetricRow:
    """A row of every sample, whose structure is kept, and its numbers are taken out of it at once.

    The functions of ``pynvml`` make a structure anew, and each of its members is read by a function
    of Python: with them the whole sample would take a fifth longer.

    Args:
        names: Fields of ``Gpu``.
        function: The function of C.
        answer: Makes the structure, or the number.
        members: What the fields are in it.
        arguments: What the function takes between the handle and the structure.
        rest: See ``MetricRow``.
    """

    def reader(gpu: NvmlGpu) -> Callable[[], Any]:
        kept = answer()
        parts = dict(getattr(kept, "_fields_", [("value", type(kept))]))
        unpack = struct.Struct("@" + "".join(kind._type_ for kind in parts.values())).unpack_from
        pick = itemgetter(*map(list(parts).index, members))
        call = gpu.prepared(function, gpu.handle, *arguments, byref(kept))

        def read() -> Any:
            if code := call():
                raise nvml.NVMLError(code)
            return pick(unpack(kept))

        return read

    return MetricRow(tuple(names.split()), reader, **rest)


def _memory(gpu: NvmlGpu) -> MetricRow:
    """Version 2 of the call separates the driver's reserved memory; version 1 counts it as used.

    If the library has version 2, ``memory_used`` never comes from version 1, even while the GPU
    refuses version 2; free and total memory are the same in both. With an older library,
    nvidia-smi shows version 1 too.
    """
    same, get = "memory_total memory_free", "nvmlDeviceGetMemoryInfo"
    members = ["total", "free"]
    if not gpu.has("nvmlDeviceGetMemoryInfo_v2"):
        same, members = f"{same} memory_used", [*members, "used"]
    new = partial(nvml.c_nvmlMemory_v2_t, version=nvml.nvmlMemory_v2)
    return _hot_row(
        "memory_total memory_free memory_used memory_reserved",
        "nvmlDeviceGetMemoryInfo_v2",
        new,
        *("total", "free", "used", "reserved"),
        convert=_sizes,
        older=_hot_row(same, get, nvml.c_nvmlMemory_t, *members, convert=_sizes),
    )


def _older_bus_id(gpu: NvmlGpu) -> Callable[[], str]:
    """``pynvml`` lacks version 2, whose structure starts with the same numbers."""

    def read() -> str:
        info = nvml.nvmlPciInfo_t()
        if code := gpu.call("nvmlDeviceGetPciInfo_v2", gpu.handle, byref(info)):
            raise nvml.NVMLError(code)
        return _bus_id(info)

    return read


def _fans(gpu: NvmlGpu) -> Callable[[], tuple[int, ...]]:
    def read() -> tuple[int, ...]:
        count = gpu.reader(nvml.nvmlDeviceGetNumFans, gpu.handle)()
        speed = nvml.nvmlDeviceGetFanSpeed_v2
        return tuple([gpu.reader(speed, gpu.handle, fan)() for fan in range(count)])

    return read


def _retired_pages(name: str, cause: int) -> MetricRow:
    """Reads only the count, for which ``pynvml`` would read the whole list."""

    def reader(gpu: NvmlGpu) -> Callable[[], int]:
        def read() -> int:
            count = c_uint()
            code = gpu.call("nvmlDeviceGetRetiredPages", gpu.handle, cause, byref(count), None)
            if code not in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_INSUFFICIENT_SIZE}:
                raise nvml.NVMLError(code)
            return count.value

        return read

    return MetricRow((name,), reader, PollRate.RARE)


def _nvlinks(gpu: NvmlGpu) -> Callable[[], tuple[int, int]]:
    """How many links there are, and how many are up."""
    most = 1

    def read() -> tuple[int, int]:
        nonlocal most
        states: list[int] = []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            code, state = gpu.ask_driver(nvml.nvmlDeviceGetNvLinkState, gpu.handle, link)
            missing = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT}
            if code in missing and link >= most:
                # The first missing link ends the list. Links never become fewer: a refusal before
                # the last known one is an error.
                break
            if code:
                raise nvml.NVMLError(code)
            states.append(state)
        most = max(len(states), most)
        return len(states), sum(states)

    return read


def _nvlink_bytes(name: str, kibibytes: int, byte_field: int) -> Field:
    """Up to NVLink 4 the counter is in KiB; NVLink 5 has another one, in bytes."""
    links = FieldQuery.ALL_LINKS
    newer = _field(name, byte_field, unit=1, scope=links)
    return _field(name, kibibytes, unit=1024, scope=links, older=newer)


def _pcie_bytes(name: str, field: int, direction: int) -> Field:
    """Uses counters, which do not block; else the call that measures for 20 ms, in KB/s."""
    measured = _row(
        name,
        nvml.nvmlDeviceGetPcieThroughput,
        direction,
        convert=lambda kilobytes: kilobytes * 1000.0,
        cost=PCIE_THROUGHPUT_SECONDS,
    )
    return _field(name, field, unit=1, older=measured)


_temperature = partial(
    nvml.c_nvmlTemperature_v1_t,
    version=nvml.nvmlTemperature_v1,
    sensorType=nvml.NVML_TEMPERATURE_GPU,
)
_RARE, _SLOW = PollRate.RARE, PollRate.SLOW

# One line per value is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
_ROWS: tuple[MetricRow | Field, ...] = (
    # Every sample: what users look at first.
    _hot_row("utilization_gpu utilization_memory", "nvmlDeviceGetUtilizationRates", nvml.c_nvmlUtilization_t, "gpu", "memory"),
    _hot_row("power_draw", "nvmlDeviceGetPowerUsage", c_uint, "value", convert=_thousandth),
    _hot_row("temperature_gpu", "nvmlDeviceGetTemperatureV", _temperature, "temperature", older=_row("temperature_gpu", nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)),
    _hot_row("clock_sm", "nvmlDeviceGetClockInfo", c_uint, "value", arguments=(nvml.NVML_CLOCK_SM,)),
    _hot_row("clock_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", c_ulonglong, "value", older=_row("clock_event_reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons)),
    _field("power_instant", nvml.NVML_FI_DEV_POWER_INSTANT, convert=_thousandth, rate=PollRate.DETAIL),
    # Once.
    _row("name", undecoded(nvml.nvmlDeviceGetName), convert=_decoded),
    _row("pci_bus_id", nvml.nvmlDeviceGetPciInfo_v3, convert=_bus_id, older=MetricRow(("pci_bus_id",), _older_bus_id)),
    _row("minor_number", nvml.nvmlDeviceGetMinorNumber),
    _row("architecture", nvml.nvmlDeviceGetArchitecture, convert=_architecture),
    _row("compute_capability", nvml.nvmlDeviceGetCudaComputeCapability, convert=lambda numbers: "{}.{}".format(*numbers)),
    _row("vbios_version", undecoded(nvml.nvmlDeviceGetVbiosVersion), convert=_decoded),
    _row("serial", undecoded(nvml.nvmlDeviceGetSerial), convert=_decoded),
    _row("temperature_shutdown", nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    _row("temperature_slowdown", nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    _row("power_limit_min power_limit_max", nvml.nvmlDeviceGetPowerManagementLimitConstraints, convert=lambda limits: map(_thousandth, limits)),
    _row("clock_graphics_max", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_GRAPHICS),
    _row("clock_sm_max", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
    _row("clock_memory_max", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
    _row("clock_video_max", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_VIDEO),
    _row("pcie_generation_max", nvml.nvmlDeviceGetMaxPcieLinkGeneration),
    _row("pcie_width_max", nvml.nvmlDeviceGetMaxPcieLinkWidth),
    # Every two seconds.
    _row("clock_graphics", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_GRAPHICS),
    _row("clock_memory", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
    _row("clock_video", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_VIDEO),
    _row("pstate", nvml.nvmlDeviceGetPerformanceState, convert=_pstate),
    _row("energy", nvml.nvmlDeviceGetTotalEnergyConsumption, convert=_thousandth),
    _field("temperature_memory", nvml.NVML_FI_DEV_MEMORY_TEMP),
    _field("power_average", nvml.NVML_FI_DEV_POWER_AVERAGE, convert=_thousandth),
    _row("power_limit", nvml.nvmlDeviceGetEnforcedPowerLimit, convert=_thousandth),
    _row("utilization_encoder", nvml.nvmlDeviceGetEncoderUtilization, convert=_first),
    _row("utilization_decoder", nvml.nvmlDeviceGetDecoderUtilization, convert=_first),
    _row("utilization_jpeg", nvml.nvmlDeviceGetJpgUtilization, convert=_first),
    _row("utilization_ofa", nvml.nvmlDeviceGetOfaUtilization, convert=_first),
    # The distance to the temperature limit; GPUs before Ada have thresholds in °C instead.
    _row("temperature_margin", nvml.nvmlDeviceGetMarginTemperature),
    _row("fan_speed", nvml.nvmlDeviceGetFanSpeed),
    MetricRow(("fan_speeds",), _fans, _SLOW),
    _pcie_bytes("pcie_tx", nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, direction=0),
    _pcie_bytes("pcie_rx", nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, direction=1),
    _nvlink_bytes("nvlink_tx", nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES),
    _nvlink_bytes("nvlink_rx", nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES),
    # CRC errors are not counted: they matter at 100 a second only (DCGM's hardware limits), and those that matter lead to
    # replays. Not available from NVLink 5 on, which counts otherwise.
    _field("nvlink_errors", nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
    _row("ecc_corrected_volatile", nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),
    _row("ecc_uncorrected_volatile", nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
    _field("recovery_action", nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, convert=partial(_named, RECOVERY_ACTIONS)),
    # Every ten seconds.
    _row("bar1_total bar1_used", nvml.nvmlDeviceGetBAR1MemoryInfo, convert=lambda bar1: (bar1.bar1Total, bar1.bar1Used), rate=_RARE),
    _row("pcie_generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration, rate=_RARE),
    _row("pcie_width", nvml.nvmlDeviceGetCurrPcieLinkWidth, rate=_RARE),
    MetricRow(("nvlink_count", "nvlink_active"), _nvlinks, _RARE),
    _row("ecc_corrected_aggregate", nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_AGGREGATE_ECC, rate=_RARE),
    _row("ecc_uncorrected_aggregate", nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC, rate=_RARE),
    _row("ecc_mode", nvml.nvmlDeviceGetEccMode, convert=lambda modes: bool(modes[0]), rate=_RARE),
    _row("remapped_rows_correctable remapped_rows_uncorrectable remapped_rows_pending remapped_rows_failure", nvml.nvmlDeviceGetRemappedRows, convert=lambda rows: (*rows[:2], *map(bool, rows[2:])), rate=_RARE),
    _retired_pages("retired_pages_single_bit", nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
    _retired_pages("retired_pages_double_bit", nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
    _row("retired_pages_pending", nvml.nvmlDeviceGetRetiredPagesPendingStatus, convert=bool, rate=_RARE),
    _row("persistence_mode", nvml.nvmlDeviceGetPersistenceMode, convert=bool, rate=_RARE),
    _row("display_mode", nvml.nvmlDeviceGetDisplayMode, convert=bool, rate=_RARE),
    _row("display_active", nvml.nvmlDeviceGetDisplayActive, convert=bool, rate=_RARE),
    _row("compute_mode", nvml.nvmlDeviceGetComputeMode, convert=partial(_named, COMPUTE_MODES), rate=_RARE),
)
