"""The one table of metrics: what every value is called, in which unit, how often it is read.

Columns, JSON, CSV, the Prometheus exporter, charts and help all read this table. A new metric is a
field in ``model.Gpu``, a line here, and a reader in the source.

nvidia-smi's names are those of ``nvidia-smi --help-query-gpu``; DCGM's are those of dcgm-exporter's
default counters and of DCGM's ``dcgm_fields.h``, which Grafana boards read.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model import Gpu, GpuProcess


class Unit(Enum):
    """The unit of a value in the model.

    Attributes:
        suffix: What a JSON key ends in, so that the number needs no explanation.
        csv: The unit nvidia-smi writes in a CSV header; empty where it writes none.
        per_csv: How many model units make one CSV unit.
        possible: The lowest and the highest value, in the model's unit, that hardware can report;
            any other value is a damaged one. A metric may set other limits.
    """

    TEXT = ("text", "", "", 1)
    NUMBER = ("number", "", "", 1, (0, 2**64))
    ENABLED = ("enabled or disabled", "enabled", "", 1)
    YES_NO = ("yes or no", "", "", 1)
    PSTATE = ("performance state", "", "", 1, (0, 15))
    BITS = ("bits", "bits", "", 1)
    BYTES = ("bytes", "bytes", "MiB", 2**20, (0, 2**50))
    PERCENT = ("percent", "percent", "%", 1, (0, 100))
    CELSIUS = ("degrees Celsius", "celsius", "", 1, (-100, 300))
    WATTS = ("watts", "watts", "W", 1, (0, 10_000))
    JOULES = ("joules", "joules", "J", 1, (0, 2**64))
    MEGAHERTZ = ("megahertz", "mhz", "MHz", 1, (0, 100_000))
    BYTES_PER_SECOND = ("bytes per second", "bytes_per_second", "MiB/s", 2**20, (0, 2**50))
    SECONDS = ("seconds", "seconds", "s", 1)
    TIME = ("time", "unix_seconds", "", 1)

    def __init__(
        self,
        _: str,
        suffix: str,
        csv: str,
        per_csv: int,
        possible: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self.suffix = suffix
        self.csv = csv
        self.per_csv = per_csv
        self.possible = possible


class Tier(Enum):
    """How often a value is worth reading. What a call costs stands in ``tests/driver/README.md``."""

    STATIC = "once"
    FAST = "every sample"
    MEDIUM = "every second"
    SLOW = "every few seconds"


class Metric(Struct, frozen=True):
    """A line of the table.

    Attributes:
        field: Name of the field in the model.
        label: What a person reads.
        unit: The unit of the value in the model.
        tier: How often it is read.
        smi: nvidia-smi's name for it, or ``None`` where it has none.
        dcgm: DCGM's name for it, or ``None``.
        about: What it means and what it does not, in a sentence.
        highest: The highest possible value, where that is not the unit's.
        at_most: The field whose value is never exceeded, or ``None``.
    """

    field: str
    label: str
    unit: Unit
    tier: Tier
    smi: str | None
    dcgm: str | None
    about: str
    highest: float | None = None
    at_most: str | None = None

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and the highest value that hardware can report."""
        lowest, highest = self.unit.possible
        return lowest, highest if self.highest is None else self.highest

    @property
    def json_key(self) -> str:
        """The field with its unit, such as ``memory_used_bytes``."""
        return f"{self.field}_{self.unit.suffix}" if self.unit.suffix else self.field


_T, _N, _PCT = Unit.TEXT, Unit.NUMBER, Unit.PERCENT
_STATIC, _FAST, _SLOW = Tier.STATIC, Tier.FAST, Tier.SLOW

