"""The data model: immutable structures that are the same for every source.

A ``Snapshot`` is the state of one machine at one time.

``None`` always means unknown; 0 never stands for it. ``Gpu.unknown`` keeps the reason. Units are
bytes, percent, degrees Celsius, watts, joules, MHz, bytes per second and seconds;
each field of ``Gpu`` declares its own. Times are seconds since the epoch.

These structures cannot form reference cycles, so the garbage collector skips them (``gc=False``):
there are thousands of them, and they took most of its time. ``gpumon.model.codec`` encodes them as
arrays of their fields (``array_like=True``), which is short; in JSON they are objects, made by
``gpumon.export.as_json``.
"""

# No ``from __future__ import annotations``: the metrics stand in the annotations of ``Gpu``.

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gpumon.model.accidents import Accident
from gpumon.model.allocations import Allocation
from gpumon.model.metrics import NVIDIA, Annotated, Metric, Tier, Unit
from gpumon.model.network import Nic
from gpumon.model.number_types import Count, Few, Integer, Real, Time
from gpumon.model.processes import GpuProcess, HolderScan


class Unknown(str, Enum):
    """The reason why a value is ``None``."""

    NOT_SUPPORTED = "not supported"
    """This GPU or this driver does not report it."""
    NO_PERMISSION = "no permission"
    """The driver reports it to other users only."""
    GPU_LOST = "card lost"
    """The GPU fell off the bus, or needs a reset, before it was read."""
    NO_ANSWER = "no answer"
    """The call has not come back, or keeps failing for a passing reason."""
    ASLEEP = "asleep"
    """The GPU is powered down and asking would wake it."""
    NOT_RECORDED = "not in the log"
    """It was not recorded, or was unknown then."""
    NOT_EXPORTED = "not exported"
    """The exporter that Prometheus reads does not have it."""
    IMPOSSIBLE = "impossible value"
    """No hardware has the value that was reported, such as more memory in use than there is."""
    NOT_READ = "not read yet"
    """It will be read soon, or it is a rate, which needs two readings."""

    @classmethod
    def _missing_(cls, _: object) -> "Unknown":
        # A newer gpumon on another machine has more words.
        return cls.NOT_READ

    @property
    def words(self) -> str:
        """The reason on screen; the value is a promise of the JSON."""
        return "GPU lost" if self is Unknown.GPU_LOST else self.value


PASSING = frozenset({Unknown.GPU_LOST, Unknown.NO_ANSWER, Unknown.ASLEEP, Unknown.NOT_READ})
"""The reasons that pass; with another one the GPU never reports the value."""


class GpuStatus(str, Enum):
    """Whether a GPU responds to the driver."""

    OK = "ok"
    ASLEEP = "asleep"
    """Powered down by the kernel's runtime power management."""
    NO_ANSWER = "no answer"
    """A call to it has not come back."""
    LOST = "lost"
    """The driver says the GPU is gone."""
    RESET_REQUIRED = "reset required"
    """The driver says the GPU must be reset before use."""
    NO_PERMISSION = "no permission"
    """This user may not open the GPU, or its container was not given it."""
    FAILING = "failing"
    """Most calls to it fail, with errors that name no known cause."""

    @classmethod
    def _missing_(cls, _: object) -> "GpuStatus":
        # A newer gpumon on another machine has more words.
        return cls.FAILING


ANSWERING = (GpuStatus.OK, GpuStatus.FAILING)
"""The statuses of a GPU whose values are known."""


class MigInstance(Struct, frozen=True, gc=False, array_like=True):
    """A MIG device: a slice of a GPU, with the few values that a driver reports for it."""

    uuid: str  # ``MIG-...``.
    index: Count  # Under its GPU, as in ``nvidia-smi -L``.
    gpu_instance: Count | None = None  # The number of its GPU instance.
    compute_instance: Count | None = None  # Its number within that.
    profile: str | None = None  # The profile's name, such as ``1g.10gb``.
    multiprocessors: Integer | None = None  # Number of SMs.
    # The same as in ``Gpu``, of its own memory and multiprocessors.
    memory_total: Integer | None = None
    memory_used: Integer | None = None
    memory_free: Integer | None = None
    sm_active: Real | None = None
    sm_occupancy: Real | None = None
    tensor_active: Real | None = None
    fp64_active: Real | None = None
    fp32_active: Real | None = None
    fp16_active: Real | None = None
    dram_active: Real | None = None


