"""Pure functions that return the next view of a fleet, one for each key or click that changes it.

Each takes the view and the layout of the last drawing, which the key refers to. Some also return a
message for the footer, shown for a few seconds; the empty message removes the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpumon.config.columns import COLUMN
from gpumon.text.table import column_beside, next_sort
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS
from gpumon.ui.view.fleet_layout import HOST_HEADER
from gpumon.ui.view.fleet_view import FleetListing, with_list
from gpumon.ui.view.user_table import FLEET_USER_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.text.table import Column
    from gpumon.ui.view.fleet_layout import FleetLayout
    from gpumon.ui.view.fleet_view import FleetView


def move(view: FleetView, layout: FleetLayout, step: int) -> FleetView:
    """Move the cursor by lines; the first press only shows it."""
    index = layout.index_of(view.current.cursor)
    return move_to(view, layout, view.current.top if index is None else index + step)


def page(view: FleetView, layout: FleetLayout, pages: int) -> FleetView:
    """Move the cursor by the height of the list."""
    return move(view, layout, pages * layout.room)


def aside(view: FleetView, layout: FleetLayout, step: int) -> FleetView:
    """Move the cursor to the column of hosts beside it."""
    index = layout.index_of(view.current.cursor)
    if index is None or layout.beside == 1:
        return view
    beside = index + step * layout.room
    visible = layout.visible
    if beside >= len(layout.entries) > visible.start + layout.room * (layout.beside - 1) > index:
        beside = len(layout.entries) - 1
    return move_to(view, layout, beside) if beside in visible else view


def move_to_end(view: FleetView, layout: FleetLayout, end: int) -> FleetView:
    """Move the cursor to the first or last line."""
    return move_to(view, layout, 0 if end < 0 else len(layout.entries) - 1)


def move_to(view: FleetView, layout: FleetLayout, index: int) -> FleetView:
    """Move the cursor to a line, or to the nearest one."""
    if not layout.entries:
        return view
    key = layout.entries[max(0, min(index, len(layout.entries) - 1))].key
    listed = replace(view.current, cursor=key, follows_cursor=True)
    return with_list(replace(view, message=""), listed)


def scroll(view: FleetView, _: FleetLayout, lines: int) -> FleetView:
    """Scroll the list away from the cursor."""
    top = view.current.top + lines
    return with_list(view, replace(view.current, top=top, follows_cursor=False))


def switch_listing(view: FleetView, _: FleetLayout, name: str) -> FleetView:
    """List users; the name of the current list switches back to hosts."""
    wanted = FleetListing(name)
    if view.listing is wanted:
        wanted = FleetListing.HOSTS
    return replace(view, listing=wanted, message="")


def change_side(view: FleetView, _: FleetLayout) -> FleetView:
    """Go to the processes of all hosts, or from these to the hosts."""
    back = view.listing is FleetListing.PROCESSES
    listing = FleetListing.HOSTS if back else FleetListing.PROCESSES
    return replace(view, listing=listing, message="")


def narrow(view: FleetView, text: str) -> FleetView:
    """Change the filter of the list and scroll to the first line."""
    return with_list(view, replace(view.current, filter=text, top=0, follows_cursor=True))


def narrow_to_user(view: FleetView, user: str | None) -> FleetView | tuple[FleetView, str]:
    """Show the processes of a user; ``None`` is an unknown user."""
    if user is None:
        return view, "whose these are is not visible there"
    quoted = user.replace('"', '""')
    text = f"user={user}" if user.isalnum() else f'user="{quoted}"'
    return narrow(replace(view, listing=FleetListing.PROCESSES, message=""), text)


def clear_choice(view: FleetView) -> FleetView:
    """Clear one choice: the filter, the listing, or the cursor; the same view if there is none."""
    if view.current.filter:
        return narrow(view, "")
    if view.listing is not FleetListing.HOSTS:
        return replace(view, listing=FleetListing.HOSTS)
    if view.current.cursor is not None or view.current.top:
        return with_list(view, replace(view.current, cursor=None, top=0))
    return view


def _headers(listing: FleetListing) -> Sequence[Column[Any]]:
    """All columns of a list, whether or not they fit."""
    if listing is FleetListing.HOSTS:
        return HOST_COLUMNS
    if listing is FleetListing.USERS:
        return FLEET_USER_COLUMNS
    return HOST_HEADER, *COLUMN.values()


def sort(view: FleetView, _: FleetLayout, column: str) -> tuple[FleetView, str]:
    """Sort by a column; if the list is sorted by it already, reverse the order."""
    listed = view.current
    chosen = next((one for one in _headers(view.listing) if one.key == column), None)
    if chosen is None:
        label = COLUMN[column].label if column in COLUMN else column.upper()
        return view, f"{label} is no column of {view.listing.value}"
    order, message = next_sort(listed.sort, chosen)
    return with_list(view, replace(listed, sort=order, follows_cursor=True)), message


def sort_step(view: FleetView, layout: FleetLayout, step: int) -> FleetView | tuple[FleetView, str]:
    """Sort by the next visible column, or by the one before."""
    column = column_beside(layout.headers, view.current.sort, step)
    return view if column is None else sort(view, layout, column)


def reverse(view: FleetView, layout: FleetLayout) -> tuple[FleetView, str]:
    """Reverse the order."""
    return sort(view, layout, view.current.sort.column)
