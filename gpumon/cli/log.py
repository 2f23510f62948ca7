"""``gpumon log``: log to CSV files without a screen."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.machine_options import FleetOptions, SampleOptions
from gpumon.cli.option_groups import ASCII, NO_COMMANDS, IntervalOption, Option
from gpumon.cli.output import load_settings
from gpumon.model.interval import LOG_INTERVAL

if TYPE_CHECKING:
    import argparse

    from gpumon.recording.csv.log_feed import LogFeed

LEAST_ROTATION = 2**16
LEAST_HISTORY = 2**23
"""Bytes: less would keep minutes."""


def _rotation(text: str) -> int:
    from gpumon.text.unit_parsing import SIZE

    size = values.amount(text, SIZE)
    if not LEAST_ROTATION <= size < math.inf:
        values.refuse(f"{text!r} is not a size for a file: give {LEAST_ROTATION // 1024}K or more")
    return int(size)


def _history_size(text: str) -> int:
    from gpumon.text.unit_parsing import SIZE

    size = values.amount(text, SIZE)
    if not LEAST_HISTORY <= size < math.inf:
        least = LEAST_HISTORY // 2**20
        values.refuse(f"{text!r} is not a size for a history: give {least}M or more")
    return int(size)


_NOT_LOCAL = ("file", "rotate", "keep", "user", "hosts", "prometheus", "demo")
"""What cannot be given with ``--local``, by the names in the namespace."""


class LogCommand(Command):
    description = (
        "Log to two CSV files, one of GPUs and one of processes, until --for is over, Ctrl+C or "
        "SIGTERM; or with --local keep the history of this machine, which the dashboard, report "
        "and watch find by themselves. Standard error shows the progress. docs/log.md describes "
        "the files, docs/history.md the history."
    )
    needs_stdout = False
    interval = IntervalOption(LOG_INTERVAL)
    machine = SampleOptions(user=True)
    fleet = FleetOptions(("--interval", "--for", "--rotate", "--keep", "--no-commands", "--user"))
    groups = (interval, machine, ASCII, fleet)
    options = (
        Option(
            "file",
            metavar="FILE",
            nargs="?",
            help="the file of the GPUs, such as run.csv; that of the processes is then "
            "run.processes.csv; an existing log is continued; in a directory the log gets the "
            "default name (default: gpumon-HOST-DATE-TIME.csv)",
        ),
        Option(
            "--for",
            metavar="TIME",
            dest="seconds",
            type=values.timespan,
            help="end this long after the first sample, or after 10s without an answer: 90, 30s, "
            "15m, 1h30m, 2d",
        ),
        Option(
            "--rotate",
            metavar="SIZE",
            type=_rotation,
            help="rename the files to run.part0001.csv and so on when one of them exceeds this "
            "size: 100M, 1.5G; powers of 1024",
        ),
        Option(
            "--keep",
            metavar="NUMBER",
            type=values.number(1, 10**9 - 1, "a number of files to keep, 1 or more"),
            help="with --rotate: keep this many of them and remove the oldest (default: keep all)",
        ),
        NO_COMMANDS,
        Option(
            "--local",
            action="store_true",
            help="keep the history of this machine, in bounded space: in /var/log/gpumon/history "
            "for root and for a service, in ~/.local/state/gpumon/history for a user",
        ),
        Option(
            "--days",
            metavar="NUMBER",
            type=values.number(1, 366, "a number of days, 1 to 366"),
            help="with --local: how long to keep it (default: 7)",
        ),
        Option(
            "--size",
            metavar="SIZE",
            type=_history_size,
            help="with --local: how much it may take on disk (default: 500M)",
        ),
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if options.keep is not None and options.rotate is None:
            return "--keep needs --rotate: without it no file is rotated."
        if not options.local:
            given = next((name for name in ("days", "size") if getattr(options, name)), None)
            return None if given is None else f"--{given} needs --local: a log has --keep."
        for name in _NOT_LOCAL:
            if getattr(options, name):
                what = "a FILE" if name == "file" else f"--{name}"
                return f"--local keeps the history of the whole machine: not with {what}."
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.recording.csv.log_session import log

        interval = self.interval.seconds(options)
        if options.local:
            return self._keep_history(options, interval)
        from gpumon.recording.csv.csv_log import CsvLog
        from gpumon.recording.csv.files import log_path
        from gpumon.recording.recorder import Recorder

        feed = self._feed(options, interval)
        recorder = Recorder(
            CsvLog(
                log_path(options.file, feed.name, time.time()),
                rotate=options.rotate,
                keep=options.keep,
                commands=not options.no_commands,
                user=options.user,
                several=feed.several,
            )
        )
        return log(feed, recorder, interval, seconds=options.seconds, user=options.user)

    def _keep_history(self, options: argparse.Namespace, interval: float) -> int:
        """Keep the history of this machine."""
        from gpumon.findings import conditions
        from gpumon.recording.archive import ArchiveLog, Bounds, own_place
        from gpumon.recording.csv.log_feed import MachineFeed
        from gpumon.recording.csv.log_session import log
        from gpumon.recording.history import STATE_GPU_DEPTH, History
        from gpumon.recording.recorder import Recorder

        settings = load_settings()
        feed = MachineFeed(self.machine.open(options), interval)
        place = own_place(feed.name, settings.history.folder or None)
        usual = Bounds()
        bounds = Bounds(options.days or usual.days, options.size or usual.bytes)
        thresholds = settings.thresholds
        archive = ArchiveLog(
            place,
            interval,
            bounds,
            History(conditions(thresholds), thresholds, STATE_GPU_DEPTH, charted=False),
            commands=not options.no_commands,
        )
        return log(feed, Recorder(archive), interval, seconds=options.seconds)

    def _feed(self, options: argparse.Namespace, interval: float) -> LogFeed:
        """What is logged: the hosts of ``--hosts``, or this machine.

        Raises:
            FleetError: The hosts or the ssh client cannot be read.
        """
        if self.fleet.asked(options) is not None:
            from gpumon.fleet.log_feed import FleetFeed

            return FleetFeed(self.fleet.open(options, interval))
        from gpumon.recording.csv.log_feed import MachineFeed

        return MachineFeed(self.machine.open(options), interval)
