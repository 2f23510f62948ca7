"""``gpumon replay``: show a log in the dashboard."""

from __future__ import annotations

import argparse
import math
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from gpumon.cli.common import screen_fault, startup_options
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import add_theme, drawing

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser
    from gpumon.recording.recording import Recording


def add_options(command: MakeParser) -> None:
    """Add ``gpumon replay`` to the parser."""
    replay = command(
        parents=[drawing()],
        description="Show a log as it was recorded: one of gpumon, with its rotated and compressed "
        "parts, or the output of nvidia-smi --query-gpu=timestamp,... --format=csv -l. p plays "
        "and pauses.",
    )
    replay.add_argument(
        "file",
        metavar="FILE",
        help="any file of the log, rotated parts included: the whole log is shown",
    )
    replay.add_argument(
        "--host",
        metavar="NAME",
        help="which host to show, if the log has several",
    )
    replay.add_argument(
        "--at",
        metavar="TIME",
        help="start time, instead of the beginning: 03:00, '2025-03-01 03:00', or -8h from the end",
    )
    replay.add_argument(
        "--speed",
        metavar="TIMES",
        type=_speed,
        default=1.0,
        help="playback speed, 0.1 to 1000 times real time (default: %(default)g)",
    )
    replay.add_argument("--paused", action="store_true", help="start paused")
    add_theme(replay)


def _speed(text: str) -> float:
    value = float(text) if re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII) else math.nan
    if not 0.1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed from 0.1 to 1000")
    return value


def run(options: argparse.Namespace) -> int:
    """Replay a log; the exit status."""
    if not sys.stdout.isatty():
        return fail("standard output is not a terminal: use gpumon report.")
    fault = screen_fault()
    return _show(options) if fault is None else fail(fault)


def _show(options: argparse.Namespace) -> int:
    from gpumon.config import load
    from gpumon.config.themes import choose_theme
    from gpumon.findings import conditions
    from gpumon.recording.csv.recording import open_log
    from gpumon.recording.history import LOG_GPU_DEPTH, History
    from gpumon.recording.playback import Player
    from gpumon.sources.source import SourceError

    loaded = load()
    thresholds = loaded.settings.thresholds
    theme = choose_theme(options.theme, loaded.settings.theme)
    chosen = startup_options(loaded, theme, None)
    recording = open_log(options.file, options.host)
    with closing(recording):
        try:
            position = _beginning(options.at, recording)
        except ValueError as error:
            return fail(str(error), EXIT_USAGE)
        history = History(conditions(thresholds), thresholds, LOG_GPU_DEPTH)
        recording.read_into(history)
        player = Player(recording, history, position=position, playing=not options.paused)
        player.source.speed = options.speed
        player.collector.start()
        from gpumon.host.recorded import RecordedHost
        from gpumon.kill.audit_log import AuditLog
        from gpumon.sampling.enrichment import Lookup
        from gpumon.ui.logbook import Logbook
        from gpumon.ui.session import Session, SessionAlerts
        from gpumon.ui.startup_options import first_view
        from gpumon.ui.terminal.first_picture import FirstPicture
        from gpumon.ui.terminal.startup import run
        from gpumon.ui.view.table_entries import ProcessFilter

        host = RecordedHost()
        session = Session(
            player.collector,
            player.history,
            host,
            Lookup(host),
            AuditLog(),
            recording,
            Logbook(None),
            player,
            alerts=SessionAlerts(note="A log is shown: alerts do not report the past."),
            damage=lambda: recording.damage,
        )
        try:
            narrowing = ProcessFilter()
            interval = player.collector.interval
            view = first_view(interval, narrowing, chosen, readonly=host.readonly)
            unpainted = FirstPicture(player.history, view, None)
            return run(player.collector, lambda: session, unpainted, narrowing, chosen)
        except SourceError as error:
            return fail(f"{error.sentence} {error.advice}")


def _beginning(at: str | None, recording: Recording) -> float | None:
    """The time at which the replay begins.

    Raises:
        ValueError: The time cannot be read, or is not in the log.
    """
    if at is None or recording.first is None or recording.last is None:
        return recording.first
    from gpumon.text.time_parsing import MomentError, day_and_time, parse_moment

    try:
        moment = parse_moment(at, recording.last)
    except MomentError as error:
        raise ValueError(f"--at {error}") from None
    if not recording.first <= moment <= recording.last:
        raise ValueError(
            f"--at {at} is not in the log: it goes from {day_and_time(recording.first)} to "
            f"{day_and_time(recording.last)}."
        )
    return moment
