"""``gpumon`` without a command: the dashboard.

Plain ``gpumon`` goes past argparse: nothing here imports it before options are added.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.api.local import reservations
from gpumon.cli.common import (
    fleet_option,
    screen_fault,
    source_and_host,
    startup_options,
    take_alerts,
)
from gpumon.cli.messages import explain_source, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpumon.cli.help import MakeParser, Parser
    from gpumon.cli.options import OtherMachines
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.memory.recording import MemoryRecording
    from gpumon.ui.session import Session

_DESCRIPTION = """\
Show what the GPUs of this machine do and who uses them.

examples:
  gpumon                                        the dashboard; ? lists all keys
  export CUDA_VISIBLE_DEVICES=$(gpumon select)  use a free GPU in this shell
  gpumon run --wait -- python train.py          run a job when a GPU is free
  gpumon log run.csv --for 8h                   log; gpumon replay shows the log
  gpumon report run.csv --by user               GPU hours and energy per user

If standard output is not a terminal, gpumon prints one sample as a table.
"""
_PAST_LATER = 1.0
"""Seconds after the start at which the past of a demo becomes available."""


SCREEN = ("interval", "readonly", "commands", "columns", "theme")
"""The options of a screen, of one machine or several."""


def make_parser(command: MakeParser) -> Parser:
    """The parser of the dashboard's options, which the commands are added to."""
    from gpumon.cli import values
    from gpumon.cli.options import add_columns, add_readonly, add_theme, drawing, samples
    from gpumon.cli.plain import LOG_INTERVAL
    from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL

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
        help=f"seconds between samples, {MIN_INTERVAL:g} to {MAX_INTERVAL:g}, "
        f"as in watch (default: 0.5 or that of the configuration, for a log {LOG_INTERVAL:g})",
    )
    screen = parser.add_argument_group("the dashboard")
    add_readonly(screen, "never send a signal to any process, whatever key is pressed")
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
    add_columns(screen, default=None)
    add_theme(screen)
    other_machines().add_to(parser)
    return parser


def other_machines() -> OtherMachines:
    """What is shown of other machines: on a terminal their dashboard, otherwise a sample."""
    from gpumon.cli.options import OtherMachines

    if sys.stdout is not None and sys.stdout.isatty():
        return OtherMachines((*SCREEN, "demo"), SCREEN, refusal="is for one machine")
    # Of --log it is said why a sample has none.
    return OtherMachines((*SCREEN, "log", "user", "filter"), (*SCREEN, "log"))


class SnapshotBuffer:
    """Keeps the first snapshots until there is a listener."""

    def __init__(self) -> None:
        from threading import Lock

        self._lock = Lock()
        self._kept: list[Snapshot] = []
        self._listener: Callable[[Snapshot], None] = self._kept.append

    def take(self, snapshot: Snapshot) -> None:
        """Take the next snapshot. A listener of a collector."""
        with self._lock:
            self._listener(snapshot)

    def hand_to(self, listener: Callable[[Snapshot], None]) -> None:
        """Pass the kept snapshots, and from now on every new one, to a listener."""
        with self._lock:
            for snapshot in self._kept:
                listener(snapshot)
            self._kept.clear()
            self._listener = listener


def run(options: argparse.Namespace) -> int:
    """Show the dashboard, or print one sample if standard output is not a terminal."""
    if sys.stdout.isatty():
        if fleet_option(options) is not None:
            from gpumon.cli.fleet_screen import show_fleet

            return show_fleet(options)
        fault = screen_fault()
        return _show(options) if fault is None else fail(fault)
    if options.log is not None:
        return fail("standard output is not a terminal, so --log has no screen: use gpumon log.")
    from gpumon.cli.snapshot import print_sample
    from gpumon.config.themes import choose_theme

    choose_theme(options.theme)
    return print_sample(options, "table", by_process=False)


