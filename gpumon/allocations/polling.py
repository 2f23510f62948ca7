"""A question to a scheduler that is asked again and again."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from gpumon.system.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.system.system import Clock

_T = TypeVar("_T")
_LEAST_PAUSE = 0.1


class Poll(Generic[_T]):
    """Asks when it is time, and keeps the newest answer until there is another.

    Args:
        ask: Asks in so many seconds at most; ``None``: there is no answer.
        seconds: Seconds between two questions that are answered.
        clock: The clock.
    """

    def __init__(self, ask: Callable[[float], _T | None], seconds: float, clock: Clock) -> None:
        self._ask, self._seconds, self._clock = ask, seconds, clock
        self._backoff = Backoff()
        self._due = 0.0
        self._answered_at = -inf
        self.answer: _T | None = None

    def look(self, patience: float) -> float:
        """Ask if it is time. Returns seconds until the next question."""
        if self._clock.monotonic() >= self._due:
            answer = self._ask(patience)
            now = self._clock.monotonic()
            if answer is None:
                self._backoff.failed(now)
                self._due = self._backoff.until
            else:
                self._backoff.answered()
                self.answer, self._answered_at = answer, now
                self._due = now + self._seconds
        return max(_LEAST_PAUSE, self._due - self._clock.monotonic())

    @property
    def age(self) -> float:
        """Seconds since the answer."""
        return self._clock.monotonic() - self._answered_at
