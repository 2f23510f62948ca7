"""How long a scheduler that does not answer is left alone."""

from __future__ import annotations

_FIRST_SECONDS = 10.0
_MOST_SECONDS = 600.0


class Backoff:
    """Doubles the pause after each failure in turn, from 10 s up to 10 min."""

    def __init__(self) -> None:
        self._pause = _FIRST_SECONDS
        self.until = 0.0  # Seconds on the monotonic clock, before which nothing is asked.

    def failed(self, now: float) -> None:
        """The scheduler was asked and has not answered."""
        self.until = now + self._pause
        self._pause = min(_MOST_SECONDS, 2 * self._pause)

    def answered(self) -> None:
        """The scheduler has answered."""
        self._pause = _FIRST_SECONDS
