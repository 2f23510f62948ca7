"""The one thread that samples, and the one that notices when it does not come back.

A call to the driver can hang for ever, in a state that nothing can interrupt. So nobody waits for a
sample: snapshots are handed to listeners. A thread that hangs in a call to one card is given up,
and another samples the other cards. While a call to the driver as a whole hangs, the watching
thread hands over the last snapshot again, with the cards marked as not answering. Whoever shows
snapshots learns of everything from that one stream.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.clock import Clock, SystemClock
from gpumon.model import CardStatus, Gpu, Host, OwnCost, Snapshot, Trouble
from gpumon.sources import CallGivenUpError, SourceError
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.sources import Call, Source

MIN_INTERVAL = 0.1
MAX_INTERVAL = 3600.0

_PATIENCE = 1.0
"""Seconds that a call is given in any case before it counts as hanging."""
_LONGEST_PATIENCE = 3.0
"""... and at most, however rare the samples are: waking a card takes 1 to 3 s. A word about a hung
call is not rarer either."""
_REMINDER = 1.0
"""Seconds between two words about the same hung call, at least: people are told whole seconds."""

_COST_SECONDS = 1.0
"""How often the cost is measured."""
_COST_WINDOW = 5.0
_TICKS_KEPT = 31

_ANSWERING = (CardStatus.OK, CardStatus.FAILING)
"""Those of which silence is news. A card that is lost or asleep was not going to answer."""


class _Listener(NamedTuple):
    listener: Callable[[Snapshot], None]
    failed: Callable[[BaseException], None] | None
    closely: bool


class Collector:
    """Samples a source at a steady pace and hands each snapshot to everybody who listens.

    Listeners are called on the sampling thread or the watching thread, one at a time, in the order
    of time. They hand the snapshot over and return: while one works, nothing is sampled.

    What goes wrong is never silent. A source that does not open, or a bug in it, ends the sampling.
    A bug in a listener ends that listener's subscription; the others go on. Either way ``failure``
    holds the exception, the ``failed`` callbacks are told at once, and ``stop`` raises the bug, so
    that an owner that does no more than stop the collector in the end cannot miss it.

    Args:
        source: Where snapshots come from. From ``start`` on, the sampling thread's alone.
        interval: Seconds from one sample to the next, 0.1 to 3600.
        clock: Time, for tests.
        annotate: Adds to each sample what others know of it, before anybody gets it. Called on the
            sampling thread, so it waits for nothing. A bug in it counts as one in the source.
        silence: What to say when not even a first sample has come: takes the call that has not come
            back, if it is one, and for how many seconds.

    Raises:
        ValueError: When the interval is out of bounds.
    """

    def __init__(
        self,
        source: Source,
        interval: float = 0.5,
        clock: Clock | None = None,
        annotate: Callable[[Snapshot], Snapshot] | None = None,
        silence: Callable[[Call | None, float], Trouble] | None = None,
    ) -> None:
        self._source = source
        self._interval = _checked(interval)
        self._clock: Clock = clock or SystemClock()
        self._annotate = annotate
        self._silence = silence or _silence
        self._sampler = self._new_sampler()
        self._watcher = threading.Thread(
            target=self._guarded, args=(self._watch_on,), name="gpumon-watch", daemon=True
        )
        self._wake_sampler = threading.Event()
        self._wake_watcher = threading.Event()
        self._settled = threading.Event()
        self._is_open = False
        self._stopping = False
        self._wanted = False

        self._subscribing = threading.Lock()
        self._listeners: tuple[_Listener, ...] = ()
        self._closely = False
        self._failure: BaseException | None = None

        # Held while a snapshot is handed out, so that a word about a hung call cannot overtake
        # the sample that ends it.
        self._publishing = threading.Lock()
        self._latest: Snapshot | None = None
        self._sampled: Snapshot | None = None
        self._tick_began: float | None = None
        self._driver_seconds_seen: float | None = None
        self._meter = CostMeter()

    @property
    def interval(self) -> float:
        """Seconds from one sample to the next.

        A new value counts from the sample before, at once: a shorter one does not wait for the
        longer one to pass.
        """
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = _checked(seconds)
        self._wake_sampler.set()
        self._wake_watcher.set()

    def sample_now(self) -> None:
        """Take the next sample at once; the interval counts from it.

        May be called from any thread, a listener's too. While a sample is under way, the next one
        follows it at once; however often it was called meanwhile, that is one.
        """
        self._wanted = True
        self._wake_sampler.set()

    @property
    def overdue(self) -> float | None:
        """Seconds that the sample under way has taken, once that is worth a word; else ``None``."""
        began = self._tick_began
        if began is None:
            return None
        waited = self._clock.monotonic() - began
        return waited if waited >= self._patience else None

    @property
    def hostname(self) -> str:
        """Name of the machine that is sampled."""
        return self._source.hostname

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot handed out, or ``None`` before the first."""
        return self._latest

    @property
    def failure(self) -> BaseException | None:
        """The first thing that went wrong: why the source did not open, or a bug."""
        return self._failure

    def subscribe(
        self,
        listener: Callable[[Snapshot], None],
        failed: Callable[[BaseException], None] | None = None,
        *,
        newest: bool = False,
        closely: bool = True,
    ) -> Callable[[], None]:
        """Hand every snapshot from now on to a listener.

        Args:
            listener: Takes the snapshot, quickly, on a thread that is not its own.
            failed: Told of ``failure``, once; at once if it has already happened.
            newest: Hand over the newest one there is as well, before all others, on the thread of
                the caller; which must be no listener then.
            closely: See ``Source.sample``; False for whoever only shows what there is.

        Returns:
            A function that ends the subscription. A call that is under way at that moment still
            comes to its end.
        """
        entry = _Listener(listener, failed, closely)
        if newest:
            with self._publishing:
                failure = self._enter(entry)
                if self._latest is not None:
                    self._hand_to(entry, self._latest)
        else:
            failure = self._enter(entry)
        if failure is not None and failed is not None:
            failed(failure)
        return lambda: self._drop(entry)

    def start(self) -> None:
        """Open the source and begin to sample, both on the sampling thread.

        Raises:
            RuntimeError: When it was started before.
        """
        self._sampler.start()
        self._watcher.start()

    def wait_open(self, timeout: float) -> bool:
        """Wait for the source to open.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            True when it is open, False while it is still opening.

        Raises:
            SourceError: When it did not open.
        """
        settled = self._clock.wait(self._settled, timeout)
        if settled and self._failure is not None:
            raise self._failure
        return settled

    def stop(self, timeout: float = 1.0) -> None:
        """End sampling; the sampling thread closes the source.

        When a driver call hangs, both the thread and the open source are left behind: they go
        with the process. May be called again, and from any thread.

        Args:
            timeout: Seconds after which it returns in any case.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one. A ``SourceError`` is no
                bug and is not raised.
        """
        self._stopping = True
        self._wake_sampler.set()
        self._wake_watcher.set()
        # The system's clock whatever the collector's: threads are joined in real time.
        deadline = time.monotonic() + timeout
        for thread in (self._sampler, self._watcher):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._failure is not None and not isinstance(self._failure, SourceError):
            raise self._failure

    def _guarded(self, body: Callable[[], None]) -> None:
        """Run the body of a thread; what ends it early reaches the owner."""
        try:
            body()
        except CallGivenUpError:
            # Another thread has its work.
            return
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._fail(failure)

    def _new_sampler(self) -> threading.Thread:
        return threading.Thread(
            target=self._guarded, args=(self._sample_on,), name="gpumon-sampler", daemon=True
        )

    def _sample_on(self) -> None:
        with ExitStack() as ending:
            ending.callback(self._end_watching)
            try:
                if not self._is_open:
                    self._tick_began = self._clock.monotonic()
                    self._source.open()
                    self._tick_began = None
                    self._is_open = True
                    self._settled.set()
                ending.callback(self._source.close)
                self._tick_on()
            except CallGivenUpError:
                # Nothing ends: another thread samples.
                ending.pop_all()
                raise

    def _end_watching(self) -> None:
        self._stopping = True
        self._wake_watcher.set()

    def _tick_on(self) -> None:
        deadline = self._clock.monotonic()
        while not self._stopping:
            self._tick()
            deadline = self._wait_after(deadline)

    def _tick(self) -> None:
        began = self._clock.monotonic()
        self._tick_began = began
        snapshot = self._source.sample(closely=self._closely)
        if self._annotate is not None:
            snapshot = self._annotate(snapshot)
        cost = self._meter.measure(self._clock.monotonic(), self._source.driver_seconds)
        with self._publishing:
            self._tick_began = None
            if self._stopping:
                return
            self._sampled = replace(snapshot, cost=cost)
            self._hand_out(self._sampled)
        self._meter.add_tick(self._clock.monotonic() - began)

    def _wait_after(self, last: float) -> float:
        """Wait for the deadline after the last one and return it; skip those already missed."""
        deadline = last + self._interval
        now = self._clock.monotonic()
        if now > deadline:
            missed = int((now - deadline) // self._interval) + 1
            self._meter.missed_ticks += missed
            deadline += missed * self._interval
        while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
            if self._clock.wait(self._wake_sampler, left):
                self._wake_sampler.clear()
                if self._wanted:
                    deadline = self._clock.monotonic()
                    break
                deadline = max(last + self._interval, self._clock.monotonic())
        self._wanted = False
        return deadline

    @property
    def _patience(self) -> float:
        """Seconds that a sample, or a call, may take before it counts as hanging."""
        return min(max(2 * self._interval, _PATIENCE), _LONGEST_PATIENCE)

    def _watch_on(self) -> None:
        while not self._stopping:
            if self._clock.wait(self._wake_watcher, self._look()):
                self._wake_watcher.clear()

    def _look(self) -> float:
        """Look whether a call hangs. Returns seconds until the next look.

        A tick is suspect once it has taken two intervals, a second at least and three at most. What
        hangs then is the call it is in, once that call alone has taken so long: a driver that is
        only slow comes back from each call, and its cards do answer. Where it is a call to one
        card, the other cards are sampled by another thread. A tick that stands still elsewhere is
        told, since no card is read any more; ``_unanswered`` says how.
        """
        patience = self._patience
        began = self._tick_began
        now = self._clock.monotonic()
        if began is None:
            self._driver_seconds_seen = None
            return patience
        if now < began + patience:
            return began + patience - now

        call = self._source.current_call
        if call is not None:
            if now < call.since + patience:
                return call.since + patience - now
            if self._source.give_up(call):
                self._replace_sampler(began, now)
                return patience
        elif self._driver_seconds_seen != (seconds := self._source.driver_seconds):
            # Perhaps only between two calls: then more of them will have ended at the next look.
            self._driver_seconds_seen = seconds
            return _REMINDER
        with self._publishing:
            if self._tick_began == began and not self._stopping:
                self._hand_out(self._unanswered(call, began, now))
        return min(max(self._interval, _REMINDER), _LONGEST_PATIENCE)

    def _replace_sampler(self, began: float, now: float) -> None:
        """Go on with a new thread, where the last one was given up."""
        self._meter.missed_ticks += int((now - began) // self._interval)
        self._tick_began = None
        self._sampler = self._new_sampler()
        self._sampler.start()

    def _unanswered(self, call: Call | None, began: float, now: float) -> Snapshot:
        """What to show while a tick does not come back: the last sample, at the time of now.

        All cards are marked as not answering when the driver is in a call. Without a call, as while
        ``/proc`` or this machine itself stands still, nothing is known against any card: they keep
        their status, and ``sampled_at`` beside the new time tells how old their values are.
        """
        time_now = self._clock.time()
        waited = now - (began if call is None else call.since)
        if self._sampled is None:
            return Snapshot(
                time_now, Host(self._source.hostname), trouble=self._silence(call, waited)
            )
        if call is None:
            return replace(self._sampled, time=time_now)
        since = time_now - waited
        return replace(
            self._sampled,
            time=time_now,
            gpus=tuple(_unanswering(gpu, since) for gpu in self._sampled.gpus),
        )

    def _hand_out(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        for entry in self._listeners:
            self._hand_to(entry, snapshot)

    def _hand_to(self, entry: _Listener, snapshot: Snapshot) -> None:
        try:
            entry.listener(snapshot)
        except Exception as bug:  # noqa: BLE001 - one listener must not silence the others
            self._fail(bug)
            self._drop(entry)

    def _fail(self, failure: BaseException) -> None:
        with self._subscribing:
            if self._failure is not None:
                return
            self._failure = failure
            listeners = self._listeners
        self._settled.set()
        for entry in listeners:
            if entry.failed is not None:
                entry.failed(failure)

    def _enter(self, entry: _Listener) -> BaseException | None:
        with self._subscribing:
            self._keep((*self._listeners, entry))
            return self._failure

    def _drop(self, entry: _Listener) -> None:
        with self._subscribing:
            self._keep(tuple(other for other in self._listeners if other is not entry))

    def _keep(self, listeners: tuple[_Listener, ...]) -> None:
        self._listeners = listeners
        self._closely = any(entry.closely for entry in listeners)


class CostMeter:
    """What this program costs, measured once a second over the last five.

    Args:
        cpu_seconds: Seconds of CPU this process has used, all threads together.
    """

    def __init__(self, cpu_seconds: Callable[[], float] = time.process_time) -> None:
        self.missed_ticks = 0
        self._cpu_seconds = cpu_seconds
        self._marks: deque[tuple[float, float, float]] = deque()
        self._ticks: deque[float] = deque(maxlen=_TICKS_KEPT)
        self._cost = OwnCost()

    def add_tick(self, seconds: float) -> None:
        """Remember how long a tick took, its listeners included."""
        self._ticks.append(seconds)

    def measure(self, now: float, driver_seconds: float) -> OwnCost:
        """The cost at this moment.

        Args:
            now: Seconds on the monotonic clock.
            driver_seconds: Seconds spent in driver calls so far.
        """
        marks = self._marks
        if marks and now < marks[-1][0] + _COST_SECONDS:
            if self._cost.missed_ticks != self.missed_ticks:
                self._cost = replace(self._cost, missed_ticks=self.missed_ticks)
            return self._cost
        cpu_seconds = self._cpu_seconds()
        marks.append((now, cpu_seconds, driver_seconds))
        while len(marks) > 2 and marks[1][0] <= now - _COST_WINDOW:
            marks.popleft()
        cpu_percent = driver_share = None
        if len(marks) > 1:
            then, cpu_then, driver_then = marks[0]
            cpu_percent = (cpu_seconds - cpu_then) / (now - then) * 100
            # A source that was opened anew counts from 0 again.
            if driver_seconds >= driver_then:
                driver_share = (driver_seconds - driver_then) / (now - then)
        tick = sorted(self._ticks)[len(self._ticks) // 2] if self._ticks else None
        self._cost = OwnCost(cpu_percent, driver_share, tick, self.missed_ticks)
        return self._cost


def _checked(interval: float) -> float:
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise ValueError(
            f"The interval must be {MIN_INTERVAL:g} to {MAX_INTERVAL:g} seconds, not {interval:g}."
        )
    return interval


def _unanswering(gpu: Gpu, since: float) -> Gpu:
    if gpu.status not in _ANSWERING:
        return gpu
    return replace(gpu, status=CardStatus.NO_ANSWER, status_since=since)


def _silence(call: Call | None, seconds: float) -> Trouble:
    """What to say when not even a first sample has come."""
    if call is None:
        sentence = f"The first look at the cards has not come back for {duration(seconds)}."
    else:
        sentence = f"The driver has not answered for {duration(seconds)}."
    return Trouble(
        sentence,
        "It may still be waking the cards, which takes seconds for each while persistence mode is"
        " off. If this goes on a card hangs: look for NVRM and Xid in `dmesg`.",
    )
