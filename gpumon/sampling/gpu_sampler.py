"""Samples the GPUs for commands and services without a screen.

A thread does it, so that a hung driver does not hang the caller.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from queue import Empty
from typing import TYPE_CHECKING

from gpumon.makers.source import NoSuchGpuError, SourceError
from gpumon.model.interval import MAX_INTERVAL
from gpumon.model.snapshot import GpuStatus
from gpumon.sampling.collector import Collector
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.enrichment import Lookup

PATIENCE = 10.0
"""Seconds to wait for a driver: without persistence mode each GPU takes seconds to initialise."""
QUICK_PATIENCE = 1.0
"""Seconds to wait if the time limit is nearly reached; a working driver answers within this."""
_RETRY_SECONDS = 5.0
"""Seconds after which a driver that could not be used is tried again."""


class UnavailableError(SourceError):
    """The GPUs cannot be sampled now. This may change."""

    passing = True


class GpuSampler:
    """Samples the GPUs once or repeatedly, every ``interval`` seconds.

    The source is opened and closed here.
    """

    def __init__(self, source: Source, interval: float = MAX_INTERVAL) -> None:
        self._source = source
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self.newest: Snapshot | None = None  # ``None`` before the first
        # The samples that arrived, and the last of these that was returned.
        self._count = self._handed_out = 0
        self._failed = False
        # Takes the samples; a subscriber gets the periodic samples too.
        self.collector = Collector(source, interval)
        self.collector.subscribe(self._take, lambda _: self._give_up())

    def __enter__(self) -> GpuSampler:
        self.collector.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A hung call is not waited for: it ends with the process.
        call = self._source.current_call
        hangs = call is not None and time.monotonic() - call.since > QUICK_PATIENCE
        self.collector.stop(0.0 if hangs else QUICK_PATIENCE)

    @property
    def silence(self) -> str:
        """A sentence that the driver does not respond, and for how long."""
        call = self._source.current_call
        since = self._began if call is None else call.since
        return f"The driver has not answered for {duration(time.monotonic() - since)}."

    def sample(self, patience: float = PATIENCE) -> Snapshot:
        """The current state of the GPUs: a sample that begins after this call.

        The driver has ``patience`` seconds to answer.

        Raises:
            UnavailableError: The driver does not respond or is gone.
            SourceError: There are no GPUs.
        """
        began = time.time()
        self.collector.sample_now()
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._is_from(began), patience)
            fresh = self._is_from(began)
        return self._taken(fresh=fresh)

    def first(self, patience: float = PATIENCE) -> Snapshot:
        """The first sample, whenever it began. Arguments and errors are those of ``sample``."""
        deadline = time.monotonic() + patience
        self.collector.wait_open(patience)
        snapshot = self.next(max(0.0, deadline - time.monotonic()))
        return snapshot or self._taken(fresh=False)

    def _is_from(self, began: float) -> bool:
        """Whether the newest snapshot began after a time."""
        newest = self.newest
        if newest is None or (self._count > 1 and newest.time < began):
            return False
        # A sample in progress may end later; ``sampled_at`` has the time of its values.
        read = [gpu.sampled_at for gpu in newest.gpus if gpu.status is GpuStatus.OK]
        return self._count == 1 or all(at is None or at >= began for at in read)

    def next(self, seconds: float) -> Snapshot | None:
        """The newest snapshot that was not returned yet, if one arrives within that many seconds.

        Raises:
            UnavailableError: The driver is gone, or has never responded.
            SourceError: There are no GPUs.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._count > self._handed_out, seconds)
            if self._count == self._handed_out and not self._failed:
                return None
        return self._taken(fresh=True)

    def _taken(self, *, fresh: bool) -> Snapshot:
        failure = self.collector.failure
        if failure is not None:
            raise failure
        with self._changed:
            snapshot, self._handed_out = self.newest, self._count
        if snapshot is None or not fresh:
            raise UnavailableError(
                self.silence, "Other programs that use the GPUs may hang too; `dmesg` may say why."
            )
        if snapshot.trouble is not None:
            raise UnavailableError(snapshot.trouble.sentence, snapshot.trouble.advice)
        return snapshot

    def _take(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.newest = snapshot
            self._count += 1
            self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._failed = True
            self._changed.notify_all()


def take_one(source: Source, patience: float = PATIENCE) -> Snapshot:
    """One sample; see ``GpuSampler`` and its method ``sample``."""
    with GpuSampler(source) as sampler:
        return sampler.first(patience)


def sample_for_good(
    source: Source,
    interval: float,
    new_lookup: Callable[[], Lookup],
    stop_queue: SimpleQueue[BaseException | None],
    on_snapshot: Callable[[Snapshot], None],
    report: Callable[[str], None],
) -> None:
    """Sample until ``stop_queue`` has ``None``, which asks for the end, or why sampling ended.

    Args:
        source: The source of samples.
        interval: Seconds between samples.
        new_lookup: Makes the lookups, each time that the source is opened.
        stop_queue: See above.
        on_snapshot: Takes each sample. Runs on the sampling thread, or on its watchdog.
        report: Says that the driver cannot be used, and is tried again.

    Raises:
        BaseException: A bug, or the selection names GPUs that are not there.
    """
    while True:
        lookup = new_lookup()
        collector = Collector(source, interval, annotate=lookup.annotate)
        collector.subscribe(on_snapshot, stop_queue.put)
        with ExitStack() as ending:
            ending.callback(lookup.stop)
            ending.callback(collector.stop)
            collector.start()
            lookup.start()
            ended_by = stop_queue.get()
        if ended_by is None:
            return
        if not isinstance(ended_by, SourceError) or isinstance(ended_by, NoSuchGpuError):
            raise ended_by
        report(f"{ended_by.sentence} {ended_by.advice} Trying again.")
        with suppress(Empty):
            if stop_queue.get(timeout=_RETRY_SECONDS) is None:
                return
