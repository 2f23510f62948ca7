"""The lists of many hosts: what the user has chosen to see, the next view for each key, the layout.

Only keys that other lists do not have are here; the functions are called as those of ``list_view``.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpumon.config.columns import COLUMN, process_columns
from gpumon.filters.language import parse
from gpumon.filters.terms import FilterContext
from gpumon.fleet.fleet import Owner
from gpumon.fleet.jobs import FleetJob, JobNode, fleet_jobs
from gpumon.fleet.terms import FLEET_PROCESSES, HOSTS
from gpumon.model.arithmetic import known_sum
from gpumon.model.makers import first_maker
from gpumon.text.process_columns import ProcessItem, RowContext
from gpumon.text.table import GUTTER, Sort, by_column, in_order, line_width
from gpumon.ui.view.allocated import unused_count
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS, HostItem, host_columns
from gpumon.ui.view.fleet_jobs import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    JobItem,
    job_columns,
    node_columns,
)
from gpumon.ui.view.list_view import ListEntry, ListLayout, ListView, move_to
from gpumon.ui.view.process_table import by_pid, sort_value, steady_columns
from gpumon.ui.view.user_table import FLEET_USER_COLUMNS, FleetUser, fleet_user_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.findings.groups import UserUse
    from gpumon.fleet.summary import HostSummary
    from gpumon.fleet.terms import FleetProcessFilter
    from gpumon.model.processes import GpuProcess
    from gpumon.text.table import Column
    from gpumon.ui.view.frame import Memo


class FleetListing(str, Enum):
    """The kinds of lists."""

    HOSTS = "hosts"
    USERS = "users"
    JOBS = "jobs"
    MACHINES = "machines"
    """Those of one job."""
    PROCESSES = "processes"


class FleetView(ListView, frozen=True, kw_only=True):
    """What is seen, as the user has chosen; functions here and in ``list_view`` give the next."""

    listing: FleetListing = FleetListing.HOSTS
    sort: Sort = Sort("host", descending=False)
    filter: str = ""  # The text of the list's filter, which is valid.
    job: str = ""  # The key of the job whose machines are listed.
    # The order, filter, cursor and scroll position of the other lists, by the names of the fields.
    others: Mapping[FleetListing, Mapping[str, Any]] = {}


_INITIAL = {"sort": Sort(), "filter": "", "cursor": None, "top": 0, "follows_cursor": True}
"""What each list keeps while another one is shown."""


def aside(view: FleetView, layout: FleetLayout, step: int) -> FleetView:
    """Move the cursor to the column of hosts beside it."""
    index = layout.index_of(view.cursor)
    if index is None or layout.beside == 1:
        return view
    beside = index + step * layout.room
    visible = layout.visible
    if beside >= len(layout.entries) > visible.start + layout.room * (layout.beside - 1) > index:
        beside = len(layout.entries) - 1
    return move_to(view, layout, beside) if beside in visible else view


def switch_listing(view: FleetView, _: FleetLayout, name: str) -> FleetView:
    """List users or jobs; the name of the current list switches back to hosts."""
    wanted = FleetListing(name)
    return show_list(view, FleetListing.HOSTS if view.listing is wanted else wanted)


def change_side(view: FleetView, _: FleetLayout) -> FleetView:
    """Go to the processes of all hosts, or from these to the hosts."""
    back = view.listing is FleetListing.PROCESSES
    return show_list(view, FleetListing.HOSTS if back else FleetListing.PROCESSES)


def show_list(view: FleetView, listing: FleetListing) -> FleetView:
    """Show another list as it was left."""
    left = {name: getattr(view, name) for name in _INITIAL}
    others = {**view.others, view.listing: left}
    shown = others.pop(listing, _INITIAL)
    return replace(view, listing=listing, others=others, message="", **shown)


def narrow(view: FleetView, text: str) -> FleetView:
    """Change the filter of the list and scroll to the first line."""
    return replace(view, filter=text, top=0, follows_cursor=True)


def narrow_to_user(view: FleetView, user: str | None) -> FleetView | tuple[FleetView, str]:
    """Show the processes of a user; ``None`` is an unknown user."""
    if user is None:
        return view, "the owner of these is not visible there"
    quoted = user.replace('"', '""')
    text = f"user={user}" if user.isalnum() else f'user="{quoted}"'
    return narrow(show_list(view, FleetListing.PROCESSES), text)


def open_job(view: FleetView, key: str) -> FleetView:
    """List the machines of a job."""
    return replace(show_list(view, FleetListing.MACHINES), job=key, cursor=None, top=0)


def clear_choice(view: FleetView) -> FleetView:
    """Clear one choice: the filter, the listing, or the cursor; the same view if there is none."""
    if view.filter:
        return narrow(view, "")
    if view.listing is FleetListing.MACHINES:
        return show_list(view, FleetListing.JOBS)
    if view.listing is not FleetListing.HOSTS:
        return show_list(view, FleetListing.HOSTS)
    if view.cursor is not None or view.top:
        return replace(view, cursor=None, top=0)
    return view


_LEAST_HOST = 64
"""Cells of a column of hosts, where there are several: enough for the state and the main user."""
_CHROME = 4
"""Header, heading, rule and footer."""
HOST_WIDTH = 12
"""Cells of the host in the list of processes."""


HOST_HEADER = replace(HOST_COLUMNS[0], width=HOST_WIDTH)
"""The column of the host before those of a process."""


class FleetEntry(ListEntry, frozen=True):
    """A line of a list."""

    host: HostSummary | None = None  # Of a line of hosts, machines of a job, or processes.
    user: FleetUser | None = None
    job: FleetJob | None = None  # Of a line of jobs, and of a line of its machines.
    node: JobNode | None = None  # Of a line of its machines.
    process: GpuProcess | None = None


class FleetLayout(ListLayout[FleetView, FleetEntry], frozen=True, kw_only=True):
    """Where the screen of a fleet is drawn."""

    hosts: Sequence[HostSummary] = ()  # All hosts.
    # The columns of a host, if hosts are listed.
    host_columns: tuple[Column[HostItem], ...] = ()

    @property
    def sortable(self) -> tuple[Sequence[Column[Any]], str]:
        """See ``ListLayout.sortable``."""
        columns: dict[FleetListing, Sequence[Column[Any]]] = {
            FleetListing.HOSTS: HOST_COLUMNS,
            FleetListing.USERS: FLEET_USER_COLUMNS,
            FleetListing.JOBS: JOB_COLUMNS,
            FleetListing.MACHINES: NODE_COLUMNS,
            FleetListing.PROCESSES: (HOST_HEADER, *COLUMN.values()),
        }
        return columns[self.view.listing], self.view.listing.value


def lay_out(
    memo: Memo,
    hosts: tuple[HostSummary, ...],
    view: FleetView,
    now: float,
    width: int,
    height: int,
) -> FleetLayout:
    """List the lines, and bring the view within bounds; the memo keeps the list."""
    room = max(1, height - _CHROME - view.editing)
    by_host = view.listing is FleetListing.HOSTS
    # Lists of thousands of processes are sorted once a second; of hosts at every change.
    news: object = hosts if by_host else tuple([host.state.status for host in hosts])
    key = (news, int(now), view.listing, view.sort, view.filter, view.job)
    entries = memo.by(key, entries_of, hosts, view, now)
    beside = 1
    if by_host and entries:
        most = max(1, (width + GUTTER) // (_LEAST_HOST + GUTTER))
        beside = min(most, -(-len(entries) // room))
    columns = _process_columns(memo, view, entries, now, (news, int(now)), width)
    headers: Sequence[Column[Any]] = (HOST_HEADER, *columns)
    of_hosts: tuple[Column[HostItem], ...] = ()
    if by_host:
        headers = of_hosts = memo(host_columns, hosts, line_width(width, beside))
    elif view.listing is FleetListing.USERS:
        snapshots = [host.state.snapshot for host in hosts]
        asked = any(seen is not None and seen.allocations is not None for seen in snapshots)
        headers = fleet_user_columns(width, allocated=asked)
    elif view.listing is FleetListing.JOBS:
        headers = job_columns(width)
    elif view.listing is FleetListing.MACHINES:
        headers = node_columns(width)
    layout = FleetLayout(
        view=view,
        entries=entries,
        headers=headers,
        columns=columns,
        width=width,
        room=room,
        beside=beside,
        hosts=hosts,
        host_columns=of_hosts,
    )
    index = layout.index_of(view.cursor)
    # A host that a filter hides, or that has gone, leaves no key to act on another one.
    cursor = None if index is None else view.cursor
    top = layout.bounded_top(view.top, index if view.follows_cursor else None)
    if (top, cursor) == (view.top, view.cursor):
        return layout
    return replace(layout, view=replace(view, top=top, cursor=cursor))


def _process_columns(
    memo: Memo,
    view: FleetView,
    entries: Sequence[FleetEntry],
    now: float,
    news: object,
    width: int,
) -> tuple[Column[ProcessItem], ...]:
    """The columns of processes after the host; none if something else is listed."""
    if view.listing is not FleetListing.PROCESSES:
        return ()
    return steady_columns(
        memo,
        news,
        (view.filter, view.columns, width),
        now,
        process_columns(view.columns),
        _process_items(entries),
        max(1, width - HOST_WIDTH - 1),
        view.sort.column,
        first_maker().load_word,
    )


def _process_items(entries: Sequence[FleetEntry]) -> Iterator[ProcessItem]:
    contexts: dict[str, RowContext] = {}
    for entry in entries:
        if entry.process is None or entry.host is None:
            continue
        context = contexts.get(entry.host.name)
        if context is None:
            context = contexts[entry.host.name] = row_context(entry.host)
        yield ProcessItem(entry.process, context)


def entries_of(hosts: Sequence[HostSummary], view: FleetView, now: float) -> list[FleetEntry]:
    """The lines of the current list that pass its filter, sorted."""
    if view.listing is FleetListing.HOSTS:
        selection = parse(view.filter, HOSTS)
        shown = [host for host in hosts if selection.matches(host, now)]
        ordered = by_column(map(HostItem, shown), HOST_COLUMNS, view.sort)
        return [FleetEntry(item.host.name, item.host) for item in ordered]
    if view.listing is FleetListing.USERS:
        return [FleetEntry(use.user or "", user=use) for use in _users(hosts, view.sort)]
    if view.listing is FleetListing.JOBS:
        return _jobs(hosts, view.filter, view.sort, now)
    if view.listing is FleetListing.MACHINES:
        return _machines(hosts, view.job, view.sort)
    return _processes(hosts, view.filter, view.sort)


def _users(hosts: Sequence[HostSummary], sort: Sort) -> list[FleetUser]:
    owned: dict[str | None, list[tuple[str, UserUse | Owner]]] = {}
    for host in hosts:
        for use in host.users if host.is_live else ():
            owned.setdefault(use.user, []).append((host.name, use))
    found = [_user(user, uses) for user, uses in owned.items()]
    by_name = sorted(found, key=lambda use: use.user or "")
    return by_column(by_name, FLEET_USER_COLUMNS, sort)


def _user(user: str | None, uses: Sequence[tuple[str, UserUse | Owner]]) -> FleetUser:
    by_memory = sorted(uses, key=lambda use: -(use[1].memory or 0))
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
        known_sum(unused_count(use.allocated) for use in seen),
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
        filter_context = _filter_context(host, context)
        value_of = None if sort.column == "host" else sort_value(sort.column, context)
        found += [
            (process, host, host.index if value_of is None else value_of(process))
            for process in snapshot.processes
            if selection is None or selection.matches(process, filter_context)
        ]
    # Rows alike in these two stay with their host.
    if sort.column not in {"host", "idle"}:
        found.sort(key=lambda found_process: by_pid(found_process[0]))
    ranked = in_order(found, lambda known: known[2], descending=sort.descending)
    return [
        FleetEntry((host.name, process.id), host, process=process) for process, host, _ in ranked
    ]


def _jobs(hosts: Sequence[HostSummary], text: str, sort: Sort, now: float) -> list[FleetEntry]:
    """The jobs of all live hosts. A filter selects those of which it selects a process."""
    selection = parse(text, FLEET_PROCESSES)
    items = [
        JobItem(job, now)
        for job in fleet_jobs(hosts)
        if not selection.text.strip() or any(_is_selected(node, selection) for node in job.nodes)
    ]
    ordered = by_column(sorted(items, key=lambda item: item.job.label), JOB_COLUMNS, sort)
    return [FleetEntry(item.job.key, job=item.job) for item in ordered]


def _is_selected(node: JobNode, selection: FleetProcessFilter) -> bool:
    snapshot = node.host.state.snapshot
    if node.group is None or snapshot is None:
        return False
    context = _filter_context(node.host, row_context(node.host))
    members = node.group.members(snapshot.gpus)
    return any(selection.matches(process, context) for process in members)


def _machines(hosts: Sequence[HostSummary], key: str, sort: Sort) -> list[FleetEntry]:
    """The machines of a job; none once it has ended."""
    return [
        FleetEntry(node.host.name, node.host, job=job, node=node)
        for job in fleet_jobs(hosts, key)
        for node in by_column(job.nodes, NODE_COLUMNS, sort)
    ]


def _filter_context(host: HostSummary, context: RowContext) -> FilterContext:
    snapshot = host.state.snapshot
    allocations = () if snapshot is None else snapshot.allocations or ()
    return FilterContext(
        context.now, context.idle_seconds, context.idle_after, host.name, allocations
    )


def row_context(host: HostSummary) -> RowContext:
    """What the rows of a host's processes need."""
    snapshot, history = host.state.snapshot, host.history
    assert snapshot is not None  # noqa: S101 - a host with processes has one
    assert history is not None  # noqa: S101 - a host with processes has one
    return RowContext(
        snapshot.time,
        cache(history.process_idle),
        history.thresholds.idle_after,
        snapshot.host.memory_total,
    )
