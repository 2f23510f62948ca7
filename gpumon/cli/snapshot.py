"""``gpumon snapshot``: print one sample.

The dashboard imports this if standard output is not a terminal, without argparse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from gpumon.api.local import reservations
from gpumon.cli.common import print_all, source_and_host, take_output, take_settings
from gpumon.cli.messages import EXIT_USAGE, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gpumon.cli.help import MakeParser
    from gpumon.filters.language import Filter
    from gpumon.host.process_host import ProcessHost
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.sampling.enrichment import Reservations
    from gpumon.sources.source import Source

NOT_WATCHED = (
    "the filter asks for idle processes, which one sample cannot show: use gpumon without snapshot"
)


def add_options(command: MakeParser) -> None:
    """Add ``gpumon snapshot`` to the parser."""
    from gpumon.cli.options import add_hosts, drawing, samples

    snapshot = command(
        parents=[samples(filtered=True), drawing()],
        description="Print one sample and exit. docs/snapshot.md describes the formats.",
    )
    snapshot.add_argument(
        "--format",
        choices=("table", "json", "csv", "prometheus"),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )
    snapshot.add_argument(
        "--processes",
        action="store_true",
        help="with --format csv: a row for each process and GPU instead of a row for each GPU",
    )
    add_hosts(snapshot, timeout=True)


def run(options: argparse.Namespace) -> int:
    """Print one sample; the exit status."""
    return print_sample(options, options.format, by_process=options.processes)


def print_sample(options: argparse.Namespace, form: str, *, by_process: bool) -> int:
    """Print one sample in a format; the exit status."""
    from gpumon.cli.fleet import fleet_option, hosts_fault, print_hosts
    from gpumon.model.thresholds import DEFAULTS

    if by_process and form != "csv":
        return fail(
            "--processes needs --format csv; the other formats contain processes anyway.",
            EXIT_USAGE,
        )
    wrong = hosts_fault(options, "gpus")
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    # Output for programs does not depend on the configuration.
    thresholds = take_settings().thresholds if form == "table" else DEFAULTS
    take_output(options, form)
    if fleet_option(options) is not None:
        return print_hosts(options, form, thresholds, by_process=by_process)
    source, host = source_and_host(options, profiled=False)
    sentences: list[str] = []

    def write() -> int:
        sentences.extend(
            print_snapshot(
                source,
                form,
                sys.stdout,
                host=host,
                user=options.user,
                filter=options.filter,
                by_process=by_process,
                thresholds=thresholds,
                reservations=reservations(demo=options.demo),
            )
        )
        return 0

    status = print_all(write)
    for sentence in sentences:
        say(sentence)
    return status


def print_snapshot(
    source: Source,
    form: str,
    stream: TextIO,
    *,
    host: ProcessHost | None = None,
    user: str | None = None,
    filter: Filter | None = None,  # noqa: A002 - the word of the command line
    by_process: bool = False,
    thresholds: Thresholds | None = None,
    reservations: Reservations | None = None,
) -> list[str]:
    """Print one sample.

    Args:
        source: The source; opened and closed here.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        stream: The output.
        host: Looks up where the processes run; by default nothing does.
        user: Only this user's processes.
        filter: Only the processes that it matches. One sample shows no idle processes.
        by_process: With ``csv``: one row per process and GPU.
        thresholds: Thresholds of the findings in the table.
        reservations: Looks up which GPUs are reserved; by default nothing does.

    Returns:
        Sentences for standard error, usually none.

    Raises:
        SourceError: There is nothing to print, or the driver does not answer.
        OSError: The stream cannot be written.
    """
    import msgspec

    from gpumon.sampling.one_sample import take_one
    from gpumon.sources.source import SourceError

    snapshot = take_one(source)
    if snapshot.trouble is not None:
        raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
    if host is not None and (by_process or form in {"table", "json"}):
        from gpumon.sampling.enrichment import Lookup

        snapshot = Lookup(host, reservations=reservations).look_once(snapshot)
    asked: list[ProcessId] = []
    shown, words = narrowed(snapshot, user, filter, asked.append)
    if form == "table":
        from gpumon.model.thresholds import DEFAULTS
        from gpumon.ui.view.snapshot_table import table

        stream.write(table(snapshot, shown, words, stream, thresholds or DEFAULTS))
    else:
        kept = msgspec.structs.replace(snapshot, processes=tuple(shown))
        stream.write(_exported(kept, form, by_process))
    stream.flush()
    sentences = [NOT_WATCHED] if asked else []
    if user is not None and all(process.user != user for process in snapshot.processes):
        sentences.append(f"{user} has no process on these GPUs")
    return sentences


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
