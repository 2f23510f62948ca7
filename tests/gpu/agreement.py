"""How far gpumon and nvidia-smi may differ, and where nvidia-smi has the value of a metric.

The element paths are those of ``nvidia-smi -q -x`` of drivers 535 to 590 (``nvsmi_device_v12.dtd``
and ``nvsmi_device_v13.dtd``).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.metrics import Metric, Tier, Unit
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS
from tests.driver import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.model.snapshot import Gpu

COMPARED = [metric for metric in GPU_METRICS if metric.smi is not None]


TOLERANCE: dict[Unit, float] = {
    Unit.BYTES: 32 * MIB,
    Unit.PERCENT: 25,
    Unit.SHARE: 25,
    Unit.CELSIUS: 3,
    Unit.WATTS: 30,
    Unit.MEGAHERTZ: 300,
    Unit.PSTATE: 2,
    Unit.BYTES_PER_SECOND: 50e6,
}
"""How far a value that moves may have moved on, in the model's unit, beyond both samples."""

ROUNDING: dict[Unit, float] = {Unit.BYTES: MIB, Unit.PERCENT: 3, Unit.SHARE: 3}
"""What a value that stands still may differ by; a fan is never quite still. nvidia-smi writes
whole MiB, and hundredths of a watt."""

STILL = {"memory_total", "power_limit", "fan_speed", "bar1_total"}
"""What hardly moves, though it is read again and again."""

RATE_FACTOR = 10.0
"""nvidia-smi measures PCIe traffic over 20 ms, gpumon since its last reading: only a wrong unit
shows."""

DEPRECATED = "deprecated"
"""In the text of a field that nvidia-smi no longer answers."""

ALSO: dict[str, str] = {
    # The driver 570 and later answer the old names with "[Requested functionality has been
    # deprecated]".
    "display_attached": "display_mode",
    "pcie.link.gen.current": "pcie_generation",
}
"""Further names of nvidia-smi -> the field of the metric."""

BY_SMI: dict[str, Metric] = {
    **{metric.smi: metric for metric in COMPARED if metric.smi is not None},
    **{name: GPU_METRIC[field] for name, field in ALSO.items()},
}
"""nvidia-smi's name in ``--query-gpu`` -> the metric."""

_YES = {"Enabled", "Yes", "Active"}
_NO = {"Disabled", "No", "Not Active"}


class Verdict(str, Enum):
    """What a comparison found."""

    SAME = "same"
    NEAR = "near"
    """Within the tolerance for a value that moves."""
    DIFFERS = "differs"
    BOTH_UNKNOWN = "both unknown"
    ONLY_GPUMON = "only gpumon"
    ONLY_SMI = "only nvidia-smi"
    NOT_IN_GPUMON = "not in gpumon"
    """No metric has this field or element."""
    FAILED = "failed"
    """One of both gave no values; the row says why."""


class Judged(NamedTuple):
    """A verdict, and by how much nvidia-smi's number lies outside gpumon's two samples."""

    verdict: Verdict
    difference: float | None = None  # In the metric's unit, signed; ``None`` for what is no number.


def is_unknown(text: str) -> bool:
    """Whether nvidia-smi says that it does not know."""
    return text.startswith("[") or text in {"N/A", ""} or DEPRECATED in text


def as_model(metric: Metric, text: str) -> object:
    """What nvidia-smi wrote, in the model's unit; ``None`` where it says it does not know.

    Raises:
        ValueError: It is no value of this metric.
    """
    if is_unknown(text):
        return None
    if metric.unit is Unit.BITS:
        return int(text, 16)
    if metric.unit is Unit.PSTATE:
        return int(text.removeprefix("P"))
    if text in _YES | _NO:
        return text in _YES
    if metric.unit is Unit.TEXT:
        return text
    if metric.unit is Unit.NUMBER:
        return int(text)
    return float(text) * metric.unit.per_csv


