"""The data sources of the screens, the only functions that open them, and the logs they write."""

from __future__ import annotations

import math
import time
from threading import Lock, Timer
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.text.formatting import counted, duration, memory_size
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpumon.alerts.alert import Alert
    from gpumon.kill.audit_log import AuditLog
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.archive import FoundArchive
    from gpumon.recording.history import History
    from gpumon.recording.opening import LogRecording
    from gpumon.recording.playback import Player
    from gpumon.recording.recorder import LogStatus, Recorder
    from gpumon.recording.recording import Recording
    from gpumon.sampling.machine import Machine
    from gpumon.ui.view.header_footer import LogNote


_PAST_LATER = 1.0
"""Seconds after the start at which the past of a source becomes available."""


class SessionAlerts(Struct, frozen=True):
    """The alerts of the configuration, for one machine."""

    alerts: Sequence[Alert] = ()  # those that are checked
    note: str = ""  # what is not done here, and why
    state: str | None = None  # the file that remembers what was reported


class Session(Struct, frozen=True):
    """One run of the dashboard."""

    machine: Machine  # that is shown
    collector: Collector  # samples it; the screens set its interval
    history: History  # of the samples; the screens only read it
    lookup: Lookup  # slow queries about them, on another thread
    audit_log: AuditLog  # of all sent signals
    recording: Recording  # the recorded past, for rewinding
    logbook: Logbook  # starts and stops logs
    player: Player | None = None  # plays a log in a replay, and then owns ``collector``
    alerts: SessionAlerts = SessionAlerts()
    damage: Callable[[], str] = lambda: ""  # of the log of a replay; may be known only later


