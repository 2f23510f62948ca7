"""The clocks of the tests: they stand still until a test moves them or somebody waits by them."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from unittest.mock import patch

if TYPE_CHECKING:
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


class ThreadedClock(HandClock):
    """Threads wait by it, and ``pass_time`` lets them go on, one after another.

    Time stands still until all of them wait, so what they do does not depend on the machine's
    speed.
    """

    def __init__(self, now: float = 1000.0, epoch: float = EPOCH) -> None:
        super().__init__(now, epoch)
        self.threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._waits: dict[threading.Thread, _Wait] = {}

    def start(self, component: Startable) -> None:
        """Start a component whose threads wait by this clock, until all of them wait."""
        caller, start = threading.current_thread(), threading.Thread.start

        def started(thread: threading.Thread) -> None:
            # What those threads start themselves may wait for something else, such as a driver.
            if threading.current_thread() is caller:
                self.threads.add(thread)
            start(thread)

        with patch.object(threading.Thread, "start", started):
            component.start()
        self.settle()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """See ``Clock.wait``."""
        thread, wait = threading.current_thread(), _Wait(event, self.now + timeout)
        self.on_wait(timeout)
        with self._changed:
            self._waits[thread] = wait
            self._changed.notify_all()
            # An event of another thread ends the wait without a notice.
            while not (event.is_set() or wait.is_over):
                self._changed.wait(0.001)
            del self._waits[thread]
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        """Let time pass in the middle of a thread's work."""
        self.wait(threading.Event(), seconds)

    def settle(self) -> None:
        """Wait until all threads wait or have ended."""
        deadline = time.monotonic() + _PATIENCE
        with self._changed:
            while not all(map(self._is_idle, self.threads)):
                assert time.monotonic() < deadline, "a thread waits for something else"
                self._changed.wait(0.001)

    def _is_idle(self, thread: threading.Thread) -> bool:
        wait = self._waits.get(thread)
        if wait is None:
            return not thread.is_alive()
        return not (wait.event.is_set() or wait.is_over)

    def step(self, until: float = math.inf) -> bool:
        """Let the thread go on whose time is over next; returns whether there is one by then."""
        self.settle()
        with self._changed:
            due = min(self._waits.values(), key=lambda wait: wait.deadline, default=None)
            if due is None or due.deadline > until:
                return False
            self.now = max(self.now, due.deadline)
            due.is_over = True
            self._changed.notify_all()
        self.settle()
        return True

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let everything happen that is due within some seconds, or that was woken."""
        end = self.now + seconds
        while self.step(end):
            pass
        self.now = max(self.now, end)


class Startable(Protocol):
    """What has threads of its own."""

    def start(self) -> None:
        """Start them."""


@dataclass
class _Wait:
    event: threading.Event
    deadline: float
    is_over: bool = False


_PATIENCE = 60.0
