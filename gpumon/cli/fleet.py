"""Functions of the commands that read several machines (``--hosts``, ``--prometheus``)."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gpumon.cli.common import print_text
from gpumon.cli.messages import EXIT_FAILED, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gpumon.config.settings import Hosts, Prometheus
    from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostState
    from gpumon.fleet.ssh_fleet import SshFleet
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.prometheus import PrometheusFleet

_INTERVAL = 0.25
"""Seconds between samples of hosts of which one sample is wanted."""


def open_fleet(options: argparse.Namespace, interval: float, patience: float = math.inf) -> Fleet:
    """The fleet of ``--hosts`` or ``--prometheus``, before it connects.

    Args:
        options: The command line.
        interval: Seconds between samples.
        patience: Seconds that an answer about a process is waited for at most.

    Raises:
        FleetError: The hosts, the ssh client, the URL or a file with a secret cannot be read.
    """
    from gpumon.config import load

    loaded = load()
    for error in loaded.errors:
        say(error.sentence)
    if options.prometheus is not None:
        return _prometheus_fleet(options, loaded.settings.prometheus, interval)
    return _ssh_fleet(options, loaded.settings.hosts, interval, patience)


def _prometheus_fleet(
    options: argparse.Namespace, settings: Prometheus, interval: float
) -> PrometheusFleet:
    from gpumon.prometheus import PrometheusFleet, read_endpoint, read_match

    match = options.match
    endpoint = read_endpoint(options.prometheus, settings)
    return PrometheusFleet(
        endpoint, read_match(settings.match if match is None else match), interval
    )


def _ssh_fleet(
    options: argparse.Namespace, settings: Hosts, interval: float, patience: float
) -> SshFleet:
    from gpumon.fleet.host_names import read_hosts
    from gpumon.fleet.ssh import SshClient, read_client
    from gpumon.fleet.ssh_fleet import SshFleet

    client = SshClient(
        read_client(settings.ssh if options.ssh is None else options.ssh),
        settings.command,
        {
            host: command
            for hosts, command in settings.commands.items()
            for host in read_hosts(hosts, settings.groups)
        },
    )
    return SshFleet(read_hosts(options.hosts, settings.groups), interval, client, patience)


@contextmanager
def connected(options: argparse.Namespace, patience: float = math.inf) -> Iterator[Fleet]:
    """The fleet of the command line for one sample, connected until the end of the block.

    Args:
        options: The command line.
        patience: See ``open_fleet``.

    Raises:
        FleetError: See ``open_fleet``.
    """
    fleet = open_fleet(options, _INTERVAL, patience)
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.close()


def print_hosts(
    options: argparse.Namespace, form: str, thresholds: Thresholds, *, by_process: bool
) -> int:
    """Print one sample of each host; the exit status: 1 if any has not answered.

    Args:
        options: The command line.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        thresholds: Thresholds of the findings in the table.
        by_process: With ``csv``: one row per process and GPU.

    Raises:
        FleetError: See ``open_fleet``.
    """
    from msgspec.structs import replace

    from gpumon.cli.options import TIMEOUT
    from gpumon.cli.snapshot import NOT_WATCHED, narrowed
    from gpumon.fleet.answers import answers, missing
    from gpumon.fleet.export import named
    from gpumon.fleet.fleet import HostOrigin

    patience = options.timeout or TIMEOUT
    user, chosen = options.user, options.filter
    with connected(options) as fleet:
        found = answers(fleet, patience)
    absent = {host.name: sentence for host in found.hosts if (sentence := missing(host, patience))}
    asked: list[object] = []
    hosts: list[_Shown] = []
    for host in found.hosts:
        snapshot = None if host.name in absent else named(host)
        if snapshot is None:
            hosts.append(_Shown(replace(host, snapshot=None), None, ()))
        else:
            shown, words = narrowed(snapshot, user, chosen, asked.append)
            kept = replace(snapshot, processes=tuple(shown))
            hosts.append(_Shown(replace(host, snapshot=kept), snapshot, words))
    fleet_now = replace(found, hosts=tuple([one.host for one in hosts]))
    status = print_text(
        _table(hosts, thresholds) if form == "table" else _exported(fleet_now, form, by_process)
    )
    for name, sentence in absent.items():
        say(f"{name}: {sentence}")
    for host in found.hosts if form == "table" else ():
        if host.origin is HostOrigin.NVIDIA_SMI and host.name not in absent:
            say(f"{host.name}: {host.sentence}")
    if asked:
        say(NOT_WATCHED)
    return status or (EXIT_FAILED if absent else 0)


class _Shown(NamedTuple):
    """A host as it is printed.

    Attributes:
        host: The host with the processes to show.
        whole: Its snapshot with all processes.
        words: The filters that selected them, in words.
    """

    host: HostState
    whole: Snapshot | None
    words: Sequence[str]


def _table(hosts: Sequence[_Shown], thresholds: Thresholds) -> str:
    from gpumon.ui.view.snapshot_table import table

    return "\n".join(
        table(one.whole, one.host.snapshot.processes, one.words, sys.stdout, thresholds)
        for one in hosts
        if one.whole is not None and one.host.snapshot is not None
    )


def _exported(fleet: FleetSnapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.fleet.export import fleet_json

        return fleet_json(fleet)
    if form == "csv":
        from gpumon.fleet.export import fleet_csv

        return fleet_csv(fleet.hosts, by_process=by_process)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(*[host.snapshot for host in fleet.hosts if host.snapshot is not None])
