"""One answer of each host, within bounded time, for commands without a screen, and its formats.

Each format is that of one machine, with the name of the host as the user wrote it. The schema of
the JSON is ``gpumon.fleet/1``: an object for each host, whose ``snapshot`` is an object of the
schema ``gpumon.snapshot/1``, or ``null`` if the host has not answered.
"""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.export.as_csv import gpus_csv, processes_csv
from gpumon.export.as_json import encoded, snapshot_json
from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostState
    from gpumon.model.snapshot import Snapshot

SCHEMA = "gpumon.fleet/1"
"""The value of the key ``schema``."""
_LOOKUP_SECONDS = 1.5
"""How long after its first sample a host may look up what a driver does not know."""


def changes(fleet: Fleet, patience: float) -> Iterator[FleetSnapshot]:
    """The hosts of a started fleet now, after every change, and once more after ``patience``."""
    changed = Event()
    end = fleet.subscribe(changed.set)
    deadline = time.monotonic() + patience
    try:
        while True:
            changed.clear()
            yield fleet.latest()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            changed.wait(left)
    finally:
        end()


def answers(fleet: Fleet, patience: float) -> FleetSnapshot:
    """The hosts of a started fleet once each has answered or is down, or after ``patience``."""
    for hosts in changes(fleet, patience):
        if all(is_settled(host) for host in hosts.hosts):
            break
    return hosts


def is_settled(host: HostState) -> bool:
    """Whether a host has answered completely, or is known not to answer.

    The first sample of a host comes before it has looked up where its processes run, and which GPUs
    are reserved or allocated.
    """
    if host.status is HostStatus.DOWN:
        return True
    if host.snapshot is None or host.received_at is None:
        return False
    if host.origin is not HostOrigin.GPUMON or host.snapshot.trouble is not None:
        return True
    if host.received_at - host.since > _LOOKUP_SECONDS:
        return True
    is_placed = all(
        process.place is not None for process in host.snapshot.processes if process.visible
    )
    # What is so unknown has not been looked up yet, or cannot be.
    given = host.snapshot.allocations or ()
    is_asked = all(each.job or each.unplaced is not None for each in given)
    is_read = host.snapshot.reserved_at is not None
    return host.received_at > host.since and is_placed and is_asked and is_read


def missing(host: HostState, patience: float) -> str:
    """Why a host, after ``patience`` seconds, has no GPUs, as a sentence; empty if it has."""
    if host.status is HostStatus.DOWN:
        return host.sentence
    if host.snapshot is None:
        return host.sentence or f"no answer within {patience:g}s"
    trouble = host.snapshot.trouble
    return "" if trouble is None else trouble.sentence.rstrip(".")


def fleet_json(fleet: FleetSnapshot) -> str:
    """All hosts, in the order in which the user named them, with a line break at the end."""
    hosts = [_host(host) for host in fleet.hosts]
    return encoded({"schema": SCHEMA, "time_unix_seconds": fleet.time, "hosts": hosts}, 2) + "\n"


def _host(host: HostState) -> dict[str, object]:
    return {
        "name": host.name,
        "status": host.status,
        "since_unix_seconds": host.since,
        "sentence": host.remark,
        "origin": host.origin,
        "version": host.version,
        "received_at_unix_seconds": host.received_at,
        "snapshot": None if host.snapshot is None else snapshot_json(host.snapshot),
    }


def fleet_csv(hosts: Sequence[HostState], *, by_process: bool) -> str:
    """The rows of all hosts below one header, with the column ``hostname`` after the timestamp.

    With ``by_process`` a row is a process on a GPU instead of a GPU.
    """
    rows: list[str] = []
    for host in hosts:
        if host.snapshot is not None:
            text = (processes_csv if by_process else gpus_csv)(host.snapshot)
            header, *lines = text.splitlines()
            rows = rows or [_with_cell(header, "hostname")]
            # A name has no comma and no quote.
            rows += [_with_cell(line, spreadsheet_safe(host.name)) for line in lines]
    return "".join(f"{row}\n" for row in rows)


def _with_cell(row: str, cell: str) -> str:
    first, _, rest = row.partition(",")
    return f"{first},{cell},{rest}"


def named(host: HostState) -> Snapshot | None:
    """The snapshot of a host, with the name by which the user knows the host."""
    snapshot = host.snapshot
    if snapshot is None:
        return None
    return replace(snapshot, host=replace(snapshot.host, name=host.name))
