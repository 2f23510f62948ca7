"""The queues between those who tell and the ways: one queue and at most one thread for each way."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpumon.alerts.alert import AlertCommand, Apprise, Bell, Desktop, Webhook
from gpumon.alerts.delivery.attempt import CUT, Attempt, DeliveryError
from gpumon.alerts.messages import way_in_words
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.alert import Alert, Way
    from gpumon.alerts.notice import Notice

    _Deliver = Callable[[Way, Alert, Notice, Attempt], None]

MOST_WAITING = 100
"""Notices that wait for one way; a further one takes the place of the oldest."""
PAUSES = (1.0, 5.0, 30.0)
"""Seconds between the attempts to tell one notice."""
OLDEST = 300.0
"""Seconds after which a notice that waited behind slow or failing ones is no longer told."""
_CUT_SECONDS = 1.0
"""How long ``close`` waits for what it has cut."""


class TerminalWays(Protocol):
    """The ways that only a program with a terminal has. Threads of ``Deliveries`` call them."""

    def bell(self) -> None:
        """Ring the bell."""

    def notify(self, title: str, text: str) -> None:
        """Show a notification of the desktop."""


class Deliveries:
    """Tells notices, each way on a thread of its own, so that none delays another one.

    Args:
        ways_of_terminal: Rings and notifies; ``None`` without a terminal.
        said: Gets one sentence when a way fails, when it works again and when notices are dropped,
            safe to print and without secrets. Threads of this class call it.
        pauses: See ``PAUSES``.
    """

    def __init__(
        self,
        ways_of_terminal: TerminalWays | None,
        said: Callable[[str], None],
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._terminal = ways_of_terminal
        self._said = said
        self._pauses = tuple(pauses)
        self._lock = threading.Lock()
        self._queues: dict[str, _WayQueue] = {}
        self._is_closed = False

    def tell(self, alert: Alert, notice: Notice) -> None:
        """Tell a notice in all ways of its alert, soon.

        Never blocks and never raises. Any thread may call this; after ``close`` it does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            for way in alert.ways:
                # A way with a dictionary of headers has no hash.
                key = repr(way)
                if key not in self._queues:
                    self._queues[key] = _WayQueue(way, self._deliver, self._say, self._pauses)
                self._queues[key].add(alert, notice)

    def tell_now(self, alert: Alert, notice: Notice) -> list[tuple[Way, str | None]]:
        """Tell a notice in all ways of its alert, once each, and wait for it.

        Returns:
            The ways, with ``None`` or why it was not told.
        """
        results: list[tuple[Way, str | None]] = []
        for way in alert.ways:
            failure = _attempt(self._deliver, way, alert, notice, Attempt())
            results.append((way, None if failure is None else failure.sentence))
        return results

    def close(self, seconds: float) -> None:
        """Tell what waits, each once more at most; what is left after that time is cut.

        Processes that were started are gone then. Takes at most one second longer.

        Args:
            seconds: How long it may take.
        """
        with self._lock:
            self._is_closed = True
            queues = tuple(self._queues.values())
        for queue in queues:
            queue.finish()
        _join(queues, seconds)
        for queue in queues:
            queue.cut()
        _join(queues, _CUT_SECONDS)

    def _deliver(self, way: Way, alert: Alert, notice: Notice, attempt: Attempt) -> None:
        """Tell a notice.

        Raises:
            DeliveryError: It was not told.
        """
        if isinstance(way, AlertCommand):
            from gpumon.alerts.delivery.command import run_command

            run_command(way, notice, attempt)
        elif isinstance(way, Webhook):
            from gpumon.alerts.delivery.webhook import post

            post(way, alert, notice, attempt)
        elif isinstance(way, Apprise):
            from gpumon.alerts.delivery.apprise import run_apprise

            run_apprise(way, notice, attempt)
        elif self._terminal is None:
            raise DeliveryError("there is no terminal")
        elif isinstance(way, Desktop):
            self._terminal.notify(notice.title, notice.sentence)
        else:
            assert isinstance(way, Bell)  # noqa: S101 - the last one
            self._terminal.bell()

    def _say(self, sentence: str) -> None:
        # Whatever listens must not end the telling.
        with suppress(Exception):
            self._said(printable(sentence))


