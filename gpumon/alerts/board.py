"""What was told, for the page that lists it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.alerts.notice import Notice

TOLD_KEPT = 200
"""How many notices are kept, the newest."""


class Told:
    """The newest notices that were told."""

    def __init__(self) -> None:
        self._notices: deque[Notice] = deque(maxlen=TOLD_KEPT)

    def add(self, notice: Notice) -> None:
        """Keep a notice; the oldest one goes if there are too many."""
        self._notices.append(notice)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The notices, newest first."""
        return tuple(reversed(self._notices))
