"""The shared state file, described once as ctypes; the C header of the driver is made from it."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

NATIVE = Path(__file__).resolve().parent / "native"
SOURCES = tuple(path for path in sorted(NATIVE.glob("*.c")) if path.name != "owner.c")

CARDS = 64
PROCESSES = 2048
MIGS = 8
SHARES = 7
"""How many shares of a card, or of a MIG instance, GPM tells; in the order of ``native/gpm.c``."""
EVENTS = 64
FIELDS = 320
TEXT_SIZE = 96
SIM_MAGIC = 0x47504D31
"""Changes with the meaning of the file, so that a stale library refuses it."""

CLOCK_RUNS = 2**64 - 1
NOT_AVAILABLE = 2**64 - 1
"""What the driver says for a process whose memory it cannot tell."""

NO_INSTANCE = 2**32 - 1
NO_SAMPLE = 2**32 - 1

COMPUTE, GRAPHICS, MPS = 1, 2, 4


def _in(unit: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, unit)


METRICS: dict[str, str] = {
    "minor_number": "N of /dev/nvidiaN",
    "brand": "nvmlBrandType_t",
    "architecture": "nvmlDeviceArchitecture_t",
    **_in("", "board_id", "gpu_cores"),
    "bus_type": "2 = PCIe",
    "memory_bus_width": "bit",
    **_in("", "compute_capability_major", "compute_capability_minor", "pci_domain", "pci_bus"),
    **_in("", "pci_device", "pci_device_id", "pci_subsystem_id"),
    "memory_total": "byte",
    "memory_used": "byte, without the reserved",
    **_in("byte", "memory_reserved", "bar1_total", "bar1_used"),
    **_in("%", "utilization_gpu", "utilization_memory", "utilization_encoder"),
    **_in("%", "utilization_decoder", "utilization_jpeg", "utilization_ofa"),
    "sampling_period_us": "µs",
    "sm_active": "%, by GPM, which the card has if it has this",
    **_in("%", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active"),
    "fp16_active": "%",
    **_in("°C", "temperature", "temperature_memory", "temperature_margin", "temperature_shutdown"),
    **_in("°C", "temperature_slowdown", "temperature_memory_max", "temperature_gpu_max"),
    "temperature_acoustic": "°C",
    **_in("°C, signed offset", "tlimit_shutdown", "tlimit_slowdown", "tlimit_memory_max"),
    "tlimit_gpu_max": "°C, signed offset",
    "power_usage": "mW, average over a second; its integral is the energy",
    "power_instant": "mW",
    "power_limit": "mW, as asked for",
    **_in("mW", "power_limit_enforced", "power_limit_default", "power_limit_min"),
    "power_limit_max": "mW",
    "power_management_mode": "0/1",
    "energy_counter": "1 = the card counts its energy",
    **_in("MHz", "clock_graphics", "clock_sm", "clock_memory", "clock_video", "clock_graphics_max"),
    **_in("MHz", "clock_sm_max", "clock_memory_max", "clock_video_max"),
    **_in("MHz, application clock", "clock_graphics_target", "clock_memory_target"),
    **_in("bits", "clock_event_reasons", "clock_event_reasons_supported"),
    "pstate": "0 to 15, 32 = unknown",
    "fan_count": "",
    "fan_speed": "% of the maximum, as intended",
    **_in("", "pcie_generation", "pcie_generation_max", "pcie_generation_gpu_max"),
    **_in("lanes", "pcie_width", "pcie_width_max"),
    **_in("kB/s", "pcie_tx", "pcie_rx"),
    "pcie_replays": "",
    "pcie_counters": "1 = the card has fields 197 and 198",
    **_in("", "nvlink_count", "nvlink_version"),
    "nvlink_down": "a bit for each link that is down",
    **_in("KiB/s over all links", "nvlink_tx", "nvlink_rx"),
    **_in("over all links", "nvlink_replays", "nvlink_recoveries"),
    "nvlink_counters": "1 = the card has fields 138 and 139",
    "nvlink5_counters": "1 = the card has fields 202 and 204",
    "nvlink_group": "cards of the same number are joined by NVLink",
    "nvlink_peers": "a bit for each card that the links end in, by turns; without one: a switch",
    "pcie_switch": "cards of the same number are behind one PCIe switch",
    "numa_node": "cards of the same number are at one processor",
    **_in("0/1", "ecc_mode", "ecc_mode_pending"),
    **_in("", "ecc_corrected_volatile", "ecc_uncorrected_volatile", "ecc_corrected_aggregate"),
    "ecc_uncorrected_aggregate": "",
    **_in("rows", "remapped_corrected", "remapped_uncorrected"),
    **_in("0/1", "remapped_pending", "remapped_failed"),
    **_in("pages", "retired_single_bit", "retired_double_bit"),
    "retired_pending": "0/1",
    "recovery_action": "0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset",
    "persistence_mode": "0/1",
    "compute_mode": "0 default, 2 prohibited, 3 exclusive process",
    **_in("0/1", "display_mode", "display_active"),
    "virtualization_mode": "",
    **_in("0/1", "mig_mode", "mig_mode_pending"),
    "mig_count_max": "",
    "event_types": "bits",
}
"""Every number a card reports, with its unit; a card that lacks one answers NOT_SUPPORTED."""

Struct = TypeVar("Struct", bound=ctypes.Structure)

METRIC_IDS = {name: i for i, name in enumerate(METRICS)}
TEXTS = ("name", "uuid", "serial", "vbios")

_OPENS_A_FUNCTION = re.compile(
    r"\b(?:ENTER|ENTER_EARLY|ENTER_SYSTEM|INIT|NUMBER|NUMBER64|TEXT|PAIR|CHOSEN|LIST|UNSUPPORTED)"
    r"\((nvml\w+)"
)


def functions_in(source: str) -> tuple[str, ...]:
    """The NVML functions that C sources define, each once, in their order."""
    return tuple(dict.fromkeys(_OPENS_A_FUNCTION.findall(source)))


FUNCTIONS = functions_in("".join(path.read_text() for path in SOURCES))
FUNCTION_IDS = {name: i for i, name in enumerate(FUNCTIONS)}


UInt32 = Annotated[int, ctypes.c_uint32]
Int32 = Annotated[int, ctypes.c_int32]
UInt64 = Annotated[int, ctypes.c_uint64]
Double = Annotated[float, ctypes.c_double]
Text = Annotated[bytes, ctypes.c_char * TEXT_SIZE]


def structure(kind: type[Struct]) -> type[Struct]:
    """Gives a structure its fields: what it declares, as the C types of the annotations."""
    declared = get_type_hints(kind, include_extras=True)
    kind._fields_ = [
        (name, getattr(hint, "__metadata__", (hint,))[0]) for name, hint in declared.items()
    ]
    return kind


@structure
class MetricState(ctypes.Structure):
    """base + amplitude * sin(2 pi (t / period + phase)); NaN as base: the card does not have it."""

    base: Double
    amplitude: Double
    period: Double
    phase: Double
    since: Double  # when this wave began …
    total: Double  # … and what had flowed until then


@structure
class ProcessState(ctypes.Structure):
    """A process on a card, as the lists and the utilisation samples tell it."""

    pid: UInt32
    types: UInt32
    memory: UInt64
    gpu_instance: UInt32
    compute_instance: UInt32
    sm: UInt32
    memory_util: UInt32
    encoder: UInt32
    decoder: UInt32
    jpeg: UInt32
    ofa: UInt32
    sampled_us: UInt64


@structure
class AttributesState(ctypes.Structure):
    """What nvmlDeviceGetAttributes_v2 hands out for a MIG instance."""

    multiprocessors: UInt32
    copy_engines: UInt32
    decoders: UInt32
    encoders: UInt32
    jpegs: UInt32
    ofas: UInt32
    gpu_slices: UInt32
    compute_slices: UInt32
    memory_mib: UInt64


@structure
class MigState(ctypes.Structure):
    """A MIG instance; memory in bytes."""

    present: UInt32
    gpu_instance: UInt32
    compute_instance: UInt32
    memory_total: UInt64
    memory_used: UInt64
    memory_reserved: UInt64
    attributes: AttributesState
    # Percent, by GPM; NaN: not told.
    shares: Annotated[ctypes.Array[ctypes.c_double], ctypes.c_double * SHARES]
    name: Text
    uuid: Text


@structure
class EventState(ctypes.Structure):
    """An event as nvmlEventSetWait_v2 hands it out."""

    kind: UInt64
    data: UInt64
    gpu_instance: UInt32
    compute_instance: UInt32


@structure
class CallRow(ctypes.Structure):
    """One function on one card: what it does wrong, how often it was called, how long that took."""

    calls: UInt64
    nanoseconds: UInt64
    unknown: Double
    code: Int32
    latency_us: UInt32
    hang: UInt32
    hanging: UInt32


@structure
class CardState(ctypes.Structure):
    """A slot for a card."""

    present: UInt32
    lost: UInt32
    incarnation: UInt32  # handles of an earlier card in this slot are stale
    mig_generation: UInt32  # likewise for its MIG instances
    edits: UInt32  # odd while Python writes what belongs together
    process_count: UInt32
    growth_step: UInt32  # by how much each call finds the process list longer
    growth_calls: UInt32
    events_written: UInt64
    name: Text
    uuid: Text
    serial: Text
    vbios: Text
    metrics: Annotated[ctypes.Array[MetricState], MetricState * len(METRICS)]
    field_codes: Annotated[ctypes.Array[ctypes.c_int32], ctypes.c_int32 * FIELDS]
    events: Annotated[ctypes.Array[EventState], EventState * EVENTS]
    migs: Annotated[ctypes.Array[MigState], MigState * MIGS]
    processes: Annotated[ctypes.Array[ProcessState], ProcessState * PROCESSES]


@structure
class SimState(ctypes.Structure):
    """The whole file. The last of the rows is for calls that concern no card."""

    magic: UInt32
    loaded: UInt32
    init_result: Int32
    epoch: UInt32  # counts the loads of the driver
    latency_us: UInt32
    process_limit: UInt32
    process_stride: UInt32
    cuda_version: UInt32
    card_count: UInt32
    seed: UInt64
    draws: UInt64
    started_ns: UInt64
    started_wall_us: UInt64
    clock_ns: UInt64  # CLOCK_RUNS, or the time since the start that is shown
    unknown: Double
    driver_version: Text
    nvml_version: Text
    order: Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * CARDS]
    rows: Annotated[ctypes.Array[ctypes.Array[CallRow]], (CallRow * len(FUNCTIONS)) * (CARDS + 1)]
    cards: Annotated[ctypes.Array[CardState], CardState * CARDS]


_C_STRUCTS: dict[type[ctypes.Structure], str] = {
    MetricState: "metric",
    ProcessState: "process",
    AttributesState: "attributes",
    MigState: "mig",
    EventState: "event",
    CallRow: "call_row",
    CardState: "card",
    SimState: "sim",
}
_C_NUMBERS = {
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_double: "double",
    ctypes.c_char: "char",
}


def _c_declaration(name: str, kind: Any) -> str:
    """Declares a field; the dimensions of an array of arrays come outermost first, as in C."""
    while issubclass(kind, ctypes.Array):
        name += f"[{kind._length_}]"
        kind = kind._type_
    spelled = _C_NUMBERS[kind] if kind in _C_NUMBERS else f"struct {_C_STRUCTS[kind]}"
    return f"{spelled} {name}"


def _c_enum(name: str, prefix: str, names: tuple[str, ...]) -> str:
    return f"enum {name} {{ {', '.join(prefix + n for n in names)} }};"


def _c_struct(kind: type[ctypes.Structure]) -> str:
    fields = "".join(f"    {_c_declaration(f[0], f[1])};\n" for f in kind._fields_)
    name = _C_STRUCTS[kind]
    same = f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");'
    return f"struct {name} {{\n{fields}}};\n{same}"


def c_header() -> str:
    """The header that sim.h includes."""
    sizes = ["CARDS", "PROCESSES", "MIGS", "SHARES", "EVENTS", "FIELDS", "TEXT_SIZE"]
    constants = ", ".join(f"{name} = {globals()[name]}" for name in sizes)
    parts = [
        f"enum {{ {constants} }};",
        f"#define SIM_MAGIC {SIM_MAGIC}u",
        f"#define CLOCK_RUNS {CLOCK_RUNS}u",
        _c_enum("metric_id", "METRIC_", tuple(METRICS)),
        _c_enum("function", "FUNCTION_", FUNCTIONS),
        *(_c_struct(kind) for kind in _C_STRUCTS),
    ]
    return "\n".join(parts) + "\n"
