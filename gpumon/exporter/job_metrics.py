"""What each job uses of each GPU: the metrics of ``gpumon exporter --jobs``.

A job is Slurm's, or a Kubernetes pod, or another container; ``gpumon.model.jobs`` has the rule.
Processes without one are one group, and so are those of which it is not known where they run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpumon.export.as_prometheus import GPU_LABELS, gauge, gpu_labels
from gpumon.model.arithmetic import known_sum
from gpumon.model.jobs import job_of
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client import Metric as Family

    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Snapshot

_LONGEST_NAME = 63 + 1 + 253
"""Characters of a job's name at most: those of a namespace and a pod (RFC 1123). Nothing limits the
names in the files of a user's own containers."""


class JobLabel(NamedTuple):
    """A job as it stands in labels: kind and name, safe to print.

    The kind is ``slurm``, ``pod``, ``container``, ``none`` for processes without a job, or
    ``unknown``; the last two have no name.
    """

    kind: str
    name: str | None = None


_NO_JOB, _UNKNOWN = JobLabel("none"), JobLabel("unknown")

JobUses = dict[tuple[str, JobLabel], list["GpuUse"]]
"""The uses that a job's processes make of a GPU, by UUID and job."""

JOB_METRICS: dict[str, tuple[str, Callable[[Sequence[GpuUse]], float | None]]] = {
    "gpumon_job_gpu_memory_bytes": (
        "Memory of the GPU held by the job's processes.",
        lambda uses: known_sum(use.memory_used for use in uses),
    ),
    "gpumon_job_gpu_sm_ratio": (
        "Time with a kernel of a process running, 0 to 1, summed over the job's processes.",
        lambda uses: _ratio(known_sum(use.sm for use in uses)),
    ),
}
"""Help text and value by name. A sum with an unknown part is unknown, and gives no sample."""


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


def job_uses(snapshot: Snapshot) -> JobUses:
    """The uses of the GPUs whose values are known, by GPU and job."""
    # The list of a GPU that does not answer, whose values are withheld, stays what it was.
    current = {gpu.uuid for gpu in snapshot.gpus if gpu.sampled_at is not None}
    found: JobUses = defaultdict(list)
    for process in snapshot.processes:
        job = _job_label(process)
        for use in process.uses:
            if use.gpu_uuid in current:
                found[use.gpu_uuid, job].append(use)
    return found


def _job_label(process: GpuProcess) -> JobLabel:
    place = process.place
    if place is None:
        return _UNKNOWN
    kind, _ = job_of(process, set())
    name, container = place.slurm_job, place.container
    if kind == "container" and container is not None:
        kind, name = "container", container.short_name
        if container.pod is not None:
            kind, name = "pod", container.full_pod
    elif kind != "slurm":
        return _NO_JOB
    return JobLabel(kind, printable((name or "")[:_LONGEST_NAME]))


def names_by_memory(uses: JobUses) -> list[str]:
    """The names of all jobs, most memory first."""
    held: defaultdict[str, int] = defaultdict(int)
    for (_, job), of_job in uses.items():
        if job.name is not None:
            held[job.name] += sum(use.memory_used or 0 for use in of_job)
    return sorted(held, key=lambda name: (-held[name], name))


def job_families(
    snapshot: Snapshot, uses: JobUses, limited: Callable[[str | None], str | None]
) -> Iterator[Family]:
    """The metric families of jobs that have a sample.

    Args:
        snapshot: The snapshot.
        uses: What ``job_uses`` found in it.
        limited: Returns the name that stands for a job's; jobs with one name are summed.
    """
    labels = {gpu.uuid: gpu_labels(gpu, snapshot.host.name) for gpu in snapshot.gpus}
    merged: defaultdict[tuple[str, ...], list[GpuUse]] = defaultdict(list)
    for (uuid, (kind, name)), of_job in uses.items():
        key = (*labels[uuid], kind, limited(name) or "")
        merged[key] += of_job
    for metric, (about, value_of) in JOB_METRICS.items():
        samples = [(each, value_of(of_job)) for each, of_job in merged.items()]
        yield from gauge(metric, about, (*GPU_LABELS, "kind", "name"), samples)
