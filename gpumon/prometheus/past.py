"""The past of a host: its series over time as snapshots."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.prometheus.client import QueryError
from gpumon.prometheus.gpus import snapshot
from gpumon.prometheus.readings import Readings

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.prometheus.client import PrometheusClient
    from gpumon.prometheus.hosts import KnownHost

PATIENCE = 5.0
"""Seconds after which nothing more is asked."""
_HOUR = 3600.0
_SPANS = ((24 * _HOUR, 4 * _HOUR, 600.0), (4 * _HOUR, _HOUR / 2, 120.0), (_HOUR / 2, 0.0, 15.0))
"""From how long ago to how long ago, and seconds between two moments: 350 in all."""


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
    deadline = time.monotonic() + PATIENCE
    spans: list[list[Snapshot]] = []
    # Where there is no answer, the live values go on, and say what is wrong.
    with suppress(QueryError):
        for begin, end, step in reversed(_SPANS):
            if time.monotonic() > deadline:
                break
            moments = _span(client, series, now - begin, now - end, max(step, host.period or 0.0))
            spans.append(
                [
                    snapshot(host.name, reading, at + shift, whole=True)
                    for at, readings in sorted(moments.items())
                    if (reading := readings.hosts.get(host.name)) is not None and reading.has_gpus
                ]
            )
    return [one for span in reversed(spans) for one in span]


def _span(
    client: PrometheusClient, series: str, start: float, end: float, step: float
) -> dict[float, Readings]:
    """What was read at each moment of a time."""
    moments: defaultdict[float, Readings] = defaultdict(Readings)
    # Even moments: asked again, the same ones are in the answer.
    first = start - start % step + step
    if first >= end:
        return moments
    for one in client.query_range(series, first, end, step):
        for at, text in one.values:
            if at >= end:
                break
            moments[at].put(one.metric, at, text)
    return moments
