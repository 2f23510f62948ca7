"""The table of metrics: the name, unit and reading interval of every value.

Columns, JSON, CSV, the Prometheus exporter, charts and the help page all read this table.
CONTRIBUTING.md says how to add a metric.

The names of nvidia-smi are those of ``nvidia-smi --help-query-gpu``. The names of DCGM are those of
dcgm-exporter's default counters and of ``dcgm_fields.h``, which Grafana dashboards use.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu


class Unit(Enum):
    """The unit of a value in the model.

    Attributes:
        suffix: Ending of the JSON key, which names the unit.
        csv: The unit nvidia-smi writes in a CSV header; empty where it writes none.
        per_csv: Number of model units in one CSV unit.
        possible: The lowest and the highest value, in the model's unit, that hardware can report;
            any other value is corrupt. A metric may set other limits.
    """

    TEXT = ("text", "", "", 1)
    NUMBER = ("number", "", "", 1, (0, 2**48))
    ENABLED = ("enabled or disabled", "enabled", "", 1)
    YES_NO = ("yes or no", "", "", 1)
    PSTATE = ("performance state", "", "", 1, (0, 15))
    BITS = ("bits", "bits", "", 1, (0, 2**31))
    BYTES = ("bytes", "bytes", "MiB", 2**20, (0, 2**50))
    PERCENT = ("percent", "percent", "%", 1, (0, 100))
    SHARE = ("percent with a fraction", "percent", "%", 1, (0, 100))
    CELSIUS = ("degrees Celsius", "celsius", "", 1, (-100, 300))
    WATTS = ("watts", "watts", "W", 1, (0, 10_000))
    # 10 kW for 30 years.
    JOULES = ("joules", "joules", "J", 1, (0, 10**13))
    # Below all bits of 16 set, which stand for an unknown value, as in the next one.
    MEGAHERTZ = ("megahertz", "mhz", "MHz", 1, (0, 50_000))
    RPM = ("revolutions per minute", "", "RPM", 1, (0, 50_000))
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
    """How often to read a value. ``tests/driver/README.md`` lists what each call costs."""

    STATIC = "once"
    FAST = "every sample"
    MEDIUM = "every second"
    SLOW = "every few seconds"


class Metric(Struct, frozen=True):
    """A row of the metric table.

    Attributes:
        field: Name of the field in the model.
        label: The text on screen.
        unit: The unit of the value in the model.
        tier: How often it is read.
        smi: nvidia-smi's name for it, or ``None``.
        dcgm: DCGM's name for it, or ``None``.
        about: The meaning, for users.
        highest: The highest possible value, if it differs from the unit's.
        lowest: The lowest possible value, if it differs from the unit's.
        at_most: The field whose value this one never exceeds, or ``None``.
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
    lowest: float | None = None

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and the highest value that hardware can report."""
        lowest, highest = self.unit.possible
        return (
            lowest if self.lowest is None else self.lowest,
            highest if self.highest is None else self.highest,
        )

    @property
    def is_bounded(self) -> bool:
        """Whether its values are numbers within bounds."""
        return self.unit.possible != (-math.inf, math.inf)

    @property
    def json_key(self) -> str:
        """The field with its unit, such as ``memory_used_bytes``."""
        return f"{self.field}_{self.unit.suffix}" if self.unit.suffix else self.field


_T, _N, _PCT = Unit.TEXT, Unit.NUMBER, Unit.PERCENT
_STATIC, _FAST, _SLOW = Tier.STATIC, Tier.FAST, Tier.SLOW

# One line per metric is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
GPU_METRICS: tuple[Metric, ...] = (
    Metric("index", "Index", _N, _STATIC, "index", None, "Index of the GPU in nvidia-smi. CUDA uses another order unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set."),
    Metric("uuid", "UUID", _T, _STATIC, "uuid", None, "Unique ID of the GPU, which never changes. CUDA_VISIBLE_DEVICES accepts it."),
    Metric("name", "Name", _T, _STATIC, "name", None, "Product name."),
    Metric("pci_bus_id", "PCI bus id", _T, _STATIC, "pci.bus_id", None, "PCI domain, bus, device and function."),
    Metric("minor_number", "Minor number", _N, _STATIC, None, None, "Number in the name of the device file; not the index.", highest=2**20),
    Metric("architecture", "Architecture", _T, _STATIC, None, None, "Generation of the GPU."),
    Metric("compute_capability", "Compute capability", _T, _STATIC, "compute_cap", "DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY", "CUDA code that the GPU can run."),
    Metric("vbios_version", "VBIOS", _T, _STATIC, "vbios_version", "DCGM_FI_DEV_VBIOS_VERSION", "Version of the GPU's firmware."),
    Metric("serial", "Serial", _T, _STATIC, "serial", None, "Serial number of the board. Consumer GPUs report none."),
    Metric("memory_used", "Memory used", Unit.BYTES, _FAST, "memory.used", "DCGM_FI_DEV_FB_USED", "Memory that processes have allocated, in use or not, without the driver's reserve.", at_most="memory_total"),
    Metric("memory_free", "Memory free", Unit.BYTES, _FAST, "memory.free", "DCGM_FI_DEV_FB_FREE", "Memory that can still be allocated.", at_most="memory_total"),
    Metric("memory_reserved", "Memory reserved", Unit.BYTES, _FAST, "memory.reserved", "DCGM_FI_DEV_FB_RESERVED", "Memory that the driver and the firmware reserve.", at_most="memory_total"),
    Metric("memory_total", "Memory total", Unit.BYTES, _FAST, "memory.total", "DCGM_FI_DEV_FB_TOTAL", "Total memory of the GPU."),
    Metric("memory_unified", "Unified memory", Unit.YES_NO, _STATIC, None, None, "Whether the GPU uses the host's memory and has none of its own."),
    Metric("bar1_used", "BAR1 used", Unit.BYTES, _SLOW, None, "DCGM_FI_DEV_BAR1_USED", "Used part of the window through which the host accesses GPU memory.", at_most="bar1_total"),
    Metric("bar1_total", "BAR1 total", Unit.BYTES, _SLOW, None, "DCGM_FI_DEV_BAR1_TOTAL", "Size of the window through which the host accesses GPU memory."),
    Metric("utilization_gpu", "GPU utilisation", _PCT, _FAST, "utilization.gpu", "DCGM_FI_DEV_GPU_UTIL", "Share of time in which any kernel ran. It does not tell how much of the GPU the kernel used."),
    Metric("utilization_memory", "Memory utilisation", _PCT, _FAST, "utilization.memory", "DCGM_FI_DEV_MEM_COPY_UTIL", "Share of time in which GPU memory was read or written. It does not tell how full the memory is."),
    Metric("utilization_encoder", "Encoder utilisation", _PCT, _SLOW, "utilization.encoder", "DCGM_FI_DEV_ENC_UTIL", "Utilization of the video encoder."),
    Metric("utilization_decoder", "Decoder utilisation", _PCT, _SLOW, "utilization.decoder", "DCGM_FI_DEV_DEC_UTIL", "Utilization of the video decoder."),
    Metric("utilization_jpeg", "JPEG utilisation", _PCT, _SLOW, "utilization.jpeg", None, "Utilization of the JPEG decoder."),
    Metric("utilization_ofa", "OFA utilisation", _PCT, _SLOW, "utilization.ofa", None, "Utilization of the optical flow accelerator."),
    Metric("temperature_gpu", "GPU temperature", Unit.CELSIUS, _FAST, "temperature.gpu", "DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU chip.", lowest=0, highest=200),
    Metric("temperature_memory", "Memory temperature", Unit.CELSIUS, _SLOW, "temperature.memory", "DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory. Few GPUs report it.", lowest=0, highest=200),
    Metric("temperature_slowdown", "Slowdown temperature", Unit.CELSIUS, _STATIC, None, "DCGM_FI_DEV_SLOWDOWN_TEMP", "Temperature at which the GPU starts to slow down."),
    Metric("temperature_shutdown", "Shutdown temperature", Unit.CELSIUS, _STATIC, None, "DCGM_FI_DEV_SHUTDOWN_TEMP", "Temperature at which the GPU shuts down."),
    Metric("temperature_margin", "Temperature margin", Unit.CELSIUS, _SLOW, "temperature.gpu.tlimit", "DCGM_FI_DEV_GPU_TEMP_LIMIT", "Degrees until the GPU slows down."),
    Metric("power_draw", "Power", Unit.WATTS, _FAST, "power.draw", "DCGM_FI_DEV_POWER_USAGE", "Power of the whole board; since Ampere the mean of the last second."),
    Metric("power_instant", "Power, instant", Unit.WATTS, _FAST, "power.draw.instant", "DCGM_FI_DEV_POWER_USAGE_INSTANT", "Power of the whole board at this moment."),
    Metric("power_average", "Power, average", Unit.WATTS, _SLOW, "power.draw.average", None, "Power of the whole board, mean of the last second."),
    Metric("power_limit", "Power limit", Unit.WATTS, _SLOW, "enforced.power.limit", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "The power limit in effect: the lowest of all that apply."),
    Metric("power_limit_min", "Power limit, lowest", Unit.WATTS, _STATIC, "power.min_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "The lowest power limit that can be set."),
    Metric("power_limit_max", "Power limit, highest", Unit.WATTS, _STATIC, "power.max_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "The highest power limit that can be set."),
    Metric("energy", "Energy", Unit.JOULES, _SLOW, None, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy used since the driver was loaded."),
    Metric("clock_sm", "SM clock", Unit.MEGAHERTZ, _FAST, "clocks.current.sm", "DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors."),
    Metric("clock_memory", "Memory clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.memory", "DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory."),
    Metric("clock_graphics", "Graphics clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.graphics", None, "Clock of the graphics engine."),
    Metric("clock_video", "Video clock", Unit.MEGAHERTZ, _SLOW, "clocks.current.video", "DCGM_FI_DEV_VIDEO_CLOCK", "Clock of the video engines."),
    Metric("clock_sm_max", "SM clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.sm", "DCGM_FI_DEV_MAX_SM_CLOCK", "Maximum clock of the multiprocessors."),
    Metric("clock_memory_max", "Memory clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.memory", "DCGM_FI_DEV_MAX_MEM_CLOCK", "Maximum clock of the memory."),
    Metric("clock_graphics_max", "Graphics clock, highest", Unit.MEGAHERTZ, _STATIC, "clocks.max.graphics", None, "Maximum clock of the graphics engine."),
    Metric("clock_video_max", "Video clock, highest", Unit.MEGAHERTZ, _STATIC, None, "DCGM_FI_DEV_MAX_VIDEO_CLOCK", "Maximum clock of the video engines."),
    Metric("pstate", "Performance state", Unit.PSTATE, _SLOW, "pstate", "DCGM_FI_DEV_PSTATE", "Performance state: P0 is the fastest, P15 the slowest."),
    Metric("clock_event_reasons", "Clock event reasons", Unit.BITS, _FAST, "clocks_event_reasons.active", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why the clocks are below their maximum. A software power cap under load is normal."),
    Metric("fan_speed", "Fan speed", _PCT, _SLOW, "fan.speed", "DCGM_FI_DEV_FAN_SPEED", "Requested fan speed, which can exceed 100. Passive GPUs have no fan.", highest=1000),
    Metric("pcie_generation", "PCIe generation", _N, _SLOW, "pcie.link.gen.gpucurrent", "DCGM_FI_DEV_PCIE_LINK_GEN", "Current PCIe generation of the link. It drops while the GPU is idle, which is not a fault.", highest=32),
    Metric("pcie_generation_max", "PCIe generation, highest", _N, _STATIC, "pcie.link.gen.max", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "Highest PCIe generation that GPU and slot support together.", highest=32),
    Metric("pcie_width", "PCIe width", _N, _SLOW, "pcie.link.width.current", "DCGM_FI_DEV_PCIE_LINK_WIDTH", "Current number of PCIe lanes.", highest=32),
    Metric("pcie_width_max", "PCIe width, highest", _N, _STATIC, "pcie.link.width.max", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Highest number of PCIe lanes that GPU and slot support together.", highest=32),
    Metric("pcie_rx", "PCIe receive", Unit.BYTES_PER_SECOND, _SLOW, None, "DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "PCIe traffic to the GPU, over 20 ms or since the last reading."),
    Metric("pcie_tx", "PCIe transmit", Unit.BYTES_PER_SECOND, _SLOW, None, "DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "PCIe traffic from the GPU, over 20 ms or since the last reading."),
    Metric("nvlink_active", "NVLinks up", _N, _SLOW, None, None, "Number of NVLinks that are up.", highest=1024),
    Metric("nvlink_count", "NVLinks", _N, _SLOW, None, None, "Number of NVLinks of the GPU.", highest=1024),
    Metric("nvlink_rx", "NVLink receive", Unit.BYTES_PER_SECOND, _SLOW, None, None, "Traffic received over all NVLinks since the last reading."),
    Metric("nvlink_tx", "NVLink transmit", Unit.BYTES_PER_SECOND, _SLOW, None, None, "Traffic sent over all NVLinks since the last reading."),
    Metric("nvlink_errors", "NVLink errors", _N, _SLOW, None, None, "Replays of packets and recoveries of links over all NVLinks since the driver was loaded. A healthy link has none."),
    Metric("ecc_mode", "ECC", Unit.ENABLED, _SLOW, "ecc.mode.current", "DCGM_FI_DEV_ECC_CURRENT", "Whether memory errors are detected and corrected (ECC)."),
    Metric("ecc_corrected_volatile", "ECC corrected", _N, _SLOW, "ecc.errors.corrected.volatile.total", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Memory errors that were corrected since the driver was loaded."),
    Metric("ecc_uncorrected_volatile", "ECC uncorrected", _N, _SLOW, "ecc.errors.uncorrected.volatile.total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Memory errors that could not be corrected since the driver was loaded."),
    Metric("ecc_corrected_aggregate", "ECC corrected, ever", _N, _SLOW, "ecc.errors.corrected.aggregate.total", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Memory errors that were corrected during the GPU's lifetime."),
    Metric("ecc_uncorrected_aggregate", "ECC uncorrected, ever", _N, _SLOW, "ecc.errors.uncorrected.aggregate.total", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Memory errors that could not be corrected during the GPU's lifetime."),
    Metric("remapped_rows_correctable", "Rows remapped, correctable", _N, _SLOW, "remapped_rows.correctable", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Memory rows replaced after corrected errors (Ampere and later).", highest=2**20),
    Metric("remapped_rows_uncorrectable", "Rows remapped, uncorrectable", _N, _SLOW, "remapped_rows.uncorrectable", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Memory rows replaced after uncorrected errors (Ampere and later).", highest=2**20),
    Metric("remapped_rows_pending", "Row remap pending", Unit.YES_NO, _SLOW, "remapped_rows.pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether a memory row will be replaced at the next reset of the GPU."),
    Metric("remapped_rows_failure", "Row remap failure", Unit.YES_NO, _SLOW, "remapped_rows.failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether a memory row could not be replaced: the GPU should be returned."),
    Metric("retired_pages_single_bit", "Pages retired, single bit", _N, _SLOW, "retired_pages.single_bit_ecc.count", "DCGM_FI_DEV_RETIRED_SBE", "Memory pages retired after repeated corrected errors (before Ampere).", highest=2**20),
    Metric("retired_pages_double_bit", "Pages retired, double bit", _N, _SLOW, "retired_pages.double_bit.count", "DCGM_FI_DEV_RETIRED_DBE", "Memory pages retired after an uncorrected error (before Ampere).", highest=2**20),
    Metric("retired_pages_pending", "Page retirement pending", Unit.YES_NO, _SLOW, "retired_pages.pending", "DCGM_FI_DEV_RETIRED_PENDING", "Whether a memory page will be retired at the next reset of the GPU."),
    Metric("recovery_action", "Recovery action", _T, _SLOW, "gpu_recovery_action", None, "Action that the driver recommends to recover the GPU."),
    Metric("xid", "Last XID", _N, _FAST, None, "DCGM_FI_DEV_XID_ERRORS", "Error code of the last critical error that the driver reported since gpumon started, or since the machine started where the kernel log may be read."),
    Metric("xid_at", "Last XID at", Unit.TIME, _FAST, None, None, "Time of that error."),
    Metric("persistence_mode", "Persistence mode", Unit.ENABLED, _SLOW, "persistence_mode", "DCGM_FI_DEV_PERSISTENCE_MODE", "Whether the driver stays loaded while no process uses the GPU. Without it, every start is slow."),
    Metric("compute_mode", "Compute mode", _T, _SLOW, "compute_mode", None, "Whether several processes may use the GPU."),
    Metric("display_mode", "Display connected", Unit.ENABLED, _SLOW, "display_mode", None, "Whether a monitor is connected."),
    Metric("display_active", "Display active", Unit.ENABLED, _SLOW, "display_active", None, "Whether a display server uses memory of the GPU."),
    Metric("mig_mode", "MIG mode", Unit.ENABLED, _SLOW, "mig.mode.current", "DCGM_FI_DEV_MIG_MODE", "Whether the GPU is divided into instances (MIG)."),
    Metric("sm_active", "SMs active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_SM_ACTIVE", "Share of the multiprocessors (SMs) that had work, over time. Low while GPU utilisation is high: the kernels are too small to fill the GPU, or wait for another one. Work that waits for memory counts: it does not tell how well an SM was used."),
    Metric("sm_occupancy", "SM occupancy", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_SM_OCCUPANCY", "Resident warps as a share of the most that the SMs can hold. More of them hide the latency of memory; otherwise a low value is no fault."),
    Metric("tensor_active", "Tensor active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Share of cycles in which the tensor cores worked, mean of all SMs. 20 may be a fifth of them all the time, or all of them a fifth of the time."),
    Metric("fp64_active", "FP64 active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "Share of cycles in which the FP64 units worked, mean of all SMs. The tensor cores do not count."),
    Metric("fp32_active", "FP32 active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Share of cycles in which the FP32 units worked, mean of all SMs. The tensor cores do not count."),
    Metric("fp16_active", "FP16 active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Share of cycles in which the FP16 units worked, mean of all SMs. The tensor cores do not count."),
    Metric("dram_active", "DRAM active", Unit.SHARE, Tier.MEDIUM, None, "DCGM_FI_PROF_DRAM_ACTIVE", "Share of cycles in which data moved to or from GPU memory. About 80 is the most in practice. It does not tell how full the memory is."),
    Metric("temperature_hotspot", "Hotspot temperature", Unit.CELSIUS, _FAST, None, None, "Temperature of the hottest place of the chip, which AMD calls junction. The other temperature is that of its edge.", lowest=0, highest=200),
    Metric("fan_rpm", "Fan speed, measured", Unit.RPM, _SLOW, None, None, "Measured speed of the fan, of several the fastest."),
)
# fmt: on

GPU_METRIC: dict[str, Metric] = {metric.field: metric for metric in GPU_METRICS}


class ProcessMetric(Struct, frozen=True):
    """A row of the table of process values.

    Attributes:
        key: Name of the column, also its JSON key less the unit.
        label: The column header on screen.
        unit: The unit of what ``read`` gives.
        read: Takes the process and the time of the snapshot.
        smi: nvidia-smi's name in ``--query-compute-apps``, or ``None``.
        about: The meaning, for users.
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
    """Show a launcher's PID with its name, because many launchers have the same name."""
    place = process.place
    if place is None:
        return None
    if place.slurm_job is None and place.launcher is not None:
        return f"{place.launcher_name or 'launcher'} {place.launcher.pid}"
    return place.slurm_job


