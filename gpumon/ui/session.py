"""The data sources of the screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.host.process_host import ProcessHost
    from gpumon.kill.audit_log import AuditLog
    from gpumon.recording.history import History
    from gpumon.recording.playback import Player
    from gpumon.recording.recording import Recording
    from gpumon.sampling.collector import Collector
    from gpumon.sampling.enrichment import Lookup
    from gpumon.ui.logbook import Logbook


class SessionAlerts(NamedTuple):
    """The alerts of the configuration, for one machine.

    Attributes:
        alerts: The alerts that are checked.
        note: What is not done here, and why; empty if everything is.
        state: The file that remembers what was reported; ``None`` for none.
    """

    alerts: Sequence[Alert] = ()
    note: str = ""
    state: str | None = None


class Session(NamedTuple):
    """One run of the dashboard.

    Attributes:
        collector: Samples the machine; the screens set its interval.
        history: The history of the samples; the screens only read it.
        host: The processes of the machine.
        lookup: Slow queries about them, on another thread.
        audit_log: The log of all sent signals.
        recording: The recorded past, for rewinding.
        logbook: Starts and stops logs.
        player: Plays a log in a replay, and then owns ``collector``; otherwise ``None``.
        machine: The machine of the processes as the user named it, if it is another one.
        alerts: The alerts of the configuration.
        damage: What is wrong with the log of a replay, which may be known only later.
    """

    collector: Collector
    history: History
    host: ProcessHost
    lookup: Lookup
    audit_log: AuditLog
    recording: Recording
    logbook: Logbook
    player: Player | None = None
    machine: str | None = None
    alerts: SessionAlerts = SessionAlerts()
    damage: Callable[[], str] = lambda: ""