def _attempt(
    deliver: _Deliver, way: Way, alert: Alert, notice: Notice, attempt: Attempt
) -> DeliveryError | None:
    """Tell a notice; why that failed."""
    try:
        deliver(way, alert, notice, attempt)
    except DeliveryError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the thread must go on for the next notice
        # Texts of exceptions are not repeated: they may hold secrets.
        return DeliveryError(f"it met an unexpected error ({type(error).__name__})")
    return None


def _join(queues: Sequence[_WayQueue], seconds: float) -> None:
    deadline = time.monotonic() + max(0.0, seconds)
    for queue in queues:
        queue.join(max(0.0, deadline - time.monotonic()))


class _Waiting(NamedTuple):
    """A notice in a queue.

    Attributes:
        alert: Its alert.
        notice: The notice.
        since: Since when it waits, on the monotonic clock.
    """

    alert: Alert
    notice: Notice
    since: float


class _WayQueue:
    """What waits for one way, and the thread that tells it.

    The thread ends with the last notice; the next notice starts another one.

    Args:
        way: The way.
        deliver: Tells a notice.
        say: Says a sentence.
        pauses: See ``PAUSES``.
    """

    def __init__(
        self,
        way: Way,
        deliver: _Deliver,
        say: Callable[[str], None],
        pauses: tuple[float, ...],
    ) -> None:
        self._way = way
        self._name = way_in_words(way)
        self._deliver = deliver
        self._say = say
        self._pauses = pauses
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._attempt: Attempt | None = None
        self._is_finishing = False
        self._is_over = False
        self._overflowed = False
        self._overflow_said = False
        self._is_failing = False
        self._lost = 0

    def add(self, alert: Alert, notice: Notice) -> None:
        """Tell a notice, soon. Does not block."""
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
        """Make no pauses any more, and only one attempt for each notice."""
        with self._changed:
            self._is_finishing = True
            self._changed.notify_all()

    def cut(self) -> None:
        """End what is in progress, and say what was not told."""
        with self._changed:
            self._is_over = True
            left = len(self._waiting) + (self._attempt is not None)
            self._waiting.clear()
            if self._attempt is not None:
                self._attempt.cut()
        if left:
            self._say(f"{self._name}: gpumon ended before {counted(left, 'notice')} could be told")

    def join(self, seconds: float) -> None:
        """Wait until nothing is left to tell."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._overflowed = self._overflow_said = False
                    self._thread = None
                    return
                waiting = self._waiting.popleft()
            if time.monotonic() - waiting.since > OLDEST:
                self._lose_one()
                self._overflowed = True
            else:
                self._tell(waiting)
            if self._overflowed and not self._overflow_said:
                self._overflow_said = True
                self._say(f"{self._name}: too many notices wait for it: the oldest are dropped")

    def _tell(self, waiting: _Waiting) -> None:
        """Tell a notice, with several attempts if that may help."""
        pauses = iter(self._pauses)
        while True:
            failure = self._try_once(waiting)
            if failure is None:
                self._say_success()
                return
            if self._is_over:
                return
            pause = None if self._is_finishing or not failure.again else next(pauses, None)
            if not self._is_failing:
                self._is_failing = True
                ending = "" if pause is None else "; it is tried again"
                self._say(f"{self._name} failed: {failure.sentence}{ending}")
            if pause is None:
                self._lose_one()
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_finishing, pause)

    def _try_once(self, waiting: _Waiting) -> DeliveryError | None:
        attempt = Attempt()
        with self._changed:
            if self._is_over:
                return DeliveryError(CUT)
            self._attempt = attempt
        try:
            return _attempt(self._deliver, self._way, waiting.alert, waiting.notice, attempt)
        finally:
            with self._changed:
                self._attempt = None

    def _lose_one(self) -> None:
        with self._changed:
            self._lost += 1

    def _say_success(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        if self._is_failing:
            self._is_failing = False
            ending = f"; {counted(lost, 'notice')} not told" if lost else ""
            self._say(f"{self._name} works again{ending}")
