"""How long it may still take: only where what was seen carries it."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 120.0
_LEAST_SECONDS = 15.0
_LEAST_DROP = 3.0
_LEAST_FIT = 0.9
"""How much of the change a straight line must explain (R²)."""


class Cooling:
    """When cards will be cool, by how they have cooled down in the last minutes.

    A card cools ever more slowly, so this is a least.

    Args:
        limit: Degrees Celsius that are cool.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def left(self, uuid: str, now: float, celsius: float | None) -> float | None:
        """Take a reading; seconds until the card is cool, ``None`` where it does not show."""
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
    """Degrees a second, below 0, where the points fall along a line."""
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
    """For how much longer cards must stay as they are.

    Args:
        seconds: For how long in all.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def left(self, uuid: str, now: float, *, rests: bool) -> float | None:
        """Take a look; seconds that are left, ``None`` for a card that is not as it should be."""
        if not rests:
            self._since.pop(uuid, None)
            return None
        return max(0.0, self._seconds - (now - self._since.setdefault(uuid, now)))
