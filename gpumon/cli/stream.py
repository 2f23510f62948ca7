"""``gpumon stream``: the state of this machine as lines of JSON, for programs on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.option_groups import IntervalOption
from gpumon.model.interval import LOG_INTERVAL

if TYPE_CHECKING:
    import argparse


class StreamCommand(Command):
    description = (
        "Write a line of JSON for each sample to standard output, until it is closed, Ctrl+C or "
        "SIGTERM: first the whole state of this machine, then what changed. docs/stream.md "
        "describes the lines."
    )
    interval = IntervalOption(LOG_INTERVAL)
    machine = SampleOptions()
    groups = (interval, machine)

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.stream.session import stream

        stream(self.machine.open(options), self.interval.seconds(options))
        return 0
