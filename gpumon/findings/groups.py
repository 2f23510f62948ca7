"""Processes, and what schedulers have given to jobs, grouped by user and by job."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.allocations import KUBERNETES, allocations_of, job_keys_of
from gpumon.model.arithmetic import known_sum
from gpumon.model.jobs import job_of, launchers_of
from gpumon.model.processes import Container, GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import ServerLoad, combined_load
from gpumon.model.snapshot import GpuStatus
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History


class AllocatedJob(Struct, frozen=True):
    """What a scheduler has given to a job, on the GPUs of one machine."""

    allocation: Allocation
    gpus: tuple[int, ...]
    """Indices of the GPUs that are certainly its, ascending."""
    unused: int | None
    """Number of these without a computing process, whoever's; ``None`` if unknown of any."""

    def stand_in(self, gpus: Sequence[Gpu]) -> GpuProcess:
        """What is known of any process of the job: filters select the job if they select this."""
        devices = self.allocation.devices
        uses = [
            GpuUse(gpu.uuid, gpu.index)
            for gpu in gpus
            if not {gpu.uuid, *(mig.uuid for mig in gpu.mig)}.isdisjoint(devices)
        ]
        return GpuProcess(
            id=_NO_PROCESS,
            type="C",
            uses=tuple(uses),
            user=self.allocation.user,
            place=_place_of(self.allocation),
        )


def _place_of(allocation: Allocation) -> Workload:
    """Where filters of jobs, pods and containers find the processes of a job."""
    if allocation.scheduler != KUBERNETES or allocation.job is None:
        return Workload(slurm_job=allocation.job)
    namespace, _, pod = allocation.job.rpartition("/")
    return Workload(Container(KUBERNETES, pod=pod, namespace=namespace or None))


class UserUse(Struct, frozen=True):
    """The resources of a machine that one user has; GPUs by index, ascending, memory in bytes."""

    user: str | None
    """The name; ``None`` for all processes together whose owner is unknown."""
    uid: int | None
    processes: int
    gpus: tuple[int, ...]
    memory: int | None
    """``None`` when that of any process is unknown."""
    share: float | None
    """``memory`` as a part of all GPUs' memory, 0 to 1. GPUs that do not report their size are left
    out; a user on such a GPU has an unknown share."""
    gpu_seconds: float | None
    """GPU-seconds of the user that this program has observed since it started."""
    idle_memory: int
    """That of processes seen idle for ``Thresholds.idle_after`` or longer."""
    idle_unknown: int
    """Number of processes of which it is unknown whether they are idle, or how much they hold."""
    longest: float | None
    """Age in seconds of the oldest process."""
    at_least: bool = False
    """Whether the user may hold more, on a GPU that does not answer."""
    allocated: tuple[AllocatedJob, ...] = ()
    """What schedulers have given to the user's jobs."""


class JobGroup(Struct, frozen=True):
    """A group of processes that were started together; memory and GPUs are as in ``UserUse``."""

    key: str
    """Identifies the job across snapshots."""
    kind: str
    """``slurm``, ``container``, ``server``, ``launcher``, ``session``, or ``process`` for a process
    without a group."""
    label: str
    """A short printable label: ``slurm 88123``, ``docker llama-ft``, ``torchrun 51022``."""
    processes: tuple[GpuProcess, ...]
    users: tuple[str | None, ...]
    """Without duplicates; ``None`` is an unknown owner."""
    gpus: tuple[int, ...]
    memory: int | None
    sm: float | None
    """Percent: on each GPU the sum over its processes, then the mean over the GPUs that report it;
    ``None`` if no GPU does."""
    started_at: float | None
    """When the oldest started."""
    launcher: ProcessId | None = None
    """The process that starts its processes, and these alone."""
    launcher_name: str | None = None
    allocated: AllocatedJob | None = None
    """What a scheduler has given to the job."""
    load: ServerLoad | None = None
    """What its inference servers report together; ``None`` if it has none."""

    @property
    def has_all_processes(self) -> bool:
        """Whether no others can be its: of LSF's jobs, and in containers, these are not known."""
        given = self.allocated
        if self.processes or given is None:
            return True
        return given.allocation.unplaced == 0 and given.unused == len(given.gpus)

    def members(self, gpus: Sequence[Gpu]) -> Sequence[GpuProcess]:
        """What filters select the job by: its processes, and what it was given."""
        given = () if self.allocated is None else (self.allocated.stand_in(gpus),)
        return (*self.processes, *given)