class SnapshotBuffer:
    """Keeps the first snapshots until there is a listener."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: list[Snapshot] = []
        self._listener: Callable[[Snapshot], None] = self._kept.append

    def on_snapshot(self, snapshot: Snapshot) -> None:
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


class SessionBuilder:
    """Opens the session of a machine. Sampling may start long before the session is built.

    ``log``, ``user`` and ``commands`` are for ``Logbook``; ``history`` finds the archive of the
    machine, if one is to be used.
    """

    def __init__(
        self,
        machine: Machine,
        interval: float,
        thresholds: Thresholds,
        *,
        log: str | None = None,
        user: str | None = None,
        commands: bool = True,
        history: Callable[[], FoundArchive] | None = None,
    ) -> None:
        self.lookup = Lookup.of(machine)
        self.collector = Collector(machine.source, interval, annotate=self.lookup.annotate)
        self.logbook = Logbook(self.collector, log, user, commands=commands)
        self._machine = machine
        self._thresholds = thresholds
        self._find_archive = history
        self._first: History | None = None
        self._stop_first: Callable[[], None] = lambda: None
        self._early = SnapshotBuffer()
        self._settling: Timer | None = None
        self.collector.subscribe(self._early.on_snapshot, full=False)

    def first_history(self) -> History:
        """The history of the first picture, which does not wait for ``build``."""
        self._first = first = self._empty_history()
        self._stop_first = self.collector.subscribe(first.add, newest=True, full=False)
        return first

    def _empty_history(self) -> History:
        # The driver answers while these are imported.
        from gpumon.findings import conditions
        from gpumon.recording.history import History

        return History(conditions(self._thresholds), self._thresholds)

    def build(self, alerts: SessionAlerts, *, demo: bool = False) -> Session:
        """Import and start everything else. It takes seconds where the past is read over a network.

        Args:
            alerts: The alerts of the configuration.
            demo: Whether it is simulated: then no sent signal is logged.
        """
        from gpumon.kill.audit_log import AuditLog, NoAuditLog
        from gpumon.recording.memory.recording import MemoryRecording

        self.lookup.start()
        recording = MemoryRecording(self._thresholds.full_share)
        past = tuple(self._machine.source.past())
        history = self._first
        if history is None or past:
            # Adding a past takes longer than the rest of the start: the first picture has none.
            history = self._empty_history()
            for snapshot in past:
                history.add(snapshot)
            # The picture that stands until Textual draws needs one sample, not the newest.
            if self._first is not None and self._first.latest is not None:
                self._stop_first()
            add_to_history = history.add

            def add(snapshot: Snapshot) -> None:
                add_to_history(snapshot)
                recording.add(snapshot)

            if past:
                # Packing takes as long as the rest of the start.
                recording.begin_with(past)
                self._settling = Timer(_PAST_LATER, recording.settle)
                self._settling.daemon = True
                self._settling.start()
            self._early.hand_to(add)
        else:
            self._early.hand_to(recording.add)
        whole: Recording = recording
        if self._find_archive is not None:
            from gpumon.recording.joined import JoinedRecording

            whole = JoinedRecording(recording, self._find_archive, history.empty_states)
        return Session(
            self._machine,
            self.collector,
            history,
            self.lookup,
            NoAuditLog() if demo else AuditLog(machine=self._machine.name),
            whole,
            self.logbook,
            alerts=alerts,
        )

    def close(self) -> list[str]:
        """Stop what runs, which may take a second; a summary of each log, to be printed."""
        if self._settling is not None:
            self._settling.cancel()
        summaries = self.logbook.close()
        self.collector.stop()
        self.lookup.stop()
        return summaries


def replay_session(player: Player, recording: LogRecording) -> Session:
    """The session of a log that is played."""
    from gpumon.kill.audit_log import AuditLog
    from gpumon.recording.playback import ReplayedMachine

    machine = ReplayedMachine(player.source)
    return Session(
        machine,
        player.collector,
        player.history,
        Lookup(machine.processes),
        AuditLog(),
        recording,
        Logbook(None),
        player,
        alerts=SessionAlerts(note="A log is shown: past events send no notifications."),
        damage=lambda: recording.damage,
    )


class _EndTimer(Timer):
    """Ends a log after a time, which may begin long after the log."""

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        super().__init__(seconds, end)
        self.daemon = True
        self._ends_at = time.monotonic() + seconds

    @property
    def seconds_left(self) -> int:
        """Whole seconds until the end, rounded up."""
        return max(0, math.ceil(self._ends_at - time.monotonic()))


class Logbook:
    """Starts a log, stops it, and reports its status.

    Args:
        collector: The source of samples; ``None`` for a replay, which is a log already.
        path: The path; by default a new file in the working directory each time.
        user: Log only the processes of this user.
        commands: Whether to log command lines, which may contain secrets.
    """

    def __init__(
        self,
        collector: Collector | None,
        path: str | None = None,
        user: str | None = None,
        *,
        commands: bool = True,
    ) -> None:
        self._collector = collector
        self._path = path
        self._user = user
        self._commands = commands
        self._recorder: Recorder | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._summaries: list[str] = []
        self._toggle_lock = Lock()
        self._timer: _EndTimer | None = None

    @property
    def note(self) -> LogNote | None:
        """The status of the log for the header; ``None`` while none is written."""
        # Read once: another thread may stop the log meanwhile.
        recorder = self._recorder
        if recorder is None:
            return None
        from gpumon.ui.view.header_footer import LogNote

        status = recorder.status
        if status.trouble is not None:
            return LogNote(f"log: {counted(status.lost, 'sample')} lost", status.trouble)
        # Read once, as above.
        timer = self._timer
        left = "" if timer is None else f", {duration(timer.seconds_left)} left"
        return LogNote(f"log {_size(status)} {duration(status.seconds)}{left}")

    def begin(self) -> str | None:
        """Start the log that the command line requests, if any.

        Returns:
            Why it cannot be written, as a sentence; ``None`` if it can.
        """
        if self._path is None:
            return None
        from gpumon.recording.csv.opening import LogError

        try:
            self.start()
        except LogError as error:
            return str(error)
        return None

    def start(self) -> str:
        """Start a log. Returns a message with its path.

        Raises:
            LogError: It cannot be written.
        """
        if self._collector is None:
            return "this is a log already: nothing to log"
        from gpumon.recording.csv.csv_log import CsvLog
        from gpumon.recording.csv.files import log_path
        from gpumon.recording.recorder import Recorder

        name = log_path(self._path, self._collector.hostname, time.time())
        recorder = Recorder(CsvLog(name, user=self._user, commands=self._commands))
        recorder.start()
        self._recorder = recorder
        self._unsubscribe = self._collector.subscribe(recorder.take)
        return f"logging to {_place(recorder.status.path)}; {keycap('log')} stops"

    def stop(self) -> str:
        """Stop the log. Returns a message with its path and size."""
        recorder, unsubscribe = self._recorder, self._unsubscribe
        if recorder is None or unsubscribe is None:
            return ""
        unsubscribe()
        self._recorder = self._unsubscribe = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        status = recorder.stop()
        summary = f"logged {_amounts(status)}. To see them: gpumon replay {status.path}"
        self._summaries.append(summary)
        # The screen may be narrow, so the path comes first.
        return f"logged to {_place(status.path)}: {_amounts(status)}"

    def toggle(self) -> str:
        """Start a log, or stop the current one. Returns the message for the user.

        Blocks on the disk; parallel calls run one after another.
        """
        from gpumon.recording.csv.opening import LogError

        with self._toggle_lock:
            if self._recorder is not None:
                return self.stop()
            try:
                return self.start()
            except LogError as error:
                return str(error)

    def log_for(self, seconds: float, ended: Callable[[str], None]) -> str:
        """Stop the log after a time; start one if none is written. Returns the message.

        Blocks as ``toggle`` does; ``ended`` gets the message of the end, on another thread.
        """
        from gpumon.recording.csv.opening import LogError

        def end() -> None:
            with self._toggle_lock:
                # Another time may have been set just now.
                if self._timer is not timer:
                    return
                message = self.stop()
            ended(message)

        with self._toggle_lock:
            if self._recorder is None:
                try:
                    message = self.start()
                except LogError as error:
                    return str(error)
                if self._recorder is None:
                    return message
            elif self._timer is not None:
                self._timer.cancel()
            self._timer = timer = _EndTimer(seconds, end)
            timer.start()
            place = _place(self._recorder.status.path)
        return f"logging to {place} for {duration(seconds)}; {keycap('log')} stops"

    def close(self) -> list[str]:
        """Stop the log. Returns a summary of each log, to be printed after the screen is gone."""
        with self._toggle_lock:
            self.stop()
        return self._summaries


def _place(path: Path) -> str:
    """The file name, and its folder if that is not the working directory."""
    folder = path.parent.resolve()
    return path.name if folder == path.cwd() else f"{path.name} in {folder}"


def _amounts(status: LogStatus) -> str:
    lost = f", {counted(status.lost, 'sample')} lost" if status.lost else ""
    return (
        f"{counted(status.samples, 'sample')} in {duration(status.seconds)}{lost}, {_size(status)}"
    )


def _size(status: LogStatus) -> str:
    return memory_size(status.bytes)
