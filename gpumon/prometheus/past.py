"""The past of a host: its series over time as snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.prometheus.client import QueryError
from gpumon.prometheus.gpus import snapshot
from gpumon.prometheus.readings import Readings

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.prometheus.client import PrometheusClient

PATIENCE = 5.0
"""Seconds after which nothing more is asked."""
_HOUR = 3600.0
_SPANS = ((24 * _HOUR, 4 * _HOUR, 600.0), (4 * _HOUR, _HOUR / 2, 120.0), (_HOUR / 2, 0.0, 15.0))
"""From how long ago to how long ago, and seconds between two moments: 350 in all."""


class PastReader:
    """Reads the past of one host, once.

    Args:
        client: Makes the queries; it is closed afterwards.
        name: The host.
        series: The selector of its series.
        period: Seconds between two scrapes; ``None`` if unknown.
        shift: Seconds to add to times of Prometheus for this machine's clock.
    """

    def __init__(
        self, client: PrometheusClient, name: str, series: str, period: float | None, shift: float
    ) -> None:
        self._client = client
        self._name = name
        self._series = series
        self._period = period
        self._shift = shift

    def read(self, before: float) -> list[Snapshot]:
        """The snapshots, oldest first; the newest spans if not all could be read in time.

        Args:
            before: All are older than this time, by this machine's clock.
        """
        now = before - self._shift
        deadline = time.monotonic() + PATIENCE
        spans: list[list[Snapshot]] = []
        try:
            for begin, end, step in reversed(_SPANS):
                if time.monotonic() > deadline:
                    break
                spans.append(self._span(now - begin, now - end, max(step, self._period or 0.0)))
        except QueryError:
            # The live values go on, and say what is wrong.
            pass
        finally:
            self._client.close()
        return [one for span in reversed(spans) for one in span]

    def _span(self, start: float, end: float, step: float) -> list[Snapshot]:
        moments: dict[float, Readings] = {}
        # Even moments: asked again, the same ones are in the answer.
        first = start - start % step + step
        if first >= end:
            return []
        for series in self._client.query_range(self._series, first, end, step):
            for at, text in series.values:
                if at >= end:
                    break
                known = moments.get(at)
                if known is None:
                    known = moments[at] = Readings()
                known.put(series.metric, at, text)
        return [
            snapshot(self._name, reading, at + self._shift, whole=True)
            for at, readings in sorted(moments.items())
            if (reading := readings.hosts.get(self._name)) is not None and reading.has_gpus
        ]
