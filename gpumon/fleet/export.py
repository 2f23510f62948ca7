"""The hosts of a fleet as JSON, CSV and in Prometheus' text format.

Each format is that of one machine, with the name of the host as the user wrote it. The schema of
the JSON is ``gpumon.fleet/1``: an object for each host, whose ``snapshot`` is an object of the
schema ``gpumon.snapshot/1``, or ``null`` if the host has not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.export.as_csv import gpus_csv, processes_csv
from gpumon.export.as_json import encoded, snapshot_json
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.fleet.fleet import FleetSnapshot, HostState
    from gpumon.model.snapshot import Snapshot

SCHEMA = "gpumon.fleet/1"
"""The value of the key ``schema``."""


def fleet_json(fleet: FleetSnapshot) -> str:
    """All hosts, in the order in which the user named them, with a line break at the end."""
    hosts = [_host(host) for host in fleet.hosts]
    return encoded({"schema": SCHEMA, "time_unix_seconds": fleet.time, "hosts": hosts}, 2) + "\n"


def _host(host: HostState) -> dict[str, object]:
    return {
        "name": host.name,
        "status": host.status,
        "since_unix_seconds": host.since,
        "sentence": host.sentence,
        "origin": host.origin,
        "version": host.version,
        "received_at_unix_seconds": host.received_at,
        "snapshot": None if host.snapshot is None else snapshot_json(host.snapshot),
    }


def fleet_csv(hosts: Sequence[HostState], *, by_process: bool) -> str:
    """The rows of all hosts below one header, with the column ``hostname`` after the timestamp.

    Args:
        hosts: The hosts; those without a snapshot have no rows.
        by_process: Whether a row is a process on a GPU instead of a GPU.
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
