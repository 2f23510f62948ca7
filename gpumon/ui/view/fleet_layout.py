"""The layout of a fleet's screen: the lines of the list, and a view within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpumon.config.columns import COLUMN
from gpumon.text.table import GUTTER, line_width
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS, host_columns
from gpumon.ui.view.fleet_lists import FleetEntry, entries_of
from gpumon.ui.view.fleet_view import FleetListing, FleetView
from gpumon.ui.view.list_view import ListLayout
from gpumon.ui.view.process_table import visible_columns
from gpumon.ui.view.user_table import FLEET_USER_COLUMNS, fleet_user_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.fleet.summary import HostSummary
    from gpumon.text.table import Column
    from gpumon.ui.view.fleet_hosts import HostItem
    from gpumon.ui.view.memo import Memo

_LEAST_HOST = 64
"""Cells of a column of hosts, where there are several: enough for the state and the main user."""
_CHROME = 4
"""Header, heading, rule and footer."""
HOST_WIDTH = 12
"""Cells of the host in the list of processes."""


HOST_HEADER = replace(HOST_COLUMNS[0], width=HOST_WIDTH)
"""The column of the host before those of a process."""


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
    news: object = hosts if by_host else tuple([one.state.status for one in hosts])
    key = (news, int(now), view.listing, view.sort, view.filter)
    entries = memo.by(key, entries_of, hosts, view, now)
    beside = 1
    if by_host and entries:
        most = max(1, (width + GUTTER) // (_LEAST_HOST + GUTTER))
        beside = min(most, -(-len(entries) // room))
    columns = visible_columns(max(1, width - HOST_WIDTH - 1), view.columns)
    headers: Sequence[Column[Any]] = (HOST_HEADER, *columns)
    of_hosts: tuple[Column[HostItem], ...] = ()
    if by_host:
        headers = of_hosts = memo(host_columns, hosts, line_width(width, beside))
    elif view.listing is FleetListing.USERS:
        headers = fleet_user_columns(width)
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
