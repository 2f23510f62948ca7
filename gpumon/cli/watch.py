"""``gpumon watch``: send alerts without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.option_groups import ASCII, AlertFileOption, HistoryOption, IntervalOption
from gpumon.cli.output import EXIT_USAGE, configure_output, load_settings

if TYPE_CHECKING:
    import argparse


class WatchCommand(Command):
    description = (
        "Check the alerts of the configuration until Ctrl+C or SIGTERM: send each notification, "
        "and print a line for it on standard output. docs/alerts.md describes alerts, and has a "
        "unit for systemd."
    )
    interval = IntervalOption(5.0)
    alerts = AlertFileOption()
    machine = SampleOptions()
    history = HistoryOption()
    groups = (interval, alerts, machine, history, ASCII)

    def run(self, options: argparse.Namespace) -> int:
        configure_output(options, "table")
        settings = load_settings()
        alerts = self.alerts.open(options, settings, terminal=False)
        if not alerts:
            return EXIT_USAGE
        from gpumon.alerts.memory import memory_path
        from gpumon.alerts.watch import watch

        machine = self.machine.open(options)
        return watch(
            machine,
            alerts,
            self.interval.seconds(options),
            settings.thresholds,
            None if options.demo else memory_path(machine.source.hostname, options.alerts),
            None
            if options.demo
            else self.history.finder(options, settings, machine.source.hostname),
        )
