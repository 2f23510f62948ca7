"""What the package takes from the operating system: its files, the time, and names of users."""

from __future__ import annotations

import time as _time
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
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


def seconds_slept() -> float:
    """Seconds for which this machine slept since it was started."""
    return _time.clock_gettime(_time.CLOCK_BOOTTIME) - _time.clock_gettime(_time.CLOCK_MONOTONIC)


class System(Struct, frozen=True):
    """The operating system that is read; tests have trees of files and a clock of their own."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    clock: Clock = SystemClock()
    slept: Callable[[], float] = seconds_slept


THIS_SYSTEM = System()


@lru_cache(maxsize=4096)
def user_name(uid: int, nameless: str = "") -> str:
    """Name of a user as it is, not safe to print. May wait for the network.

    Without a name it is the number, after ``nameless``.
    """
    # There is none on a system that is not a Unix.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{nameless}{uid}"
