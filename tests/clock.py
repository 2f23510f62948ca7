"""The clock of the tests: it stands still until somebody moves it or waits by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

EPOCH = 1_700_000_000.0


class HandClock:
    """Moved by hand, and by waiting.

    Attributes:
        now: Seconds on the monotonic clock.
        epoch: How far the time of day is ahead of these; a test sets the time of day by it.
        on_wait: Called with the seconds before anybody waits.
    """

    def __init__(self, now: float = 1000.0, epoch: float = EPOCH) -> None:
        self.now = now
        self.epoch = epoch
        self.on_wait: Callable[[float], None] = lambda _: None

    def time(self) -> float:
        """See ``Clock.time``."""
        return self.epoch + self.now

    def monotonic(self) -> float:
        """See ``Clock.monotonic``."""
        return self.now

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """See ``Clock.wait``; the seconds have passed at once."""
        begun = self.now
        self.on_wait(timeout)
        if event.is_set():
            return True
        self.now = begun + timeout
        return False
