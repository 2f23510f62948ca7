"""What schedulers have given to jobs of a machine; part of the data model.

``None`` always means unknown: an allocation whose user is not known is still somebody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.model.number_types import Count, Time  # noqa: TC001 - msgspec resolves annotations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpumon.model.processes import Workload
    from gpumon.model.snapshot import Gpu, MigInstance


SLURM = "slurm"
LSF = "lsf"
KUBERNETES = "kubernetes"
"""``Allocation.scheduler`` of Slurm's jobs, of IBM Spectrum LSF's, and of pods."""


def is_slurm_job(text: str) -> bool:
    """Whether it is the number of a Slurm job, or with ``_4`` or ``+1`` that of a part of one."""
    import re

    return re.fullmatch(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?", text) is not None


class Allocation(Struct, frozen=True, gc=False, array_like=True):
    """GPUs of this machine that a scheduler has given to a job.

    Attributes:
        scheduler: ``slurm``, ``lsf`` or ``kubernetes``.
        job: The job as people write it, such as ``88123``; in an array ``88123_4`` (Slurm) or
            ``321[4]`` (LSF); a pod with its namespace, ``train/worker-0``. ``None`` if it is not
            known whose the GPUs are.
        user: Name of the job's owner; a pod has none.
        devices: UUIDs of the GPUs, or MIG devices, that are certainly its.
        unplaced: Number of further GPUs of this machine that are its, but not which ones; ``None``
            if not even their number is known.
        since: When the job started.
        until: When it ends at the latest; also ``None`` if it has no time limit.
        nodes: All its machines, as the scheduler writes them: ``gpu-[01-02]``.
        is_share: Whether it has only a part of each GPU, such as shards.
        number: The scheduler's own number of the job, where people write another: ``91`` of
            ``88_3``.
    """

    scheduler: str
    job: str | None = None
    user: str | None = None
    devices: tuple[str, ...] = ()
    unplaced: Count | None = 0
    since: Time | None = None
    until: Time | None = None
    nodes: str | None = None
    is_share: bool = False
    number: str | None = None

    @property
    def label(self) -> str:
        """A short label, not safe to print: ``slurm 88123``, or ``a slurm job``."""
        return f"a {self.scheduler} job" if self.job is None else f"{self.scheduler} {self.job}"

    @property
    def owned_label(self) -> str:
        """The label with the user, not safe to print: ``slurm 88123 ann``."""
        return self.label if self.user is None else f"{self.label} {self.user}"

    @property
    def keys(self) -> Sequence[JobKey]:
        """The keys that a process of the job may have, see ``job_keys_of``."""
        return [(self.scheduler, name) for name in (self.job, self.number) if name is not None]


JobKey: TypeAlias = tuple[str, str]
"""A scheduler, and a name or number of a job of it."""


def job_keys_of(place: Workload | None) -> Iterable[JobKey]:
    """The jobs of schedulers that a process with this workload is part of."""
    if place is None:
        return ()
    pod = None if place.container is None else place.container.full_pod
    jobs = ((SLURM, place.slurm_job), (KUBERNETES, pod))
    return [(scheduler, job) for scheduler, job in jobs if job is not None]


def allocations_of(
    allocations: Iterable[Allocation] | None, gpu: Gpu, mig: MigInstance | None = None
) -> list[Allocation]:
    """The allocations that certainly include a GPU, or a MIG device of it.

    That of a GPU includes its MIG devices, and that of a MIG device a part of its GPU.
    """
    if not allocations:
        return []
    parts = [mig] if mig is not None else gpu.mig
    wanted = {gpu.uuid, *(part.uuid for part in parts)}
    return [each for each in allocations if not wanted.isdisjoint(each.devices)]


def jobs_are_known(allocations: Collection[Allocation] | None, scheduler: str) -> bool:
    """Whether it is known of all jobs of a scheduler that have GPUs of a machine which they are."""
    if allocations is None:
        return False
    own = [each for each in allocations if each.scheduler == scheduler]
    # Where only other schedulers answer, this one may not have been asked.
    return (bool(own) or not allocations) and all(each.job is not None for each in own)


def unplaced_of(allocations: Iterable[Allocation] | None) -> list[Allocation]:
    """The allocations that have GPUs of this machine of which it is not known which ones."""
    return [] if not allocations else [each for each in allocations if each.unplaced != 0]


def unplaced_count(allocations: Sequence[Allocation]) -> int | None:
    """The number of GPUs that these have without a place; ``None`` if any number is unknown."""
    total = 0
    for each in allocations:
        if each.unplaced is None:
            return None
        total += each.unplaced
    return total