def check_options(options: argparse.Namespace) -> None:
    """Read what the dashboard will read of its options; nothing is connected.

    Raises:
        UnknownThemeError: There is no such theme.
        FleetError: The hosts cannot be read.
    """
    from gpumon.config import load
    from gpumon.config.themes import choose_theme

    settings = load().settings
    if fleet_option(options) is not None:
        from gpumon.cli.fleet_screen import fleet_of

        fleet_of(options, settings)
    choose_theme(options.theme, settings.theme)


def _show(options: argparse.Namespace) -> int:
    from gpumon.config import load
    from gpumon.config.themes import choose_theme
    from gpumon.sampling.collector import Collector
    from gpumon.sampling.enrichment import Lookup
    from gpumon.sources.source import SourceError
    from gpumon.ui.logbook import Logbook

    loaded = load()
    settings, thresholds = loaded.settings, loaded.settings.thresholds
    theme = choose_theme(options.theme, settings.theme)
    visitor = options.visitor
    options.readonly = options.readonly or settings.readonly or visitor
    source, host = source_and_host(options)
    lookup = Lookup(host, reservations=reservations(demo=options.demo))
    interval = options.interval or settings.interval
    collector = Collector(source, interval, annotate=lookup.annotate)
    user = options.user
    logbook = Logbook(collector, options.log, user, commands=options.commands)
    fault = logbook.begin()
    if fault is not None:
        return fail(fault)
    # The driver answers while the slower modules, findings and drawing, are imported.
    collector.start()
    from gpumon.findings import conditions
    from gpumon.recording.history import History
    from gpumon.ui.terminal.startup import first_picture
    from gpumon.ui.terminal.startup import run as run_screen
    from gpumon.ui.view.table_entries import ProcessFilter

    first = History(conditions(thresholds), thresholds)
    stop_first = collector.subscribe(first.add, newest=True, closely=False)
    early = SnapshotBuffer()
    collector.subscribe(early.take, newest=True, closely=False)

    def build_session() -> Session:
        """Import and start everything else after the first picture."""
        from gpumon.kill.audit_log import AuditLog, NoAuditLog
        from gpumon.recording.memory.recording import MemoryRecording
        from gpumon.ui.session import Session

        lookup.start()
        audit_log = NoAuditLog() if options.demo else AuditLog()
        recording = MemoryRecording(thresholds.full_share)
        past = tuple(source.past())
        if not past:
            early.hand_to(recording.add)
            return Session(
                collector, first, host, lookup, audit_log, recording, logbook, alerts=alerts
            )

        # Adding a past takes longer than the rest of the start: the first picture has none.
        history = History(conditions(thresholds), thresholds)
        for snapshot in past:
            history.add(snapshot)
        _settle_later(recording, past)

        def add(snapshot: Snapshot) -> None:
            history.add(snapshot)
            recording.add(snapshot)

        # The picture that stands until Textual draws needs one sample, not the newest.
        if first.latest is not None:
            stop_first()
        early.hand_to(add)
        return Session(
            collector, history, host, lookup, audit_log, recording, logbook, alerts=alerts
        )

    narrowing = ProcessFilter(user=user, filter=options.filter)
    demo = options.demo
    loaded, alerts = take_alerts(loaded, source.hostname, demo=demo, visitor=visitor)
    chosen = startup_options(loaded, theme, options.columns, visitor=visitor)
    picture = first_picture(first, interval, narrowing, chosen, readonly=host.readonly)
    try:
        return run_screen(collector, build_session, picture, narrowing, chosen)
    except SourceError as error:
        return explain_source(error)
    finally:
        for sentence in logbook.close():
            say(sentence)


def _settle_later(recording: MemoryRecording, past: tuple[Snapshot, ...]) -> None:
    """Begin the recording with the past of the source."""
    from threading import Timer

    # Packing takes as long as the rest of the start.
    recording.begin_with(past)
    settling = Timer(_PAST_LATER, recording.settle)
    settling.daemon = True
    settling.start()
