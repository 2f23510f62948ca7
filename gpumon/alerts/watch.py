"""``gpumon watch``: sends alerts without a screen, for a service."""

from __future__ import annotations

import sys
import threading
import time as clock
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from gpumon.alerts.deliveries import Deliveries
from gpumon.alerts.engine import AlertEngine
from gpumon.findings import conditions
from gpumon.recording.history import PATIENCE, History
from gpumon.recording.recording import RecordingError
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.gpu_sampler import sample_for_good
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.system.standard_output import OutputError
from gpumon.text.formatting import counted, printable
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.archive import FoundArchive
    from gpumon.sampling.machine import Machine

_CLOSE_SECONDS = 5.0
"""How long notices that are being sent may delay the end."""
_HISTORY_SECONDS = 3.0
"""How long reading the history of the machine may delay the start."""
_LAST_LINES_SECONDS = 1.0
_MOST_LINES = 10_000
"""This many lines wait for a blocked standard output; later ones are dropped."""


def watch(
    machine: Machine,
    alerts: Sequence[Alert],
    interval: float,
    thresholds: Thresholds,
    state: str | None,
    find_history: Callable[[], FoundArchive] | None = None,
) -> int:
    """Send alerts until a signal, with a line for each notice on standard output.

    A driver that cannot be used is no reason to end: it is tried again. For ``state`` see
    ``AlertEngine``. ``find_history`` finds the history of the machine, which says since when states
    hold that began before the start.

    Returns:
        The exit status.

    Raises:
        NoSuchGpuError: The selection names GPUs that the machine does not have.
        OutputError: Standard output cannot be written.
    """
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(news), StatusLine(sys.stderr) as status, ExitStack() as ending:

        def say(sentence: str) -> None:
            status.say(printable(sentence))

        lines = _Lines(sys.stdout, news)
        ending.callback(lines.close)
        deliveries = Deliveries(None, say)
        ending.callback(deliveries.close, _CLOSE_SECONDS)
        engine = AlertEngine(alerts, thresholds, state)
        ending.callback(engine.close)
        names = ", ".join(alert.name for alert in alerts)
        say(
            f"watching {machine.source.hostname}, a sample every {interval:g} s, for "
            f"{counted(len(alerts), 'alert')}: {names}"
        )
        history, known_from = begun_history(thresholds, find_history)
        if known_from:
            say(f"the history in {known_from} shows how long states have held")
        watching = _Watching(engine, deliveries, lines, status, history)
        lookup = partial(Lookup.of, machine)
        sample_for_good(
            machine.source, interval, lookup, news, watching.on_snapshot, watching.report_trouble
        )
    return 0


def begun_history(
    thresholds: Thresholds, find: Callable[[], FoundArchive] | None
) -> tuple[History, str]:
    """A history that goes on with the intervals of the history of this machine.

    It is empty if there is none, if that of the machine is not being kept now or has other
    thresholds, and if its disk hangs.

    Args:
        thresholds: Those of the history.
        find: Finds the history of the machine; ``None`` if it is not to be used.

    Returns:
        The history, and the folder that it goes on from; empty if it is empty.
    """
    empty = History(conditions(thresholds), thresholds)
    if find is None:
        return empty, ""
    found: list[tuple[History, str]] = []

    def resume() -> None:
        archive = find().archive
        if archive is None:
            return
        begun = History(conditions(thresholds), thresholds)
        with suppress(RecordingError), closing(archive):
            last = archive.last
            is_kept = archive.is_kept(clock.time(), PATIENCE)
            if last is not None and is_kept and archive.resume(begun, last):
                found.append((begun, str(archive.folder)))

    reading = threading.Thread(target=resume, name="gpumon-history", daemon=True)
    reading.start()
    reading.join(_HISTORY_SECONDS)
    return found[0] if found else (empty, "")


class _Watching:
    """Checks the alerts at each sample, and prints and sends their notices."""

    def __init__(
        self,
        engine: AlertEngine,
        deliveries: Deliveries,
        lines: _Lines,
        status: StatusLine,
        history: History,
    ) -> None:
        self._engine = engine
        self._deliveries = deliveries
        self._lines = lines
        self._status = status
        self._history = history
        self._reported: dict[str, str | None] = {}

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Check the alerts. Runs on the sampling thread, or on its watchdog."""
        self._history.add(snapshot)
        for alert, notice in self._engine.check(self._history, snapshot):
            self._lines.add(notice_line(notice))
            self._deliveries.send(alert, notice)
        trouble = snapshot.trouble
        self.report_trouble(None if trouble is None else f"{trouble.sentence} {trouble.advice}")
        self._report_once("memory", self._engine.trouble)

    def report_trouble(self, sentence: str | None) -> None:
        """Print why nothing can be sampled, and that sampling continues; each once."""
        if sentence is None and self._reported.get("source") is not None:
            self._status.say("sampling continues")
        self._report_once("source", sentence)

    def _report_once(self, about: str, sentence: str | None) -> None:
        if sentence != self._reported.get(about):
            self._reported[about] = sentence
            if sentence is not None:
                self._status.say(printable(sentence))


def notice_line(notice: Notice) -> str:
    """The line of a notice: its time, its title and its sentence."""
    at = datetime.fromtimestamp(notice.at).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S} {notice.title} | {notice.sentence}"


class _Lines:
    """Prints lines on a thread of its own, so that a blocked output delays no sample.

    ``news`` gets the error if the output cannot be written.
    """

    def __init__(self, stream: TextIO, news: SimpleQueue[BaseException | None]) -> None:
        self._stream = stream
        self._news = news
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_on, name="gpumon-lines", daemon=True)
        self._thread.start()

    def add(self, line: str) -> None:
        """Print a line."""
        if self._waiting.qsize() < _MOST_LINES:
            self._waiting.put(line)

    def close(self) -> None:
        """Print what waits, but not for long."""
        self._waiting.put(None)
        self._thread.join(_LAST_LINES_SECONDS)

    def _write_on(self) -> None:
        try:
            while (line := self._waiting.get()) is not None:
                self._stream.write(f"{line}\n")
                self._stream.flush()
        except OutputError as failure:
            self._news.put(failure)
