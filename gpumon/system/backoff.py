"""How long another program that does not answer is left alone."""

from __future__ import annotations

_FIRST_SECONDS = 10.0
_MOST_SECONDS = 600.0


class Backoff:
    """Doubles the pause after each failure in turn.

    Args:
        first: Seconds of the first pause.
        most: Seconds of the longest pause.
    """

    def __init__(self, first: float = _FIRST_SECONDS, most: float = _MOST_SECONDS) -> None:
        self._first, self._most = first, most
        self._pause = first
        self.until = 0.0  # Seconds on the monotonic clock, before which nothing is asked.

    def failed(self, now: float) -> None:
        """The program was asked and has not answered."""
        self.until = now + self._pause
        self._pause = min(self._most, 2 * self._pause)

    def answered(self) -> None:
        """The program has answered."""
        self._pause = self._first
