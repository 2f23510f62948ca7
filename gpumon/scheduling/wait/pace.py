"""The polling interval: short while something changes, long while nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

FASTEST, SLOWEST = 1.0, 5.0
"""Seconds. Cards that must stay calm for a while are to be seen every ten at the latest."""
_SLOWER = 1.3


class Pace:
    """Seconds until the next poll."""

    def __init__(self) -> None:
        self._last: Hashable = None
        self.seconds = FASTEST

    def after(self, mark: Hashable) -> bool:
        """Record an observation.

        Args:
            mark: A value that differs from the previous one if something has changed.

        Returns:
            Whether it differs.
        """
        changed = mark != self._last
        self.seconds = FASTEST if changed else min(SLOWEST, self.seconds * _SLOWER)
        self._last = mark
        return changed
