"""One host: every metric while its source is open, its past, and no processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.host_source import HostSource
from gpumon.host.process_host import Refusal, Refused
from gpumon.host.recorded import RecordedHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.fleet.fleet import HostState
    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.model.snapshot import Snapshot
    from gpumon.prometheus.fleet import PrometheusFleet


_WHOLE_SECONDS = 0.7
"""How long to wait for every metric after a snapshot with a few."""
_POLL = 0.02


class PrometheusSource(HostSource):
    """The snapshots of a host as they are scraped; implements ``Source``.

    Args:
        fleet: The fleet, which goes on after this source is closed.
        name: The host.
    """

    def __init__(self, fleet: PrometheusFleet, name: str) -> None:
        super().__init__(fleet, name)
        self._prometheus = fleet
        self._end: Callable[[], None] = lambda: None
        self._first: float | None = None
        self._last = 0.0

    def open(self) -> None:
        """See ``Source.open``; never fails."""
        super().open()
        self._end = self._prometheus.keep_open(self.hostname)

    def sample(self, *, full: bool = True) -> Snapshot:
        """See ``HostSource.sample``.

        Times never run backwards, although a scrape is seen a few seconds after it, when older
        values were already given with later times. ``Gpu.sampled_at`` has the time of the scrape.
        """
        deadline = time.monotonic() + _WHOLE_SECONDS
        while not self._prometheus.has_whole(self.hostname) and time.monotonic() < deadline:
            time.sleep(_POLL)
        snapshot = super().sample(full=full)
        # Only up to now, in case that the clock of this machine was set back.
        at = max(snapshot.time, min(self._last, time.time()))
        self._last = at
        if self._first is None and snapshot.gpus:
            self._first = at
        return replace(snapshot, time=at)

    def _state(self) -> HostState:
        return self._prometheus.state(self.hostname)

    def past(self) -> Iterable[Snapshot]:
        """See ``Source.past``: the last day as Prometheus has it, coarser the longer ago.

        Takes up to ``past.PATIENCE`` seconds; what has not come until then is left out.
        """
        first = self._first
        if first is None:
            shown = self._prometheus.state(self.hostname).snapshot
            first = time.time() if shown is None else shown.time
        return self._prometheus.past(self.hostname, first)

    def close(self) -> None:
        """Read only a few metrics of the host again."""
        super().close()
        self._end()
        self._end = lambda: None


class NoProcesses(RecordedHost):
    """See ``ProcessHost``: nothing can be looked up, and no signal is sent."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is on {self._name}, which is known from Prometheus only: nothing can"
            " be sent there; gpumon --hosts can.",
        )
