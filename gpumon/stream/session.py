"""``gpumon stream``: samples this machine and writes the samples."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from gpumon.findings import DEFAULTS, conditions, gpu_state
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import Host, Snapshot, Trouble
from gpumon.recording.history import History
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.stream.ends import watch_ends
from gpumon.stream.sample import MOST_EVENTS, GpuState, Heartbeat
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.system.standard_output import OutputError, write_output
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpumon.recording.recording import Event
    from gpumon.sampling.machine import Machine

    Write = Callable[..., bytes]
    """Takes the parts of a sample, see ``StreamWriter.write``."""

SILENCE = 5.0
"""Seconds without a sample after which a heartbeat is written."""
_LAST_SECONDS = 1.0
"""How long a full pipe may delay the end."""


def stream(machine: Machine, interval: float, write: Write) -> None:
    """Write samples to standard output until it is closed, or until a signal.

    Also ends when standard input, if it is a pipe, is closed by the parent: see ``watch_ends``.

    Args:
        machine: The machine; its source is opened and closed here.
        interval: Seconds between samples.
        write: Makes the bytes of a sample.

    Raises:
        SourceError: The source cannot be opened; the last sample says so too.
        OutputError: Standard output cannot be written, though it is open.
    """
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(news):
        watch_ends(news)
        session = _Session(machine, interval, write, news)
        with session.going():
            try:
                ending = news.get()
                if ending is not None:
                    raise ending
            except SourceError as error:
                session.write_last(error)
                raise


def json_lines() -> Write:
    """Makes a line of JSON of each new sample, see ``gpumon.export.as_json``."""
    from gpumon.export.as_json import to_json

    last: Snapshot | None = None

    def write(snapshot: Snapshot, **_: object) -> bytes:
        nonlocal last
        if snapshot is last:
            return b""
        last = snapshot
        return to_json(snapshot).encode() + b"\n"

    return write


class _Sample(NamedTuple):
    """What the next bytes are made of: see ``StreamWriter.write``."""

    snapshot: Snapshot
    states: tuple[GpuState, ...] = ()
    heartbeat: Heartbeat | None = None
    events: tuple[Event, ...] = ()
    dropped: int = 0


class _Session:
    """Samples on the threads of a collector, and writes on a thread of its own.

    A full pipe blocks that thread only. Meanwhile just the newest sample is kept.
    """

    def __init__(
        self,
        machine: Machine,
        interval: float,
        write: Write,
        news: SimpleQueue[BaseException | None],
    ) -> None:
        self._source = machine.source
        self._news = news
        self._interval = interval
        self._lookup = Lookup.of(machine)
        self._collector = Collector(self._source, interval, annotate=self._lookup.annotate)
        self._history = History(conditions())
        self._finder = EventFinder(DEFAULTS.full_share)
        self._write = write
        self._thread = threading.Thread(target=self._write_on, name="gpumon-stream", daemon=True)
        self._changed = threading.Condition()
        self._waiting: _Sample | None = None
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._dropped = 0
        self._is_over = False

    @contextmanager
    def going(self) -> Iterator[None]:
        """Sample and write within the block."""
        with ExitStack() as ending:
            ending.callback(self._lookup.stop)
            ending.callback(self._collector.stop)
            self._collector.subscribe(self._take, self._news.put)
            self._thread.start()
            self._collector.start()
            self._lookup.start()
            yield

    def write_last(self, error: SourceError) -> None:
        """Write why there are no samples, and wait for that, but not for long."""
        trouble = Trouble(error.sentence, error.advice)
        snapshot = Snapshot(time.time(), Host(self._source.hostname), trouble=trouble)
        with self._changed:
            self._put(_Sample(snapshot), ())
            self._is_over = True
        self._thread.join(_LAST_SECONDS)

    def _take(self, snapshot: Snapshot) -> None:
        """Pass on a sample. Runs on the sampling thread, or on its watchdog."""
        self._history.add(snapshot)
        states = []
        for gpu in snapshot.gpus:
            worst = gpu_state(self._history, gpu)
            states.append(GpuState(gpu.uuid, worst.kind, worst.severity, worst.since))
        overdue = self._collector.overdue
        heartbeat = None if overdue is None else Heartbeat(self._hung(overdue), _age(snapshot))
        self._put(_Sample(snapshot, tuple(states), heartbeat), self._finder.see(snapshot))

    def _hung(self, seconds: float) -> str:
        call = self._source.current_call
        what = "this host" if call is None else f"the driver ({call.function})"
        return f"{what} has not answered for {duration(seconds)}"

    def _put(self, sample: _Sample, events: Iterable[Event]) -> None:
        with self._changed:
            if self._waiting is not None:
                self._dropped += 1
            self._waiting = sample
            self._events += events
            self._changed.notify()

    def _write_on(self) -> None:
        """Write until the output is closed. Runs on a thread of its own."""
        sample: _Sample | None = None
        try:
            while (sample := self._next(sample)) is not None:
                left = memoryview(self._write(written_at=time.time(), **sample._asdict()))
                while left:
                    left = left[write_output(left) :]
        except OutputError as failure:
            is_closed = isinstance(failure.error, ConnectionError)
            self._news.put(None if is_closed else failure)
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._news.put(failure)

    def _next(self, last: _Sample | None) -> _Sample | None:
        """Wait for the next sample, or until a heartbeat is due; ``None`` after the last one."""
        with self._changed:
            while (sample := self._waiting) is None:
                if self._is_over:
                    return None
                if not self._changed.wait(SILENCE) and last is not None and not self._waiting:
                    return _Sample(last.snapshot, last.states, self._silence(last.snapshot))
            sample = sample._replace(events=tuple(self._events), dropped=self._dropped)
            self._waiting, self._dropped = None, 0
            self._events.clear()
            return sample

    def _silence(self, snapshot: Snapshot) -> Heartbeat:
        """Why there is no sample though nothing hangs."""
        return Heartbeat(f"a sample is taken every {self._interval:g} s", _age(snapshot))


def _age(snapshot: Snapshot) -> float | None:
    """Seconds since the newest values of a snapshot were read."""
    read = [gpu.sampled_at for gpu in snapshot.gpus if gpu.sampled_at is not None]
    return max(0.0, time.time() - max(read)) if read else None
