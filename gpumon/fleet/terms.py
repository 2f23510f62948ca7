"""The filter languages of a fleet: of its hosts, and of the processes on all of them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from gpumon.filters.language import (
    COMPARES,
    IS,
    Language,
    Selection,
    Term,
    Test,
    number_term,
    text_term,
)
from gpumon.filters.terms import PROCESSES, TERMS, FilterContext, names
from gpumon.fleet.summary import HostSummary
from gpumon.model.allocations import job_keys_of
from gpumon.model.processes import GpuProcess
from gpumon.text.unit_parsing import COUNT, DURATION, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HostFilter: TypeAlias = Selection[HostSummary, float]
"""Selects hosts; the context is the current time."""
FleetProcessFilter: TypeAlias = Selection[GpuProcess, FilterContext]

_WILD = frozenset("*?[")


def _name_matches(sign: str, wanted: str) -> Callable[[str], bool]:
    """A test of a host's name: with ``*``, ``?`` or ``[…]`` of the whole name, else of a part."""
    folded = wanted.casefold()
    if not _WILD.isdisjoint(wanted):
        return lambda name: fnmatchcase(name.casefold(), folded)
    if sign == "=":
        return lambda name: name.casefold() == folded
    return lambda name: folded in name.casefold()


def _host(sign: str, value: str) -> Test[HostSummary, float]:
    matches = _name_matches(sign, value)
    return lambda host, _: matches(host.name)


def _host_of_process(sign: str, value: str) -> Test[GpuProcess, FilterContext]:
    matches = _name_matches(sign, value)
    return lambda _, context: matches(context.host)


def _users(host: HostSummary) -> Iterable[str | None]:
    return (use.user for use in host.users)


def _jobs(host: HostSummary) -> Iterable[str | None]:
    snapshot = host.state.snapshot
    if snapshot is None:
        return
    for process in snapshot.processes:
        yield from (job for _, job in job_keys_of(process.place))
    for allocation in snapshot.allocations or ():
        yield from (allocation.job, allocation.number)


def _allocations(host: HostSummary) -> Iterable[str | None]:
    snapshot = host.state.snapshot
    for allocation in () if snapshot is None else snapshot.allocations or ():
        yield from (allocation.job, allocation.user, allocation.owned_label)


def _models(host: HostSummary) -> Iterable[str | None]:
    snapshot = host.state.snapshot
    return () if snapshot is None else {gpu.name for gpu in snapshot.gpus}


def _states(host: HostSummary) -> Iterable[str]:
    """The status of the host and the states of its GPUs, in words."""
    yield host.state.status.value
    if host.state.origin is not None:
        yield host.state.origin.value
    for gpu in host.gpus if host.is_live else ():
        yield gpu.state.kind.value
        yield gpu.state.short


def _age(host: HostSummary, now: float) -> float | None:
    received = host.state.received_at
    return None if received is None else max(0.0, now - received)


_NAME = "whose name holds this; with * or ? the whole name: host:gpu-0*"

# One line per term is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
HOST_TERMS: tuple[Term[HostSummary, float], ...] = (
    Term("host", "host:gpu-0*", _NAME, IS, _host),
    Term("free", "free>1", "with more free GPUs than this", COMPARES, number_term(COUNT, lambda host, _: host.free)),
    Term("mem", "mem>40G", "with a GPU that has more free memory than this", COMPARES, number_term(SIZE, lambda host, _: host.most_free)),
    Term("used", "used>100G", "with more GPU memory in use than this", COMPARES, number_term(SIZE, lambda host, _: host.memory_used)),
    Term("gpus", "gpus>=8", "with this many GPUs", COMPARES, number_term(COUNT, lambda host, _: len(host.gpus) or None)),
    Term("user", "user:ann", "where a user's name holds this; user=ann for the whole name", IS, text_term(_users)),
    Term("job", "job:88123", "with a process of this job, or a GPU that it was given", IS, text_term(_jobs)),
    Term("alloc", "alloc:ann", "with a GPU that a scheduler has given to this job or user", IS, text_term(_allocations)),
    Term("model", "model:h100", "with a GPU whose product name holds this", IS, text_term(_models)),
    Term("state", "state:lost", "that are live, connecting, silent or down, or where the state of a GPU holds this", IS, text_term(_states)),
    Term("age", "age>1m", "whose newest data are older than this", COMPARES, number_term(DURATION, _age)),
)
"""Every term of a host, in the order of the help."""

_HOST_OF_PROCESS: Term[GpuProcess, FilterContext] = Term("host", "host:gpu-0*", _NAME, IS, _host_of_process)
# fmt: on


def _names(host: HostSummary, _: float) -> str:
    parts = (host.name, *_users(host), *_models(host), *_states(host))
    return "\0".join(part for part in parts if part).casefold()


HOSTS: Language[HostSummary, float] = Language(HOST_TERMS, _names)
"""The language of hosts."""
FLEET_PROCESSES: Language[GpuProcess, FilterContext] = Language(
    (_HOST_OF_PROCESS, *TERMS),
    lambda process, context: f"{context.host.casefold()}\0{names(process)}",
    PROCESSES.is_number,
)
"""The language of the processes on all hosts."""
