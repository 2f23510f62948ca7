"""Estimates of the remaining time, only where there is evidence."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 120.0
_LEAST_SECONDS = 15.0
_LEAST_DROP = 3.0
_LEAST_FIT = 0.9
"""How much of the change a straight line must explain (R²)."""


class Cooling:
    """Estimates when GPUs will be cool, from their cooling in the last minutes.

    A GPU cools ever more slowly, so this is a minimum.

    Args:
        limit: The temperature in degrees Celsius to reach.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def left(self, uuid: str, now: float, celsius: float | None) -> float | None:
        """Add a reading; returns seconds until the GPU is cool, ``None`` if unknown."""
        points = self._seen.setdefault(uuid, deque())
        if celsius is None:
            points.clear()
            return None
        points.append((now, celsius))
        while points[0][0] < now - _WINDOW_SECONDS:
            points.popleft()
        slope = _falling(points)
        return None if slope is None else max(0.0, (celsius - self._limit) / -slope)


def _falling(points: deque[tuple[float, float]]) -> float | None:
    """Degrees per second, below 0, if the points fall along a line."""
    if points[-1][0] - points[0][0] < _LEAST_SECONDS or points[0][1] - points[-1][1] < _LEAST_DROP:
        return None
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    spread_y = sum((y - mean_y) ** 2 for _, y in points)
    both = sum((x - mean_x) * (y - mean_y) for x, y in points)
    if not spread_x or not spread_y or both >= 0:
        return None
    return both / spread_x if both**2 / (spread_x * spread_y) >= _LEAST_FIT else None


class Resting:
    """How much longer GPUs must stay as they are.

    Args:
        seconds: The required seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def left(self, uuid: str, now: float, *, rests: bool) -> float | None:
        """Add a sample; returns the seconds left, ``None`` if the condition does not hold."""
        if not rests:
            self._since.pop(uuid, None)
            return None
        return max(0.0, self._seconds - (now - self._since.setdefault(uuid, now)))
