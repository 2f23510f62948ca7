"""Sums of values of which some may be unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

N = TypeVar("N", int, float)


def known_sum(values: Iterable[N | None]) -> N | None:
    """The sum; ``None`` if any value is unknown."""
    total: N = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