def is_a_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _slack(metric: Metric, expected: float) -> tuple[float, float]:
    """How far below and above both samples a value that moves may lie."""
    tolerance = TOLERANCE[metric.unit]
    if metric.unit is Unit.BYTES_PER_SECOND:
        # Below the lower sample, the samples are larger than the value by the factor.
        return tolerance + expected * (RATE_FACTOR - 1), tolerance + expected * (
            1 - 1 / RATE_FACTOR
        )
    return tolerance, tolerance


def is_static(metric: Metric) -> bool:
    """Whether its value is the same in all samples of a healthy GPU."""
    return metric.tier is Tier.STATIC or metric.field in STILL


def judge(metric: Metric, samples: Sequence[object], expected: object) -> Judged:
    """Compare nvidia-smi's value with the samples of gpumon around it.

    Args:
        metric: Whose values they are; all are in its unit.
        samples: gpumon's values, from before nvidia-smi was asked until afterwards.
        expected: nvidia-smi's.
    """
    if expected is None:
        return Judged(Verdict.BOTH_UNKNOWN if samples[-1] is None else Verdict.ONLY_GPUMON)
    if samples[-1] is None:
        return Judged(Verdict.ONLY_SMI)
    # A rate takes two readings, so the first sample may have none.
    known = [value for value in samples if value is not None]
    if metric.unit is Unit.BITS and isinstance(expected, int):
        bits = [value for value in known if isinstance(value, int)]
        always, ever = reduce(and_, bits), reduce(or_, bits)
        between = expected & always == always and expected | ever == ever
        return Judged(Verdict.SAME if between else Verdict.DIFFERS)
    if metric.unit in {Unit.BITS, Unit.NUMBER} or not is_a_number(expected):
        return Judged(Verdict.SAME if expected in known else Verdict.DIFFERS)
    numbers = [value for value in known if isinstance(value, int | float)]
    assert isinstance(expected, int | float)
    low, high = min(numbers), max(numbers)
    outside = expected - min(max(expected, low), high)
    if abs(outside) <= ROUNDING.get(metric.unit, 0.01):
        return Judged(Verdict.SAME, outside)
    if is_static(metric):
        return Judged(Verdict.DIFFERS, outside)
    below, above = _slack(metric, expected)
    return Judged(Verdict.NEAR if -below <= outside <= above else Verdict.DIFFERS, outside)


def agree(metric: Metric, before: Gpu, after: Gpu, text: str) -> bool:
    """Whether nvidia-smi said what gpumon did before or after it, or something in between."""
    first, last = getattr(before, metric.field), getattr(after, metric.field)
    verdict = judge(metric, (first, last), as_model(metric, text)).verdict
    return verdict in {Verdict.SAME, Verdict.NEAR, Verdict.BOTH_UNKNOWN}


# nvidia-smi -q -x

_FACTORS = {"": 1.0, "C": 1.0, "%": 1.0, "MHz": 1.0, "W": 1.0, "x": 1.0}
_FACTORS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB/s": 1e3, "MB/s": 1e6}
"""What one of nvidia-smi's units is in the model's."""

_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?([A-Za-z%/]*)", re.ASCII)


class Element(NamedTuple):
    """Where ``nvidia-smi -q -x`` has the value of a metric."""

    paths: tuple[str, ...]  # Of the elements; of several that are there, the first has it.
    # Makes the value of all elements, where it is not the text of one.
    read: Callable[[Mapping[str, str]], object] | None = None


def quantity(text: str) -> float | None:
    """A number with its unit, such as ``"81559 MiB"``, in the model's unit; ``None``: unknown.

    Raises:
        ValueError: It is no such text.
    """
    if is_unknown(text):
        return None
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _FACTORS:
        raise ValueError(f"{text} is no quantity")
    number = float(match[1]) * _FACTORS[match[2]]
    return int(number) if number.is_integer() else number