# One line per metric is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
class Gpu(Struct, frozen=True, gc=False, array_like=True):
    """One GPU at one time. Pages and columns show the metrics in the order of these fields."""

    index: Annotated[int, Metric("Index", Unit.NUMBER, Tier.STATIC, "Index of the GPU in nvidia-smi. CUDA uses another order unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set.", smi="index")]
    uuid: Annotated[str, Metric("UUID", Unit.TEXT, Tier.STATIC, "Unique ID of the GPU, which never changes. CUDA_VISIBLE_DEVICES accepts it.", smi="uuid")]
    status: GpuStatus = GpuStatus.OK  # Whether it responds.
    status_since: Time | None = None  # When this program first saw that status.
    sampled_at: Time | None = None  # When its newest values were read.
    # Why a field is ``None``; a field that is ``None`` and absent here has not been read yet. The key
    # ``processes`` is present while the GPU's process list is unavailable: the GPU may then have
    # processes that the snapshot does not show.
    unknown: Mapping[str, Unknown] = {}
    mig: Few[MigInstance] = ()  # Its MIG devices, when MIG is on.

    name: Annotated[str | None, Metric("Name", Unit.TEXT, Tier.STATIC, "Product name.", smi="name")] = None
    pci_bus_id: Annotated[str | None, Metric("PCI bus id", Unit.TEXT, Tier.STATIC, "PCI domain, bus, device and function.", smi="pci.bus_id")] = None
    minor_number: Annotated[int | None, Metric("Minor number", Unit.NUMBER, Tier.STATIC, "Number in the name of the device file; not the index.", highest=2**20)] = None
    architecture: Annotated[str | None, Metric("Architecture", Unit.TEXT, Tier.STATIC, "Generation of the GPU.", logged=False)] = None
    compute_capability: Annotated[str | None, Metric("Compute capability", Unit.TEXT, Tier.STATIC, "CUDA code that the GPU can run.", smi="compute_cap", dcgm="DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY", only=NVIDIA)] = None
    vbios_version: Annotated[str | None, Metric("VBIOS", Unit.TEXT, Tier.STATIC, "Version of the GPU's firmware.", smi="vbios_version", dcgm="DCGM_FI_DEV_VBIOS_VERSION", logged=False)] = None
    serial: Annotated[str | None, Metric("Serial", Unit.TEXT, Tier.STATIC, "Serial number of the board. Consumer GPUs report none.", smi="serial", logged=False)] = None

    memory_used: Annotated[int | None, Metric("Memory used", Unit.BYTES, Tier.FAST, "Memory that processes have allocated, in use or not, without the driver's reserve.", smi="memory.used", dcgm="DCGM_FI_DEV_FB_USED", at_most="memory_total", charted="peak")] = None
    memory_free: Annotated[int | None, Metric("Memory free", Unit.BYTES, Tier.FAST, "Memory that can still be allocated.", smi="memory.free", dcgm="DCGM_FI_DEV_FB_FREE", at_most="memory_total")] = None
    memory_reserved: Annotated[int | None, Metric("Memory reserved", Unit.BYTES, Tier.FAST, "Memory that the driver and the firmware reserve.", smi="memory.reserved", dcgm="DCGM_FI_DEV_FB_RESERVED", at_most="memory_total", only=NVIDIA)] = None
    memory_total: Annotated[int | None, Metric("Memory total", Unit.BYTES, Tier.FAST, "Total memory of the GPU.", smi="memory.total", dcgm="DCGM_FI_DEV_FB_TOTAL")] = None
    memory_unified: Annotated[bool | None, Metric("Unified memory", Unit.YES_NO, Tier.STATIC, "Whether the GPU uses the host's memory and has none of its own.")] = None
    bar1_used: Annotated[int | None, Metric("BAR1 used", Unit.BYTES, Tier.SLOW, "Used part of the window through which the host accesses GPU memory.", dcgm="DCGM_FI_DEV_BAR1_USED", at_most="bar1_total", only=NVIDIA)] = None
    bar1_total: Annotated[int | None, Metric("BAR1 total", Unit.BYTES, Tier.SLOW, "Size of the window through which the host accesses GPU memory.", dcgm="DCGM_FI_DEV_BAR1_TOTAL")] = None

    utilization_gpu: Annotated[int | None, Metric("GPU utilisation", Unit.PERCENT, Tier.FAST, "Share of time in which any kernel ran. It does not show how much of the GPU the kernel used.", smi="utilization.gpu", dcgm="DCGM_FI_DEV_GPU_UTIL", charted="peak")] = None
    utilization_memory: Annotated[int | None, Metric("Memory utilisation", Unit.PERCENT, Tier.FAST, "Share of time in which GPU memory was read or written. It does not show how full the memory is.", smi="utilization.memory", dcgm="DCGM_FI_DEV_MEM_COPY_UTIL", column="mem bw")] = None
    utilization_encoder: Annotated[int | None, Metric("Encoder utilisation", Unit.PERCENT, Tier.SLOW, "Utilization of the video encoder.", smi="utilization.encoder", dcgm="DCGM_FI_DEV_ENC_UTIL")] = None
    utilization_decoder: Annotated[int | None, Metric("Decoder utilisation", Unit.PERCENT, Tier.SLOW, "Utilization of the video decoder.", smi="utilization.decoder", dcgm="DCGM_FI_DEV_DEC_UTIL")] = None
    utilization_jpeg: Annotated[int | None, Metric("JPEG utilisation", Unit.PERCENT, Tier.SLOW, "Utilization of the JPEG decoder.", smi="utilization.jpeg")] = None
    utilization_ofa: Annotated[int | None, Metric("OFA utilisation", Unit.PERCENT, Tier.SLOW, "Utilization of the optical flow accelerator.", smi="utilization.ofa", only=NVIDIA)] = None
    sm_active: Annotated[float | None, Metric("SMs active", Unit.SHARE, Tier.MEDIUM, "Share of the multiprocessors (SMs) that had work, over time. Low while GPU utilisation is high: the kernels are too small to fill the GPU, or wait for another one. Work that waits for memory counts: it does not show how well an SM was used.", dcgm="DCGM_FI_PROF_SM_ACTIVE", since=2, only=NVIDIA, column="SM act", charted="mean")] = None
    sm_occupancy: Annotated[float | None, Metric("SM occupancy", Unit.SHARE, Tier.MEDIUM, "Resident warps as a share of the most that the SMs can hold. More of them hide the latency of memory; otherwise a low value is no fault.", dcgm="DCGM_FI_PROF_SM_OCCUPANCY", since=2, only=NVIDIA, column="occup")] = None
    tensor_active: Annotated[float | None, Metric("Tensor active", Unit.SHARE, Tier.MEDIUM, "Share of cycles in which the tensor cores worked, mean of all SMs. 20 may be a fifth of them all the time, or all of them a fifth of the time.", dcgm="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", since=2, only=NVIDIA, column="tensor")] = None
    fp64_active: Annotated[float | None, Metric("FP64 active", Unit.SHARE, Tier.MEDIUM, "Share of cycles in which the FP64 units worked, mean of all SMs. The tensor cores do not count.", dcgm="DCGM_FI_PROF_PIPE_FP64_ACTIVE", since=2, only=NVIDIA)] = None
    fp32_active: Annotated[float | None, Metric("FP32 active", Unit.SHARE, Tier.MEDIUM, "Share of cycles in which the FP32 units worked, mean of all SMs. The tensor cores do not count.", dcgm="DCGM_FI_PROF_PIPE_FP32_ACTIVE", since=2, only=NVIDIA)] = None
    fp16_active: Annotated[float | None, Metric("FP16 active", Unit.SHARE, Tier.MEDIUM, "Share of cycles in which the FP16 units worked, mean of all SMs. The tensor cores do not count.", dcgm="DCGM_FI_PROF_PIPE_FP16_ACTIVE", since=2, only=NVIDIA)] = None
    dram_active: Annotated[float | None, Metric("DRAM active", Unit.SHARE, Tier.MEDIUM, "Share of cycles in which data moved to or from GPU memory. About 80 is the most in practice. It does not show how full the memory is.", dcgm="DCGM_FI_PROF_DRAM_ACTIVE", since=2, only=NVIDIA, column="DRAM", charted="mean")] = None

    temperature_gpu: Annotated[int | None, Metric("GPU temperature", Unit.CELSIUS, Tier.FAST, "Temperature of the GPU chip.", smi="temperature.gpu", dcgm="DCGM_FI_DEV_GPU_TEMP", lowest=0, highest=200, charted="peak")] = None
    temperature_memory: Annotated[int | None, Metric("Memory temperature", Unit.CELSIUS, Tier.SLOW, "Temperature of the memory. Few GPUs report it.", smi="temperature.memory", dcgm="DCGM_FI_DEV_MEMORY_TEMP", lowest=0, highest=200)] = None
    temperature_hotspot: Annotated[int | None, Metric("Hotspot temperature", Unit.CELSIUS, Tier.FAST, "Temperature of the hottest place of the chip, which AMD calls junction. The other temperature is that of its edge.", lowest=0, highest=200, since=3, never=NVIDIA)] = None
    temperature_slowdown: Annotated[int | None, Metric("Slowdown temperature", Unit.CELSIUS, Tier.STATIC, "Temperature at which the GPU starts to slow down.", dcgm="DCGM_FI_DEV_SLOWDOWN_TEMP")] = None
    temperature_shutdown: Annotated[int | None, Metric("Shutdown temperature", Unit.CELSIUS, Tier.STATIC, "Temperature at which the GPU shuts down.", dcgm="DCGM_FI_DEV_SHUTDOWN_TEMP")] = None
    temperature_margin: Annotated[int | None, Metric("Temperature margin", Unit.CELSIUS, Tier.SLOW, "Degrees until the GPU slows down.", smi="temperature.gpu.tlimit", dcgm="DCGM_FI_DEV_GPU_TEMP_LIMIT")] = None

    power_draw: Annotated[float | None, Metric("Power", Unit.WATTS, Tier.FAST, "Power of the whole board; since Ampere the mean of the last second.", smi="power.draw", dcgm="DCGM_FI_DEV_POWER_USAGE", charted="peak")] = None
    power_instant: Annotated[float | None, Metric("Power, instant", Unit.WATTS, Tier.FAST, "Power of the whole board at this moment.", smi="power.draw.instant", dcgm="DCGM_FI_DEV_POWER_USAGE_INSTANT")] = None
    power_average: Annotated[float | None, Metric("Power, average", Unit.WATTS, Tier.SLOW, "Power of the whole board, mean of the last second.", smi="power.draw.average")] = None
    power_limit: Annotated[float | None, Metric("Power limit", Unit.WATTS, Tier.SLOW, "The power limit in effect: the lowest of all that apply.", smi="enforced.power.limit", dcgm="DCGM_FI_DEV_ENFORCED_POWER_LIMIT")] = None
    power_limit_min: Annotated[float | None, Metric("Power limit, lowest", Unit.WATTS, Tier.STATIC, "The lowest power limit that can be set.", smi="power.min_limit", dcgm="DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN")] = None
    power_limit_max: Annotated[float | None, Metric("Power limit, highest", Unit.WATTS, Tier.STATIC, "The highest power limit that can be set.", smi="power.max_limit", dcgm="DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX")] = None
    energy: Annotated[float | None, Metric("Energy", Unit.JOULES, Tier.SLOW, "Energy used since the driver was loaded.", dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", is_counter=True)] = None

    clock_sm: Annotated[int | None, Metric("SM clock", Unit.MEGAHERTZ, Tier.FAST, "Clock of the multiprocessors.", smi="clocks.current.sm", dcgm="DCGM_FI_DEV_SM_CLOCK", charted="peak")] = None
    clock_memory: Annotated[int | None, Metric("Memory clock", Unit.MEGAHERTZ, Tier.SLOW, "Clock of the memory.", smi="clocks.current.memory", dcgm="DCGM_FI_DEV_MEM_CLOCK")] = None
    clock_graphics: Annotated[int | None, Metric("Graphics clock", Unit.MEGAHERTZ, Tier.SLOW, "Clock of the graphics engine.", smi="clocks.current.graphics")] = None
    clock_video: Annotated[int | None, Metric("Video clock", Unit.MEGAHERTZ, Tier.SLOW, "Clock of the video engines.", smi="clocks.current.video", dcgm="DCGM_FI_DEV_VIDEO_CLOCK")] = None
    clock_sm_max: Annotated[int | None, Metric("SM clock, highest", Unit.MEGAHERTZ, Tier.STATIC, "Maximum clock of the multiprocessors.", smi="clocks.max.sm", dcgm="DCGM_FI_DEV_MAX_SM_CLOCK")] = None
    clock_memory_max: Annotated[int | None, Metric("Memory clock, highest", Unit.MEGAHERTZ, Tier.STATIC, "Maximum clock of the memory.", smi="clocks.max.memory", dcgm="DCGM_FI_DEV_MAX_MEM_CLOCK")] = None
    clock_graphics_max: Annotated[int | None, Metric("Graphics clock, highest", Unit.MEGAHERTZ, Tier.STATIC, "Maximum clock of the graphics engine.", smi="clocks.max.graphics")] = None
    clock_video_max: Annotated[int | None, Metric("Video clock, highest", Unit.MEGAHERTZ, Tier.STATIC, "Maximum clock of the video engines.", dcgm="DCGM_FI_DEV_MAX_VIDEO_CLOCK")] = None
    pstate: Annotated[int | None, Metric("Performance state", Unit.PSTATE, Tier.SLOW, "Performance state: P0 is the fastest, P15 the slowest.", smi="pstate", dcgm="DCGM_FI_DEV_PSTATE", only=NVIDIA, column="pstate")] = None
    clock_event_reasons: Annotated[int | None, Metric("Clock event reasons", Unit.BITS, Tier.FAST, "Why the clocks are below their maximum. A software power cap under load is normal.", smi="clocks_event_reasons.active", dcgm="DCGM_FI_DEV_CLOCKS_EVENT_REASONS")] = None

    fan_speed: Annotated[int | None, Metric("Fan speed", Unit.PERCENT, Tier.SLOW, "Requested fan speed, which can exceed 100. Passive GPUs have no fan.", smi="fan.speed", dcgm="DCGM_FI_DEV_FAN_SPEED", highest=1000, column="fan")] = None
    """What the driver requests, which does not show that the fan turns; only ``fan_rpm`` does."""
    fan_speeds: tuple[Integer, ...] | None = None
    fan_rpm: Annotated[int | None, Metric("Fan speed, measured", Unit.RPM, Tier.SLOW, "Measured speed of the fan, of several the fastest.", since=3, never=NVIDIA)] = None

    pcie_generation: Annotated[int | None, Metric("PCIe generation", Unit.NUMBER, Tier.SLOW, "Current PCIe generation of the link. It drops while the GPU is idle, which is not a fault.", smi="pcie.link.gen.gpucurrent", dcgm="DCGM_FI_DEV_PCIE_LINK_GEN", highest=32)] = None
    pcie_generation_max: Annotated[int | None, Metric("PCIe generation, highest", Unit.NUMBER, Tier.STATIC, "Highest PCIe generation that GPU and slot support together.", smi="pcie.link.gen.max", dcgm="DCGM_FI_DEV_PCIE_MAX_LINK_GEN", highest=32)] = None
    pcie_width: Annotated[int | None, Metric("PCIe width", Unit.NUMBER, Tier.SLOW, "Current number of PCIe lanes.", smi="pcie.link.width.current", dcgm="DCGM_FI_DEV_PCIE_LINK_WIDTH", highest=32)] = None
    pcie_width_max: Annotated[int | None, Metric("PCIe width, highest", Unit.NUMBER, Tier.STATIC, "Highest number of PCIe lanes that GPU and slot support together.", smi="pcie.link.width.max", dcgm="DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", highest=32)] = None
    pcie_rx: Annotated[float | None, Metric("PCIe receive", Unit.BYTES_PER_SECOND, Tier.SLOW, "PCIe traffic to the GPU, over 20 ms or since the last reading.", dcgm="DCGM_FI_DEV_PCIE_RX_THROUGHPUT", charted="mean")] = None
    pcie_tx: Annotated[float | None, Metric("PCIe transmit", Unit.BYTES_PER_SECOND, Tier.SLOW, "PCIe traffic from the GPU, over 20 ms or since the last reading.", dcgm="DCGM_FI_DEV_PCIE_TX_THROUGHPUT", charted="mean")] = None
    nvlink_active: Annotated[int | None, Metric("NVLinks up", Unit.NUMBER, Tier.SLOW, "Number of NVLinks that are up.", highest=1024, only=NVIDIA)] = None
    nvlink_count: Annotated[int | None, Metric("NVLinks", Unit.NUMBER, Tier.SLOW, "Number of NVLinks of the GPU.", highest=1024, only=NVIDIA)] = None
    nvlink_rx: Annotated[float | None, Metric("NVLink receive", Unit.BYTES_PER_SECOND, Tier.SLOW, "Traffic received over all NVLinks since the last reading.", only=NVIDIA, charted="mean")] = None
    nvlink_tx: Annotated[float | None, Metric("NVLink transmit", Unit.BYTES_PER_SECOND, Tier.SLOW, "Traffic sent over all NVLinks since the last reading.", only=NVIDIA, charted="mean")] = None
    nvlink_errors: Annotated[int | None, Metric("NVLink errors", Unit.NUMBER, Tier.SLOW, "Replays of packets and recoveries of links over all NVLinks since the driver was loaded. A healthy link has none.", since=2, only=NVIDIA)] = None

    ecc_mode: Annotated[bool | None, Metric("ECC", Unit.ENABLED, Tier.SLOW, "Whether memory errors are detected and corrected (ECC).", smi="ecc.mode.current", dcgm="DCGM_FI_DEV_ECC_CURRENT")] = None
    ecc_corrected_volatile: Annotated[int | None, Metric("ECC corrected", Unit.NUMBER, Tier.SLOW, "Memory errors that were corrected since the driver was loaded.", smi="ecc.errors.corrected.volatile.total", dcgm="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", is_counter=True)] = None
    ecc_uncorrected_volatile: Annotated[int | None, Metric("ECC uncorrected", Unit.NUMBER, Tier.SLOW, "Memory errors that could not be corrected since the driver was loaded.", smi="ecc.errors.uncorrected.volatile.total", dcgm="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", is_counter=True)] = None
    ecc_corrected_aggregate: Annotated[int | None, Metric("ECC corrected, ever", Unit.NUMBER, Tier.SLOW, "Memory errors that were corrected during the GPU's lifetime.", smi="ecc.errors.corrected.aggregate.total", dcgm="DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", is_counter=True)] = None
    ecc_uncorrected_aggregate: Annotated[int | None, Metric("ECC uncorrected, ever", Unit.NUMBER, Tier.SLOW, "Memory errors that could not be corrected during the GPU's lifetime.", smi="ecc.errors.uncorrected.aggregate.total", dcgm="DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", is_counter=True)] = None
    remapped_rows_correctable: Annotated[int | None, Metric("Rows remapped, correctable", Unit.NUMBER, Tier.SLOW, "Memory rows replaced after corrected errors (Ampere and later).", smi="remapped_rows.correctable", dcgm="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", is_counter=True, highest=2**20, only=NVIDIA)] = None
    remapped_rows_uncorrectable: Annotated[int | None, Metric("Rows remapped, uncorrectable", Unit.NUMBER, Tier.SLOW, "Memory rows replaced after uncorrected errors (Ampere and later).", smi="remapped_rows.uncorrectable", dcgm="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", is_counter=True, highest=2**20, only=NVIDIA)] = None
    remapped_rows_pending: Annotated[bool | None, Metric("Row remap pending", Unit.YES_NO, Tier.SLOW, "Whether a memory row will be replaced at the next reset of the GPU.", smi="remapped_rows.pending", dcgm="DCGM_FI_DEV_ROW_REMAP_PENDING", only=NVIDIA)] = None
    remapped_rows_failure: Annotated[bool | None, Metric("Row remap failure", Unit.YES_NO, Tier.SLOW, "Whether a memory row could not be replaced: the GPU should be returned.", smi="remapped_rows.failure", dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE", only=NVIDIA)] = None
    retired_pages_single_bit: Annotated[int | None, Metric("Pages retired, single bit", Unit.NUMBER, Tier.SLOW, "Memory pages retired after repeated corrected errors (before Ampere).", smi="retired_pages.single_bit_ecc.count", dcgm="DCGM_FI_DEV_RETIRED_SBE", is_counter=True, highest=2**20, only=NVIDIA)] = None
    retired_pages_double_bit: Annotated[int | None, Metric("Pages retired, double bit", Unit.NUMBER, Tier.SLOW, "Memory pages retired after an uncorrected error (before Ampere).", smi="retired_pages.double_bit.count", dcgm="DCGM_FI_DEV_RETIRED_DBE", is_counter=True, highest=2**20)] = None
    retired_pages_pending: Annotated[bool | None, Metric("Page retirement pending", Unit.YES_NO, Tier.SLOW, "Whether a memory page will be retired at the next reset of the GPU.", smi="retired_pages.pending", dcgm="DCGM_FI_DEV_RETIRED_PENDING", is_counter=True)] = None
    recovery_action: Annotated[str | None, Metric("Recovery action", Unit.TEXT, Tier.SLOW, "Action that the driver recommends to recover the GPU.", smi="gpu_recovery_action", only=NVIDIA)] = None
    xid: Annotated[int | None, Metric("Last XID", Unit.NUMBER, Tier.FAST, "Error code of the last critical error that the driver reported since gpumon started, or since the machine started where the kernel log may be read.", dcgm="DCGM_FI_DEV_XID_ERRORS", only=NVIDIA)] = None
    xid_at: Annotated[float | None, Metric("Last XID at", Unit.TIME, Tier.FAST, "Time of that error.", only=NVIDIA)] = None

    persistence_mode: Annotated[bool | None, Metric("Persistence mode", Unit.ENABLED, Tier.SLOW, "Whether the driver stays loaded while no process uses the GPU. Without it, every start is slow.", smi="persistence_mode", dcgm="DCGM_FI_DEV_PERSISTENCE_MODE", only=NVIDIA)] = None
    compute_mode: Annotated[str | None, Metric("Compute mode", Unit.TEXT, Tier.SLOW, "Whether several processes may use the GPU.", smi="compute_mode", only=NVIDIA)] = None
    display_mode: Annotated[bool | None, Metric("Display connected", Unit.ENABLED, Tier.SLOW, "Whether a monitor is connected.", smi="display_mode")] = None
    display_active: Annotated[bool | None, Metric("Display active", Unit.ENABLED, Tier.SLOW, "Whether a display server uses memory of the GPU.", smi="display_active")] = None
    mig_mode: Annotated[bool | None, Metric("MIG mode", Unit.ENABLED, Tier.SLOW, "Whether the GPU is divided into instances (MIG).", smi="mig.mode.current", dcgm="DCGM_FI_DEV_MIG_MODE", only=NVIDIA)] = None


# fmt: on


_BOUNDED: dict[Any, Any] = {int: Count, int | None: Integer | None, float | None: Real | None}
"""The types of the metrics with bounds. Hardware may report impossible values, so these are wide."""


class Device(Struct, frozen=True, gc=False):
    """A GPU, or one of its MIG devices."""

    gpu: Gpu
    mig: MigInstance | None = None

    @property
    def uuid(self) -> str:
        """The UUID, as CUDA knows it."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid


def lines_of(gpus: Iterable[Gpu]) -> list[Device]:
    """The lines of a list of GPUs: each GPU, followed by its MIG devices."""
    return [Device(gpu, mig) for gpu in gpus for mig in (None, *gpu.mig)]


def metrics_of(row: type[Struct]) -> tuple[Metric, ...]:
    """Take the metrics out of the annotations of ``Gpu``, and give its numbers bounds.

    Raises:
        TypeError: A field that the driver fills has none, or a heading is too long.
    """
    found, is_value = [], False
    hints: dict[str, Any] = row.__annotations__
    for name, hint in hints.items():
        if isinstance(hint, tuple):
            type_, metric = hint
            hints[name] = Time | None if metric.unit is Unit.TIME else _BOUNDED.get(type_, type_)
            if len(metric.column or "") > 6:
                raise TypeError(f"{metric.column} is too long for a column: six cells at most")
            found.append(replace(metric, field=name))
        elif is_value and name != "fan_speeds":
            raise TypeError(f"the field {name} of {row.__name__} needs a Metric")
        is_value = is_value or name == "mig"
    return tuple(found)


GPU_METRICS = metrics_of(Gpu)
GPU_METRIC = {metric.field: metric for metric in GPU_METRICS}


class Host(Struct, frozen=True, gc=False, array_like=True):
    """The machine that the GPUs are in."""

    name: str
    driver_version: str | None = None  # Of the kernel driver.
    # Of the driver's library; ``nvml_version`` in exports.
    library_version: str | None = field(default=None, name="nvml_version")
    cuda_version: str | None = None  # The newest CUDA that the driver supports, such as ``12.8``.
    driver_since: Time | None = None  # When this program first saw the driver respond.
    cpu_percent: Real | None = None  # Of all cores together, 0-100, since the last reading.
    cpu_count: Count | None = None  # Logical cores.
    load: tuple[Real, Real, Real] | None = None  # Load averages over 1, 5 and 15 minutes.
    memory_total: Count | None = None  # Bytes.
    memory_used: Count | None = None  # Bytes that are neither free nor reclaimable.
    # Whether this program runs in a PID namespace of its own: the driver then lists the processes of
    # this namespace only, and memory that others hold has no owner here.
    in_container: bool | None = None
    # False if the driver lists PIDs of another PID namespace: they cannot be looked up then.
    pids_are_ours: bool = True
    # Its network adapters, by name; ``None`` where nobody looked.
    nics: Few[Nic] | None = None


class Trouble(Struct, frozen=True, gc=False, array_like=True):
    """Why no GPUs can be shown, for the user."""

    sentence: str  # What is wrong.
    advice: str  # What to do about it.


class OwnCost(Struct, frozen=True, gc=False, array_like=True):
    """What this program itself costs the machine."""

    cpu_percent: Real | None = None  # Percent of a core over the last seconds.
    driver_share: Real | None = None  # Seconds inside driver calls per second.
    tick_seconds: Real | None = None  # Median length of the last ticks.
    missed_ticks: Count = 0  # Deadlines skipped because a tick was still running.


class ReservationHolder(Struct, frozen=True):
    """The holder of a reservation. ``None`` is unknown."""

    user: str | None = None  # The owner of the process, from the operating system.
    pid: Count | None = None  # The live process that the lock names as its holder.
    since: Time | None = None  # When it reserved the GPU, from the lock.
    command: str = ""  # The command it runs, from the lock; not safe to print.


class Reserved(Struct, frozen=True, gc=False, array_like=True):
    """A GPU, or a MIG device, that ``gpumon run`` has reserved for a job. ``None`` is unknown."""

    gpu_uuid: str
    mig_uuid: str | None = None  # ``None`` if the whole GPU is reserved.
    user: str | None = None  # The user who reserved it.
    pid: Count | None = None  # Of that ``gpumon run``.
    since: Time | None = None  # When it was reserved, as the lock says.
    command: str = ""  # The command it runs, as the lock says; not safe to print.


class Snapshot(Struct, frozen=True, gc=False, array_like=True):
    """The state of one machine at one time."""

    time: Time  # When it was taken.
    host: Host
    gpus: Few[Gpu] = ()  # In nvidia-smi's order.
    processes: tuple[GpuProcess, ...] = ()  # Those on the GPUs, in no particular order.
    processes_at: Time | None = None  # When their lists were read, less often than the GPUs.
    source: str = "live"  # ``demo``, ``replay``, or the name of the backend.
    trouble: Trouble | None = None  # While the driver cannot be reached; ``gpus`` is empty then.
    cost: OwnCost | None = None  # What sampling costs, filled in by the collector.
    holders: HolderScan | None = None  # Other processes with open device files, once scanned.
    reserved: tuple[Reserved, ...] = ()  # The known reservations.
    reserved_at: Time | None = None  # When they were last read; ``None`` before the first time.
    # What schedulers have given to jobs, in no particular order; ``None`` where none was asked.
    allocations: tuple[Allocation, ...] | None = None
    accidents: Few[Accident] = ()  # Those of the last ``ACCIDENT_SECONDS``, oldest first.

    @property
    def is_live(self) -> bool:
        """Whether it is of this machine now: neither of the demo nor of a recording."""
        return self.source not in {"demo", "replay"}
