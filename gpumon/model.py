"""The data that travels through gpumon: plain, frozen, and the same from every source.

A ``Snapshot`` is one moment of one machine. Whoever receives one cannot tell whether it comes from
a driver, the demo or a recording.

``None`` means unknown, everywhere, and is never stood in for by 0. Why a value is unknown is kept
beside it, in ``Gpu.unknown``. Units are bytes, percent, degrees Celsius, watts, joules, MHz,
bytes per second and seconds; ``metrics.GPU_METRICS`` names the unit of every field. Times are
seconds since the epoch.

Nothing here can lead back to itself, so who looks for garbage need not pass by (``gc=False``):
there are thousands of these, and they were most of what was looked through.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Unknown(str, Enum):
    """Why a value is ``None``."""

    NOT_SUPPORTED = "not supported"
    """This card or this driver does not report it."""
    NO_PERMISSION = "no permission"
    """The driver reports it to other users only."""
    CARD_LOST = "card lost"
    """The card fell off the bus, or needs a reset, before it was read."""
    NO_ANSWER = "no answer"
    """The call has not come back, or keeps failing for a passing reason."""
    ASLEEP = "asleep"
    """The card is powered down and asking would wake it."""
    NOT_RECORDED = "not in the log"
    """Nobody wrote it down, or it was unknown then."""
    NOT_READ = "not read yet"
    """Nothing is wrong: its turn has not come, or a rate needs two readings."""


class CardStatus(str, Enum):
    """Whether a card answers the driver at all."""

    OK = "ok"
    ASLEEP = "asleep"
    """Powered down by the kernel's runtime power management."""
    NO_ANSWER = "no answer"
    """A call to it has not come back."""
    LOST = "lost"
    """The driver says the card is gone (NVML error 15)."""
    RESET_REQUIRED = "reset required"
    """The driver says the card must be reset before use (NVML error 16)."""
    NO_PERMISSION = "no permission"
    """This user may not open the card, or its container was not given it."""
    FAILING = "failing"
    """Most calls to it fail, by NVML's error 999 or another that names no known cause."""


ENDED = "X"
"""``GpuProcess.state`` of a process that has ended and that the driver still lists: ``ps`` has the
letter for the dead, which never show otherwise."""


class ProcessId(Struct, frozen=True, gc=False, order=True):
    """Who a process is: the number alone is reused, the pair is not.

    Attributes:
        pid: The number, in the name space of this program or, where the process is not visible
            here, in whatever name space the driver speaks of.
        start_time: Field 22 of ``/proc/PID/stat``, clock ticks between boot and the start of the
            process; ``None`` when the process is not visible here.
    """

    pid: int
    start_time: int | None