_REASONS = {
    "gpu_idle": 0x001,
    "applications_clocks_setting": 0x002,
    "sw_power_cap": 0x004,
    "hw_slowdown": 0x008,
    "sync_boost": 0x010,
    "sw_thermal_slowdown": 0x020,
    "hw_thermal_slowdown": 0x040,
    "hw_power_brake_slowdown": 0x080,
    "display_clocks_setting": 0x100,
}
"""Ending of the element -> bit in nvml.h (nvmlClocksEventReason…)."""

_REASON_PATHS = {
    f"clocks_event_reasons/clocks_event_reason_{name}": bit for name, bit in _REASONS.items()
}


def _reasons(elements: Mapping[str, str]) -> int | None:
    """The bits of the reasons that are active; ``None`` if no reason is known."""
    known = {path: bit for path, bit in _REASON_PATHS.items() if elements.get(path) in _YES | _NO}
    if not known:
        return None
    return sum(bit for path, bit in known.items() if elements[path] in _YES)


_ECC_PATHS = {
    "corrected": ("sram_correctable", "dram_correctable"),
    "uncorrected": (
        *("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
        "dram_uncorrectable",
    ),
}


def _ecc(kind: str, since: str) -> Element:
    paths = tuple(f"ecc_errors/{since}/{name}" for name in _ECC_PATHS[kind])

    def total(elements: Mapping[str, str]) -> float | None:
        counts = [quantity(elements[path]) for path in paths if path in elements]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    return Element(paths, total)


def _is_first_word(path: str) -> Element:
    """The first word of a text: nvidia-smi says "Ada Lovelace" where gpumon says "Ada"."""

    def word(elements: Mapping[str, str]) -> str | None:
        text = elements[path]
        return None if is_unknown(text) else text.split()[0]

    return Element((path,), word)


def _at(*paths: str) -> Element:
    return Element(paths)


_LINK = "pci/pci_gpu_link_info"
_POWER, _OLD_POWER = "gpu_power_readings", "power_readings"

XML: dict[str, Element] = {
    "uuid": _at("uuid"),
    "name": _at("product_name"),
    "pci_bus_id": _at("pci/pci_bus_id"),
    "minor_number": _at("minor_number"),
    "architecture": _is_first_word("product_architecture"),
    "vbios_version": _at("vbios_version"),
    "serial": _at("serial"),
    "memory_used": _at("fb_memory_usage/used"),
    "memory_free": _at("fb_memory_usage/free"),
    "memory_reserved": _at("fb_memory_usage/reserved"),
    "memory_total": _at("fb_memory_usage/total"),
    "bar1_used": _at("bar1_memory_usage/used"),
    "bar1_total": _at("bar1_memory_usage/total"),
    "utilization_gpu": _at("utilization/gpu_util"),
    "utilization_memory": _at("utilization/memory_util"),
    "utilization_encoder": _at("utilization/encoder_util"),
    "utilization_decoder": _at("utilization/decoder_util"),
    "utilization_jpeg": _at("utilization/jpeg_util"),
    "utilization_ofa": _at("utilization/ofa_util"),
    "temperature_gpu": _at("temperature/gpu_temp"),
    "temperature_memory": _at("temperature/memory_temp"),
    "temperature_slowdown": _at("temperature/gpu_temp_slow_threshold"),
    "temperature_shutdown": _at("temperature/gpu_temp_max_threshold"),
    "temperature_margin": _at("temperature/gpu_temp_tlimit"),
    "power_draw": _at(f"{_POWER}/average_power_draw", f"{_OLD_POWER}/power_draw"),
    "power_instant": _at(f"{_POWER}/instant_power_draw"),
    "power_average": _at(f"{_POWER}/average_power_draw"),
    "power_limit": _at(f"{_POWER}/current_power_limit", f"{_OLD_POWER}/enforced_power_limit"),
    "power_limit_min": _at(f"{_POWER}/min_power_limit", f"{_OLD_POWER}/min_power_limit"),
    "power_limit_max": _at(f"{_POWER}/max_power_limit", f"{_OLD_POWER}/max_power_limit"),
    "clock_sm": _at("clocks/sm_clock"),
    "clock_memory": _at("clocks/mem_clock"),
    "clock_graphics": _at("clocks/graphics_clock"),
    "clock_video": _at("clocks/video_clock"),
    "clock_sm_max": _at("max_clocks/sm_clock"),
    "clock_memory_max": _at("max_clocks/mem_clock"),
    "clock_graphics_max": _at("max_clocks/graphics_clock"),
    "clock_video_max": _at("max_clocks/video_clock"),
    "pstate": _at("performance_state"),
    "clock_event_reasons": Element(tuple(_REASON_PATHS), _reasons),
    "fan_speed": _at("fan_speed"),
    "pcie_generation": _at(
        f"{_LINK}/pcie_gen/device_current_link_gen", f"{_LINK}/pcie_gen/current_link_gen"
    ),
    "pcie_generation_max": _at(f"{_LINK}/pcie_gen/max_link_gen"),
    "pcie_width": _at(f"{_LINK}/link_widths/current_link_width"),
    "pcie_width_max": _at(f"{_LINK}/link_widths/max_link_width"),
    "pcie_rx": _at("pci/rx_util"),
    "pcie_tx": _at("pci/tx_util"),
    "ecc_mode": _at("ecc_mode/current_ecc"),
    "ecc_corrected_volatile": _ecc("corrected", "volatile"),
    "ecc_uncorrected_volatile": _ecc("uncorrected", "volatile"),
    "ecc_corrected_aggregate": _ecc("corrected", "aggregate"),
    "ecc_uncorrected_aggregate": _ecc("uncorrected", "aggregate"),
    "remapped_rows_correctable": _at("remapped_rows/remapped_row_corr"),
    "remapped_rows_uncorrectable": _at("remapped_rows/remapped_row_unc"),
    "remapped_rows_pending": _at("remapped_rows/remapped_row_pending"),
    "remapped_rows_failure": _at("remapped_rows/remapped_row_failure"),
    "retired_pages_single_bit": _at("retired_pages/multiple_single_bit_retirement/retired_count"),
    "retired_pages_double_bit": _at("retired_pages/double_bit_retirement/retired_count"),
    "retired_pages_pending": _at(
        "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
    ),
    "recovery_action": _at("gpu_recovery_action"),
    "persistence_mode": _at("persistence_mode"),
    "compute_mode": _at("compute_mode"),
    # Since driver 570 the element display_mode says that it is deprecated.
    "display_mode": _at("display_attached", "display_mode"),
    "display_active": _at("display_active"),
    "mig_mode": _at("mig_mode/current_mig"),
}
"""Field of a metric -> its element. The XML has neither the index, the compute capability, the
energy, NVLink, XIDs, nor what GPM measures."""

XML_PATHS = frozenset(path for element in XML.values() for path in element.paths)


def element_text(field: str, elements: Mapping[str, str]) -> str | None:
    """What the XML says of a metric, for a person; ``None`` if it lacks all its elements."""
    element = XML[field]
    present = [path for path in element.paths if path in elements]
    if not present:
        return None
    return elements[present[0]] if element.read is None else str(element.read(elements))


def element_value(field: str, elements: Mapping[str, str]) -> object:
    """The value in the XML in the model's unit; ``None``: nvidia-smi does not know.

    Raises:
        ValueError: The text is no value of this metric.
    """
    element, metric = XML[field], GPU_METRIC[field]
    present = [path for path in element.paths if path in elements]
    if not present:
        return None
    if element.read is not None:
        return element.read(elements)
    text = elements[present[0]]
    if metric.unit in {Unit.TEXT, Unit.PSTATE} or text in _YES | _NO:
        return as_model(metric, text)
    return quantity(text)
