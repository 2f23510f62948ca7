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
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Unknown(str, Enum):
    """The reason why a value is ``None``."""

    NOT_SUPPORTED = "not supported"
    """This GPU or this driver does not report it."""
    NO_PERMISSION = "no permission"
    """The driver reports it to other users only."""
    CARD_LOST = "card lost"
    """The GPU fell off the bus, or needs a reset, before it was read."""
    NO_ANSWER = "no answer"
    """The call has not come back, or keeps failing for a passing reason."""
    ASLEEP = "asleep"
    """The GPU is powered down and asking would wake it."""
    NOT_RECORDED = "not in the log"
    """It was not recorded, or was unknown then."""
    NOT_EXPORTED = "not exported"
    """The exporter that Prometheus asks does not tell it."""
    NOT_READ = "not read yet"
    """It will be read soon, or it is a rate, which needs two readings."""

    @property
    def words(self) -> str:
        """The reason on screen; the value is a promise of the JSON."""
        return "GPU lost" if self is Unknown.CARD_LOST else self.value


class CardStatus(str, Enum):
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


class ProcessId(Struct, frozen=True, gc=False, order=True):
    """The identity of a process: PID and start time together, because PIDs are reused.

    Attributes:
        pid: The PID in the namespace of this program or, if the process is not visible here, in the
            namespace that the driver reports.
        start_time: Field 22 of ``/proc/PID/stat``, clock ticks between boot and the start of the
            process; ``None`` when the process is not visible here.
    """

    pid: int
    start_time: int | None


class GpuUse(Struct, frozen=True, gc=False):
    """The use that one process makes of one GPU, or of one MIG instance of it.

    Attributes:
        gpu_uuid: UUID of the (physical) GPU.
        gpu_index: Index of that GPU in nvidia-smi's order.
        instance: (GPU instance, compute instance) under MIG.
        memory_used: Bytes of GPU memory.
        sm: Percent of time with a kernel of this process running, over the driver's last window.
        memory_activity: Percent of time its kernels read or wrote memory.
        encoder: Percent of the video encoder.
        decoder: Percent of the video decoder.
    """

    gpu_uuid: str
    gpu_index: int
    instance: tuple[int, int] | None = None
    memory_used: int | None = None
    sm: int | None = None
    memory_activity: int | None = None
    encoder: int | None = None
    decoder: int | None = None


class Container(Struct, frozen=True, gc=False):
    """The container that a process runs in.

    Attributes:
        runtime: ``docker``, ``podman``, ``containerd``, ``cri-o``, ``lxc``, ``kubernetes`` where
            only the pod is known, or another name that the cgroup path contains.
        id: Its id, 64 hexadecimal digits for most; for LXC its name.
        name: Its short name, if it can be read.
        pod: The Kubernetes pod: its name if it can be read, else its UID.
    """

    runtime: str
    id: str | None = None
    name: str | None = None
    pod: str | None = None

    @property
    def label(self) -> str:
        """A short label: ``docker llama-ft``, ``pod train-0``, ``lxc web``; ids are cut to 12."""
        if self.pod is not None:
            return f"pod {self.pod}"
        name = self.name or (self.id or "")[:12]
        return f"{self.runtime} {name}".rstrip()


class Place(Struct, frozen=True, gc=False):
    """Where a process runs and what it belongs to. ``None`` means unknown or absent.

    Attributes:
        container: The container around it.
        slurm_job: Number of its Slurm job, ``88123`` or ``88123_4`` in an array.
        slurm_step: The step of that job: ``0``, ``batch``, ``extern``.
        jupyter_kernel: Id of the Jupyter kernel it is or descends from.
        notebook: Path of that kernel's notebook, where it can be had.
        tmux: Name of its tmux session, or ``$3``, tmux's own id, if only that can be read.
        environment: Name of its conda environment or Python virtual environment.
        session: Its session id (``setsid``): processes started from one terminal, or as one job,
            share it.
        launcher: The outermost of its ancestors that starts jobs: torchrun, mpirun, accelerate.
        launcher_name: The name of that launcher.
        parent: Its parent: the process that started it or adopted it.
    """

    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    jupyter_kernel: str | None = None
    notebook: str | None = None
    tmux: str | None = None
    environment: str | None = None
    session: int | None = None
    launcher: ProcessId | None = None
    launcher_name: str | None = None
    parent: ProcessId | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """A short label for each part, the most specific first: ``slurm 88123``, ``tmux train``."""
        parts: list[str] = []
        if self.slurm_job is not None:
            step = "" if self.slurm_step is None else f".{self.slurm_step}"
            parts.append(f"slurm {self.slurm_job}{step}")
        if self.container is not None:
            parts.append(self.container.label)
        if self.notebook is not None:
            parts.append(f"jupyter {self.notebook.rpartition('/')[2]}")
        elif self.jupyter_kernel is not None:
            parts.append(f"jupyter {self.jupyter_kernel[:8]}")
        if self.tmux is not None:
            parts.append(f"tmux {self.tmux}")
        if self.environment is not None:
            parts.append(f"env {self.environment}")
        return tuple(parts)


