"""What the screens work with: who samples, what was seen, and the processes of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpumon.host import ProcessHost
    from gpumon.kill.audit_log import AuditLog
    from gpumon.recording import Recording
    from gpumon.recording.history import History
    from gpumon.recording.playback import Player
    from gpumon.sampling.collector import Collector
    from gpumon.sampling.enrichment import Lookup
    from gpumon.ui.logbook import Logbook


class Session(NamedTuple):
    """One run of the dashboard.

    Attributes:
        collector: Samples; the screens set its interval.
        history: What was seen; the screens only read it.
        host: The processes of the machine.
        lookup: The slow looks at them.
        journal: Where every signal sent is written.
        tape: What can be shown of the past.
        logbook: Writes a log when asked to.
        player: What plays a log, where this is a replay: then ``collector`` is its own.
    """

    collector: Collector
    history: History
    host: ProcessHost
    lookup: Lookup
    journal: AuditLog
    tape: Recording
    logbook: Logbook
    player: Player | None = None
