"""The view of a fleet: what the user has chosen to see of many hosts. An immutable value."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from gpumon.text.table import Sort
from gpumon.ui.view.list_view import ListView

if TYPE_CHECKING:
    from collections.abc import Mapping


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
