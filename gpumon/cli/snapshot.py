"""``gpumon snapshot``: print one sample.

The dashboard imports this if standard output is not a terminal, without argparse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.api.local import reservations
from gpumon.cli.common import (
    fleet_option,
    print_text,
    source_and_host,
    take_output,
    take_settings,
)
from gpumon.cli.messages import EXIT_USAGE, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gpumon.cli.help import MakeParser
    from gpumon.filters.language import Filter
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Snapshot

NOT_WATCHED = (
    "the filter asks for idle processes, which one sample cannot show: use gpumon without snapshot"
)


def add_options(command: MakeParser) -> None:
    """Add ``gpumon snapshot`` to the parser."""
    from gpumon.cli.options import OtherMachines, add_format, drawing, samples

    snapshot = command(
        parents=[samples(filtered=True), drawing()],
        description="Print one sample and exit. docs/snapshot.md describes the formats.",
    )
    add_format(snapshot, "json", "csv", "prometheus")
    snapshot.add_argument(
        "--processes",
        action="store_true",
        help="with --format csv: a row for each process and GPU instead of a row for each GPU",
    )
    machines = OtherMachines(
        ("user", "filter", "format", "processes"),
        ("format",),  # which has no processes
        timeout=True,
    )
    machines.add_to(snapshot)


def run(options: argparse.Namespace) -> int:
    """Print one sample; the exit status."""
    return print_sample(options, options.format, by_process=options.processes)


def print_sample(options: argparse.Namespace, form: str, *, by_process: bool) -> int:
    """Print one sample in a format; the exit status."""
    from msgspec.structs import replace

    from gpumon.cli.fleet import print_hosts
    from gpumon.model.thresholds import DEFAULTS
    from gpumon.sampling.gpu_sampler import take_one

    if by_process and form != "csv":
        return fail(
            "--processes needs --format csv; the other formats contain processes anyway.",
            EXIT_USAGE,
        )
    # An empty filter leaves out nothing.
    chosen = options.user is not None or (options.filter is not None and options.filter.text)
    if form == "csv" and chosen and not by_process:
        return fail(
            "--user and --filter select processes, and --format csv has GPUs: add --processes.",
            EXIT_USAGE,
        )
    # Output for programs does not depend on the configuration.
    thresholds = take_settings().thresholds if form == "table" else DEFAULTS
    take_output(options, form)
    if fleet_option(options) is not None:
        return print_hosts(options, form, thresholds, by_process=by_process)
    source, host = source_and_host(options, profiled=False)
    snapshot = take_one(source)
    if by_process or form in {"table", "json"}:
        from gpumon.sampling.enrichment import Lookup

        held = reservations(demo=options.demo)
        snapshot = Lookup(host, reservations=held).look_once(snapshot)
    asked: list[ProcessId] = []
    user = options.user
    shown, words = narrowed(snapshot, user, options.filter, asked.append)
    if form == "table":
        from gpumon.ui.view.snapshot_table import table

        text = table(snapshot, shown, words, sys.stdout, thresholds)
    else:
        text = _exported(replace(snapshot, processes=tuple(shown)), form, by_process)
    status = print_text(text)
    if asked:
        say(NOT_WATCHED)
    if user is not None and all(process.user != user for process in snapshot.processes):
        say(f"{user} has no process on these GPUs")
    return status


def narrowed(
    snapshot: Snapshot,
    user: str | None,
    chosen: Filter | None,
    idle: Callable[[ProcessId], None],
) -> tuple[Sequence[GpuProcess], Sequence[str]]:
    """The processes to show, and a short description of the selection.

    Args:
        snapshot: The sample.
        user: Only this user's.
        chosen: Only those that it matches.
        idle: Called for how long a process has been idle, which one sample does not show.
    """
    if user is None and chosen is None:
        return snapshot.processes, ()
    from gpumon.filters.language import Facts
    from gpumon.ui.view.table_entries import ProcessFilter

    narrowing = ProcessFilter(user=user, filter=chosen)
    shown = narrowing.apply(snapshot.processes, Facts(snapshot.time, idle))
    return shown, narrowing.words(snapshot.processes)


def _exported(snapshot: Snapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.export.as_json import to_json

        return to_json(snapshot, indent=2) + "\n"
    if form == "csv":
        from gpumon.export.as_csv import gpus_csv, processes_csv

        return processes_csv(snapshot) if by_process else gpus_csv(snapshot)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(snapshot)
