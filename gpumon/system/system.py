"""What the package takes from the operating system: the kernel's file systems, and the time."""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from threading import Event


class Clock(Protocol):
    """The source of time for a component, a parameter so that tests need not sleep."""

    def time(self) -> float:
        """Seconds since the epoch: for users and files; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards: for intervals and deadlines."""
        ...

    def wait(self, event: Event, timeout: float) -> bool:
        """Wait for the event, at most ``timeout`` seconds; returns True if it is set."""
        ...


class SystemClock:
    """The system clock."""

    # The functions themselves, because every driver call uses them, thousands of times a second.
    time = staticmethod(_time.time)
    monotonic = staticmethod(_time.monotonic)

    def wait(self, event: Event, timeout: float) -> bool:
        """See ``Clock.wait``."""
        return event.wait(timeout)


class System(Struct, frozen=True):
    """The operating system that is read; tests have trees of files and a clock of their own."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    clock: Clock = SystemClock()


THIS_SYSTEM = System()
