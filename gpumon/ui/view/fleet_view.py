"""The view of a fleet: what the user has chosen to see of many hosts. An immutable value."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.model.processes import ProcessId
from gpumon.text.table import Sort
from gpumon.ui.view.view import ScreenView

FleetKey: TypeAlias = str | tuple[str, ProcessId]
"""Identifies a line: the name of a host or of a user, or a process with its host."""


class FleetListing(str, Enum):
    """The kinds of lists."""

    HOSTS = "hosts"
    USERS = "users"
    PROCESSES = "processes"


class ListView(Struct, frozen=True):
    """What the user has chosen of one list; each list keeps its own.

    Attributes:
        sort: The order.
        filter: The text of the filter, which is valid.
        cursor: The line under the cursor.
        top: Number of lines scrolled away.
        follows_cursor: Whether the list scrolls with the cursor; the mouse wheel ends this.
    """

    sort: Sort
    filter: str = ""
    cursor: FleetKey | None = None
    top: int = 0
    follows_cursor: bool = True


class FleetView(ScreenView, frozen=True):
    """What the user has chosen to see; the functions of ``fleet_update`` return the next view.

    Attributes:
        interval: Seconds between samples of a host.
        listing: What is listed.
        hosts: The state of the list of hosts.
        users: That of the list of users.
        processes: That of the list of processes.
        columns: Keys of the columns of processes.
    """

    interval: float
    listing: FleetListing = FleetListing.HOSTS
    hosts: ListView = ListView(Sort("host", descending=False))
    users: ListView = ListView(Sort("memory_used"))
    processes: ListView = ListView(Sort("memory_used"))
    columns: tuple[str, ...] = DEFAULT_COLUMNS

    @property
    def current(self) -> ListView:
        """The state of the current list."""
        listed: ListView = getattr(self, self.listing.value)
        return listed


def with_list(view: FleetView, listed: ListView) -> FleetView:
    """The view with another state of the current list."""
    return replace(view, **{view.listing.value: listed})