class GpuUse(Struct, frozen=True, gc=False):
    """What one process has of one card, or of one MIG instance of it.

    Attributes:
        gpu_uuid: UUID of the (physical) card.
        gpu_index: Index of that card in nvidia-smi's order.
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
    """The container a process runs in.

    Attributes:
        runtime: ``docker``, ``podman``, ``containerd``, ``cri-o``, ``lxc``, ``kubernetes`` where
            only the pod is known, or another that names itself in the cgroup.
        id: Its id, 64 hexadecimal digits for most; for LXC its name.
        name: The short name people gave it, where it can be had.
        pod: The Kubernetes pod: its name where it can be had, else its UID.
    """

    runtime: str
    id: str | None = None
    name: str | None = None
    pod: str | None = None

    @property
    def label(self) -> str:
        """In a few words: ``docker llama-ft``, ``pod train-0``, ``lxc web``; ids cut to 12."""
        if self.pod is not None:
            return f"pod {self.pod}"
        name = self.name or (self.id or "")[:12]
        return f"{self.runtime} {name}".rstrip()


class Place(Struct, frozen=True, gc=False):
    """Where a process runs and what it belongs to. ``None`` is unknown, or none.

    Attributes:
        container: The container around it.
        slurm_job: Number of its Slurm job, ``88123`` or ``88123_4`` in an array.
        slurm_step: The step of that job: ``0``, ``batch``, ``extern``.
        jupyter_kernel: Id of the Jupyter kernel it is or descends from.
        notebook: Path of that kernel's notebook, where it can be had.
        tmux: Name of its tmux session, or ``$3``, as tmux numbers it, where only that can be had.
        environment: Name of its conda environment or Python virtual environment.
        session: Its session id (``setsid``): what was started from one terminal, or as one job.
        launcher: The outermost of its ancestors that starts jobs: torchrun, mpirun, accelerate.
        launcher_name: That one's name.
        parent: The process that started it, or that took it over.
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
        """Each part in a few words, the most telling first: ``slurm 88123``, ``tmux train``."""
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
    """A process that owns something on one or more cards.

    Attributes:
        id: Its identity.
        type: ``C`` compute, ``G`` graphics, ``C+G`` both, ``M`` a client of MPS, ``M+C`` one that
            computes beside it too: nvidia-smi's letters.
        uses: One entry per card and instance, in card order, at least one.
        visible: False when the host does not show such a process here (another PID name space,
            a hidden ``/proc``); then only ``uses`` is known.
        user: Name of the owner, or the number as text where it has no name.
        uid: The owner's number.
        name: The kernel's short name of it (``comm``).
        command: Its argument vector, as it is: not safe to print, see ``gpumon.text``.
        state: One letter, as in ``ps``: R, S, D, Z, T, ...; ``ENDED`` once gpumon saw its end and
            the driver lists it all the same.
        cpu_percent: Of one core, since the last reading; may exceed 100.
        rss: Resident bytes of host memory.
        started_at: When it started.
        place: Where it runs; ``None`` until that was looked up.
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
        """Bytes on all its cards together; ``None`` when any part is unknown."""
        total = 0
        for use in self.uses:
            if use.memory_used is None:
                return None
            total += use.memory_used
        return total

    @property
    def sm(self) -> float | None:
        """Percent, the mean over its cards; ``None`` when no card tells."""
        known = [use.sm for use in self.uses if use.sm is not None]
        return sum(known) / len(known) if known else None

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """Indices of its cards, each once, ascending."""
        return tuple(sorted({use.gpu_index for use in self.uses}))


class MigInstance(Struct, frozen=True, gc=False):
    """A MIG device: a slice of a card, with the few things NVML reports for one.

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


