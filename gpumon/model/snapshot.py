"""The data model: immutable structures that are the same for every source.

A ``Snapshot`` is the state of one machine at one moment.

``None`` always means unknown; 0 never stands for it. ``Gpu.unknown`` keeps the reason. Units are
bytes, percent, degrees Celsius, watts, joules, MHz, bytes per second and seconds;
``metrics.GPU_METRICS`` names the unit of every field. Times are seconds since the epoch.

These structures cannot form reference cycles, so the garbage collector skips them (``gc=False``):
there are thousands of them, and they took most of its time.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from enum import Enum

from msgspec import Struct, field

from gpumon.model.processes import GpuProcess, HolderScan  # noqa: TC001 - msgspec resolves them


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
    """The exporter that Prometheus asks does not tell it."""
    IMPOSSIBLE = "impossible value"
    """No hardware has the value that was reported, such as more memory in use than there is."""
    NOT_READ = "not read yet"
    """It will be read soon, or it is a rate, which needs two readings."""

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


ANSWERING = (GpuStatus.OK, GpuStatus.FAILING)
"""The statuses of a GPU whose values are known."""


class MigInstance(Struct, frozen=True, gc=False):
    """A MIG device: a slice of a GPU, with the few values that a driver reports for it.

    Attributes:
        uuid: ``MIG-...``.
        index: Its index under its parent, as in ``nvidia-smi -L``.
        gpu_instance: GPU instance id.
        compute_instance: Compute instance id.
        profile: The profile's name, such as ``1g.10gb``.
        multiprocessors: Number of SMs.
        memory_total: Bytes.
        memory_used: Bytes.
        memory_free: Bytes.
        sm_active: Percent of its SMs that had work; this and the next as in ``Gpu``.
        sm_occupancy: Percent of the warps that its SMs can hold.
        tensor_active: Percent of time in which its tensor cores worked.
        fp64_active: Percent, of its FP64 units.
        fp32_active: Percent, of its FP32 units.
        fp16_active: Percent, of its FP16 units.
        dram_active: Percent of time in which its memory interface moved data.
    """

    uuid: str
    index: int
    gpu_instance: int | None = None
    compute_instance: int | None = None
    profile: str | None = None
    multiprocessors: int | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    fp64_active: float | None = None
    fp32_active: float | None = None
    fp16_active: float | None = None
    dram_active: float | None = None


class Gpu(Struct, frozen=True, gc=False):
    """One GPU at one moment. ``metrics.GPU_METRICS`` gives the meaning and unit of each field.

    Attributes:
        status: Whether it responds.
        status_since: When this program first saw that status.
        sampled_at: When its newest values were read.
        unknown: Field name -> why that field is ``None``. A field that is ``None`` and absent here
            has not been read yet. The key ``processes`` is present while the GPU's process list is
            unavailable: the GPU may then have processes that the snapshot does not show.
        mig: Its MIG devices, when MIG is on.
    """

    index: int
    uuid: str
    status: GpuStatus = GpuStatus.OK
    status_since: float | None = None
    sampled_at: float | None = None
    unknown: Mapping[str, Unknown] = {}
    mig: tuple[MigInstance, ...] = ()

    name: str | None = None
    pci_bus_id: str | None = None
    minor_number: int | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    vbios_version: str | None = None
    serial: str | None = None

    memory_used: int | None = None
    memory_free: int | None = None
    memory_reserved: int | None = None
    memory_total: int | None = None
    memory_unified: bool | None = None
    bar1_used: int | None = None
    bar1_total: int | None = None

    utilization_gpu: int | None = None
    utilization_memory: int | None = None
    utilization_encoder: int | None = None
    utilization_decoder: int | None = None
    utilization_jpeg: int | None = None
    utilization_ofa: int | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    fp64_active: float | None = None
    fp32_active: float | None = None
    fp16_active: float | None = None
    dram_active: float | None = None

    temperature_gpu: int | None = None
    temperature_memory: int | None = None
    temperature_hotspot: int | None = None
    temperature_slowdown: int | None = None
    temperature_shutdown: int | None = None
    temperature_margin: int | None = None

    power_draw: float | None = None
    power_instant: float | None = None
    power_average: float | None = None
    power_limit: float | None = None
    power_limit_min: float | None = None
    power_limit_max: float | None = None
    energy: float | None = None

    clock_sm: int | None = None
    clock_memory: int | None = None
    clock_graphics: int | None = None
    clock_video: int | None = None
    clock_sm_max: int | None = None
    clock_memory_max: int | None = None
    clock_graphics_max: int | None = None
    clock_video_max: int | None = None
    pstate: int | None = None
    clock_event_reasons: int | None = None

    fan_speed: int | None = None
    """What the driver requests, which does not show that the fan turns; only ``fan_rpm`` does."""
    fan_speeds: tuple[int, ...] | None = None
    fan_rpm: int | None = None

    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_rx: float | None = None
    pcie_tx: float | None = None
    nvlink_active: int | None = None
    nvlink_count: int | None = None
    nvlink_rx: float | None = None
    nvlink_tx: float | None = None
    nvlink_errors: int | None = None

    ecc_mode: bool | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None
    recovery_action: str | None = None
    xid: int | None = None
    xid_at: float | None = None

    persistence_mode: bool | None = None
    compute_mode: str | None = None
    display_mode: bool | None = None
    display_active: bool | None = None
    mig_mode: bool | None = None


class Host(Struct, frozen=True, gc=False):
    """The machine that the GPUs are in.

    Attributes:
        name: Host name.
        driver_version: Version of the kernel driver.
        library_version: Version of the driver's library; ``nvml_version`` in exports.
        cuda_version: The newest CUDA version that driver supports, such as ``12.8``.
        driver_since: When this program first saw the driver respond.
        cpu_percent: Of all cores together, 0-100, since the last reading.
        cpu_count: Logical cores.
        load: Load averages over 1, 5 and 15 minutes.
        memory_total: Bytes of host memory.
        memory_used: Bytes that are neither free nor reclaimable.
        in_container: True if this program runs in a PID namespace of its own: the driver then
            lists the processes of this namespace only, and memory that others hold has no owner
            here.
        pids_are_ours: False if the driver lists PIDs of another PID namespace: the processes cannot
            be looked up then.
    """

    name: str
    driver_version: str | None = None
    library_version: str | None = field(default=None, name="nvml_version")
    cuda_version: str | None = None
    driver_since: float | None = None
    cpu_percent: float | None = None
    cpu_count: int | None = None
    load: tuple[float, float, float] | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    in_container: bool | None = None
    pids_are_ours: bool = True


class Trouble(Struct, frozen=True, gc=False):
    """Why no GPUs can be shown, for the user.

    Attributes:
        sentence: What is wrong.
        advice: What to do about it.
    """

    sentence: str
    advice: str


class OwnCost(Struct, frozen=True, gc=False):
    """What this program itself costs the machine.

    Attributes:
        cpu_percent: Percent of one core over the last seconds.
        driver_share: Seconds spent inside driver calls per second.
        tick_seconds: Median length of the last ticks.
        missed_ticks: Number of deadlines skipped since the start because a tick was still running.
    """

    cpu_percent: float | None = None
    driver_share: float | None = None
    tick_seconds: float | None = None
    missed_ticks: int = 0


class ReservationHolder(Struct, frozen=True):
    """The holder of a reservation. ``None`` is unknown.

    Attributes:
        user: The owner of the process, from the operating system.
        pid: The live process that the lock names as its holder.
        since: When it reserved the GPU, from the lock.
        command: The command it runs, from the lock; not safe to print.
    """

    user: str | None = None
    pid: int | None = None
    since: float | None = None
    command: str = ""


class Reserved(Struct, frozen=True, gc=False):
    """A GPU, or a MIG device, that ``gpumon run`` has reserved for a job. ``None`` is unknown.

    Attributes:
        gpu_uuid: Of the GPU.
        mig_uuid: Of the MIG device; ``None`` if the whole GPU is reserved.
        user: The user who reserved it.
        pid: PID of that ``gpumon run``.
        since: Start of the reservation in seconds since the epoch, as the lock says.
        command: The command it runs, as the lock says: not safe to print.
    """

    gpu_uuid: str
    mig_uuid: str | None = None
    user: str | None = None
    pid: int | None = None
    since: float | None = None
    command: str = ""


class Snapshot(Struct, frozen=True, gc=False):
    """The state of one machine at one moment.

    Attributes:
        time: When it was taken.
        host: The machine.
        gpus: Its GPUs, in nvidia-smi's order.
        processes: The processes on them, in no particular order.
        processes_at: When the process lists were read; they are read less often than the GPUs.
        source: ``demo``, ``replay``, or the name of the backend.
        trouble: Set when the driver cannot be reached; then ``gpus`` is empty.
        cost: What sampling costs, filled in by the collector.
        holders: Other processes that have the device files open; ``None`` until the scan ran.
        reserved: The known reservations.
    """

    time: float
    host: Host
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_at: float | None = None
    source: str = "live"
    trouble: Trouble | None = None
    cost: OwnCost | None = None
    holders: HolderScan | None = None
    reserved: tuple[Reserved, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether it is of this machine now: neither of the demo nor of a recording."""
        return self.source not in {"demo", "replay"}
