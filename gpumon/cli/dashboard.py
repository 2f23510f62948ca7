"""``gpumon`` without a command: the dashboard.

Plain ``gpumon`` goes past argparse: nothing here imports it before options are added.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import reservations, screen_fault, source_and_host, startup_options
from gpumon.cli.messages import EXIT_USAGE, explain, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpumon.cli.help import MakeParser
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.memory.recording import MemoryRecording
    from gpumon.ui.session import Session

_DESCRIPTION = """\
Show what the GPUs of this machine do and who uses them.

examples:
  gpumon                          the dashboard, a sample every half second
  gpumon --gpus 0,2-3 --user ann  some cards, one user's processes
  gpumon --demo                   a simulated machine, to look around
  gpumon log run.csv --for 8h     log to CSV without a screen
  gpumon run -n 2 -- ./train.sh   run a command on two free cards

Where standard output is no terminal, gpumon prints what gpumon snapshot does.
"""
_PAST_LATER = 1.0
"""Seconds after the start at which a demo's past is put where it can be looked back at."""


def make_parser(command: MakeParser) -> argparse.ArgumentParser:
    """The parser of the dashboard's options, which the commands are added to."""
    from gpumon.cli import values
    from gpumon.cli.options import add_theme, drawing, samples
    from gpumon.cli.plain import LEAST_INTERVAL, LOG_INTERVAL, LONGEST_INTERVAL

    parser = command(
        usage="gpumon [options] [COMMAND ...]",
        description=_DESCRIPTION,
        parents=[samples(filtered=True), drawing()],
    )
    parser.add_argument_group("how often").add_argument(
        "-n",
        "--interval",
        metavar="SECONDS",
        type=values.interval,
        help=f"seconds between samples, {LEAST_INTERVAL:g} to {LONGEST_INTERVAL:g}, "
        f"as in watch (default: 0.5 or that of the configuration, for a log {LOG_INTERVAL:g})",
    )
    screen = parser.add_argument_group("the dashboard")
    screen.add_argument(
        "--readonly",
        action="store_true",
        help="never send a signal to any process, whatever key is pressed",
    )
    screen.add_argument(
        "--log",
        metavar="FILE",
        help="log to this CSV file from the start; the key L stops and starts it",
    )
    screen.add_argument(
        "--no-commands",
        dest="commands",
        action="store_false",
        help="leave command lines, which can hold secrets, out of the log",
    )
    screen.add_argument(
        "--columns",
        metavar="LIST",
        type=values.columns,
        help="columns of the process table, in order, such as pid,user,memory_used,command",
    )
    add_theme(screen)
    return parser


class SnapshotBuffer:
    """Keeps snapshots, from the first one on, for a listener that is there later."""

    def __init__(self) -> None:
        from threading import Lock

        self._lock = Lock()
        self._kept: list[Snapshot] = []
        self._listener: Callable[[Snapshot], None] = self._kept.append

    def take(self, snapshot: Snapshot) -> None:
        """Take the next one. A listener of a collector."""
        with self._lock:
            self._listener(snapshot)

    def hand_to(self, listener: Callable[[Snapshot], None]) -> None:
        """From now on all go there; first those that were kept."""
        with self._lock:
            for snapshot in self._kept:
                listener(snapshot)
            self._kept.clear()
            self._listener = listener


def run(options: argparse.Namespace) -> int:
    """Show the dashboard, or print one sample where standard output is no terminal."""
    if sys.stdout.isatty():
        fault = screen_fault()
        return _show(options) if fault is None else fail(fault)
    if options.log is not None:
        return fail("standard output is no terminal, so --log has no screen: use gpumon log.")
    from gpumon.cli.snapshot import print_sample
    from gpumon.config.themes import UnknownThemeError, choose_theme

    try:
        choose_theme(getattr(options, "theme", None))
    except UnknownThemeError as error:
        return fail(f"{error}.", EXIT_USAGE)
    return print_sample(options, "table", by_process=False)


def _show(options: argparse.Namespace) -> int:
    from gpumon.config import load
    from gpumon.config.themes import UnknownThemeError, choose_theme
    from gpumon.sampling.collector import Collector
    from gpumon.sampling.enrichment import Lookup
    from gpumon.sources import SourceError
    from gpumon.ui.logbook import Logbook

    loaded = load()
    settings, lines = loaded.settings, loaded.settings.thresholds
    try:
        theme = choose_theme(getattr(options, "theme", None), settings.theme)
    except UnknownThemeError as error:
        return fail(f"{error}.", EXIT_USAGE)
    options.readonly = options.readonly or settings.readonly
    source, host = source_and_host(options)
    past = tuple(source.past())
    lookup = Lookup(host, reservations=reservations(options))
    interval = options.interval or settings.interval
    collector = Collector(source, interval, annotate=lookup.annotate)
    user = getattr(options, "user", None)
    logbook = Logbook(collector, options.log, user, commands=options.commands)
    fault = logbook.begin()
    if fault is not None:
        return fail(fault)
    # The driver is asked while what takes longer, all that judges and draws, is imported.
    collector.start()
    from gpumon.findings import conditions
    from gpumon.recording.history import History
    from gpumon.ui.terminal.startup import first_picture
    from gpumon.ui.terminal.startup import run as run_screen
    from gpumon.ui.view.listing import ProcessFilter

    history = History(conditions(lines), lines)
    for snapshot in past:
        history.add(snapshot)
    collector.subscribe(history.add, newest=True, closely=False)
    early = SnapshotBuffer()
    collector.subscribe(early.take, newest=True, closely=False)

    def furnish() -> Session:
        """What the first picture does without is imported, and begins, once that stands."""
        from gpumon.kill.audit_log import AuditLog, NoAuditLog
        from gpumon.ui.session import Session

        lookup.start()
        journal = NoAuditLog() if getattr(options, "demo", False) else AuditLog()
        tape = _tape(lines, early, past)
        return Session(collector, history, host, lookup, journal, tape, logbook)

    narrowing = ProcessFilter(user=user, filter=getattr(options, "filter", None))
    chosen = startup_options(loaded, theme, options.columns)
    picture = first_picture(history, interval, narrowing, chosen, readonly=host.readonly)
    try:
        return run_screen(collector, furnish, picture, narrowing, chosen)
    except SourceError as error:
        return explain(error)
    finally:
        for sentence in logbook.close():
            say(sentence)


def _tape(lines: Thresholds, early: SnapshotBuffer, past: tuple[Snapshot, ...]) -> MemoryRecording:
    """What can be looked back at, from the past of the source on."""
    from threading import Timer

    from gpumon.recording.memory.recording import MemoryRecording

    tape = MemoryRecording(lines.full_share)
    if past:
        # To put it in order takes as long as all else at the start.
        tape.begin_with(past)
        settling = Timer(_PAST_LATER, tape.settle)
        settling.daemon = True
        settling.start()
    early.hand_to(tape.add)
    return tape