class Gpu(Struct, frozen=True, gc=False):
    """One card at one moment. ``metrics.GPU_METRICS`` says what each field means and its unit.

    Attributes:
        status: Whether it answers.
        status_since: When that status began, as far as this program saw.
        sampled_at: When its newest values were read.
        unknown: Field name -> why that field is ``None``. A field absent here that is ``None``
            has simply not been read yet. ``processes`` stands here when the card's processes are
            not listed, or not yet: then none in the snapshot does not mean none.
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
    """The machine around the cards.

    Attributes:
        name: Host name.
        driver_version: Of the NVIDIA kernel driver.
        nvml_version: Of the library that speaks with it.
        cuda_version: The newest CUDA version that driver supports, such as ``12.8``.
        driver_since: Since when, as far as this program saw, the driver answers.
        cpu_percent: Of all cores together, 0-100, since the last reading.
        cpu_count: Logical cores.
        load: Load averages over 1, 5 and 15 minutes.
        memory_total: Bytes of host memory.
        memory_used: Bytes that are neither free nor reclaimable.
        in_container: True when this program runs in a PID name space of its own: the driver then
            lists the processes of this name space only, and memory that others hold has no owner
            here.
    """

    name: str
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    driver_since: float | None = None
    cpu_percent: float | None = None
    cpu_count: int | None = None
    load: tuple[float, float, float] | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    in_container: bool | None = None


class HoldReason(str, Enum):
    """Why a process that holds a card's device file, and is not in the driver's list, matters."""

    ORPHAN = "orphan"
    """Its parent ended and init, or a subreaper, took it over: a data loader left behind."""
    LEADER_EXITED = "leader exited"
    """Its main thread is dead (it shows as a zombie) while other threads live and hold the card."""
    UNINTERRUPTIBLE = "uninterruptible"
    """It waits inside the kernel (state D): no signal reaches it until that wait ends."""
    STOPPED = "stopped"
    """It is stopped (state T): it holds what it has and ends only by SIGKILL or once continued."""
    OTHER_CONTAINER = "other container"
    """It is in a container that this program is not in."""
    CHILD = "child"
    """A child of a process that the driver lists: it inherited the open card, as loaders do."""
    OBSERVER = "observer"
    """A monitor or a service of the driver (nvidia-smi, DCGM, persistenced): holds next to none."""
    HOLDS = "holds"
    """It holds the device file; nothing more is known against it."""


class Suspect(Struct, frozen=True, gc=False):
    """A process that holds a card's device file though the driver does not list it there.

    Attributes:
        id: Its identity.
        gpu_uuids: The cards whose ``/dev/nvidia<minor>`` it holds open or mapped.
        reason: The strongest reason to look at it.
        sentence: The same for a person, with its evidence: ``its parent 41233 ended 22m ago``.
        user: Name of its owner.
        uid: The owner's number.
        name: The kernel's short name of it.
        command: Its argument vector, not safe to print.
        state: One letter, as in ``ps``.
        parent: Its parent now.
        started_at: When it started, seconds since the epoch.
        place: Its container and Slurm job, as far as its cgroups tell.
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
    """Those who may be why memory is gone, most suspect first.

    A monitor holds next to nothing, and what the child of a listed process has is counted to its
    parent. Whoever merely holds the device file is named where nobody better is.

    Args:
        suspects: Those of one card.
        kin: The processes whose memory it is that is gone; they and their children come first.
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
    """Who holds the cards' device files, besides the processes that the driver lists.

    Attributes:
        at: When it was looked.
        suspects: Those found, most suspect first.
        unseen: How many processes of other users could not be looked into: that takes root.
    """

    at: float
    suspects: tuple[Suspect, ...] = ()
    unseen: int = 0


class Trouble(Struct, frozen=True, gc=False):
    """Why there are no cards to show, for a person.

    Attributes:
        sentence: What is wrong.
        advice: What to do about it.
    """

    sentence: str
    advice: str


class OwnCost(Struct, frozen=True, gc=False):
    """What this program costs the machine it watches.

    Attributes:
        cpu_percent: Of one core, over the last seconds.
        driver_share: Seconds spent inside driver calls per second.
        tick_seconds: Median length of the last ticks.
        missed_ticks: Deadlines skipped because a tick was still running, since the start.
    """

    cpu_percent: float | None = None
    driver_share: float | None = None
    tick_seconds: float | None = None
    missed_ticks: int = 0


class Reserved(Struct, frozen=True, gc=False):
    """A card, or a MIG device, that ``gpumon run`` keeps for a job. ``None`` is unknown.

    Attributes:
        gpu_uuid: Of the card.
        mig_uuid: Of the MIG device; ``None`` where it is the card.
        user: Who keeps it.
        pid: Of the ``gpumon run`` that does.
        since: Since when, seconds since the epoch, as it says itself.
        command: What for, as it says itself: not safe to print.
    """

    gpu_uuid: str
    mig_uuid: str | None = None
    user: str | None = None
    pid: int | None = None
    since: float | None = None
    command: str = ""


class Snapshot(Struct, frozen=True, gc=False):
    """One moment of one machine.

    Attributes:
        time: When it was taken.
        host: The machine.
        gpus: Its cards, in nvidia-smi's order.
        processes: Who owns what on them, in no particular order.
        processes_at: When the process lists were read; they have a slower pace than the cards.
        source: ``nvml``, ``demo`` or ``replay``.
        trouble: Set when the driver cannot be reached; then ``gpus`` is empty.
        cost: What sampling costs, filled in by the collector.
        holders: Who holds the cards' device files besides; ``None`` until that was looked up.
        reserved: What is reserved, as far as that was looked up.
    """

    time: float
    host: Host
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_at: float | None = None
    source: str = "nvml"
    trouble: Trouble | None = None
    cost: OwnCost | None = None
    holders: HolderScan | None = None
    reserved: tuple[Reserved, ...] = ()
