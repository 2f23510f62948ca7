"""Sums of values of which some may be unknown, and lines through points."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

N = TypeVar("N", int, float)


def known_sum(values: Iterable[N | None]) -> N | None:
    """The sum; ``None`` if any value is unknown."""
    total: N = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def fitted_line(points: Collection[tuple[float, float]]) -> tuple[float, float]:
    """The least-squares line through points: its slope, and R², the share that it explains."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    spread_y = sum((y - mean_y) ** 2 for _, y in points)
    both = sum((x - mean_x) * (y - mean_y) for x, y in points)
    if not spread_x or not spread_y:
        return 0.0, 0.0
    return both / spread_x, both**2 / (spread_x * spread_y)
