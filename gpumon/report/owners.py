"""Groups listed processes by user, process or job, for ``--by``, and completes where they run."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings.groups import jobs
from gpumon.model.allocations import KUBERNETES, SLURM, Allocation
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.report.samples import Identity
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.recording.csv.allocation_cells import AllocatedGpu, LoggedJob
    from gpumon.report.chosen_job import ChosenJob
    from gpumon.report.samples import SteadyUse


class Subject(Struct):
    """A user, a process or a job of one host, as far as observed."""

    key: str  # identifies it on its host
    label: str  # a short printable label
    users: set[str | None]  # the owners of its processes; ``None`` is an unknown owner
    gpus: set[int]  # indices of the GPUs it was on
    processes: set[Identity]  # its processes that were observed
    pid: int | None = None  # PID, if it is a process
    started_at: float | None = None  # start time of that process
    # command line of the first of its processes, or its name; not safe to print
    command: str | None = None

    def see(self, rows: Iterable[SteadyUse]) -> None:
        """Record its processes and GPUs in a list that counts."""
        for row in rows:
            self.users.add(row.user)
            self.processes.add(row.identity)
            if row.gpu_index is not None:
                self.gpus.add(row.gpu_index)

    def join(self, other: Subject) -> None:
        """Merge another subject that turned out to be part of it."""
        self.users |= other.users
        self.gpus |= other.gpus
        self.processes |= other.processes
        self.command = self.command or other.command


Grouping = dict[Identity, tuple[str, str]]
"""Key and label of the subject of each process of a list."""


def group_by_user(listed: Sequence[SteadyUse]) -> Grouping:
    """One subject per user; all processes with an unknown owner are one."""
    return {
        one.identity: ("", "unknown") if one.user is None else (f"user {one.user}", one.user)
        for one in listed
    }


def group_by_process(listed: Sequence[SteadyUse]) -> Grouping:
    """One subject per process."""
    return {one.identity: (_process_key(one.identity), str(one.pid)) for one in listed}


def group_by_job(listed: Sequence[SteadyUse]) -> Grouping:
    """One subject per job, as grouped by ``gpumon.findings.groups``."""
    by_id = {ProcessId(one.pid, one.start_ticks): one for one in listed}
    found: Grouping = {}
    for job in jobs([_process(one) for one in by_id.values()]):
        for member in job.processes:
            process = by_id[member.id].identity
            # A process without a known job yet has its own key: see ``Subjects.merged``.
            key = _process_key(process) if job.kind == "process" else job.key
            found[process] = key, job.label
    return found


GROUPINGS: dict[str, Callable[[Sequence[SteadyUse]], Grouping]] = {
    "user": group_by_user,
    "process": group_by_process,
    "job": group_by_job,
}


BY_PROCESSES = tuple(GROUPINGS)
"""The groupings of a report that need lists of processes with their owners."""


def _process_key(process: Identity) -> str:
    return f"process {process[0]}/{process[1]}"


def _process(one: SteadyUse) -> GpuProcess:
    return GpuProcess(
        id=ProcessId(one.pid, one.start_ticks),
        type=one.type or "C",
        uses=(GpuUse(one.gpu_uuid or "", one.gpu_index or 0),),
        user=one.user,
        name=one.name,
        place=Workload(
            container=one.container,
            slurm_job=one.slurm_job,
            session=one.session,
            launcher=one.launcher,
            launcher_name=one.launcher_name,
            server=one.server,
        ),
    )


def user_of_allocation(_: LoggedJob, user: str | None) -> tuple[str, str]:
    """Key and label of the user to whom a GPU is allocated."""
    return ("", "unknown") if user is None else (f"user {user}", user)


def job_of_allocation(job: LoggedJob, _: str | None) -> tuple[str, str]:
    """Key and label of the job that a GPU is allocated to, those of its processes."""
    if job.scheduler == KUBERNETES and job.job is not None:
        # Logs have the pods of processes without their namespaces.
        pod = f"pod {job.job.rpartition('/')[2]}"
        return pod, pod
    return f"{job.scheduler} {job.job}", Allocation(job.scheduler, job.job).label


def group_by_chosen_job(
    job: ChosenJob, aliases: Mapping[str, str], listed: Sequence[SteadyUse]
) -> Grouping:
    """One subject for the processes of a job, and one for all others."""
    return {
        one.identity: job.group(one.slurm_job, aliases.get(one.slurm_job or "")) for one in listed
    }


def chosen_job_of_allocation(
    job: ChosenJob, allocated: LoggedJob, _: str | None
) -> tuple[str, str]:
    """Key and label of the same subjects."""
    names = (allocated.job, allocated.number) if allocated.scheduler == SLURM else ()
    return job.group(*names)


ALLOCATION_GROUPINGS: dict[str, Callable[[LoggedJob, str | None], tuple[str, str]]] = {
    "user": user_of_allocation,
    "job": job_of_allocation,
}
"""The groupings whose subjects GPUs are allocated to."""


class Subjects:
    """The subjects of one host, each under one permanent key.

    The lookup of where a process runs finishes after it is first listed: a process that was a job
    of its own may turn out to be part of another. ``merged`` has these cases.
    """

    def __init__(self, by: str, job: ChosenJob | None = None) -> None:
        # Names of Slurm's jobs by its own numbers, where they differ; and each by the other.
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._grouping = GROUPINGS[by]
        self._allocation_grouping = ALLOCATION_GROUPINGS.get(by)
        if job is not None:
            self._grouping = partial(group_by_chosen_job, job, self._aliases)
            self._allocation_grouping = partial(chosen_job_of_allocation, job)
        self.known: dict[str, Subject] = {}
        # How often processes were grouped: until it grows, each has the same subject.
        self.groupings = 0
        self._last: dict[Identity, str] = {}
        self._listed: Sequence[SteadyUse] = ()
        # Keys that nothing was allocated to, because nothing else is known of them.
        self._skipped: set[str] = set()

    def learn(self, gpu: AllocatedGpu) -> None:
        """Learn from what a GPU is allocated to, before the list of the same sample."""
        for job, _ in gpu.each():
            name, number = job.job, job.number
            if job.scheduler != SLURM or name is None or number is None:
                continue
            if number not in self._names:
                self._names[number] = self._aliases[number] = name
                self._aliases[name] = number
                # Processes in it may be listed already.
                self._listed = ()

    def find(self, listed: Sequence[SteadyUse]) -> None:
        """Find the subjects of the processes of a list."""
        if listed == self._listed:
            return
        self._listed = listed
        self.groupings += 1
        groups = self._grouping(listed)
        for row in listed:
            process = row.identity
            key, label = groups[process]
            subject = self.known.get(key)
            if subject is None:
                subject = Subject(key, printable(label), {row.user}, set(), set())
                self.known[key] = subject
            if key == _process_key(process):
                subject.pid, subject.started_at = row.pid, row.started_at
            subject.command = subject.command or row.command or row.name
            self._last[process] = key

    def allocated(self, gpu: AllocatedGpu, index: int | None) -> list[Subject]:
        """The subjects that a GPU with this index is allocated to, or may be, each once."""
        if self._allocation_grouping is None:
            return []
        found: dict[str, Subject] = {}
        for job, user in gpu.each():
            key, label = self._allocation_grouping(job, user)
            if job.job is None and not job.is_certain and key not in self.known:
                # Before a scheduler has answered, it is nobody's.
                self._skipped.add(key)
                continue
            subject = self.known.setdefault(
                key, Subject(key, printable(label), set(), set(), set())
            )
            if user is not None:
                subject.users.add(user)
            if job.is_certain and index is not None:
                subject.gpus.add(index)
            found[key] = subject
        return [*found.values()]

    def of(self, row: SteadyUse) -> Subject:
        """The subject of a process of the last list that has it."""
        return self.known[self._last[row.identity]]

    def join(self, later: Subjects) -> None:
        """Add the subjects that were seen later; not for a chosen job."""
        self._names = {**later._names, **self._names}
        self._last |= later._last
        self._skipped |= later._skipped
        for key, subject in later.known.items():
            known = self.known.setdefault(key, subject)
            if known is not subject:
                known.join(subject)
                known.started_at = subject.started_at

    @property
    def is_exact(self) -> bool:
        """Whether joined subjects are those that were found without a cut."""
        return self._skipped.isdisjoint(self.known)

    def merged(self) -> dict[str, str]:
        """Keys of processes that counted as a job of their own -> the job they belong to.

        Also those of Slurm's own numbers of jobs -> the names of the jobs.
        """
        named = {f"{SLURM} {number}": f"{SLURM} {name}" for number, name in self._names.items()}
        # A name that is in no more than the last sample has no subject.
        named = {own: key for own, key in named.items() if {own, key} <= self.known.keys()}
        own_jobs = {
            own: named.get(key, key)
            for process, key in self._last.items()
            if (own := _process_key(process)) != key and own in self.known
        }
        return own_jobs | named


class Lookups:
    """What any list of a log says of where its processes run.

    The lookup of where a process runs finishes after the process is first listed.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, Identity], tuple[Any, ...]] = {}
        self._launchers: dict[tuple[str | None, ProcessId], str | None] = {}

    def learn(self, processes: Iterable[SteadyUse]) -> None:
        """Learn from the processes of lists, in any order."""
        for row in processes:
            key, found = (row.hostname, row.identity), _PLACE_OF(row)
            known = self._known.get(key)
            if known == found:
                continue
            if known is not None:
                found = tuple(one or other for one, other in zip(known, found, strict=True))
            self._known[key] = found
            if row.launcher is not None:
                self._launchers[row.hostname, row.launcher] = row.launcher_name

    def join(self, later: Lookups) -> None:
        """Learn what was learned from later lists."""
        for key, found in later._known.items():
            known = self._known.get(key, found)
            self._known[key] = tuple(one or other for one, other in zip(known, found, strict=True))
        self._launchers |= later._launchers

    def complete(self, row: SteadyUse) -> SteadyUse:
        """The process with what other lists say of it."""
        found = self._known.get((row.hostname, row.identity)) or _PLACE_OF(row)
        place = dict(zip(_PLACE, found, strict=True))
        own = row.hostname, ProcessId(row.pid, row.start_ticks)
        if place["launcher"] is None and own in self._launchers:
            # A launcher is part of the job that it started, also on a GPU of its own.
            place |= {"launcher": own[1], "launcher_name": self._launchers[own]}
        return replace(row, **place)


_PLACE = (
    *("container", "slurm_job", "session", "launcher", "launcher_name"),
    *("server_id", "engine", "model"),
)
_PLACE_OF = attrgetter(*_PLACE)