_NO_PROCESS = ProcessId(-1, None)
"""A PID that no filter can name."""
_DAEMONS = {"ray", "slurmstepd"}
"""Launchers that serve several jobs, or that belong to the system."""
_EXACT = (GpuStatus.OK, GpuStatus.ASLEEP)
"""No process of a GPU with such a status is missing in the lists."""


def allocated_jobs(snapshot: Snapshot, history: History) -> list[AllocatedJob]:
    """What schedulers have given to jobs, without what is not known at all."""
    found = []
    for allocation in snapshot.allocations or ():
        gpus = [gpu for gpu in snapshot.gpus if allocations_of([allocation], gpu)]
        if not gpus and allocation.job is None:
            continue
        holdings = [history.holding(gpu) for gpu in gpus]
        unused = known_sum(None if held is None else not held.computing for held in holdings)
        indices = tuple(sorted({gpu.index for gpu in gpus}))
        found.append(AllocatedJob(allocation, indices, unused))
    return found


def users(
    snapshot: Snapshot, history: History, allocated: Iterable[AllocatedJob] = ()
) -> list[UserUse]:
    """The resources of each user, most memory first, unknown amounts last.

    Args:
        snapshot: The processes and GPUs.
        history: What is known of the time before.
        allocated: What schedulers have given to jobs: who only has this is in the list, too.
    """
    owned: defaultdict[str | None, list[GpuProcess]] = defaultdict(list)
    given: defaultdict[str | None, list[AllocatedJob]] = defaultdict(list)
    for process in snapshot.processes:
        owned[process.user].append(process)
    for job in allocated:
        given[job.allocation.user].append(job)
    uses = [
        _use(user, owned[user], snapshot, history, given[user])
        for user in dict.fromkeys((*owned, *given))
    ]
    return sorted(uses, key=lambda use: (use.memory is None, -(use.memory or 0), use.user or ""))


def _use(
    user: str | None,
    processes: list[GpuProcess],
    snapshot: Snapshot,
    history: History,
    allocated: Sequence[AllocatedJob],
) -> UserUse:
    memory = known_sum(process.memory_used for process in processes)
    idle_memory = idle_unknown = 0
    for process in processes:
        interval = history.process_idle(process.id)
        held = process.memory_used
        if interval is None:
            idle_unknown += process.resting is None
        elif interval.seconds >= history.thresholds.idle_after:
            idle_memory += held or 0
            idle_unknown += held is None
    started_at = _oldest(processes)
    return UserUse(
        user=user,
        uid=next((process.uid for process in processes if process.uid is not None), None),
        processes=len(processes),
        gpus=_gpus(processes),
        memory=memory,
        share=_share(memory, processes, snapshot.gpus),
        gpu_seconds=history.gpu_seconds(user),
        idle_memory=idle_memory,
        idle_unknown=idle_unknown,
        longest=None if started_at is None else max(0.0, snapshot.time - started_at),
        at_least=any(gpu.status not in _EXACT for gpu in snapshot.gpus),
        allocated=tuple(allocated),
    )


def _share(
    memory: int | None, processes: Iterable[GpuProcess], gpus: Sequence[Gpu]
) -> float | None:
    sizes = {gpu.uuid: gpu.memory_total for gpu in gpus if gpu.memory_total}
    on_known_gpus = all(use.gpu_uuid in sizes for process in processes for use in process.uses)
    if memory is None or not sizes or not on_known_gpus:
        return None
    return memory / sum(sizes.values())


def jobs(processes: Sequence[GpuProcess], allocated: Sequence[AllocatedJob] = ()) -> list[JobGroup]:
    """The jobs that these processes are part of; ``model.jobs`` has the rule.

    Args:
        processes: The processes.
        allocated: What schedulers have given to jobs: these are in the list without a process, too.

    Returns:
        The jobs in the order of their first processes: sorted processes give sorted jobs. Those
        without a process come last.
    """
    launchers = launchers_of(processes)
    by_key = {key: job for job in allocated for key in job.allocation.keys}
    members: dict[tuple[str, str], list[GpuProcess]] = {}
    given: dict[tuple[str, str], AllocatedJob] = {}
    for process in processes:
        group = job_of(process, launchers)
        own = next((by_key[key] for key in job_keys_of(process.place) if key in by_key), None)
        if own is not None:
            if group[0] == own.allocation.scheduler:
                # It may be known of some processes by one of its names, of others by another.
                group = group[0], _key(own.allocation)
            given[group] = own
        members.setdefault(group, []).append(process)
    found = [
        _job(kind, key, together, given.get((kind, key)))
        for (kind, key), together in members.items()
    ]
    with_processes = [job.allocated for job in found]
    return found + [_waiting(job) for job in allocated if job not in with_processes]


