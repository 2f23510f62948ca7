"""The hosts of a Slurm job."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.allocations.host_lists import expand_hosts
from gpumon.allocations.slurm import NO_SUCH_JOB, scontrol
from gpumon.allocations.slurm_output import jobs_of_json, jobs_of_text
from gpumon.model.allocations import is_slurm_job
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.allocations.programs import Printed
    from gpumon.allocations.slurm_output import Job

PATIENCE = 25.0
"""Seconds. ``scontrol`` itself gives up after 10 to 20 s when the controller does not answer."""
_SHOWN = 60
"""Characters that are shown of what somebody else wrote."""


class JobHosts(Struct, frozen=True):
    """A job and the hosts that it has."""

    names: frozenset[str]  # its job id and what people write for it, and those of all its parts
    hosts: tuple[str, ...]  # as Slurm names them, in its order


class JobHostsError(Exception):
    """The hosts of a job are not known; the message is one sentence."""


def hosts_of_job(
    name: str, ask: Callable[[Sequence[str], float], Printed | None] = scontrol
) -> JobHosts:
    """Ask Slurm once which hosts a job has, in at most ``PATIENCE`` seconds.

    Args:
        name: The job id, ``88123_4`` for a task of an array, or ``88123+1`` for a part of a
            heterogeneous job. Without that, all tasks or parts that run are meant.
        ask: Runs ``scontrol``.

    Raises:
        JobHostsError: It has no hosts, or they are not known.
    """
    if not is_slurm_job(name):
        raise JobHostsError(
            f"{printable(shortened(name, _SHOWN))!r} is not a Slurm job number: write one such as"
            " slurm:88123, slurm:88123_4 or slurm:88123+1."
        )
    if shutil.which("scontrol") is None:
        raise JobHostsError(
            f"Slurm's scontrol is not on this machine, so the hosts of job {name} are not known: "
            "run gpumon on a machine that has it, such as a login node, or name the hosts."
        )
    jobs = _jobs(name, ask)
    running = [job for job in jobs if job.holds is not False]
    if not running:
        state = "has not started yet" if any(job.waits for job in jobs) else "has ended"
        raise JobHostsError(f"Slurm job {name} {state}, so it has no hosts.")
    hosts = {host: None for job in running for host in expand_hosts(job.nodes or "") or ()}
    if not hosts:
        raise JobHostsError(_unreadable(name))
    names = {part for job in running for part in (job.number, job.name)}
    return JobHosts(frozenset({name, *names}), tuple(hosts))


def _jobs(name: str, ask: Callable[[Sequence[str], float], Printed | None]) -> list[Job]:
    """All that a name means: at least one job."""
    deadline = time.monotonic() + PATIENCE
    printed = ask(("--json", "show", "job", name), PATIENCE)
    if printed is not None and (jobs := jobs_of_json(printed.output, name)):
        return jobs
    # An old version has no JSON, or one that is cut off.
    left = deadline - time.monotonic()
    printed = ask(("show", "job", "-d", name), left) if printed is not None and left > 0 else None
    if printed is None:
        raise JobHostsError(
            f"scontrol gave no answer about job {name} within {PATIENCE:g} s:"
            " Slurm's controller may be down; name the hosts."
        )
    if printed.has_failed_with(NO_SUCH_JOB):
        raise JobHostsError(
            f"Slurm has no job {name}: it ended long ago, is hidden from you, or never existed."
        )
    if printed.exit_status != 0:
        said = printable(printed.errors.decode(errors="replace").strip().partition("\n")[0])
        why = f": {shortened(said, _SHOWN)}" if said else f" (status {printed.exit_status})"
        raise JobHostsError(f"scontrol cannot answer about job {name}{why}.")
    if jobs := jobs_of_text(printed.output, name):
        return jobs
    raise JobHostsError(_unreadable(name))


def _unreadable(name: str) -> str:
    return f"the answer of scontrol about job {name} cannot be read: name the hosts."
