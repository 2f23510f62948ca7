"""Processes on GPUs: who they are, where they run, and what they use; part of the data model.

``None`` always means unknown; see ``gpumon.model.snapshot`` for units and for ``gc=False``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.number_types import Count, Real, Time  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.serving import InferenceServer, ServerLoad  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


LARGEST_PID = 2**22
"""``PID_MAX_LIMIT`` of Linux. Some drivers list garbage such as 4294967295."""


class ProcessId(Struct, frozen=True, gc=False, order=True):
    """The identity of a process: PID and start time together, because PIDs are reused.

    Attributes:
        pid: The PID in the namespace of this program or, if the process is not visible here, in the
            namespace that the driver reports.
        start_time: Field 22 of ``/proc/PID/stat``, clock ticks between boot and the start of the
            process; ``None`` when the process is not visible here.
    """

    pid: Count
    start_time: Count | None


class GpuUse(Struct, frozen=True, gc=False, array_like=True):
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
    gpu_index: Count
    instance: tuple[Count, Count] | None = None
    memory_used: Count | None = None
    sm: Count | None = None
    memory_activity: Count | None = None
    encoder: Count | None = None
    decoder: Count | None = None


class Container(Struct, frozen=True, gc=False):
    """The container that a process runs in.

    Attributes:
        runtime: ``docker``, ``podman``, ``containerd``, ``cri-o``, ``lxc``, ``kubernetes`` where
            only the pod is known, or another name that the cgroup path contains.
        id: Its id, 64 hexadecimal digits for most; for LXC its name.
        name: Its short name, if it can be read.
        pod: The Kubernetes pod: its name if it can be read, else its UID.
        namespace: The Kubernetes namespace of the pod, if it can be read.
    """

    runtime: str
    id: str | None = None
    name: str | None = None
    pod: str | None = None
    namespace: str | None = None

    @property
    def label(self) -> str:
        """A short label: ``docker llama-ft``, ``pod train-0``, ``lxc web``; ids are cut to 12."""
        if self.pod is not None:
            return f"pod {self.pod}"
        return f"{self.runtime} {self.short_name}".rstrip()

    @property
    def full_pod(self) -> str | None:
        """The pod with its namespace, as far as these are known: ``ml/train-0``."""
        return self.pod if self.namespace is None else f"{self.namespace}/{self.pod}"

    @property
    def short_name(self) -> str:
        """Its name, else the first 12 characters of its id; empty if neither is known."""
        return self.name or (self.id or "")[:12]


class Workload(Struct, frozen=True, gc=False):
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
        server: The inference server that it is, or is part of.
    """

    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    jupyter_kernel: str | None = None
    notebook: str | None = None
    tmux: str | None = None
    environment: str | None = None
    session: Count | None = None
    launcher: ProcessId | None = None
    launcher_name: str | None = None
    parent: ProcessId | None = None
    server: InferenceServer | None = None

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
        if self.server is not None:
            parts.append(self.server.label)
        if self.tmux is not None:
            parts.append(f"tmux {self.tmux}")
        if self.environment is not None:
            parts.append(f"env {self.environment}")
        return tuple(parts)


class CgroupMemory(Struct, frozen=True, gc=False):
    """Host memory of a cgroup, such as that of a job.

    Attributes:
        cgroup: Path of the cgroup: that with the lowest limit among the process's own and those
            above it, or its own if none has a limit. Not safe to print.
        used: Bytes that all processes in it use together, with the files that the kernel caches
            for them, which it drops before the limit is exceeded.
        limit: Bytes that they may use; ``None`` if they have no limit.
    """

    cgroup: str
    used: Count
    limit: Count | None = None


