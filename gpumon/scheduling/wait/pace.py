"""How often to look: often while something happens, seldom while nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

FASTEST, SLOWEST = 1.0, 5.0
"""Seconds. Cards that must stay calm for a while are to be seen every ten at the latest."""
_SLOWER = 1.3


class Pace:
    """Seconds until the next look."""

    def __init__(self) -> None:
        self._last: Hashable = None
        self.seconds = FASTEST

    def after(self, mark: Hashable) -> bool:
        """Take what was seen.

        Args:
            mark: Differs from the one before where something has changed.

        Returns:
            Whether it does.
        """
        changed = mark != self._last
        self.seconds = FASTEST if changed else min(SLOWEST, self.seconds * _SLOWER)
        self._last = mark
        return changed