# The order is that of the CSV columns, which scripts count: add new lines at the end. A line each, as
# above.
# fmt: off
PROCESS_METRICS: tuple[ProcessMetric, ...] = (
    ProcessMetric("gpu", "GPU", _T, lambda p, _: ",".join(map(str, p.gpu_indices)), None, "Indices of the GPUs that it uses."),
    ProcessMetric("pid", "PID", _N, lambda p, _: p.id.pid, "pid", "Process ID."),
    ProcessMetric("user", "USER", _T, lambda p, _: p.user, None, "Owner of the process."),
    ProcessMetric("type", "TYPE", _T, lambda p, _: p.type, None, "C compute, G graphics, M a client of MPS; C+G is both."),
    ProcessMetric("memory_used", "GPU-MEM", Unit.BYTES, lambda p, _: p.memory_used, "used_gpu_memory", "GPU memory on all its GPUs together."),
    ProcessMetric("sm", "SM%", _PCT, lambda p, _: p.sm, None, "Share of time in which one of its kernels ran, mean of its GPUs."),
    ProcessMetric("cpu", "CPU%", _PCT, lambda p, _: p.cpu_percent, None, "CPU use in percent of one core; more than 100 with several cores."),
    ProcessMetric("rss", "RSS", Unit.BYTES, lambda p, _: p.rss, None, "Resident host memory."),
    ProcessMetric("age", "AGE", Unit.SECONDS, _age, None, "Time since it started."),
    ProcessMetric("command", "COMMAND", _T, lambda p, _: " ".join(p.command) or p.name, "process_name", "Command line."),
    ProcessMetric("where", "WHERE", _T, lambda p, _: _where(p), None, "Where it runs: its Slurm job, container, notebook, tmux session or Python environment, the most specific of them."),
    ProcessMetric("container", "CONTAINER", _T, lambda p, _: _container(p), None, "Its container or Kubernetes pod."),
    ProcessMetric("job", "JOB", _T, lambda p, _: _job(p), None, "Its Slurm job, else its launcher (torchrun, mpirun and others) with PID."),
    ProcessMetric("state", "S", _T, lambda p, _: p.state, None, "One letter, as in ps: R runs, S sleeps, D waits in the kernel and receives no signals, T is stopped, Z is a zombie, X has ended and the driver still lists it."),
    ProcessMetric("memory_activity", "MBW%", _PCT, lambda p, _: p.memory_activity, None, "Share of time in which its kernels read or wrote GPU memory (memory bandwidth utilization), mean of its GPUs."),
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
"""The bits of ``Gpu.clock_event_reasons`` with nvidia-smi's names."""

HARMFUL_CLOCK_EVENTS = 0x008 | 0x020 | 0x040 | 0x080
"""The bits that mean heat, a problem of the power supply, or an unnamed fault. A software power cap is
normal under load; the other bits are settings."""


def clock_event_names(reasons: int) -> list[str]:
    """The names of the set bits; a bit that is not in this table is named by its number."""
    names = [name for bit, name in CLOCK_EVENT_REASONS.items() if reasons & bit]
    unknown = reasons & ~sum(CLOCK_EVENT_REASONS)
    if unknown:
        names.append(f"reason {unknown:#x}")
    return names


def gpu_value(gpu: Gpu, metric: Metric) -> object:
    """The value of a metric in the model's unit; ``None`` if unknown."""
    return getattr(gpu, metric.field)
