"""One host: every metric while its source is open, its past, and no processes."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.host_source import HostSource
from gpumon.host.process_host import RecordedHost, Refusal, Refused
from gpumon.prometheus.client import QueryError
from gpumon.prometheus.gpus import snapshot
from gpumon.prometheus.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.fleet.fleet import HostState
    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.model.snapshot import Snapshot
    from gpumon.prometheus.client import PrometheusClient
    from gpumon.prometheus.fleet import PrometheusFleet
    from gpumon.prometheus.hosts import KnownHost

_WHOLE_SECONDS = 0.7
"""How long to wait for every metric after a snapshot with a few."""
_POLL = 0.02
PAST_PATIENCE = 5.0
"""Seconds after which no more of the past is asked for."""
_HOUR = 3600.0
_SPANS = ((24 * _HOUR, 4 * _HOUR, 600.0), (4 * _HOUR, _HOUR / 2, 120.0), (_HOUR / 2, 0.0, 15.0))
"""From how long ago to how long ago, and seconds between two samples: 350 in all."""


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

        Takes up to ``PAST_PATIENCE`` seconds; what has not come until then is left out.
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


def read_past(
    client: PrometheusClient, host: KnownHost, series: str, shift: float, before: float
) -> list[Snapshot]:
    """The snapshots of a host, oldest first; the newest spans if not all could be read in time.

    Args:
        client: Makes the queries.
        host: The host.
        series: The selector of its series.
        shift: Seconds to add to times of Prometheus for this machine's clock.
        before: All are older than this time, by this machine's clock.
    """
    now = before - shift
    deadline = time.monotonic() + PAST_PATIENCE
    spans: list[list[Snapshot]] = []
    # Where there is no answer, the live values go on, and say what is wrong.
    with suppress(QueryError):
        for begin, end, step in reversed(_SPANS):
            if time.monotonic() > deadline:
                break
            by_time = _span(client, series, now - begin, now - end, max(step, host.period or 0.0))
            spans.append(
                [
                    snapshot(host.name, reading, at + shift, whole=True)
                    for at, readings in sorted(by_time.items())
                    if (reading := readings.hosts.get(host.name)) is not None and reading.has_gpus
                ]
            )
    return [past for span in reversed(spans) for past in span]


def _span(
    client: PrometheusClient, series: str, start: float, end: float, step: float
) -> dict[float, Readings]:
    """What was read at each time of a span."""
    by_time: defaultdict[float, Readings] = defaultdict(Readings)
    # Multiples of the step: the same times are in the answer to the next question.
    first = start - start % step + step
    if first >= end:
        return by_time
    for found in client.query_range(series, first, end, step):
        for at, text in found.values:
            if at >= end:
                break
            by_time[at].put(found.metric, at, text)
    return by_time