class GpuProcess(Struct, frozen=True, gc=False):
    """A process that uses one or more GPUs.

    Attributes:
        id: Its identity.
        type: ``C`` compute, ``G`` graphics, ``C+G`` both, ``M`` a client of MPS, ``M+C`` a client
            of MPS that also computes directly: nvidia-smi's letters.
        uses: One entry per GPU and instance, in GPU order, at least one.
        visible: False when the host does not show such a process here (another PID name space,
            a hidden ``/proc``); then only ``uses`` is known.
        user: Name of the owner, or the number as text where it has no name.
        uid: The owner's number.
        name: The kernel's short name of it (``comm``).
        command: Its unmodified argument vector: not safe to print, see ``gpumon.text.formatting``.
        state: One letter, as in ``ps``: R, S, D, Z, T, ...; ``process_states.ENDED`` if gpumon saw
            it exit but the driver still lists it.
        cpu_percent: Percent of one core since the last reading; may exceed 100.
        rss: Resident bytes of host memory.
        started_at: When it started.
        place: Where it runs; ``None`` until the lookup has finished.
    """

    id: ProcessId
    type: str
    uses: tuple[GpuUse, ...]
    visible: bool = True
    user: str | None = None
    uid: int | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    state: str | None = None
    cpu_percent: float | None = None
    rss: int | None = None
    started_at: float | None = None
    place: Place | None = None

    @property
    def memory_used(self) -> int | None:
        """Bytes on all its GPUs together; ``None`` if any part is unknown."""
        total = 0
        for use in self.uses:
            if use.memory_used is None:
                return None
            total += use.memory_used
        return total

    @property
    def sm(self) -> float | None:
        """Percent, the mean over its GPUs; ``None`` if no GPU reports it."""
        known = [use.sm for use in self.uses if use.sm is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_activity(self) -> float | None:
        """Percent, the mean over its GPUs; ``None`` if no GPU reports it."""
        known = [use.memory_activity for use in self.uses if use.memory_activity is not None]
        return sum(known) / len(known) if known else None

    @property
    def resting(self) -> bool | None:
        """Whether it holds GPU memory without SM use; ``None`` if that is unknown.

        Never true of a process that only draws: a display server is idle most of the time.
        """
        if self.type == "G" or any(use.sm for use in self.uses):
            return False
        memory = self.memory_used
        unknown = memory is None or any(use.sm is None for use in self.uses)
        return None if unknown else memory != 0

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """Indices of its GPUs, without duplicates, ascending."""
        return tuple(sorted({use.gpu_index for use in self.uses}))


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
    status: CardStatus = CardStatus.OK
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
    fan_speeds: tuple[int, ...] | None = None

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


class HoldReason(str, Enum):
    """Why a process is relevant that has a device file open but is not in the driver's list."""

    ORPHAN = "orphan"
    """Its parent ended and init, or a subreaper, took it over: a data loader left behind."""
    LEADER_EXITED = "leader exited"
    """Its main thread is dead (it looks like a zombie) while other threads hold the GPU."""
    UNINTERRUPTIBLE = "uninterruptible"
    """It waits inside the kernel (state D): no signal reaches it until that wait ends."""
    STOPPED = "stopped"
    """It is stopped (state T): it holds what it has and ends only by SIGKILL or once continued."""
    OTHER_CONTAINER = "other container"
    """It is in a container that this program is not in."""
    CHILD = "child"
    """A child of a process that the driver lists: it inherited the open GPU, as loaders do."""
    OBSERVER = "observer"
    """A monitor or a service of the driver (nvidia-smi, DCGM, persistenced): holds next to none."""
    HOLDS = "holds"
    """It holds the device file; nothing more is known against it."""


class Suspect(Struct, frozen=True, gc=False):
    """A process that has a GPU's device file open though the driver does not list it there.

    Attributes:
        id: Its identity.
        gpu_uuids: The GPUs whose device files it holds open.
        reason: The strongest reason why it matters.
        sentence: The reason as a sentence, with its evidence: ``its parent 41233 ended 22m ago``.
        user: Name of its owner.
        uid: The owner's number.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        state: One letter, as in ``ps``.
        parent: Its parent now.
        started_at: When it started, seconds since the epoch.
        place: Its container and Slurm job, if its cgroups name them.
    """

    id: ProcessId
    gpu_uuids: tuple[str, ...]
    reason: HoldReason
    sentence: str
    user: str | None = None
    uid: int | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    state: str | None = None
    parent: ProcessId | None = None
    started_at: float | None = None
    place: Place | None = None


def blamed(
    suspects: Iterable[Suspect], kin: Collection[ProcessId] = frozenset()
) -> tuple[Suspect, ...]:
    """The suspects that may explain missing memory, most likely first.

    A monitor holds almost nothing, and the memory of a child of a listed process is attributed to
    its parent. A process that only has the device file open is named if there is no better
    candidate.

    Args:
        suspects: The suspects of one GPU.
        kin: The processes whose memory is missing; they and their children come first.
    """
    related, strong, weak = [], [], []
    for suspect in suspects:
        if suspect.id in kin or suspect.parent in kin:
            related.append(suspect)
        elif suspect.reason is HoldReason.HOLDS:
            weak.append(suspect)
        elif suspect.reason not in (HoldReason.OBSERVER, HoldReason.CHILD):
            strong.append(suspect)
    return (*related, *strong) or tuple(weak)


class HolderScan(Struct, frozen=True, gc=False):
    """The processes that have the GPUs' device files open but are not in the driver's list.

    Attributes:
        at: When the scan ran.
        suspects: The processes found, most likely first.
        unseen: Number of other users' processes that could not be inspected, which requires root.
    """

    at: float
    suspects: tuple[Suspect, ...] = ()
    unseen: int = 0


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
