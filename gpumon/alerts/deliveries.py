"""The queues of notices: one queue and at most one thread for each channel."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.alerts.channels.channel import CANCELLED, Attempt, DeliveryError
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.channels.channel import Channel, Terminal
    from gpumon.alerts.notice import Notice

MOST_WAITING = 100
"""Notices that wait for one channel; a further notice takes the place of the oldest."""
PAUSES = (1.0, 5.0, 30.0)
"""Seconds between the attempts to send a notice."""
OLDEST = 300.0
"""Seconds after which a notice that waited behind slow or failing ones is dropped."""
_CANCEL_SECONDS = 1.0
"""How long ``close`` waits for what it has cancelled."""


class Deliveries:
    """Sends notices, each channel on a thread of its own, so that none delays another.

    ``report`` gets a sentence when a channel fails, when it works again and when notices are
    dropped, safe to print and without secrets. Threads of this class call it.
    """

    def __init__(
        self,
        terminal: Terminal | None,
        report: Callable[[str], None],
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._terminal = terminal
        self._report = report
        self._pauses = tuple(pauses)
        self._lock = threading.Lock()
        self._queues: dict[Channel, _Queue] = {}
        self._is_closed = False

    def send(self, alert: Alert, notice: Notice) -> None:
        """Send a notice through all channels of its alert, soon.

        Never blocks and never raises. Any thread may call this; after ``close`` it does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            for channel in alert.channels:
                if channel not in self._queues:
                    self._queues[channel] = _Queue(
                        channel, self._terminal, self._report_safely, self._pauses
                    )
                self._queues[channel].add(alert, notice)

    def close(self, seconds: float) -> None:
        """Send what waits, with one more attempt each; cancel what is left after ``seconds``.

        Takes at most one second longer. Processes that were started are gone then.
        """
        with self._lock:
            self._is_closed = True
            queues = tuple(self._queues.values())
        for queue in queues:
            queue.finish()
        _join(queues, seconds)
        for queue in queues:
            queue.cancel()
        _join(queues, _CANCEL_SECONDS)

    def _report_safely(self, sentence: str) -> None:
        # Whatever listens must not end the deliveries.
        with suppress(Exception):
            self._report(printable(sentence))


def _join(queues: Sequence[_Queue], seconds: float) -> None:
    deadline = time.monotonic() + max(0.0, seconds)
    for queue in queues:
        queue.join(max(0.0, deadline - time.monotonic()))


class _Waiting(NamedTuple):
    """A notice in a queue."""

    alert: Alert
    notice: Notice
    since: float
    """Since when it waits, on the monotonic clock."""


class _Queue:
    """What waits for one channel, and the thread that sends it.

    The thread ends with the last notice; the next notice starts another thread.
    """

    def __init__(
        self,
        channel: Channel,
        terminal: Terminal | None,
        report: Callable[[str], None],
        pauses: tuple[float, ...],
    ) -> None:
        self._channel = channel
        self._name = channel.describe()
        self._terminal = terminal
        self._report = report
        self._pauses = pauses
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._attempt: Attempt | None = None
        self._is_finishing = False
        self._is_over = False
        self._overflowed = False
        self._overflow_reported = False
        self._is_failing = False
        self._lost = 0

    def add(self, alert: Alert, notice: Notice) -> None:
        """Send a notice, soon. Does not block."""
        with self._changed:
            if len(self._waiting) == MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
                self._overflowed = True
            self._waiting.append(_Waiting(alert, notice, time.monotonic()))
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="gpumon-delivery", daemon=True)
            # The system may allow no further thread; the next notice tries again.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def finish(self) -> None:
        """From now on make no pauses, and only one attempt for each notice."""
        with self._changed:
            self._is_finishing = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """End what is in progress, and report how much was not sent."""
        with self._changed:
            self._is_over = True
            left = len(self._waiting) + (self._attempt is not None)
            self._waiting.clear()
            if self._attempt is not None:
                self._attempt.cancel()
        if left:
            self._report(
                f"{self._name}: gpumon ended before {counted(left, 'notification')} could be sent"
            )

    def join(self, seconds: float) -> None:
        """Wait until nothing is left to send."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._overflowed = self._overflow_reported = False
                    self._thread = None
                    return
                waiting = self._waiting.popleft()
            if time.monotonic() - waiting.since > OLDEST:
                self._count_lost()
                self._overflowed = True
            else:
                self._send(waiting)
            if self._overflowed and not self._overflow_reported:
                self._overflow_reported = True
                self._report(
                    f"{self._name}: too many notifications are waiting: the oldest are dropped"
                )

    def _send(self, waiting: _Waiting) -> None:
        """Send a notice, with several attempts if that may help."""
        pauses = iter(self._pauses)
        while True:
            failure = self._try_once(waiting)
            if failure is None:
                self._report_success()
                return
            if self._is_over:
                return
            pause = None if self._is_finishing or not failure.again else next(pauses, None)
            if not self._is_failing:
                self._is_failing = True
                ending = "" if pause is None else "; it will be retried"
                self._report(f"{self._name} failed: {failure.sentence}{ending}")
            if pause is None:
                self._count_lost()
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_finishing, pause)

    def _try_once(self, waiting: _Waiting) -> DeliveryError | None:
        attempt = Attempt(waiting.alert, waiting.notice, self._terminal)
        with self._changed:
            if self._is_over:
                return DeliveryError(CANCELLED)
            self._attempt = attempt
        try:
            return self._channel.try_to_send(attempt)
        finally:
            with self._changed:
                self._attempt = None

    def _count_lost(self) -> None:
        with self._changed:
            self._lost += 1

    def _report_success(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        if self._is_failing:
            self._is_failing = False
            ending = f"; {counted(lost, 'notification')} not sent" if lost else ""
            self._report(f"{self._name} works again{ending}")