def job_with_key(
    processes: Sequence[GpuProcess], key: str, allocated: Sequence[AllocatedJob]
) -> JobGroup | None:
    """The job with this key, whatever part of it is shown."""
    return next((job for job in jobs(processes, allocated) if job.key == key), None)


def _waiting(allocated: AllocatedJob) -> JobGroup:
    """A job without a process on a GPU."""
    allocation = allocated.allocation
    waiting = JobGroup(
        key=_key(allocation),
        kind=allocation.scheduler,
        label=printable(allocation.label),
        processes=(),
        users=(allocation.user,),
        gpus=(),
        memory=0,
        sm=None,
        started_at=None,
        allocated=allocated,
    )
    return waiting if waiting.has_all_processes else replace(waiting, memory=None)


def _key(allocation: Allocation) -> str:
    """The key of a job without a process: that of its processes, if it gets any."""
    if not allocation.keys:
        return " ".join(allocation.devices)
    scheduler, job = allocation.keys[-1]
    return f"{'pod' if scheduler == KUBERNETES else scheduler} {job}"


def _job(
    kind: str, key: str, processes: list[GpuProcess], allocated: AllocatedJob | None
) -> JobGroup:
    launcher, launcher_name = _launcher(kind, processes)
    return JobGroup(
        key=key,
        kind=kind,
        label=printable(allocated.allocation.label if allocated else _label(kind, processes)),
        processes=tuple(processes),
        users=tuple(dict.fromkeys(process.user for process in processes)),
        gpus=_gpus(processes),
        memory=known_sum(process.memory_used for process in processes),
        sm=_sm(processes),
        started_at=_oldest(processes),
        launcher=launcher,
        launcher_name=launcher_name,
        allocated=allocated,
        load=combined_load(processes),
    )


def _launcher(kind: str, processes: Iterable[GpuProcess]) -> tuple[ProcessId | None, str | None]:
    """The process that starts these, and its name."""
    for process in processes:
        place = process.place
        if place is None:
            continue
        if kind == "server" and place.server is not None:
            return process.server_id, place.server.engine
        if kind == "launcher" and place.launcher is not None:
            is_daemon = place.launcher_name in _DAEMONS
            return (None, None) if is_daemon else (place.launcher, place.launcher_name)
    return None, None


def _label(kind: str, processes: list[GpuProcess]) -> str:
    first = processes[0]
    place = first.place
    if kind == "launcher":
        # The launcher itself, if it is in the group, does not have itself as its launcher.
        for process in processes:
            if process.place is not None and process.place.launcher is not None:
                name = process.place.launcher_name or "launcher"
                return f"{name} {process.place.launcher.pid}"
    if place is not None:
        if kind == "slurm":
            return f"slurm {place.slurm_job}"
        if kind == "container" and place.container is not None:
            return place.container.label
        if kind == "server" and place.server is not None:
            return place.server.label
        if kind == "session":
            return f"session {place.session}"
    return f"{first.name or 'process'} {first.id.pid}"


def _gpus(processes: Iterable[GpuProcess]) -> tuple[int, ...]:
    return tuple(sorted({use.gpu_index for process in processes for use in process.uses}))


def _sm(processes: Iterable[GpuProcess]) -> float | None:
    on_gpu: defaultdict[tuple[str, tuple[int, int] | None], int] = defaultdict(int)
    for process in processes:
        for use in process.uses:
            if use.sm is not None:
                on_gpu[use.gpu_uuid, use.instance] += use.sm
    return sum(on_gpu.values()) / len(on_gpu) if on_gpu else None


def _oldest(processes: Iterable[GpuProcess]) -> float | None:
    starts = [process.started_at for process in processes if process.started_at is not None]
    return min(starts, default=None)
