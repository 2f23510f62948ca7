"""``gpumon log``: log to CSV files without a screen."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.common import fleet_option, source_and_host
from gpumon.cli.fleet import open_fleet
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import OtherMachines, add_interval, drawing, samples
from gpumon.cli.plain import LOG_INTERVAL

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser
    from gpumon.recording.csv.log_feed import LogFeed

LEAST_ROTATION = 2**16


def add_options(command: MakeParser) -> None:
    """Add ``gpumon log`` to the parser."""
    log = command(
        parents=[samples(filtered=False), drawing()],
        description="Log to two CSV files, one of GPUs and one of processes, until --for is "
        "over, Ctrl+C or SIGTERM. Standard error shows the progress. docs/log.md describes the "
        "files.",
    )
    log.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the file of the GPUs, such as run.csv; that of the processes is then "
        "run.processes.csv; an existing log is continued; in a directory the log gets the default "
        "name (default: gpumon-HOST-DATE-TIME.csv)",
    )
    add_interval(log, LOG_INTERVAL)
    log.add_argument(
        "--for",
        metavar="TIME",
        dest="seconds",
        type=values.timespan,
        help="end this long after the first sample, or after 10s without an answer: 90, 30s, 15m, "
        "1h30m, 2d",
    )
    log.add_argument(
        "--rotate",
        metavar="SIZE",
        type=_rotation,
        help="rename the files to run.part0001.csv and so on when one of them exceeds this size: "
        "100M, 1.5G; powers of 1024",
    )
    log.add_argument(
        "--keep",
        metavar="NUMBER",
        type=_keep,
        help="with --rotate: keep this many of them and remove the oldest (default: keep all)",
    )
    log.add_argument(
        "--no-commands",
        dest="commands",
        action="store_false",
        default=argparse.SUPPRESS,
        help="leave out command lines, which can hold secrets",
    )
    OtherMachines(("interval", "seconds", "rotate", "keep", "commands", "user")).add_to(log)


def _rotation(text: str) -> int:
    from gpumon.text.unit_parsing import SIZE

    size = values.amount(text, SIZE)
    if not LEAST_ROTATION <= size < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size for a file: give {LEAST_ROTATION // 1024}K or more"
        )
    return int(size)


def _keep(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of files to keep, 1 or more")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Log until the end; the exit status."""
    if options.keep is not None and options.rotate is None:
        return fail("--keep needs --rotate: without it no file is rotated.", EXIT_USAGE)
    from gpumon.recording.csv.log_session import LogOptions, log

    interval = options.interval or LOG_INTERVAL
    terms = LogOptions(
        options.file,
        interval,
        options.seconds,
        options.rotate,
        options.keep,
        options.commands,
        options.user,
    )
    return log(_feed(options, interval), terms)


def _feed(options: argparse.Namespace, interval: float) -> LogFeed:
    """What is logged: the hosts of ``--hosts``, or this machine.

    Raises:
        FleetError: The hosts or the ssh client cannot be read.
    """
    if fleet_option(options) is not None:
        from gpumon.fleet.log_feed import FleetFeed

        return FleetFeed(open_fleet(options, interval))
    from gpumon.recording.csv.log_feed import MachineFeed

    source, host = source_and_host(options)
    return MachineFeed(source, host, interval)
