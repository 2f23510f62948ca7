"""The lines of a fleet's lists: hosts, users across hosts, and the processes of all hosts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.filters.language import parse
from gpumon.filters.terms import FilterContext
from gpumon.fleet.fleet import Owner
from gpumon.fleet.terms import FLEET_PROCESSES, HOSTS
from gpumon.model.arithmetic import known_sum
from gpumon.text.cells import Field, Row, fill, restyle
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    memory_size,
    number,
    printable,
)
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS, names_within
from gpumon.ui.view.fleet_view import FleetListing
from gpumon.ui.view.group_rows import USER_COLUMNS, UserColumn, fitting_columns
from gpumon.ui.view.process_table import RowContext, by_pid, in_order, sort_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.groups import UserUse
    from gpumon.fleet.summary import HostSummary
    from gpumon.model.processes import GpuProcess
    from gpumon.ui.view.fleet_view import FleetKey, FleetView
    from gpumon.ui.view.process_table import Sort


class FleetUser(Struct, frozen=True):
    """One user over all hosts with current values.

    Attributes:
        user: The name; ``None`` for all whose owner is unknown.
        gpus: Number of GPUs; ``None`` if unknown.
        processes: Number of processes; ``None`` if unknown.
        memory: Bytes of GPU memory; ``None`` if that of any process is unknown.
        idle_memory: Bytes held by processes seen idle; ``None`` if unknown.
        hosts: Names of the hosts, most memory first.
        longest: Age in seconds of the oldest process.
    """

    user: str | None
    gpus: int | None
    processes: int | None
    memory: int | None
    idle_memory: int | None
    hosts: tuple[str, ...]
    longest: float | None


class FleetEntry(Struct, frozen=True):
    """A line of a list.

    Attributes:
        key: Identifies the line.
        host: The host of a line of hosts or processes.
        user: The user of a line of users.
        process: The process of a line of processes.
    """

    key: FleetKey
    host: HostSummary | None = None
    user: FleetUser | None = None
    process: GpuProcess | None = None


_ABOUT = {column.key: column.about for column in USER_COLUMNS}
FLEET_USER_COLUMNS: tuple[UserColumn[FleetUser], ...] = (
    UserColumn(
        "user",
        "USER",
        14,
        _ABOUT["user"],
        lambda use: printable(use.user or UNKNOWN),
        lambda use: use.user,
        "user",
        left=True,
        descends=False,
    ),
    UserColumn(
        "gpu",
        "GPUS",
        5,
        "On how many GPUs they are.",
        lambda use: number(use.gpus),
        lambda use: use.gpus,
    ),
    UserColumn(
        "memory_used",
        "GPU-MEM",
        8,
        _ABOUT["memory_used"],
        lambda use: memory_size(use.memory),
        lambda use: use.memory,
        "strong",
    ),
    UserColumn(
        "idle",
        "IDLE-MEM",
        9,
        _ABOUT["idle"],
        lambda use: "" if use.idle_memory == 0 else memory_size(use.idle_memory),
        lambda use: use.idle_memory,
        "state.note",
    ),
    UserColumn(
        "processes",
        "PROCS",
        6,
        _ABOUT["processes"],
        lambda use: number(use.processes),
        lambda use: use.processes,
        "dim",
    ),
    UserColumn(
        "age",
        "LONGEST",
        8,
        _ABOUT["age"],
        lambda use: duration(use.longest),
        lambda use: use.longest,
        "dim",
    ),
    UserColumn(
        "host",
        "HOSTS",
        0,
        "On which hosts, most memory first.",
        lambda use: ", ".join(map(printable, use.hosts)),
        lambda use: len(use.hosts),
        left=True,
    ),
)
"""The columns of the list of users, in order; the last one takes the remaining width."""


def entries_of(hosts: Sequence[HostSummary], view: FleetView, now: float) -> list[FleetEntry]:
    """The lines of the current list that pass its filter, sorted."""
    listed = view.current
    if view.listing is FleetListing.HOSTS:
        selection = parse(listed.filter, HOSTS)
        shown = [host for host in hosts if selection.matches(host, now)]
        return [FleetEntry(host.name, host) for host in _sorted_hosts(shown, listed.sort)]
    if view.listing is FleetListing.USERS:
        return [FleetEntry(use.user or "", user=use) for use in _users(hosts, listed.sort)]
    return _processes(hosts, listed.filter, listed.sort)


def _sorted_hosts(hosts: Sequence[HostSummary], sort: Sort) -> list[HostSummary]:
    column = next(column for column in HOST_COLUMNS if column.key == sort.column)
    return in_order(hosts, column.value, descending=sort.descending)


def _users(hosts: Sequence[HostSummary], sort: Sort) -> list[FleetUser]:
    owned: dict[str | None, list[tuple[str, UserUse | Owner]]] = {}
    for host in hosts:
        for use in host.users if host.is_live else ():
            owned.setdefault(use.user, []).append((host.name, use))
    found = [_user(user, uses) for user, uses in owned.items()]
    column = next(column for column in FLEET_USER_COLUMNS if column.key == sort.column)
    by_name = sorted(found, key=lambda use: use.user or "")
    return in_order(by_name, column.value, descending=sort.descending)


def _user(user: str | None, uses: Sequence[tuple[str, UserUse | Owner]]) -> FleetUser:
    by_memory = sorted(uses, key=lambda one: -(one[1].memory or 0))
    # Metrics tell no processes, and so neither their number nor their age.
    seen = [use for _, use in uses if not isinstance(use, Owner)]
    ages = [use.longest for use in seen if use.longest is not None]
    return FleetUser(
        user,
        known_sum(use.gpus if isinstance(use, Owner) else len(use.gpus) for _, use in uses),
        sum(use.processes for use in seen) if seen else None,
        known_sum(use.memory for _, use in uses),
        known_sum(use.idle_memory for _, use in uses),
        tuple(name for name, _ in by_memory),
        max(ages, default=None),
    )


def _processes(hosts: Sequence[HostSummary], text: str, sort: Sort) -> list[FleetEntry]:
    """The processes of all live hosts: sorted on each, then all together."""
    selection = parse(text, FLEET_PROCESSES) if text.strip() else None
    # The process, its host, and the value by which it is sorted.
    found: list[tuple[GpuProcess, HostSummary, object]] = []
    for host in hosts:
        snapshot = host.state.snapshot
        if not host.is_live or snapshot is None:
            continue
        context = row_context(host)
        filter_context = FilterContext(
            context.now, context.idle_seconds, context.idle_after, host.name
        )
        value_of = None if sort.column == "host" else sort_value(sort.column, context)
        found += [
            (process, host, host.index if value_of is None else value_of(process))
            for process in snapshot.processes
            if selection is None or selection.matches(process, filter_context)
        ]
    # Rows alike in these two stay with their host.
    if sort.column not in {"host", "idle"}:
        found.sort(key=lambda one: by_pid(one[0]))
    ranked = in_order(found, lambda one: one[2], descending=sort.descending)
    return [FleetEntry((host.name, one.id), host, process=one) for one, host, _ in ranked]


def row_context(host: HostSummary) -> RowContext:
    """What the rows of a host's processes need."""
    snapshot, history = host.state.snapshot, host.history
    assert snapshot is not None  # noqa: S101 - a host with processes has one
    assert history is not None  # noqa: S101 - likewise
    return RowContext(
        snapshot.time,
        cache(history.process_idle),
        history.thresholds.idle_after,
        snapshot.host.memory_total,
    )


def user_columns(width: int) -> tuple[UserColumn[FleetUser], ...]:
    """The columns that fit; the last one is always there."""
    return fitting_columns(FLEET_USER_COLUMNS, width - 10)


def user_row(use: FleetUser, width: int, cursor: bool) -> Row:
    """One user."""
    fields: list[Field] = [("▸" if cursor else " ", "")]
    left = width - 1
    for column in user_columns(width):
        size = column.width or max(0, left)
        text = _host_names(use.hosts, size) if not column.width else column.text(use)
        fields += [((fit if column.left else fit_right)(text, size), column.style), (" ", "")]
        left -= size + 1
    row = fill(fields, width)
    return restyle(row, "cursor") if cursor else row


def _host_names(hosts: Sequence[str], width: int) -> str:
    """How many hosts there are, and the names that fit."""
    text = names_within([printable(host) for host in hosts], width)
    return f"{len(hosts)}: {text}" if text and cell_width(text) + 5 <= width else text
