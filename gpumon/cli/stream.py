"""``gpumon stream``: the state of this machine, for programs on other machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.option_groups import IntervalOption, Option
from gpumon.model.interval import LOG_INTERVAL

if TYPE_CHECKING:
    import argparse


class StreamCommand(Command):
    description = (
        "Write samples of this machine to standard output, for gpumon or other programs on another "
        "machine, until it is closed, Ctrl+C or SIGTERM. docs/stream.md describes them."
    )
    interval = IntervalOption(LOG_INTERVAL)
    machine = SampleOptions()
    groups = (interval, machine)
    options = (
        Option(
            "--format",
            choices=["stream", "json"],
            default="stream",
            help="stream: compressed, as gpumon reads it (default); json: a line for each sample, "
            "as gpumon snapshot --format json has it",
        ),
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if options.format == "stream" and os.isatty(1):
            return "standard output is a terminal, and the stream is compressed: add --format json."
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.stream.session import json_lines, stream
        from gpumon.stream.writer import StreamWriter

        interval = self.interval.seconds(options)
        write = json_lines() if options.format == "json" else StreamWriter(interval).write
        stream(self.machine.open(options), interval, write)
        return 0
