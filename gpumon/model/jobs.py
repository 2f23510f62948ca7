"""Which job a process belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import GpuProcess, ProcessId


def launchers_of(processes: Iterable[GpuProcess]) -> set[ProcessId]:
    """The launchers of these processes."""
    return {
        process.place.launcher
        for process in processes
        if process.place is not None and process.place.launcher is not None
    }


def job_of(process: GpuProcess, launchers: set[ProcessId]) -> tuple[str, str]:
    """The kind and key of a process's job.

    A process belongs to its Slurm job; without one to its Kubernetes pod or container; without one
    to its inference server, which may have several engines; without one to its outermost launcher,
    which may be the process itself; otherwise to its session, together with the other processes of
    the same user there; otherwise to itself.

    Args:
        process: The process.
        launchers: See ``launchers_of``.

    Returns:
        The kind is ``slurm``, ``container``, ``server``, ``launcher``, ``session`` or ``process``.
    """
    place = process.place
    if place is not None:
        container = place.container
        if place.slurm_job is not None:
            return "slurm", f"slurm {place.slurm_job}"
        if container is not None and container.pod is not None:
            return "container", f"pod {container.full_pod}"
        if container is not None and (container.id or container.name):
            return "container", f"container {container.runtime} {container.id or container.name}"
        # Before the launcher: Ray starts several servers, and other work besides.
        if place.server is not None and place.server.pid is not None:
            return "server", f"server {place.server.pid}/{place.server.start_time}"
        if place.launcher is not None:
            return "launcher", f"launcher {_identity(place.launcher)}"
    if process.id in launchers:
        return "launcher", f"launcher {_identity(process.id)}"
    # Processes of one terminal session are one job, unless the user differs: a root shell and the
    # services started from it share a session and nothing else. Session 0 belongs to another PID
    # namespace.
    if place is not None and place.session:
        owner = process.user if process.uid is None else process.uid
        return "session", f"session {place.session} of {owner}"
    return "process", f"process {_identity(process.id)}"


def job_key(process: GpuProcess, launchers: set[ProcessId]) -> str | None:
    """The key of a process's job; ``None`` while it is unknown where the process runs."""
    return None if process.place is None else job_of(process, launchers)[1]


def _identity(process: ProcessId) -> str:
    return f"{process.pid}/{process.start_time}"
