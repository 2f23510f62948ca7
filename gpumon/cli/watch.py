"""``gpumon watch``: send alerts without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.api.local import reservations
from gpumon.cli.alert import add_alert_file, alerts_of
from gpumon.cli.common import source_and_host, take_output, take_settings
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import add_interval, add_machine, drawing

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser

_INTERVAL = 5.0


def add_options(command: MakeParser) -> None:
    """Add ``gpumon watch`` to the parser."""
    watch = command(
        parents=[drawing()],
        description="Check the alerts of the configuration until Ctrl+C or SIGTERM: send each "
        "notification, and print a line for it on standard output. docs/alerts.md describes "
        "alerts, and has a unit for systemd.",
    )
    add_interval(watch, _INTERVAL)
    add_alert_file(watch)
    add_machine(watch)


def run(options: argparse.Namespace) -> int:
    """Watch until a signal; the exit status."""
    take_output(options, "table")
    settings = take_settings()
    found = alerts_of(options, settings, terminal=False)
    if isinstance(found, str):
        return fail(found, EXIT_USAGE)
    from gpumon.alerts.memory import memory_path
    from gpumon.alerts.watch import WatchOptions, watch

    source, host = source_and_host(options)
    state = None if options.demo else memory_path(source.hostname, options.alerts)
    given = WatchOptions(found, options.interval or _INTERVAL, settings.thresholds, state)
    return watch(source, host, given, reservations(demo=options.demo))
