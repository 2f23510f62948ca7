"""The processes to end with a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.process_host import Target, target_of

if TYPE_CHECKING:
    from gpumon.findings.groups import JobGroup


def targets_of_job(job: JobGroup) -> tuple[Target, ...]:
    """The launcher of a job, which could restart its workers, and the processes on GPUs.

    Of a launcher on no GPU only the identity is known; the dialog looks up the rest.
    """
    targets = tuple(map(target_of, job.processes))
    if job.launcher is None or any(target.id == job.launcher for target in targets):
        return targets
    return Target(job.launcher, None, name=job.launcher_name), *targets
