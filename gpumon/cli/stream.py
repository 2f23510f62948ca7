"""``gpumon stream``: the state of this machine as lines of JSON, for programs on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.api.local import reservations
from gpumon.cli.common import source_and_host
from gpumon.cli.options import add_gpus, add_interval, add_source
from gpumon.cli.plain import LOG_INTERVAL

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon stream`` to the parser."""
    stream = command(
        description="Write a line of JSON for each sample to standard output, until it is closed, "
        "Ctrl+C or SIGTERM: first the whole state of this machine, then what changed. "
        "docs/stream.md describes the lines.",
    )
    add_interval(stream, LOG_INTERVAL)
    add_gpus(stream)
    add_source(stream)


def run(options: argparse.Namespace) -> int:
    """Stream until the end; the exit status."""
    from gpumon.stream.session import stream

    source, host = source_and_host(options)
    stream(source, host, reservations(demo=options.demo), options.interval or LOG_INTERVAL)
    return 0
