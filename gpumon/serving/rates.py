"""What a server does per second, from counters that count since its start."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from gpumon.model.serving import ServerLoad

if TYPE_CHECKING:
    from gpumon.serving.metrics_text import ServerReadings

WINDOW = 30.0
"""Seconds over which rates are computed. Many servers count the tokens of a request at its end, so
a shorter time would show nothing most of the time, and then far too much."""
_DIGITS = 3


class Rates:
    """Makes loads of the readings of one server."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, ServerReadings]] = deque()

    def load(
        self, readings: ServerReadings, now: float, *, tokens_while_generating: bool = True
    ) -> ServerLoad:
        """The load at the time of these readings.

        Args:
            readings: The newest.
            now: Seconds on the monotonic clock.
            tokens_while_generating: See ``Engine``.
        """
        past = self._past
        past.append((now, readings))
        # One that is older than the window stays: rates are over the whole of it.
        while len(past) > 2 and past[1][0] <= now - WINDOW:
            past.popleft()
        tokens = self._rate("tokens")
        if tokens == 0 and readings.running and not tokens_while_generating:
            # It generates, and will count that later.
            tokens = None
        return ServerLoad(
            running=_count(readings.running),
            waiting=_count(readings.waiting),
            requests=self._rate("requests"),
            tokens=tokens,
            prompt_tokens=self._rate("prompt_tokens"),
            kv_cache=None if readings.kv_cache is None else round(readings.kv_cache, 1),
            models=readings.models,
        )

    def forget(self) -> None:
        """Begin afresh: the server has not answered for a while."""
        self._past.clear()

    def _rate(self, counter: str) -> float | None:
        """Per second; ``None`` before a second answer, and after the counter was set back."""
        (then, before), (now, after) = self._past[0], self._past[-1]
        begin: float | None = getattr(before, counter)
        end: float | None = getattr(after, counter)
        if begin is None or end is None or end < begin or now <= then:
            return None
        return round((end - begin) / (now - then), _DIGITS)


def _count(value: float | None) -> int | None:
    # Something that is not 0 must not become 0.
    return None if value is None else math.ceil(value)
