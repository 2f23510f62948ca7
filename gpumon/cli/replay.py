"""``gpumon replay``: show a log in the dashboard."""

from __future__ import annotations

import math
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.dashboard import screen_fault
from gpumon.cli.option_groups import ASCII, Option, ScreenOptions, TimeOption
from gpumon.cli.output import EXIT_USAGE, fail

if TYPE_CHECKING:
    import argparse

    from gpumon.recording.recording import Recording


def _speed(text: str) -> float:
    value = float(text) if values.match(r"[0-9]+\.?[0-9]*|\.[0-9]+", text) else math.nan
    if not 0.1 <= value <= 1000:
        values.refuse(f"{text!r} is not a speed from 0.1 to 1000")
    return value


class ReplayCommand(Command):
    description = (
        "Show a log as it was recorded: one of gpumon, with its rotated and compressed parts, the "
        "history of a machine, or the output of nvidia-smi --query-gpu=timestamp,... --format=csv "
        "-l. p plays and pauses."
    )
    without_gc = True
    screen = ScreenOptions(columns=False)
    groups = (screen, ASCII)
    options = (
        Option(
            "file",
            metavar="FILE",
            help="any file of the log, rotated parts included: the whole log is shown; or the "
            "folder of a history, see gpumon log --local",
        ),
        Option(
            "--host",
            metavar="NAME",
            help="which host to show, if the log has several",
        ),
        TimeOption(
            "--at",
            metavar="TIME",
            help="start time, instead of the beginning: 03:00, '2025-03-01 03:00', or -8h from the "
            "end",
        ),
        Option(
            "--speed",
            metavar="TIMES",
            type=_speed,
            default=1.0,
            help="playback speed, 0.1 to 1000 times real time (default: %(default)g)",
        ),
        Option("--paused", action="store_true", help="start paused"),
    )

    def run(self, options: argparse.Namespace) -> int:
        if not sys.stdout.isatty():
            return fail("standard output is not a terminal: use gpumon report.")
        fault = screen_fault()
        return self._show(options) if fault is None else fail(fault)

    def _show(self, options: argparse.Namespace) -> int:
        from gpumon.config import load
        from gpumon.findings import conditions
        from gpumon.makers.source import SourceError
        from gpumon.recording.history import LOG_GPU_DEPTH, History
        from gpumon.recording.opening import open_recording
        from gpumon.recording.playback import Player

        loaded = load()
        thresholds = loaded.settings.thresholds
        theme = self.screen.theme(options, loaded.settings)
        chosen = self.screen.open(options, loaded, theme)
        recording = open_recording(options.file, options.host)
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
            from gpumon.ui.session import replay_session
            from gpumon.ui.startup import FirstPicture, run, theme_for_background
            from gpumon.ui.terminal.terminal import Terminal
            from gpumon.ui.view.dashboard_view import first_view
            from gpumon.ui.view.process_filter import ProcessFilter

            session = replay_session(player, recording)
            try:
                with Terminal() as terminal:
                    if theme.is_default:
                        terminal.query_background()
                    filter_ = ProcessFilter()
                    view = first_view(
                        player.collector.interval,
                        filter_,
                        chosen,
                        readonly=session.machine.processes.readonly,
                    )
                    unpainted = FirstPicture(player.history, view, None, terminal)
                    chosen = theme_for_background(chosen, terminal)
                    return run(
                        terminal, player.collector, lambda: session, unpainted, filter_, chosen
                    )
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
        time = parse_moment(at, recording.last)
    except MomentError as error:
        raise ValueError(f"--at {error}") from None
    if not recording.first <= time <= recording.last:
        raise ValueError(
            f"--at {at} is not in the log: it goes from {day_and_time(recording.first)} to "
            f"{day_and_time(recording.last)}."
        )
    return time
