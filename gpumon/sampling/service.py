"""Sampling for services, which also goes on after times without a driver."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from queue import Empty
from typing import TYPE_CHECKING

from gpumon.makers.source import NoSuchGpuError, SourceError
from gpumon.sampling.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.enrichment import Lookup

_RETRY_SECONDS = 5.0
"""Seconds after which a driver that could not be used is tried again."""


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