# A line per metric is worth more here than short lines.
# ruff: noqa: E501
# fmt: off
GPU_METRICS: tuple[Metric, ...] = (
    Metric("index", "Index", _N, _STATIC, "index", None, "The card's number in nvidia-smi; CUDA counts otherwise unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set."),
    Metric("uuid", "UUID", _T, _STATIC, "uuid", None, "The card's name for life: safe in CUDA_VISIBLE_DEVICES under any order."),
    Metric("name", "Name", _T, _STATIC, "name", None, "The product's name."),
    Metric("pci_bus_id", "PCI bus id", _T, _STATIC, "pci.bus_id", None, "Domain, bus, device and function of the slot."),
    Metric("minor_number", "Minor number", _N, _STATIC, None, None, "N of the device file /dev/nvidiaN; not the index."),
    Metric("architecture", "Architecture", _T, _STATIC, None, None, "The generation of the chip."),
    Metric("compute_capability", "Compute capability", _T, _STATIC, "compute_cap", "DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY", "What CUDA code the chip can run."),
    Metric("vbios_version", "VBIOS", _T, _STATIC, "vbios_version", "DCGM_FI_DEV_VBIOS_VERSION", "Version of the card's firmware."),
    Metric("serial", "Serial", _T, _STATIC, "serial", None, "Number of the board; consumer cards report none."),
    Metric("memory_used", "Memory used", Unit.BYTES, _FAST, "memory.used", "DCGM_FI_DEV_FB_USED", "Allocated by processes, needed or not; what the driver keeps for itself is counted apart.", at_most="memory_total"),
    Metric("memory_free", "Memory free", Unit.BYTES, _FAST, "memory.free", "DCGM_FI_DEV_FB_FREE", "What can still be allocated.", at_most="memory_total"),
    Metric("memory_reserved", "Memory reserved", Unit.BYTES, _FAST, "memory.reserved", "DCGM_FI_DEV_FB_RESERVED", "Kept by the driver and firmware.", at_most="memory_total"),
    Metric("memory_total", "Memory total", Unit.BYTES, _FAST, "memory.total", "DCGM_FI_DEV_FB_TOTAL", "All of the card's memory."),
    Metric("memory_unified", "Unified memory", Unit.YES_NO, _STATIC, None, None, "The card shares the host's memory; it has none of its own."),
    Metric("bar1_used", "BAR1 used", Unit.BYTES, _SLOW, None, "DCGM_FI_DEV_BAR1_USED", "Of the window through which the host sees GPU memory.", at_most="bar1_total"),
    Metric("bar1_total", "BAR1 total", Unit.BYTES, _SLOW, None, "DCGM_FI_DEV_BAR1_TOTAL", "Size of the window through which the host sees GPU memory."),
    Metric("utilization_gpu", "GPU utilisation", _PCT, _FAST, "utilization.gpu", "DCGM_FI_DEV_GPU_UTIL", "Share of time in which any kernel ran; says nothing of how full the chip was."),
    Metric("utilization_memory", "Memory utilisation", _PCT, _FAST, "utilization.memory", "DCGM_FI_DEV_MEM_COPY_UTIL", "Share of time in which GPU memory was read or written; not how full it is."),
    Metric("utilization_encoder", "Encoder utilisation", _PCT, _SLOW, "utilization.encoder", "DCGM_FI_DEV_ENC_UTIL", "Of the video encoder."),
    Metric("utilization_decoder", "Decoder utilisation", _PCT, _SLOW, "utilization.decoder", "DCGM_FI_DEV_DEC_UTIL", "Of the video decoder."),
    Metric("utilization_jpeg", "JPEG utilisation", _PCT, _SLOW, "utilization.jpeg", None, "Of the JPEG decoder."),
    Metric("utilization_ofa", "OFA utilisation", _PCT, _SLOW, "utilization.ofa", None, "Of the optical flow accelerator."),
    Metric("temperature_gpu", "GPU temperature", Unit.CELSIUS, _FAST, "temperature.gpu", "DCGM_FI_DEV_GPU_TEMP", "Of the chip."),
    Metric("temperature_memory", "Memory temperature", Unit.CELSIUS, _SLOW, "temperature.memory", "DCGM_FI_DEV_MEMORY_TEMP", "Of the memory; few cards report it."),
    Metric("temperature_slowdown", "Slowdown temperature", Unit.CELSIUS, _STATIC, None, "DCGM_FI_DEV_SLOWDOWN_TEMP", "Where the card begins to slow itself down."),
    Metric("temperature_shutdown", "Shutdown temperature", Unit.CELSIUS, _STATIC, None, "DCGM_FI_DEV_SHUTDOWN_TEMP", "Where the card turns itself off."),
    Metric("temperature_margin", "Temperature margin", Unit.CELSIUS, _SLOW, "temperature.gpu.tlimit", "DCGM_FI_DEV_GPU_TEMP_LIMIT", "How far the chip is from slowing down."),
    Metric("power_draw", "Power", Unit.WATTS, _FAST, "power.draw", "DCGM_FI_DEV_POWER_USAGE", "Of the whole board; since Ampere a mean over the last second."),
    Metric("power_instant", "Power, instant", Unit.WATTS, _FAST, "power.draw.instant", "DCGM_FI_DEV_POWER_USAGE_INSTANT", "Of the whole board at this moment."),
    Metric("power_average", "Power, average", Unit.WATTS, _SLOW, "power.draw.average", None, "Of the whole board, mean over the last second."),
    Metric("power_limit", "Power limit", Unit.WATTS, _SLOW, "enforced.power.limit", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "The cap in force: the lowest of all that apply."),
    Metric("power_limit_min", "Power limit, lowest", Unit.WATTS, _STATIC, "power.min_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "The lowest cap that may be set."),
    Metric("power_limit_max", "Power limit, highest", Unit.WATTS, _STATIC, "power.max_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "The highest cap that may be set."),
    Metric("energy", "Energy", Unit.JOULES, _SLOW, None, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Since the driver was loaded."),
    Metric("clock_sm", "SM clock", Unit.MEGAHERTZ, _FAST, "clocks.current.sm", "DCGM_FI_DEV_SM_CLOCK", "Of the multiprocessors."),
    Metric("clock_memory", "Memory clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.memory", "DCGM_FI_DEV_MEM_CLOCK", "Of the memory."),
    Metric("clock_graphics", "Graphics clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.graphics", None, "Of the graphics engine."),
    Metric("clock_video", "Video clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.video", "DCGM_FI_DEV_VIDEO_CLOCK", "Of the video engines."),
    Metric("clock_sm_max", "SM clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.sm", "DCGM_FI_DEV_MAX_SM_CLOCK", "The most the multiprocessors can do."),
    Metric("clock_memory_max", "Memory clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.memory", "DCGM_FI_DEV_MAX_MEM_CLOCK", "The most the memory can do."),
    Metric("clock_graphics_max", "Graphics clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.graphics", None, "The most the graphics engine can do."),
    Metric("clock_video_max", "Video clock, highest", Unit.MEGAHERTZ, _STATIC, None, "DCGM_FI_DEV_MAX_VIDEO_CLOCK", "The most the video engines can do."),
    Metric("pstate", "Performance state", Unit.PSTATE, _SLOW, "pstate", "DCGM_FI_DEV_PSTATE", "P0 is the fastest, P15 the slowest."),
    Metric("clock_event_reasons", "Clock event reasons", Unit.BITS, _FAST, "clocks_event_reasons.active", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why the clocks are below their highest; a software power cap under load is normal."),
    Metric("fan_speed", "Fan speed", _PCT, _SLOW, "fan.speed", "DCGM_FI_DEV_FAN_SPEED", "What the fan is asked to do, which may exceed 100; passive cards have none.", highest=1000),
    Metric("pcie_generation", "PCIe generation", _N, _SLOW, "pcie.link.gen.gpucurrent", "DCGM_FI_DEV_PCIE_LINK_GEN", "Of the link now; it drops while the card idles, which is no fault."),
    Metric("pcie_generation_max", "PCIe generation, highest", _N, _STATIC, "pcie.link.gen.max", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "The best that card and slot can do together."),
    Metric("pcie_width", "PCIe width", _N, _SLOW, "pcie.link.width.current", "DCGM_FI_DEV_PCIE_LINK_WIDTH", "Lanes of the link now."),
    Metric("pcie_width_max", "PCIe width, highest", _N, _STATIC, "pcie.link.width.max", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Lanes that card and slot can do together."),
    Metric("pcie_rx", "PCIe receive", Unit.BYTES_PER_SECOND, _SLOW, None, "DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "Into the card; the driver measures it for 20 ms."),
    Metric("pcie_tx", "PCIe transmit", Unit.BYTES_PER_SECOND, _SLOW, None, "DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "Out of the card; the driver measures it for 20 ms."),
    Metric("nvlink_active", "NVLinks up", _N, _SLOW, None, None, "Links that are up."),
    Metric("nvlink_count", "NVLinks", _N, _SLOW, None, None, "Links the card has."),
    Metric("nvlink_rx", "NVLink receive", Unit.BYTES_PER_SECOND, _SLOW, None, None, "Over all links, from the difference of two counters."),
    Metric("nvlink_tx", "NVLink transmit", Unit.BYTES_PER_SECOND, _SLOW, None, None, "Over all links, from the difference of two counters."),
    Metric("ecc_mode", "ECC", Unit.ENABLED, _SLOW, "ecc.mode.current", "DCGM_FI_DEV_ECC_CURRENT", "Whether memory errors are corrected."),
    Metric("ecc_corrected_volatile", "ECC corrected", _N, _SLOW, "ecc.errors.corrected.volatile.total", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Errors put right since the driver was loaded."),
    Metric("ecc_uncorrected_volatile", "ECC uncorrected", _N, _SLOW, "ecc.errors.uncorrected.volatile.total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Errors that could not be put right since the driver was loaded."),
    Metric("ecc_corrected_aggregate", "ECC corrected, ever", _N, _SLOW, "ecc.errors.corrected.aggregate.total", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Errors put right in the card's life."),
    Metric("ecc_uncorrected_aggregate", "ECC uncorrected, ever", _N, _SLOW, "ecc.errors.uncorrected.aggregate.total", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Errors that could not be put right in the card's life."),
    Metric("remapped_rows_correctable", "Rows remapped, correctable", _N, _SLOW, "remapped_rows.correctable", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Memory rows replaced after corrected errors (Ampere and later)."),
    Metric("remapped_rows_uncorrectable", "Rows remapped, uncorrectable", _N, _SLOW, "remapped_rows.uncorrectable", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Memory rows replaced after uncorrected errors (Ampere and later)."),
    Metric("remapped_rows_pending", "Row remap pending", Unit.YES_NO, _SLOW, "remapped_rows.pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", "A row waits for a reset of the card to be replaced."),
    Metric("remapped_rows_failure", "Row remap failure", Unit.YES_NO, _SLOW, "remapped_rows.failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "A row could not be replaced: the card should be returned."),
    Metric("retired_pages_single_bit", "Pages retired, single bit", _N, _SLOW, "retired_pages.single_bit_ecc.count", "DCGM_FI_DEV_RETIRED_SBE", "Memory pages given up after repeated corrected errors (before Ampere)."),
    Metric("retired_pages_double_bit", "Pages retired, double bit", _N, _SLOW, "retired_pages.double_bit.count", "DCGM_FI_DEV_RETIRED_DBE", "Memory pages given up after an uncorrected error (before Ampere)."),
    Metric("retired_pages_pending", "Page retirement pending", Unit.YES_NO, _SLOW, "retired_pages.pending", "DCGM_FI_DEV_RETIRED_PENDING", "A page waits for a reset of the card to be given up."),
    Metric("recovery_action", "Recovery action", _T, _SLOW, "gpu_recovery_action", None, "What the driver asks for to make the card whole again."),
    Metric("xid", "Last XID", _N, _FAST, None, "DCGM_FI_DEV_XID_ERRORS", "The driver's number of the last critical error this program saw."),
    Metric("xid_at", "Last XID at", Unit.TIME, _FAST, None, None, "When that was."),
    Metric("persistence_mode", "Persistence mode", Unit.ENABLED, _SLOW, "persistence_mode", "DCGM_FI_DEV_PERSISTENCE_MODE", "The driver stays loaded while nobody uses the card; off makes every start slow."),
    Metric("compute_mode", "Compute mode", _T, _SLOW, "compute_mode", None, "Whether several processes may use the card."),
    Metric("display_mode", "Display connected", Unit.ENABLED, _SLOW, "display_mode", None, "A monitor is connected."),
    Metric("display_active", "Display active", Unit.ENABLED, _SLOW, "display_active", None, "A display server has memory on the card."),
    Metric("mig_mode", "MIG mode", Unit.ENABLED, _SLOW, "mig.mode.current", "DCGM_FI_DEV_MIG_MODE", "The card is cut into instances."),
)
# fmt: on

GPU_METRIC: dict[str, Metric] = {metric.field: metric for metric in GPU_METRICS}


class ProcessMetric(Struct, frozen=True):
    """A line of the table of what is known of a process.

    Attributes:
        key: Name of the column, also its JSON key less the unit.
        label: The heading on screen.
        unit: The unit of what ``read`` gives.
        read: Takes the process and the time of the snapshot.
        smi: nvidia-smi's name in ``--query-compute-apps``, or ``None``.
        about: What it means, in a sentence.
    """

    key: str
    label: str
    unit: Unit
    read: Callable[[GpuProcess, float], object]
    smi: str | None
    about: str

    @property
    def json_key(self) -> str:
        """The key with its unit, such as ``rss_bytes``."""
        return f"{self.key}_{self.unit.suffix}" if self.unit.suffix else self.key


def _age(process: GpuProcess, now: float) -> float | None:
    return None if process.started_at is None else max(0.0, now - process.started_at)


def _where(process: GpuProcess) -> str | None:
    labels = process.place.labels if process.place else ()
    return labels[0] if labels else None


def _container(process: GpuProcess) -> str | None:
    return process.place.container.label if process.place and process.place.container else None


def _job(process: GpuProcess) -> str | None:
    """A launcher's number goes with its name, since many are called alike."""
    place = process.place
    if place is None:
        return None
    if place.slurm_job is None and place.launcher is not None:
        return f"{place.launcher_name or 'launcher'} {place.launcher.pid}"
    return place.slurm_job


# In the order of the columns of the CSV, which scripts count: a new line goes last.
# fmt: off
PROCESS_METRICS: tuple[ProcessMetric, ...] = (
    ProcessMetric("gpu", "GPU", _T, lambda p, _: ",".join(map(str, p.gpu_indices)), None, "Indices of the cards it holds memory on."),
    ProcessMetric("pid", "PID", _N, lambda p, _: p.id.pid, "pid", "Its number."),
    ProcessMetric("user", "USER", _T, lambda p, _: p.user, None, "Whose it is."),
    ProcessMetric("type", "TYPE", _T, lambda p, _: p.type, None, "C compute, G graphics, M a client of MPS; C+G is both."),
    ProcessMetric("memory_used", "GPU-MEM", Unit.BYTES, lambda p, _: p.memory_used, "used_gpu_memory", "GPU memory on all its cards together."),
    ProcessMetric("sm", "SM%", _PCT, lambda p, _: p.sm, None, "Share of time one of its kernels ran, mean over its cards."),
    ProcessMetric("cpu", "CPU%", _PCT, lambda p, _: p.cpu_percent, None, "Of one core; more than 100 when it uses several."),
    ProcessMetric("rss", "RSS", Unit.BYTES, lambda p, _: p.rss, None, "Host memory it keeps resident."),
    ProcessMetric("age", "TIME", Unit.SECONDS, _age, None, "How long ago it started."),
    ProcessMetric("command", "COMMAND", _T, lambda p, _: " ".join(p.command) or p.name, "process_name", "Its command line."),
    ProcessMetric("where", "WHERE", _T, lambda p, _: _where(p), None, "Where it runs, the most telling of its Slurm job, container, notebook, tmux session and Python environment."),
    ProcessMetric("container", "CONTAINER", _T, lambda p, _: _container(p), None, "The container or Kubernetes pod around it."),
    ProcessMetric("job", "JOB", _T, lambda p, _: _job(p), None, "Number of its Slurm job, else the torchrun, mpirun or the like that started it, with its PID."),
    ProcessMetric("state", "S", _T, lambda p, _: p.state, None, "One letter, as in ps: R runs, S sleeps, D waits in the kernel out of reach of signals, T is stopped, Z is dead but still counted, X has ended and the driver still lists it."),
)
# fmt: on

PROCESS_METRIC: dict[str, ProcessMetric] = {metric.key: metric for metric in PROCESS_METRICS}


CLOCK_EVENT_REASONS: dict[int, str] = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "SW power cap",
    0x008: "HW slowdown",
    0x010: "sync boost",
    0x020: "SW thermal",
    0x040: "HW thermal",
    0x080: "HW power brake",
    0x100: "display clock",
}
"""``nvmlClocksEventReason*`` of nvml.h, in nvidia-smi's words."""

HARMFUL_CLOCK_EVENTS = 0x008 | 0x020 | 0x040 | 0x080
"""Slowed down by heat, the power supply or an unnamed fault. A software power cap is how a busy card
keeps to its limit, and the rest is somebody's choice."""


def clock_event_names(reasons: int) -> list[str]:
    """The names of the bits set; a bit this table does not know is named by its number."""
    names = [name for bit, name in CLOCK_EVENT_REASONS.items() if reasons & bit]
    unknown = reasons & ~sum(CLOCK_EVENT_REASONS)
    if unknown:
        names.append(f"reason {unknown:#x}")
    return names


def gpu_value(gpu: Gpu, metric: Metric) -> object:
    """The value of a metric, in the model's unit; ``None`` is unknown."""
    return getattr(gpu, metric.field)
