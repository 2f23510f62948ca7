"""Jobs over the hosts of a fleet: what each has on each of its machines, and which of them lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.allocations.host_lists import expand_hosts
from gpumon.findings.groups import allocated_jobs, jobs
from gpumon.findings.lag import lags, usual_load
from gpumon.model.allocations import SLURM, jobs_are_known
from gpumon.model.arithmetic import known_sum
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.groups import JobGroup
    from gpumon.fleet.summary import HostSummary
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

_MOST_NAMES = 4
"""Names of machines in a sentence."""
_MOST_MACHINES = 50_000
"""Names that are read at a time from the lists of all jobs: a host may send any list."""
_SEEN_SECONDS = 60.0
"""Seconds in which a new job is seen on all its machines, which look for jobs every 5 or 15 s."""
_MEAN_SECONDS, _LEAST_SECONDS = 30.0, 10.0
"""Seconds over which the load is averaged, since training pauses for checkpoints and data; and how
many of them must have been seen."""


class JobNode(Struct, frozen=True):
    """What a job has and does on one machine. ``None`` is unknown.

    On a machine whose values are not current nothing but the name is known.
    """

    host: HostSummary
    processes: int | None = None
    gpus: int | None = None  # number of GPUs, used or allocated
    unused: int | None = None  # number of allocated GPUs that nobody computes on
    memory: int | None = None  # bytes of GPU memory
    # Percent: on each GPU the sum over the processes, then the mean over the GPUs that report it.
    sm: float | None = None
    # Percent: mean utilisation of its GPUs over the last half minute, if it has them whole.
    load: float | None = None
    power: float | None = None  # watts of its GPUs
    idle: float | None = None  # seconds since which none of its processes has computed
    idle_at_least: bool = False  # whether that may be longer
    group: JobGroup | None = None  # the same, with its processes
    lag: str = ""  # why it lags behind the others, in a few words; empty if it does not


class FleetJob(Struct, frozen=True):
    """One job over all hosts; ``None`` is unknown. Texts are safe to print."""

    key: str  # identifies it
    label: str  # ``slurm 88123``
    users: tuple[str | None, ...]
    nodes: tuple[JobNode, ...]  # in the order of the hosts
    absent: tuple[str, ...] = ()  # its machines that are not among the hosts
    started_at: float | None = None
    until: float | None = None  # when it ends at the latest, if it has a time limit
    is_partial: bool = False  # whether it may have machines that are not among these

    def total(self, field: str) -> tuple[int | None, bool]:
        """The sum of a field over the machines of which it is known, and whether it is more.

        The sum is ``None`` if it is known of none.
        """
        values = [getattr(node, field) for node in self.nodes]
        known = [value for value in values if value is not None]
        is_least = len(known) < len(values) or bool(self.absent) or self.is_partial
        return sum(known) if known else None, is_least

    @property
    def sm(self) -> float | None:
        """The mean over the machines that report it, in percent."""
        known = [node.sm for node in self.nodes if node.sm is not None]
        return sum(known) / len(known) if known else None

    @property
    def lagging(self) -> tuple[JobNode, ...]:
        """The machines that lag."""
        return tuple(node for node in self.nodes if node.lag)

    @property
    def sentence(self) -> str:
        """What of it works and what lags; empty for a job of one machine."""
        if len(self.nodes) + len(self.absent) < 2:
            return ""
        live = [node for node in self.nodes if node.host.is_live]
        parts = []
        if self.lagging:
            named = [f"{printable(node.host.name)} ({node.lag})" for node in self.lagging]
            verb = "lags" if len(named) == 1 else "lag"
            of_all = f"{len(named)} of {counted(len(live), 'machine')}"
            parts.append(f"{of_all} {verb}: {_listed(named)}")
        elif len(live) > 1 and all(node.load is not None for node in live):
            parts.append(f"none of {counted(len(live), 'machine')} lags")
        silent = [printable(node.host.name) for node in self.nodes if not node.host.is_live]
        if silent:
            parts.append(f"no current values of {_listed(silent)}")
        if self.absent:
            parts.append(f"not among these hosts: {_listed(self.absent)}")
        return "; ".join(parts)


def fleet_jobs(hosts: Sequence[HostSummary], only: str | None = None) -> list[FleetJob]:
    """The jobs over all hosts with current values.

    A job of Slurm is one job whatever its machines; all others are those of a single host.

    Args:
        hosts: The hosts.
        only: The key of the job that alone is wanted.
    """
    found: dict[str, list[tuple[HostSummary, JobGroup]]] = {}
    for host in hosts:
        for group in _jobs_of(host):
            key = group.key if group.kind == SLURM else f"{host.name} {group.key}"
            if only in (None, key):
                found.setdefault(key, []).append((host, group))
    by_name = {name: host for host in hosts for name in _names(host)}
    jobs_found = []
    left = _MOST_MACHINES
    for key, parts in found.items():
        machines = _machines(parts, left)
        left = left // 2 if machines is None else left - len(machines)
        # In a list of all jobs the load only decides which of several machines lag.
        compared = only is not None or len(parts) > 1
        jobs_found.append(_job(key, parts, machines, by_name, compared=compared))
    return jobs_found


def _jobs_of(host: HostSummary) -> list[JobGroup]:
    snapshot, history = host.state.snapshot, host.history
    if not host.is_live or snapshot is None or history is None:
        return []
    return jobs(snapshot.processes, allocated_jobs(snapshot, history))


def _names(host: HostSummary) -> set[str]:
    """What Slurm may call a host: as it is called here, which may be an address, or by itself."""
    snapshot = host.state.snapshot
    return {_short(host.name), *(() if snapshot is None else (_short(snapshot.host.name),))}


def _short(name: str) -> str:
    """A host without user and domain: Slurm has the first part of the name."""
    return name.rpartition("@")[2].partition(".")[0]


def _job(
    key: str,
    parts: Sequence[tuple[HostSummary, JobGroup]],
    machines: Sequence[str] | None,
    by_name: dict[str, HostSummary],
    *,
    compared: bool,
) -> FleetJob:
    allocations = [group.allocated.allocation for _, group in parts if group.allocated is not None]
    nodes = [_node(host, group, compared=compared) for host, group in parts]
    here = {name for host, _ in parts for name in _names(host)}
    absent = []
    for name in machines or ():
        if name in here:
            continue
        host = by_name.get(name)
        if host is None:
            absent.append(printable(name))
        else:
            nodes.append(JobNode(host))
            here |= _names(host)
    first = parts[0][1]
    since = min((each.since for each in allocations if each.since is not None), default=None)
    return FleetJob(
        key,
        first.label,
        tuple(dict.fromkeys(user for _, group in parts for user in group.users)),
        tuple(sorted(_with_lags(nodes, since), key=lambda node: node.host.index)),
        tuple(absent),
        since
        or min((each.started_at for _, each in parts if each.started_at is not None), default=None),
        max((each.until for each in allocations if each.until is not None), default=None),
        is_partial=machines is None,
    )


def _machines(parts: Sequence[tuple[HostSummary, JobGroup]], most: int) -> Sequence[str] | None:
    """The names of a job's machines, as far as they are known; ``None``: too many, or malformed."""
    for _, group in parts:
        if group.allocated is not None and group.allocated.allocation.nodes is not None:
            names = expand_hosts(group.allocated.allocation.nodes, most)
            return None if names is None else [_short(name) for name in names]
    return ()


