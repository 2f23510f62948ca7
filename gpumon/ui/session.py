"""The data sources of the screens, and the only functions that open them."""

from __future__ import annotations

from threading import Lock, Timer
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.ui.logbook import Logbook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.kill.audit_log import AuditLog
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.csv.recording import CsvRecording
    from gpumon.recording.history import History
    from gpumon.recording.playback import Player
    from gpumon.recording.recording import Recording
    from gpumon.sampling.machine import Machine

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


class SessionBuilder:
    """Opens the session of a machine. Sampling may start long before the session is built.

    ``log``, ``user`` and ``commands`` are for ``Logbook``.
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
    ) -> None:
        self.lookup = Lookup(machine.processes, reservations=machine.reservations)
        self.collector = Collector(machine.source, interval, annotate=self.lookup.annotate)
        self.logbook = Logbook(self.collector, log, user, commands=commands)
        self._machine = machine
        self._thresholds = thresholds
        self._first: History | None = None
        self._stop_first: Callable[[], None] = lambda: None
        self._early = SnapshotBuffer()
        self._settling: Timer | None = None
        self.collector.subscribe(self._early.take, full=False)

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
        return Session(
            self._machine,
            self.collector,
            history,
            self.lookup,
            NoAuditLog() if demo else AuditLog(machine=self._machine.name),
            recording,
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


def replay_session(player: Player, recording: CsvRecording) -> Session:
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
