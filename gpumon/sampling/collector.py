"""The sampling thread, and the watchdog thread that notices when it hangs.

A driver call can hang for ever, in an uninterruptible state. So no caller waits for a sample:
snapshots are pushed to listeners. If the thread hangs in a call to one GPU, it is abandoned, and a
new thread samples the other GPUs. While a call to the driver as a whole hangs, the watchdog
publishes the last snapshot again, with the GPUs marked as not responding. So one stream carries
everything a listener must know.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.makers.source import CallGivenUpError, SourceError
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL
from gpumon.model.snapshot import ANSWERING, Gpu, GpuStatus, Host, Snapshot, Trouble
from gpumon.sampling.cost_meter import CostMeter
from gpumon.system.system import THIS_SYSTEM
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.source import Call, Source
    from gpumon.system.system import Clock


_PATIENCE = 1.0
"""Minimum number of seconds before a call counts as hung."""
_LONGEST_PATIENCE = 3.0
"""The maximum, at any interval, also between two reports of a hung call: waking a GPU takes 1 to
3 s."""
_REMINDER = 1.0
"""Minimum number of seconds between two reports of a hung call, which show whole seconds."""


class _Listener(NamedTuple):
    listener: Callable[[Snapshot], None]
    failed: Callable[[BaseException], None] | None
    full: bool


class Collector:
    """Samples a source at a fixed interval and passes each snapshot to all listeners.

    Listeners are called on the sampling thread or the watchdog thread, one at a time, in time
    order. They must return quickly: no sampling happens while a listener runs.

    Errors are never silent. A source that does not open, or a bug in it, ends the sampling. A bug
    in a listener ends that listener's subscription; the others go on. Either way ``failure`` holds
    the exception, the ``failed`` callbacks are called at once, and ``stop`` raises the bug, so that
    an owner that only stops the collector cannot miss it.

    Args:
        source: The source. From ``start`` on, only the sampling thread uses it.
        interval: Seconds from one sample to the next, 0.1 to 3600.
        clock: The clock, for tests.
        annotate: Adds data to each sample before listeners get it. Called on the sampling thread,
            so it must not block. A bug in it counts as a bug in the source.
        silence: The message while no first sample has arrived: takes the hung call, if there is
            one, and its seconds.

    Raises:
        ValueError: When the interval is out of bounds.
    """

    def __init__(
        self,
        source: Source,
        interval: float = 0.5,
        clock: Clock = THIS_SYSTEM.clock,
        annotate: Callable[[Snapshot], Snapshot] | None = None,
        silence: Callable[[Call | None, float], Trouble] | None = None,
    ) -> None:
        self._source = source
        self._interval = _checked(interval)
        self._clock = clock
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
        self._full = False
        self._failure: BaseException | None = None

        # Held while a snapshot is published, so that a report of a hung call cannot overtake the
        # sample that ends it.
        self._publishing = threading.Lock()
        self._latest: Snapshot | None = None
        self._sampled: Snapshot | None = None
        self._tick_began: float | None = None
        self._driver_seconds_seen: float | None = None
        self._meter = CostMeter()

    @property
    def interval(self) -> float:
        """Seconds from one sample to the next.

        A new value counts from the previous sample and takes effect at once: a shorter interval
        does not wait for the longer one to pass.
        """
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = _checked(seconds)
        self._wake_sampler.set()
        self._wake_watcher.set()

    def sample_now(self) -> None:
        """Take the next sample at once; the interval counts from it.

        May be called from any thread, including a listener's. If a sample is in progress, the next
        one follows at once; several calls meanwhile cause only one sample.
        """
        self._wanted = True
        self._wake_sampler.set()

    @property
    def overdue(self) -> float | None:
        """Seconds that the current sample has taken, if that is unusually long; else ``None``."""
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
        """The newest published snapshot, or ``None`` before the first."""
        return self._latest

    @property
    def failure(self) -> BaseException | None:
        """The first error: why the source did not open, or a bug."""
        return self._failure

    def subscribe(
        self,
        listener: Callable[[Snapshot], None],
        failed: Callable[[BaseException], None] | None = None,
        *,
        newest: bool = False,
        full: bool = True,
    ) -> Callable[[], None]:
        """Pass every new snapshot to a listener.

        Args:
            listener: Takes the snapshot on another thread; must be quick.
            failed: Called once with ``failure``; at once if it has already happened.
            newest: Also pass the newest existing snapshot first, on the caller's thread, which must
                not be a listener's then.
            full: See ``Source.sample``; False for listeners that only display.

        Returns:
            A function that ends the subscription. A call that is under way at that moment still
            comes to its end.
        """
        entry = _Listener(listener, failed, full)
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
        """Open the source and start sampling, both on the sampling thread.

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
        """Stop sampling; the sampling thread closes the source.

        If a driver call hangs, the thread and the open source are abandoned until the process
        exits. May be called again, and from any thread.

        Args:
            timeout: Seconds after which it returns in any case.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one. A ``SourceError`` is not
                a bug and is not raised.
        """
        self._stopping = True
        self._wake_sampler.set()
        self._wake_watcher.set()
        # The system clock, even if the collector has another: threads are joined in real time.
        deadline = time.monotonic() + timeout
        for thread in (self._sampler, self._watcher):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._failure is not None and not isinstance(self._failure, SourceError):
            raise self._failure

    def _guarded(self, body: Callable[[], None]) -> None:
        """Run the body of a thread; an exception is passed to the owner."""
        try:
            body()
        except CallGivenUpError:
            # Another thread has replaced it.
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
                # No end: another thread samples.
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
        snapshot = self._source.sample(full=self._full)
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
        """Wait for the next deadline and return it; skip deadlines that were missed."""
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
        """Seconds after which a sample, or a call, counts as hung."""
        return min(max(2 * self._interval, _PATIENCE), _LONGEST_PATIENCE)

    def _watch_on(self) -> None:
        while not self._stopping:
            if self._clock.wait(self._wake_watcher, self._check()):
                self._wake_watcher.clear()

    def _check(self) -> float:
        """Check whether a call hangs. Returns seconds until the next check.

        A tick is suspect after two intervals, but at least one second and at most three. The hung
        call is the current one, once that call alone has taken so long: a driver that is only slow
        returns from each call, and its GPUs do respond. If it is a call to one GPU, a new thread
        samples the other GPUs. A tick that hangs elsewhere is reported too, because no GPU is read
        any more; see ``_unanswered``.
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
            # Perhaps only between two calls: then more of them will have returned at the next
            # check.
            self._driver_seconds_seen = seconds
            return _REMINDER
        with self._publishing:
            if self._tick_began == began and not self._stopping:
                self._hand_out(self._unanswered(call, began, now))
        return min(max(self._interval, _REMINDER), _LONGEST_PATIENCE)

    def _replace_sampler(self, began: float, now: float) -> None:
        """Continue with a new thread after the last one was abandoned."""
        self._meter.missed_ticks += int((now - began) // self._interval)
        self._tick_began = None
        self._sampler = self._new_sampler()
        self._sampler.start()

    def _unanswered(self, call: Call | None, began: float, now: float) -> Snapshot:
        """The snapshot while a tick hangs: the last sample, with the current time.

        If the driver is in a call, all GPUs are marked as not responding. Without a call, as while
        ``/proc`` or the machine hangs, the GPUs keep their status, and ``sampled_at`` shows the age
        of their values.
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
        return unanswering(replace(self._sampled, time=time_now), since)

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
        self._full = any(entry.full for entry in listeners)


def _checked(interval: float) -> float:
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise ValueError(
            f"The interval must be {MIN_INTERVAL:g} to {MAX_INTERVAL:g} seconds, not {interval:g}."
        )
    return interval


def unanswering(snapshot: Snapshot, since: float) -> Snapshot:
    """The snapshot with all GPUs marked as not responding since a time."""
    return replace(snapshot, gpus=tuple([_unanswering(gpu, since) for gpu in snapshot.gpus]))


def _unanswering(gpu: Gpu, since: float) -> Gpu:
    # A GPU that is lost or asleep does not respond anyway.
    if gpu.status not in ANSWERING:
        return gpu
    return replace(gpu, status=GpuStatus.NO_ANSWER, status_since=since)


def _silence(call: Call | None, seconds: float) -> Trouble:
    """The message while no first sample has arrived."""
    if call is None:
        sentence = f"The first sample has not arrived for {duration(seconds)}."
    else:
        sentence = f"The driver has not answered for {duration(seconds)}."
    return Trouble(
        sentence,
        "It may still be waking the GPUs, which takes seconds for each while persistence mode is"
        " off. If this goes on, a GPU hangs: `sudo dmesg` may say why.",
    )
