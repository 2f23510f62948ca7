"""``gpumon log``: logging without a screen, for tmux, nohup, a service or a job script."""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpumon.recording.csv import log_messages as words
from gpumon.recording.csv.opening import LogError
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.text.formatting import printable
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.log_feed import LogFeed
    from gpumon.recording.recorder import LogStatus, Recorder

_PACE = 0.5
"""Seconds between two looks at how it goes, and between two status lines."""


def log(
    feed: LogFeed,
    recorder: Recorder,
    interval: float,
    *,
    seconds: float | None = None,
    user: str | None = None,
) -> int:
    """Log until the end, with progress on standard error and nothing on standard output.

    Args:
        feed: Samples what is logged.
        recorder: Writes it; started and stopped here.
        interval: Seconds between samples.
        seconds: How long to log, from the first sample, or from when none is to be expected any
            more; ``None`` means until a signal.
        user: Whose processes are counted in the progress; ``None`` for all.

    Returns:
        The exit status: 0, or 1 when nothing was logged or the last samples were lost.

    Raises:
        SourceError: The source cannot be opened.
        LogError: The log cannot be.
    """
    stop_queue: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(stop_queue), StatusLine(sys.stderr) as status_line:
        reporter = LogReporter(status_line, words.beginning(recorder.log.files, interval, seconds))
        run = _Run(feed, recorder, reporter, seconds, user, stop_queue, status_line)
        try:
            with run.going():
                run.stay()
        finally:
            run.report_the_end()
        return run.exit_status


class LogReporter:
    """Prints a line when something starts or ends, for output that is not a terminal."""

    def __init__(self, status_line: StatusLine, beginning: str) -> None:
        self._status_line = status_line
        self._beginning = beginning
        self._begun = False
        self._trouble: str | None = None

    def report(self, status: LogStatus | None, trouble: str | None, changes: Sequence[str]) -> None:
        """Print what has changed: the log, the problem with sampling or writing, or the others."""
        if status is not None and not self._begun:
            self._begun = True
            self._status_line.say(self._beginning)
        kind = None if trouble is None else words.kind_of(trouble)
        if kind != self._trouble:
            self._say_when("it goes on" if trouble is None else trouble, status)
        for sentence in changes:
            self._say_when(sentence)
        self._trouble = kind

    def _say_when(self, sentence: str, status: LogStatus | None = None) -> None:
        now = datetime.fromtimestamp(time.time()).astimezone()
        self._status_line.say(f"{now:%Y-%m-%d %H:%M:%S} {words.with_loss(sentence, status)}")


class _Run:
    """One log from its first to its last sample."""

    def __init__(
        self,
        feed: LogFeed,
        recorder: Recorder,
        reporter: LogReporter,
        seconds: float | None,
        user: str | None,
        stop_queue: SimpleQueue[BaseException | None],
        status_line: StatusLine,
    ) -> None:
        self._feed = feed
        self._recorder = recorder
        self._reporter = reporter
        self._seconds = seconds
        self._user = user
        self._stop_queue = stop_queue
        self._status_line = status_line
        self._counted_from: float | None = None
        self._begun = self._refused = False
        self.exit_status = 0

    @contextmanager
    def going(self) -> Iterator[None]:
        """Sample and write within the block."""
        with ExitStack() as ending:
            ending.callback(self._recorder.stop)
            ending.callback(self._feed.stop)
            self._feed.start(self._take, self._stop_queue.put)
            yield

    def _take(self, snapshots: Mapping[str | None, Snapshot]) -> None:
        """Write a sample. Runs on the sampling thread, or on its watchdog."""
        # Without any GPU read yet, there is no reason to create a file.
        is_wanted = not (self._begun or self._refused)
        if is_wanted and any(snapshot.gpus for snapshot in snapshots.values()):
            self._begin()
        if self._begun:
            self._recorder.take_all(snapshots)

    def _begin(self) -> None:
        try:
            self._recorder.start()
        except LogError as error:
            self._refused = True
            self._stop_queue.put(error)
        else:
            self._begun = True
            self._count()

    def _count(self) -> None:
        """Count the time of ``--for`` from now on, unless it is counted already."""
        if self._counted_from is None:
            self._counted_from = time.monotonic()

    def stay(self) -> None:
        """Show the progress until the time is over or a signal arrives.

        Raises:
            BaseException: The error that ended it.
        """
        while (left := self._left()) > 0:
            with suppress(Empty):
                ended_by = self._stop_queue.get(timeout=min(_PACE, left))
                if ended_by is not None:
                    raise ended_by
                return
            self._report()
        if not self._begun:
            self._status_line.say("no GPU could be read in all that time: nothing was logged")
            self.exit_status = 1

    def _left(self) -> float:
        """Seconds left."""
        if self._seconds is None:
            return math.inf
        if not self._feed.is_starting():
            # What does not answer must not keep the log from ending.
            self._count()
        if self._counted_from is None:
            return _PACE
        return self._counted_from + self._seconds - time.monotonic()

    def _report(self) -> None:
        status = self._recorder.status if self._begun else None
        trouble = self._feed.trouble()
        if status is not None and status.trouble is not None:
            trouble = printable(status.trouble)
        if self._status_line.rewrites:
            self._status_line.show(self._line(status, trouble))
        else:
            self._reporter.report(status, trouble, self._feed.changes())

    def _line(self, status: LogStatus | None, trouble: str | None) -> list[str]:
        """The progress line on a terminal, most important parts first."""
        if trouble is not None:
            return [f"✖ {words.with_loss(trouble, status)}"]
        parts = self._feed.parts(self._user)
        if status is None or not parts:
            return ["○ waiting for the first sample", *parts]
        whole = self._seconds
        spent = status.seconds
        return [
            f"● {printable(status.path.name)}",
            words.length(spent) if whole is None else words.progress(spent, whole),
            *words.amounts(status),
            *parts,
        ]

    def report_the_end(self) -> None:
        """Print the summary."""
        for sentence in self._feed.never_sampled():
            self._status_line.say(sentence)
        if not self._begun:
            return
        status = self._recorder.status
        for sentence in words.summary(status, self._recorder.log.advice):
            self._status_line.say(sentence)
        if status.trouble is not None and status.lost:
            self.exit_status = 1
