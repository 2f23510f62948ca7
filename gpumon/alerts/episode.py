"""What an alert knows of one subject: whether it holds there, and whether that was told."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

GONE_FOR = 60.0
"""Seconds for which something must be seen absent until it has ended; it is told once however often
it comes and goes in less."""


class Phase(str, Enum):
    """How far it has got."""

    PENDING = "pending"
    """It holds, and is not told yet: not for long enough, or within the cooldown."""
    TOLD = "told"
    """It holds and was told."""
    KNOWN = "known"
    """It held at the first look, or its beginning is not to be told."""
    OVER = "over"
    """It has ended; the cooldown still counts."""


class Change(Enum):
    """What is to be told."""

    BEGAN = "began"
    ENDED = "ended"


class Episode(Struct):
    """An alert and one subject. Times are those of the samples, in seconds since the epoch.

    Attributes:
        phase: How far it has got.
        since: When it began.
        held: Seconds for which it has been seen to hold without a break.
        gone: Seconds for which it has been seen absent without a break.
        seen_at: When it was last known whether it holds.
        held_then: Whether it held then; ``None`` if it has been unknown since.
        told_at: When it was last told.
    """

    phase: Phase
    since: float
    seen_at: float
    held: float = 0.0
    gone: float = 0.0
    held_then: bool | None = True
    told_at: float | None = None

    def see(
        self,
        holds: bool | None,
        now: float,
        patience: float,
        *,
        lasting: float,
        cooldown: float,
        since: float | None = None,
    ) -> Change | None:
        """Take what is seen now; what is to be told of it.

        Args:
            holds: Whether it holds; ``None`` if that is unknown, which changes nothing.
            now: The time.
            patience: Seconds between two looks from which on what was between is unknown.
            lasting: Seconds for which it must hold before it is told.
            cooldown: Seconds in which it is not told again.
            since: When it began, if that is known better.
        """
        if holds is None:
            self.held_then = None
            return None
        passed = now - self.seen_at
        if holds is not self.held_then or passed > patience:
            passed = 0.0
        self.seen_at, self.held_then = now, holds
        if holds:
            return self._hold(now, passed, lasting, cooldown, since)
        return self._miss(passed)

    def _hold(
        self, now: float, passed: float, lasting: float, cooldown: float, since: float | None
    ) -> Change | None:
        self.gone = 0.0
        if self.phase is Phase.OVER:
            self.phase, self.since, self.held = Phase.PENDING, now, 0.0
        self.held += passed
        if self.phase is not Phase.PENDING:
            return None
        if since is not None:
            self.since = since
        if max(self.held, 0.0 if since is None else now - since) < lasting:
            return None
        if self.told_at is not None and now - self.told_at < cooldown:
            return None
        self.phase, self.told_at = Phase.TOLD, now
        return Change.BEGAN

    def _miss(self, passed: float) -> Change | None:
        self.gone += passed
        if self.phase is Phase.PENDING:
            # What was not told needs no end; it has to hold without a break to be told.
            self.phase = Phase.OVER
        elif self.gone >= GONE_FOR and self.phase is not Phase.OVER:
            told = self.phase is Phase.TOLD
            self.phase = Phase.OVER
            return Change.ENDED if told else None
        return None

    def is_past(self, now: float, cooldown: float) -> bool:
        """Whether nothing is left to remember of it."""
        if self.phase is not Phase.OVER:
            return False
        return self.told_at is None or now - self.told_at >= cooldown

    def shift(self, seconds: float) -> None:
        """Move all times into the past, when the clock was set back."""
        self.since -= seconds
        self.seen_at -= seconds
        if self.told_at is not None:
            self.told_at -= seconds
