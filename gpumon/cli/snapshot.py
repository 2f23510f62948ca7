"""``gpumon snapshot``: print one sample, of this machine or of several.

The dashboard imports this if standard output is not a terminal, without argparse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import FleetOptions, SampleOptions
from gpumon.cli.option_groups import ASCII, Option, output_format
from gpumon.cli.output import EXIT_FAILED, configure_output, load_settings, print_text, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gpumon.filters.terms import Filter
    from gpumon.fleet.fleet import FleetSnapshot, HostState
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds

_NOT_WATCHED = (
    "one sample cannot show idle processes: use this filter with gpumon, without snapshot"
)


class SnapshotCommand(Command):
    description = "Print one sample and exit. docs/snapshot.md describes the formats."
    without_gc = True
    machine = SampleOptions(user=True, filtered=True)
    fleet = FleetOptions(
        ("--user", "--filter", "--format", "--processes"),
        ("--format",),  # which has no processes
        timeout=True,
    )
    groups = (machine, ASCII, fleet)
    options = (
        Option(
            "--processes",
            action="store_true",
            help="with --format csv: a row for each process and GPU instead of a row for each GPU",
        ),
        output_format("json", "csv", "prometheus"),
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if options.processes and options.format != "csv":
            return "--processes needs --format csv; the other formats contain processes anyway."
        # An empty filter leaves out nothing.
        selects = options.user is not None or (options.filter is not None and options.filter.text)
        if options.format == "csv" and selects and not options.processes:
            return (
                "--user and --filter select processes, and --format csv has GPUs: add --processes."
            )
        return None

    def run(self, options: argparse.Namespace) -> int:
        return print_sample(options, options.format, by_process=options.processes)


def print_sample(options: argparse.Namespace, form: str, *, by_process: bool) -> int:
    """Print one sample in a format; the exit status.

    Args:
        options: The command line, of ``gpumon snapshot`` or of the dashboard.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        by_process: With ``csv``: one row per process and GPU.
    """
    from msgspec.structs import replace

    from gpumon.model.thresholds import DEFAULTS
    from gpumon.sampling.gpu_sampler import take_one

    # Output for programs does not depend on the configuration.
    thresholds = load_settings().thresholds if form == "table" else DEFAULTS
    configure_output(options, form)
    if SnapshotCommand.fleet.asked(options) is not None:
        return _print_hosts(options, form, thresholds, by_process=by_process)
    machine = SnapshotCommand.machine.open(options, profiled=False)
    snapshot = take_one(machine.source)
    if by_process or form in {"table", "json"}:
        from gpumon.sampling.enrichment import Lookup

        lookup = Lookup.of(machine)
        snapshot = lookup.look_once(snapshot)
    if form in {"json", "prometheus"} and machine.name is None and snapshot.is_live:
        from gpumon.host.network_watch import NetworkWatch

        # One sample is too short for them.
        snapshot = replace(snapshot, host=replace(snapshot.host, nics=NetworkWatch().first()))
    asked: list[ProcessId] = []
    user = options.user
    shown, filters = _filtered(snapshot, user, options.filter, asked.append)
    if form == "table":
        from gpumon.ui.view.snapshot_table import table

        text = table(snapshot, shown, filters, sys.stdout, thresholds)
    else:
        text = _exported(replace(snapshot, processes=tuple(shown)), form, by_process)
    status = print_text(text)
    if asked:
        say(_NOT_WATCHED)
    if user is not None and all(process.user != user for process in snapshot.processes):
        say(f"{user} has no process on these GPUs")
    return status


def _filtered(
    snapshot: Snapshot,
    user: str | None,
    filter_: Filter | None,
    idle: Callable[[ProcessId], None],
) -> tuple[Sequence[GpuProcess], Sequence[str]]:
    """The processes to show, and the filters in words.

    Args:
        snapshot: The sample.
        user: Only this user's.
        filter_: Only those that it matches.
        idle: Called for how long a process has been idle, which one sample does not show.
    """
    if user is None and filter_ is None:
        return snapshot.processes, ()
    from gpumon.filters.terms import FilterContext
    from gpumon.ui.view.process_filter import ProcessFilter

    process_filter = ProcessFilter(user=user, filter=filter_)
    context = FilterContext(snapshot.time, idle, allocations=snapshot.allocations or ())
    shown = process_filter.apply(snapshot.processes, context)
    return shown, process_filter.words(snapshot.processes)


def _exported(snapshot: Snapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.export.as_json import to_json

        return to_json(snapshot, indent=2) + "\n"
    if form == "csv":
        from gpumon.export.as_csv import gpus_csv, processes_csv

        return processes_csv(snapshot) if by_process else gpus_csv(snapshot)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(snapshot)


def _print_hosts(
    options: argparse.Namespace, form: str, thresholds: Thresholds, *, by_process: bool
) -> int:
    """Print one sample of each host; the exit status: 1 if any has not answered.

    Raises:
        FleetError: See ``FleetOptions.open``.
    """
    from msgspec.structs import replace

    from gpumon.fleet.answers import answers, missing, named
    from gpumon.fleet.fleet import HostOrigin

    patience = SnapshotCommand.fleet.patience(options)
    with SnapshotCommand.fleet.connected(options) as fleet:
        found = answers(fleet, patience)
    absent = {host.name: sentence for host in found.hosts if (sentence := missing(host, patience))}
    asked: list[object] = []
    hosts: list[HostState] = []
    texts: list[str] = []
    for host in found.hosts:
        snapshot = None if host.name in absent else named(host)
        if snapshot is None:
            hosts.append(replace(host, snapshot=None))
            continue
        shown, filters = _filtered(snapshot, options.user, options.filter, asked.append)
        hosts.append(replace(host, snapshot=replace(snapshot, processes=tuple(shown))))
        if form == "table":
            from gpumon.ui.view.snapshot_table import table

            texts.append(table(snapshot, shown, filters, sys.stdout, thresholds))
    found_hosts = replace(found, hosts=tuple(hosts))
    text = "\n".join(texts) if form == "table" else _exported_hosts(found_hosts, form, by_process)
    status = print_text(text)
    for name, sentence in absent.items():
        say(f"{name}: {sentence}")
    for host in found.hosts if form == "table" else ():
        if host.origin is HostOrigin.NVIDIA_SMI and host.name not in absent:
            say(f"{host.name}: {host.sentence}")
        if host.note and host.name not in absent:
            say(f"{host.name}: {host.note}")
    if asked:
        say(_NOT_WATCHED)
    return status or (EXIT_FAILED if absent else 0)


def _exported_hosts(fleet: FleetSnapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.fleet.answers import fleet_json

        return fleet_json(fleet)
    if form == "csv":
        from gpumon.fleet.answers import fleet_csv

        return fleet_csv(fleet.hosts, by_process=by_process)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(*[host.snapshot for host in fleet.hosts if host.snapshot is not None])
