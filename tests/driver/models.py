"""The models of card that the simulated driver knows, with believable numbers for an idle one.

A number that a model does not list is one its cards do not have: they answer NOT_SUPPORTED.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .layout import METRIC_IDS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MIB = 2**20
GIB = 2**30
NVIDIA = 0x10DE


@dataclass(frozen=True)
class Wave:
    """A metric that moves: `base + amplitude * sin(2 pi (t / period + phase))`, t in seconds."""

    base: float
    amplitude: float = 0.0
    period: float = 1.0
    phase: float = 0.0


Number = float | Wave | None
"""A frozen value, a moving one, or `None` for a card that does not have the metric."""


@dataclass(frozen=True)
class Mig:
    """A MIG instance to be: its profile and place on the card, memory in bytes."""

    profile: str
    gpu_instance: int
    compute_instance: int = 0
    memory_total: int = 0
    memory_used: int = 0
    memory_reserved: int = 0
    multiprocessors: int = 16
    gpu_slices: int = 1
    copy_engines: int = 1
    decoders: int = 1
    shares: tuple[float | None, ...] = (0.0,) * 7
    """What GPM tells of it, in percent, in the order of ``native/gpm.c``."""


@dataclass(frozen=True)
class Model:
    """A card to be plugged in."""

    key: str
    numbers: Mapping[str, Number]
    texts: Mapping[str, str | bytes]
    migs: tuple[Mig | None, ...] = field(default=())


def _model(key: str, name: str, vbios: str, numbers: Mapping[str, Number]) -> Model:
    return Model(key, {**_EVERY_CARD, **numbers}, {"name": name, "vbios": vbios})


def changed(model: Model, changes: Mapping[str, Number | str | bytes]) -> Model:
    """Returns the model with other numbers or texts."""
    numbers, texts = dict(model.numbers), dict(model.texts)
    for name, value in changes.items():
        if isinstance(value, str | bytes):
            if name not in TEXTS:
                raise KeyError(f"no card has a text named {name}; the texts are {', '.join(TEXTS)}")
            texts[name] = value
        elif name in METRIC_IDS:
            numbers[name] = value
        else:
            raise KeyError(f"no card has a number named {name}; layout.METRICS lists them")
    return replace(model, numbers=numbers, texts=texts)


def make_uuid(kind: str, *parts: object) -> str:
    """Returns a `GPU-…` or `MIG-…` identifier that is the same in every run."""
    return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_OID, ':'.join(map(str, parts)))}"


def _all(value: Number, *names: str) -> dict[str, Number]:
    return dict.fromkeys(names, value)


_EVERY_CARD: dict[str, Number] = {
    "brand": 14,
    "bus_type": 2,
    "pci_subsystem_id": 0x16C1 << 16 | NVIDIA,
    "sampling_period_us": 166_667,
    "clock_event_reasons_supported": 0x1FF,
    "event_types": 0x1F,
    **_all(16, "pcie_width", "pcie_width_max"),
    **_all(1, "power_management_mode", "energy_counter", "clock_event_reasons", "persistence_mode"),
    **_all(0, "pci_domain", "pci_device", "pstate", "pcie_tx", "pcie_rx", "pcie_replays"),
    **_all(0, *(f"utilization_{name}" for name in ("gpu", "memory", "encoder", "decoder"))),
    **_all(0, "utilization_jpeg", "utilization_ofa", "recovery_action", "compute_mode"),
    **_all(0, "display_mode", "display_active", "virtualization_mode"),
}

_ECC = {
    **_all(1, "ecc_mode", "ecc_mode_pending"),
    **_all(0, "ecc_corrected_volatile", "ecc_uncorrected_volatile"),
    **_all(0, "ecc_corrected_aggregate", "ecc_uncorrected_aggregate"),
}
_REMAPPING = _all(0, *(f"remapped_{n}" for n in ("corrected", "uncorrected", "pending", "failed")))
_GPM = {
    **_all(0, "sm_active", "sm_occupancy", "tensor_active", "dram_active"),
    **_all(0, "fp64_active", "fp32_active", "fp16_active"),
}
_RETIREMENT = _all(0, "retired_single_bit", "retired_double_bit", "retired_pending")

_NO_MIG_YET: dict[str, Number] = {"mig_mode": 0, "mig_mode_pending": 0, "mig_count_max": 7}


def _memory(total_mib: int, reserved_mib: int, bar1_mib: int) -> dict[str, Number]:
    return {
        "memory_total": total_mib * MIB,
        "memory_reserved": reserved_mib * MIB,
        "memory_used": 0,
        "bar1_total": bar1_mib * MIB,
        "bar1_used": 1 * MIB,
    }


def _power(idle: float, least: float, default: float, most: float) -> dict[str, Number]:
    """All in watts, as on the data sheet."""
    return {
        **_all(idle * 1000, "power_usage", "power_instant"),
        **_all(default * 1000, "power_limit", "power_limit_enforced", "power_limit_default"),
        "power_limit_min": least * 1000,
        "power_limit_max": most * 1000,
    }


def _clocks(idle: int, graphics: int, memory: int, video: int) -> dict[str, Number]:
    return {
        **_all(idle, "clock_graphics", "clock_sm"),
        **_all(graphics, "clock_graphics_max", "clock_sm_max", "clock_graphics_target"),
        **_all(memory, "clock_memory", "clock_memory_max", "clock_memory_target"),
        "clock_video": min(video, idle),
        "clock_video_max": video,
    }


def _pcie(generation: int) -> dict[str, Number]:
    kinds = ("", "_max", "_gpu_max")
    return _all(generation, *(f"pcie_generation{kind}" for kind in kinds))


def _nvlink(count: int, version: int, counters: str) -> dict[str, Number]:
    return {
        "nvlink_count": count,
        "nvlink_version": version,
        "nvlink_group": 0,
        "nvlink_down": 0,
        "nvlink_tx": 0,
        "nvlink_rx": 0,
        counters: 1,
        # NVLink 5 counts its errors by other fields.
        **({"nvlink_replays": 0, "nvlink_recoveries": 0} if version < 5 else {}),
    }


def _core(
    architecture: int, capability: tuple[int, int], cores: int, pci_id: int, bus_width: int
) -> dict[str, Number]:
    return {
        "architecture": architecture,
        "compute_capability_major": capability[0],
        "compute_capability_minor": capability[1],
        "gpu_cores": cores,
        "pci_device_id": pci_id << 16 | NVIDIA,
        "memory_bus_width": bus_width,
    }


def _thresholds(
    shutdown: int, slowdown: int, gpu_max: int, memory_max: int | None
) -> dict[str, Number]:
    return {
        "temperature_shutdown": shutdown,
        "temperature_slowdown": slowdown,
        "temperature_gpu_max": gpu_max,
        "temperature_memory_max": memory_max,
    }


def _tlimits(now: int) -> dict[str, Number]:
    """Offsets from the limit, which stand in for thresholds on newer cards."""
    return {
        "temperature_margin": now,
        "tlimit_shutdown": -8,
        "tlimit_slowdown": -2,
        "tlimit_memory_max": 0,
        "tlimit_gpu_max": 0,
    }


_H100 = _model(
    "h100",
    "NVIDIA H100 80GB HBM3",
    "96.00.89.00.01",
    {
        **_core(9, (9, 0), 16_896, 0x2330, 5120),
        **_memory(81_559, 551, 131_072),
        **_power(71.3, 200, 700, 700),
        **_clocks(345, 1980, 2619, 1545),
        **_pcie(5),
        **_nvlink(18, 4, "nvlink_counters"),
        **_tlimits(52),
        **_ECC,
        **_REMAPPING,
        **_GPM,
        **_NO_MIG_YET,
        "temperature": 34,
        "temperature_memory": 42,
        "pcie_counters": 1,
    },
)
_B200 = _model(
    "b200",
    "NVIDIA B200",
    "97.00.82.00.18",
    {
        **_core(10, (10, 0), 18_944, 0x2901, 8192),
        **_memory(183_359, 680, 262_144),
        **_power(141.2, 200, 1000, 1000),
        **_clocks(120, 1965, 3996, 1965),
        **_pcie(5),
        **_nvlink(18, 5, "nvlink5_counters"),
        **_tlimits(55),
        **_ECC,
        **_REMAPPING,
        **_GPM,
        **_NO_MIG_YET,
        "temperature": 29,
        "temperature_memory": 31,
        "pcie_counters": 1,
    },
)
_A100 = _model(
    "a100",
    "NVIDIA A100-SXM4-80GB",
    "92.00.45.00.06",
    {
        **_core(7, (8, 0), 6912, 0x20B2, 5120),
        **_memory(81_920, 638, 131_072),
        **_power(61.8, 100, 400, 400),
        **_clocks(210, 1410, 1593, 1275),
        **_pcie(4),
        **_nvlink(12, 3, "nvlink_counters"),
        **_thresholds(92, 89, 85, 95),
        **_ECC,
        **_REMAPPING,
        **_NO_MIG_YET,
        "temperature": 31,
        "temperature_memory": 40,
    },
)
_V100 = _model(
    "v100",
    "Tesla V100-SXM2-32GB",
    "88.00.48.00.02",
    {
        **_core(5, (7, 0), 5120, 0x1DB5, 4096),
        **_memory(32_768, 258, 32_768),
        **_power(43.1, 150, 300, 300),
        **_clocks(135, 1530, 877, 1372),
        **_pcie(3),
        **_nvlink(6, 2, "nvlink_counters"),
        **_thresholds(90, 87, 83, 85),
        **_ECC,
        **_RETIREMENT,
        "brand": 2,
        "temperature": 36,
        "temperature_memory": 35,
        **_all(None, "power_instant", "utilization_jpeg", "utilization_ofa", "recovery_action"),
    },
)
_RTX4090 = _model(
    "rtx4090",
    "NVIDIA GeForce RTX 4090",
    "95.02.3C.40.B7",
    {
        **_core(8, (8, 9), 16_384, 0x2684, 384),
        **_memory(24_564, 368, 32_768),
        **_power(18.4, 10, 450, 600),
        **_clocks(210, 3105, 10_501, 2415),
        **_pcie(4),
        **_thresholds(100, 97, 84, None),
        "brand": 5,
        "pstate": 8,
        "clock_memory": 405,
        "pcie_generation": 1,
        "persistence_mode": 0,
        "temperature": 38,
        "fan_count": 2,
        "fan_speed": 30,
    },
)
_GB10 = _model(
    "gb10",
    "NVIDIA GB10",
    "9A.0B.1E.00.00",
    {
        **_core(10, (12, 1), 6144, 0x2E12, 256),
        "pci_domain": 0xF,
        **_all(11_200, "power_usage", "power_instant"),
        **_all(208, "clock_graphics", "clock_sm"),
        **_all(3003, "clock_graphics_max", "clock_sm_max", "clock_video_max"),
        "clock_video": 598,
        "pstate": 8,
        "temperature": 41,
        "pcie_generation": 1,
        "pcie_generation_max": 1,
        "pcie_generation_gpu_max": 5,
        "pcie_width": 1,
        **_all(None, "pcie_tx", "pcie_rx"),
    },
)
_H100_INSTANCES = (
    Mig("3g.40gb", 2, 0, 40_448 * MIB, 0, 44 * MIB, 60, 3, 3, 3),
    Mig("2g.20gb", 5, 0, 20_096 * MIB, 0, 25 * MIB, 32, 2, 2, 2),
    None,
    Mig("1g.10gb", 9, 0, 9_984 * MIB, 0, 15 * MIB, 16, 1, 1, 1),
)


def h100(**changes: Number | str | bytes) -> Model:
    """Hopper, SXM: HBM, NVLink 4, T.limit offsets in place of thresholds, no fan."""
    return changed(_H100, changes)


def h100_mig(*migs: Mig | None, **changes: Number | str | bytes) -> Model:
    """An H100 with MIG on; `None` among its instances is a gap in the indices."""
    on: dict[str, Number | str | bytes] = {"mig_mode": 1, "mig_mode_pending": 1}
    model = replace(_H100, key="mig", migs=migs or _H100_INSTANCES)
    return changed(model, {**on, **changes})


def b200(**changes: Number | str | bytes) -> Model:
    """Blackwell, SXM: NVLink 5, whose counters are other fields."""
    return changed(_B200, changes)


def a100(**changes: Number | str | bytes) -> Model:
    """Ampere, SXM: real thresholds, remapped rows, no PCIe byte counters."""
    return changed(_A100, changes)


def v100(**changes: Number | str | bytes) -> Model:
    """Volta: retired pages, neither MIG nor instant power."""
    return changed(_V100, changes)


def rtx4090(**changes: Number | str | bytes) -> Model:
    """A consumer's card: fans, but no ECC, NVLink, serial or memory temperature."""
    return changed(_RTX4090, changes)


def gb10(**changes: Number | str | bytes) -> Model:
    """A DGX Spark's: unified memory, so the driver tells no memory at all, and no power limit."""
    return changed(_GB10, changes)


MODELS: dict[str, Callable[..., Model]] = {
    "h100": h100,
    "mig": h100_mig,
    "b200": b200,
    "a100": a100,
    "v100": v100,
    "rtx4090": rtx4090,
    "gb10": gb10,
}
"""By the name that `python -m tests.driver --cards` takes."""
