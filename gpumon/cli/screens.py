"""The commands with a screen: the dashboard, and the replay of a log."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from gpumon.cli.common import reservations, source_and_host
from gpumon.cli.messages import EXIT_USAGE, explain, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpumon.config import Loaded
    from gpumon.config.themes import ThemeChoice
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording import Recording
    from gpumon.recording.memory.recording import MemoryRecording
    from gpumon.ui.session import Session
    from gpumon.ui.startup_options import StartupOptions


_PAST_LATER = 1.0
"""Seconds after the start at which a demo's past is put where it can be looked back at."""


class SnapshotBuffer:
    """Keeps snapshots, from the first one on, for a listener that is there later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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


def run_dashboard(options: argparse.Namespace) -> int:
    """``gpumon``."""
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
    from gpumon.ui.terminal.startup import first_picture, run
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
    chosen = _chosen(options, loaded, theme)
    picture = first_picture(history, interval, narrowing, chosen, readonly=host.readonly)
    try:
        return run(collector, furnish, picture, narrowing, chosen)
    except SourceError as error:
        return explain(error)
    finally:
        for sentence in logbook.close():
            say(sentence)


def _tape(lines: Thresholds, early: SnapshotBuffer, past: tuple[Snapshot, ...]) -> MemoryRecording:
    """What can be looked back at, from the past of the source on."""
    from gpumon.recording.memory.recording import MemoryRecording

    tape = MemoryRecording(lines.full_share)
    if past:
        # To put it in order takes as long as all else at the start.
        tape.begin_with(past)
        settling = threading.Timer(_PAST_LATER, tape.settle)
        settling.daemon = True
        settling.start()
    early.hand_to(tape.add)
    return tape


def _chosen(options: argparse.Namespace, loaded: Loaded, theme: ThemeChoice) -> StartupOptions:
    """What the dashboard begins with: what was settled, and over it what was asked for."""
    from gpumon.config.columns import CHOSEN
    from gpumon.text.units import use_units
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.view.processes import Sort

    settings = loaded.settings
    use_units(settings.units)
    return StartupOptions(
        columns=options.columns or settings.columns or CHOSEN,
        sort=Sort(settings.sort.column, settings.sort.descending),
        keys=settings.keys,
        complaint=loaded.brief,
        theme=theme,
        graph=settings.graph,
        host_strip=settings.host_strip,
    )


def run_replay(options: argparse.Namespace) -> int:
    """``gpumon replay``."""
    from gpumon.config import load
    from gpumon.config.themes import UnknownThemeError, choose_theme
    from gpumon.findings import conditions
    from gpumon.recording import RecordingError
    from gpumon.recording.csv.recording import open_log
    from gpumon.recording.playback import Player
    from gpumon.sources import SourceError

    try:
        loaded = load()
        lines = loaded.settings.thresholds
        theme = choose_theme(getattr(options, "theme", None), loaded.settings.theme)
        chosen = _chosen(options, loaded, theme)
        tape = open_log(options.file, lines.full_share)
    except UnknownThemeError as error:
        return fail(f"{error}.", EXIT_USAGE)
    except RecordingError as error:
        return fail(error.sentence)
    with closing(tape):
        try:
            position = _beginning(options.at, tape)
        except ValueError as error:
            return fail(str(error), EXIT_USAGE)
        player = Player(
            tape,
            conditions(lines),
            position=position,
            playing=not options.paused,
            thresholds=lines,
        )
        player.speed = options.speed
        player.start()
        from gpumon.host.recorded import RecordedHost
        from gpumon.kill.audit_log import AuditLog
        from gpumon.sampling.enrichment import Lookup
        from gpumon.ui.logbook import Logbook
        from gpumon.ui.session import Session
        from gpumon.ui.startup_options import first_view
        from gpumon.ui.terminal.first_picture import FirstPicture
        from gpumon.ui.terminal.startup import run
        from gpumon.ui.view.listing import ProcessFilter

        host = RecordedHost()
        session = Session(
            player.collector,
            player.history,
            host,
            Lookup(host),
            AuditLog(),
            tape,
            Logbook(None),
            player,
        )
        try:
            narrowing = ProcessFilter()
            interval = player.collector.interval
            view = first_view(interval, narrowing, chosen, readonly=host.readonly)
            unpainted = FirstPicture(player.history, view, None)
            return run(player.collector, lambda: session, unpainted, narrowing, chosen)
        except SourceError as error:
            return fail(f"{error.sentence} {error.advice}")


def _beginning(at: str | None, tape: Recording) -> float | None:
    """Where to begin in a log.

    Raises:
        ValueError: The time cannot be read, or is not in the log.
    """
    if at is None or tape.first is None or tape.last is None:
        return tape.first
    from gpumon.text.time_parsing import MomentError, day_and_time, parse_moment

    try:
        moment = parse_moment(at, tape.last)
    except MomentError as error:
        raise ValueError(f"--at {error}") from None
    if not tape.first <= moment <= tape.last:
        raise ValueError(
            f"--at {at} is not in the log: it goes from {day_and_time(tape.first)} to "
            f"{day_and_time(tape.last)}."
        )
    return moment
