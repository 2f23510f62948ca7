"""What is known of each alert: its instances, one per GPU or process, as they are remembered.

The names in the file of ``gpumon.alerts.memory`` are older than those of the classes; they stay, so
that an update neither repeats nor loses a notification.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gpumon.model.processes import ProcessId  # noqa: TC001 - msgspec resolves annotations

GONE_FOR = 60.0
"""Seconds for which a condition must be seen absent until it is resolved; one that comes and goes
faster is reported once."""


class AlertState(str, Enum):
    """The state of an alert instance."""

    PENDING = "pending"
    """The condition holds, but not for long enough yet, or within the cooldown."""
    FIRING = "told"
    """The condition holds, and its start was reported."""
    SUPPRESSED = "known"
    """The condition held at the first evaluation already, so its start is not reported."""
    RESOLVED = "over"
    """The condition has ended; the cooldown still counts."""


class Transition(Enum):
    """A change of an alert instance that is reported."""

    FIRED = "fired"
    RESOLVED = "resolved"


class AlertInstance(
    Struct,
    rename={
        "state": "phase",
        "seconds_held": "held",
        "seconds_absent": "gone",
        "evaluated_at": "seen_at",
        "last_value": "held_then",
        "notified_at": "told_at",
    },
):
    """An alert and one subject. Times are those of the samples, in seconds since the epoch."""

    state: AlertState
    since: float
    """When the condition began."""
    evaluated_at: float
    """When it was last known whether the condition holds."""
    seconds_held: float = 0.0
    """Seconds for which it has been seen to hold without a break."""
    seconds_absent: float = 0.0
    """Seconds for which it has been seen absent without a break."""
    last_value: bool | None = True
    """Whether it held at ``evaluated_at``; ``None`` if it has been unknown since."""
    notified_at: float | None = None
    """When its start was last reported."""

    def update(
        self,
        holds: bool | None,
        now: float,
        max_gap: float,
        *,
        for_seconds: float,
        cooldown: float,
        since: float | None = None,
    ) -> Transition | None:
        """Evaluate the condition, which ``holds`` or not; if that is unknown, nothing changes.

        What happened since the last evaluation is unknown if that was more than ``max_gap`` seconds
        ago. ``since`` is when the condition began, if that is known better.
        """
        if holds is None:
            self.last_value = None
            return None
        elapsed = now - self.evaluated_at
        if holds is not self.last_value or elapsed > max_gap:
            elapsed = 0.0
        self.evaluated_at, self.last_value = now, holds
        if not holds:
            return self._end(elapsed)
        self.seconds_absent = 0.0
        if self.state is AlertState.RESOLVED:
            self.state, self.since, self.seconds_held = AlertState.PENDING, now, 0.0
        self.seconds_held += elapsed
        if self.state is not AlertState.PENDING:
            return None
        if since is not None:
            self.since = since
        has_lasted = max(self.seconds_held, 0.0 if since is None else now - since) >= for_seconds
        if not has_lasted or self.is_cooling(now, cooldown):
            return None
        self.state, self.notified_at = AlertState.FIRING, now
        return Transition.FIRED

    def _end(self, elapsed: float) -> Transition | None:
        self.seconds_absent += elapsed
        if self.state is AlertState.PENDING:
            # It was not reported, and must hold without a break to be.
            self.state = AlertState.RESOLVED
        elif self.seconds_absent >= GONE_FOR and self.state is not AlertState.RESOLVED:
            was_firing = self.state is AlertState.FIRING
            self.state = AlertState.RESOLVED
            return Transition.RESOLVED if was_firing else None
        return None

    def is_cooling(self, now: float, cooldown: float) -> bool:
        """Whether it was reported less than ``cooldown`` seconds ago."""
        return self.notified_at is not None and now - self.notified_at < cooldown

    def is_past(self, now: float, cooldown: float) -> bool:
        """Whether nothing is left to remember of it."""
        return self.state is AlertState.RESOLVED and not self.is_cooling(now, cooldown)

    def shift(self, seconds: float) -> None:
        """Move all times into the past, when the clock was set back."""
        self.since -= seconds
        self.evaluated_at -= seconds
        if self.notified_at is not None:
            self.notified_at -= seconds


class RememberedProcess(Struct):
    """A process whose end is reported."""

    pid: int
    start_time: int | None
    """See ``ProcessId``."""
    name: str | None
    user: str | None
    gpus: tuple[int, ...]
    """Indices of its GPUs."""
    gpu_uuids: tuple[str, ...]
    since: float
    """When it was first seen, in seconds since the epoch."""
    command: str | None = None
    """Its command line, safe to print, only with ``commands = true``."""
    missing: int = 0
    """In how many lists in a row it has been absent."""
    server: ProcessId | None = None
    """See ``GpuProcess.server_id``."""


class RememberedAlert(Struct, rename={"first_seen": "looked", "instances": "episodes"}):
    """What is known of one alert."""

    when: str
    """Its ``when``; once that has changed, the rest is not used."""
    first_seen: dict[str, float] = {}
    """When each GPU was first evaluated, by UUID."""
    instances: dict[str, AlertInstance] = {}
    """The instances by the key of their GPU or process, for XIDs by ``UUID:NUMBER``, and for
    accidents by the key of their notice."""
    xids: dict[str, dict[int, float | None]] = {}
    """When each XID was last reported, by UUID of the GPU and number."""
    processes: dict[str, RememberedProcess] = {}
    """Processes by key."""
    accidents_at: float | None = None
    """When the newest accident was reported, or else since when they are followed."""

    def shift(self, seconds: float) -> None:
        """Move all times of this program into the past, when the clock was set back."""
        self.first_seen = {uuid: at - seconds for uuid, at in self.first_seen.items()}
        for instance in self.instances.values():
            instance.shift(seconds)
        for process in self.processes.values():
            process.since -= seconds
        if self.accidents_at is not None:
            self.accidents_at -= seconds
