"""What the user has chosen to see of many hosts, and the next view for each of its keys.

Only keys that other lists do not have are here; the functions are called as those of ``list_view``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpumon.text.table import Sort
from gpumon.ui.view.list_view import ListView, move_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.ui.view.fleet_layout import FleetLayout


class FleetListing(str, Enum):
    """The kinds of lists."""

    HOSTS = "hosts"
    USERS = "users"
    PROCESSES = "processes"


class FleetView(ListView, frozen=True, kw_only=True):
    """What the user has chosen to see; the functions of ``fleet_update`` return the next view."""

    listing: FleetListing = FleetListing.HOSTS
    sort: Sort = Sort("host", descending=False)
    filter: str = ""  # The text of the list's filter, which is valid.
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
    """List users; the name of the current list switches back to hosts."""
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
        return view, "whose these are is not visible there"
    quoted = user.replace('"', '""')
    text = f"user={user}" if user.isalnum() else f'user="{quoted}"'
    return narrow(show_list(view, FleetListing.PROCESSES), text)


def clear_choice(view: FleetView) -> FleetView:
    """Clear one choice: the filter, the listing, or the cursor; the same view if there is none."""
    if view.filter:
        return narrow(view, "")
    if view.listing is not FleetListing.HOSTS:
        return show_list(view, FleetListing.HOSTS)
    if view.cursor is not None or view.top:
        return replace(view, cursor=None, top=0)
    return view
