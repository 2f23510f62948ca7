"""Time, as something that can be passed in, so that nothing in the tests has to sleep."""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from threading import Event


class Clock(Protocol):
    """Where a component gets its time from."""

    def time(self) -> float:
        """Seconds since the epoch: for people and files; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward: for intervals and deadlines."""
        ...

    def wait(self, event: Event, timeout: float) -> bool:
        """Wait for the event, at most ``timeout`` seconds; True when it is set."""
        ...


class SystemClock:
    """The machine's own time."""

    # Asked at every call of the driver, thousands of times a second: the functions themselves.
    time = staticmethod(_time.time)
    monotonic = staticmethod(_time.monotonic)

    def wait(self, event: Event, timeout: float) -> bool:
        """See ``Clock.wait``."""
        return event.wait(timeout)
