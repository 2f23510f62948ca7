"""What ``gpumon log`` logs: the samples of a machine, and what is said of it meanwhile."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from gpumon.recording.csv import log_messages as words
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.gpu_sampler import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.machine import Machine

    Take = Callable[[Mapping[str | None, Snapshot]], None]


class LogFeed(Protocol):
    """What is logged."""

    name: str  # what a log without a name is named after
    several: bool  # whether it is several machines

    def start(self, take: Take, failed: Callable[[BaseException], None]) -> None:
        """Begin to sample. Returns at once.

        Args:
            take: Takes each sample, by the names of the machines, on another thread; the name is
                ``None`` if there is one machine only.
            failed: Takes the error that ended the sampling.
        """
        ...

    def stop(self) -> None:
        """End the sampling. May be called more than once."""
        ...

    def is_starting(self) -> bool:
        """Whether the first sample is still to be expected; for ``PATIENCE`` seconds at most."""
        ...

    def trouble(self) -> str | None:
        """Why nothing is sampled now, safe to print."""
        ...

    def changes(self) -> Sequence[str]:
        """What has changed since the last call, in sentences that are safe to print."""
        ...

    def parts(self, user: str | None) -> Sequence[str]:
        """What is logged now, with the processes of a user; none before anything was sampled."""
        ...

    def never_sampled(self) -> Sequence[str]:
        """The machines of which nothing was sampled, and why, in sentences."""
        ...


class MachineFeed:
    """One machine; implements ``LogFeed``."""

    several = False

    def __init__(self, machine: Machine, interval: float) -> None:
        self.name = machine.source.hostname
        self._interval = interval
        self._lookup = Lookup(
            machine.processes, allocations=machine.allocations, servers=machine.servers
        )
        self._collector = Collector(machine.source, interval, annotate=self._lookup.annotate)
        self._silent = ""
        self._started_at = 0.0

    def start(self, take: Take, failed: Callable[[BaseException], None]) -> None:
        """See ``LogFeed.start``.

        Raises:
            SourceError: The source cannot be opened.
        """
        self._collector.subscribe(lambda snapshot: take({None: snapshot}), failed)
        self._started_at = time.monotonic()
        self._collector.start()
        self._lookup.start()

    def stop(self) -> None:
        """See ``LogFeed.stop``."""
        with ExitStack() as ending:
            ending.callback(self._lookup.stop)
            ending.callback(self._collector.stop)

    def is_starting(self) -> bool:
        """See ``LogFeed.is_starting``."""
        return time.monotonic() < self._started_at + PATIENCE

    def trouble(self) -> str | None:
        """See ``LogFeed.trouble``."""
        latest = self._collector.latest
        return None if latest is None else words.trouble_of(latest, self._interval)

    def changes(self) -> Sequence[str]:
        """See ``LogFeed.changes``."""
        before, self._silent = self._silent, words.silent_gpus(self._collector.latest)
        return [] if self._silent == before else [self._silent or "every GPU answers again"]

    def parts(self, user: str | None) -> Sequence[str]:
        """See ``LogFeed.parts``."""
        latest = self._collector.latest
        return [] if latest is None else words.machine(latest, user)

    def never_sampled(self) -> Sequence[str]:
        """See ``LogFeed.never_sampled``; that there was no GPU is said of the whole log."""
        return []