def _node(host: HostSummary, group: JobGroup, *, compared: bool) -> JobNode:
    snapshot, history, allocated = host.state.snapshot, host.history, group.allocated
    assert snapshot is not None  # noqa: S101 - a host with jobs has one
    assert history is not None  # noqa: S101 - as above
    gpus = {*group.gpus, *(() if allocated is None else allocated.gpus)}
    own = [gpu for gpu in snapshot.gpus if gpu.index in gpus]
    has_gone = len(own) < len(gpus)
    unplaced = 0 if allocated is None else allocated.allocation.unplaced
    idle = [history.process_idle(process.id) for process in group.processes if process.type != "G"]
    known = [interval for interval in idle if interval is not None]
    shortest = None
    if known and len(known) == len(idle):
        shortest = min(known, key=lambda interval: interval.seconds)
    is_share = allocated is not None and allocated.allocation.is_share
    return JobNode(
        host,
        len(group.processes) if group.has_all_processes else None,
        None if unplaced is None else len(gpus) + unplaced,
        None if unplaced else (0 if allocated is None else allocated.unused),
        group.memory,
        group.sm,
        # That of a GPU that others have a part of may be theirs.
        None if is_share or has_gone or not compared else _load(history, own),
        None if has_gone else known_sum(gpu.power_draw for gpu in own),
        None if shortest is None else shortest.seconds,
        shortest is not None and not shortest.start_observed,
        group,
    )


def _load(history: History, gpus: Sequence[Gpu]) -> float | None:
    means = []
    for gpu in gpus:
        points = history.gpu_series(gpu.uuid).window("utilization_gpu", _MEAN_SECONDS)
        if not points or points[-1][0] - points[0][0] < _LEAST_SECONDS:
            return None
        means.append(sum(value for _, value in points) / len(points))
    return sum(means) / len(means) if means else None


def _with_lags(nodes: Sequence[JobNode], since: float | None) -> list[JobNode]:
    """The machines, with why some lag behind the others of the job, which Slurm began then."""
    usual = usual_load(node.load for node in nodes if node.load is not None)
    works = any(node.processes for node in nodes)
    return [
        replace(node, lag=_absence(node.host, since))
        if node.group is None
        else replace(node, lag=_lag(node, usual, works=works))
        for node in nodes
    ]


def _absence(host: HostSummary, since: float | None) -> str:
    """Whether Slurm says that a host is one of a job's machines, and on it that it is not."""
    seen = host.state.snapshot
    if seen is None or not host.is_live or not jobs_are_known(seen.allocations, SLURM):
        return ""
    is_new = since is None or seen.time - since < _SEEN_SECONDS
    return "" if is_new else "not seen there"


def _lag(node: JobNode, usual: float, *, works: bool) -> str:
    if works and node.unused and node.unused == node.gpus:
        return "no process"
    if node.load is not None and lags(node.load, usual):
        return f"utilisation {node.load:.0f} %, median {usual:.0f} %"
    if node.unused and works:
        return f"{counted(node.unused, 'GPU')} unused"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
