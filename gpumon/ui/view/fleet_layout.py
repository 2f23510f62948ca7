"""The layout of a fleet's screen: the lines of the list, and a view within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from gpumon.text.table import GUTTER, line_width
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS, host_columns
from gpumon.ui.view.fleet_lists import entries_of
from gpumon.ui.view.fleet_view import FleetListing, with_list
from gpumon.ui.view.process_table import visible_columns
from gpumon.ui.view.user_table import fleet_user_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.fleet.summary import HostSummary
    from gpumon.text.process_columns import ProcessItem
    from gpumon.text.table import Column
    from gpumon.ui.view.fleet_hosts import HostItem
    from gpumon.ui.view.fleet_lists import FleetEntry
    from gpumon.ui.view.fleet_view import FleetKey, FleetView
    from gpumon.ui.view.memo import Memo

_LEAST_HOST = 64
"""Cells of a column of hosts, where there are several: enough for the state and the main user."""
_CHROME = 4
"""Header, heading, rule and footer."""
HOST_WIDTH = 12
"""Cells of the host in the list of processes."""


HOST_HEADER = replace(HOST_COLUMNS[0], width=HOST_WIDTH)
"""The column of the host before those of a process."""


class FleetLayout(Struct, frozen=True):
    """Where everything is drawn. Keys and clicks are resolved against it.

    Attributes:
        view: The view with its cursor and scroll position within bounds.
        hosts: All hosts.
        entries: The lines of the list.
        headers: The columns of a line.
        host_columns: The columns of a host, if hosts are listed.
        columns: The columns of a process.
        beside: Number of columns of lines.
        room: Rows for lines.
        width: Cells of the screen.
    """

    view: FleetView
    hosts: Sequence[HostSummary] = ()
    entries: Sequence[FleetEntry] = ()
    headers: Sequence[Column[Any]] = ()
    host_columns: tuple[Column[HostItem], ...] = ()
    columns: tuple[Column[ProcessItem], ...] = ()
    beside: int = 1
    room: int = 0
    width: int = 0

    @property
    def line_width(self) -> int:
        """Cells of one line."""
        return line_width(self.width, self.beside)

    def index_of(self, key: FleetKey | None) -> int | None:
        """The index of a line."""
        if key is None:
            return None
        return next((at for at, entry in enumerate(self.entries) if entry.key == key), None)

    @property
    def entry(self) -> FleetEntry | None:
        """The line under the cursor."""
        index = self.index_of(self.view.current.cursor)
        return None if index is None else self.entries[index]

    @property
    def visible(self) -> range:
        """The indices of the visible lines."""
        top = self.view.current.top
        return range(top, min(len(self.entries), top + self.beside * self.room))

    def within_line(self, x: int) -> int:
        """A cell of the screen as a cell of its line."""
        return x % (self.line_width + GUTTER) if self.beside > 1 else x

    def line_at(self, x: int, y: int) -> int | None:
        """The index of the line at a cell of the list, whose first row is ``y`` 0."""
        column = min(self.beside - 1, x // (self.line_width + GUTTER))
        index = self.view.current.top + column * self.room + y
        return index if 0 <= y < self.room and index in self.visible else None


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
    listed = view.current
    by_host = view.listing is FleetListing.HOSTS
    # Lists of thousands of processes are sorted once a second; of hosts at every change.
    news: object = hosts if by_host else tuple([one.state.status for one in hosts])
    key = (news, int(now), view.listing, listed.sort, listed.filter)
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
    layout = FleetLayout(view, hosts, entries, headers, of_hosts, columns, beside, room, width)
    return replace(layout, view=_within_bounds(layout))


def _within_bounds(layout: FleetLayout) -> FleetView:
    """Keep the cursor on its line and the line visible, and limit scrolling to the end."""
    listed = layout.view.current
    index, top = layout.index_of(listed.cursor), listed.top
    in_sight = layout.room * layout.beside
    if index is not None and listed.follows_cursor:
        top = max(min(top, index), index - in_sight + 1)
    top = max(0, min(top, len(layout.entries) - in_sight))
    # A host that a filter hides, or that has gone, leaves no key to act on another one.
    cursor = None if index is None else listed.cursor
    if (top, cursor) == (listed.top, listed.cursor):
        return layout.view
    return with_list(layout.view, replace(listed, top=top, cursor=cursor))
