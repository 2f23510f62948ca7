"""Sums of values some of which may be unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum; ``None`` if a value is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