class GpuProcess(Struct, frozen=True, gc=False, array_like=True):
    """A process that uses one or more GPUs.

    Attributes:
        id: Its identity.
        type: ``C`` compute, ``G`` graphics, ``C+G`` both, ``M`` a client of MPS, ``M+C`` a client
            of MPS that also computes directly: nvidia-smi's letters.
        uses: One entry per GPU and instance, in GPU order, at least one.
        visible: False when the host does not show such a process here (another PID name space,
            a hidden ``/proc``), or it ended before gpumon saw it; then only ``uses`` is known.
        user: Name of the owner, or the number as text where it has no name.
        uid: The owner's number.
        name: The kernel's short name of it (``comm``).
        command: Its unmodified argument vector: not safe to print, see ``gpumon.text.formatting``.
        state: One letter, as in ``ps``: R, S, D, Z, T, ...; ``process_states.ENDED`` if it
            has ended but the driver still lists it.
        cpu_percent: Percent of one core since the last reading; may exceed 100.
        rss: Resident bytes of host memory.
        started_at: When it started.
        place: Where it runs; ``None`` until the lookup has finished.
        load: What its inference server reports; ``None`` if it has none, or that is not asked.
        cgroup_memory: Host memory of its job or container, against its limit.
    """

    id: ProcessId
    type: str
    uses: tuple[GpuUse, ...]
    visible: bool = True
    user: str | None = None
    uid: Count | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    state: str | None = None
    cpu_percent: Real | None = None
    rss: Count | None = None
    started_at: Time | None = None
    place: Workload | None = None
    load: ServerLoad | None = None
    cgroup_memory: CgroupMemory | None = None

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
        """Whether it holds GPU memory and does nothing; ``None`` if that is unknown.

        A server does nothing while it has no requests, if it reports them; any other process
        while none of its kernels runs. Kernels of a server that reports its requests may be
        nobody's while these are not known. Never true of a process that only draws: a display
        server is idle most of the time.
        """
        if self.type == "G":
            return False
        memory, load = self.memory_used, self.load
        unknown = memory is None
        if load is not None and (is_idle := load.is_idle) is not None:
            return is_idle and (None if unknown else memory != 0)
        # A loop: called for each process of each list, where generators take three times as long.
        for use in self.uses:
            if use.sm:
                return None if load is not None and load.is_pending else False
            unknown |= use.sm is None
        return None if unknown else memory != 0

    @property
    def server_id(self) -> ProcessId | None:
        """The identity of its inference server, so that sums count that once; ``None`` without."""
        server = None if self.place is None else self.place.server
        if server is None:
            return None
        return self.id if server.pid is None else ProcessId(server.pid, server.start_time)

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """Indices of its GPUs, without duplicates, ascending."""
        return tuple(sorted({use.gpu_index for use in self.uses}))


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

    @classmethod
    def _missing_(cls, _: object) -> HoldReason:
        # A newer gpumon on another machine has more words.
        return cls.HOLDS


class UnlistedHolder(Struct, frozen=True, gc=False, array_like=True):
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
    uid: Count | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    state: str | None = None
    parent: ProcessId | None = None
    started_at: Time | None = None
    place: Workload | None = None


def blamed(
    suspects: Iterable[UnlistedHolder], relatives: Collection[ProcessId] = frozenset()
) -> tuple[UnlistedHolder, ...]:
    """The suspects that may explain missing memory, most likely first.

    A monitor holds almost nothing, and the memory of a child of a listed process is attributed to
    its parent. A process that only has the device file open is named if there is no better
    candidate.

    Args:
        suspects: The suspects of one GPU.
        relatives: The processes whose memory is missing; they and their children come first.
    """
    related, strong, weak = [], [], []
    for suspect in suspects:
        if suspect.id in relatives or suspect.parent in relatives:
            related.append(suspect)
        elif suspect.reason is HoldReason.HOLDS:
            weak.append(suspect)
        elif suspect.reason not in (HoldReason.OBSERVER, HoldReason.CHILD):
            strong.append(suspect)
    return (*related, *strong) or tuple(weak)


class HolderScan(Struct, frozen=True, gc=False, array_like=True):
    """The processes that have the GPUs' device files open but are not in the driver's list.

    Attributes:
        at: When the scan ran.
        suspects: The processes found, most likely first.
        unseen: Number of other users' processes that could not be inspected, which requires root.
    """

    at: Time
    suspects: tuple[UnlistedHolder, ...] = ()
    unseen: Count = 0
