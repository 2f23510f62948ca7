"""The line of the host: CPU, memory and load over time, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.cells import Field, Row, braille, fill, row_width, spark
from gpumon.text.formatting import cell_width, fit
from gpumon.ui.view.chart_series import HOST_SERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Host
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Memo

_TALL = 40
"""A terminal of this height or more shows a second row of it."""
_GAP = 2


def host_height(height: int) -> int:
    """Number of rows that it takes on a terminal of this height."""
    return 2 if height >= _TALL else 1


def host_rows(
    memo: Memo,
    host: Host,
    history: History,
    now: float,
    seconds: float,
    width: int,
    tall: int,
) -> list[Row]:
    """The rows of the host.

    Args:
        memo: Caches the graphs.
        host: The newest values.
        history: The values of the graphs.
        now: The end of the graphs.
        seconds: Their length.
        width: Cells.
        tall: Number of rows, 1 or 2; 0 if it is hidden.
    """
    if not tall:
        return []
    heads = [_head(series, host) for series in HOST_SERIES]
    each = (width - 1 - _GAP * len(heads)) // len(heads)
    rooms = [max(0, each - row_width(head)) for head in heads]
    # The graphs change with each value, but no more than once a second.
    interval = max(1.0, seconds / (max(rooms) * tall or 1))
    key = (int(now / interval), seconds, tall, rooms, host.memory_total, host.cpu_count)
    graphs = memo.by(key, _graphs, host, history, now, seconds, rooms, tall)
    rows: list[Row] = []
    for y in range(tall):
        fields: list[Field] = [(" ", "")]
        for series, head, graph in zip(HOST_SERIES, heads, graphs, strict=True):
            start = head if y == tall - 1 else [(" " * row_width(head), "")]
            fields += [*start, (graph[y], series.style), (" " * _GAP, "")]
        rows.append(fill((field for field in fields if field[0]), width))
    return rows


def _head(series: ChartSeries[Host], host: Host) -> list[Field]:
    """The name and the newest value, in a constant width."""
    value, unit = series.texts(host)
    width = cell_width(series.rest(host))
    return [
        (f"{series.label} ", "dim"),
        (value.rjust(series.text_width(host)), "strong"),
        (f"{fit(unit, width)} ", "dim"),
    ]


def _graphs(
    host: Host, history: History, now: float, seconds: float, rooms: Sequence[int], tall: int
) -> list[list[str]]:
    return [
        _graph(series, host, history, now, seconds, room, tall)
        for series, room in zip(HOST_SERIES, rooms, strict=True)
    ]


def _graph(
    series: ChartSeries[Host],
    host: Host,
    history: History,
    now: float,
    seconds: float,
    room: int,
    tall: int,
) -> list[str]:
    """The rows of a graph: block characters in one row, braille in two."""
    if not room:
        return [""] * tall
    count = room if tall == 1 else 2 * room
    values = series.over_time(history, host).buckets(series.fields[0], seconds, count, now)
    highest = max((value for value in values if value is not None), default=0.0)
    # The load can exceed the number of cores.
    top = max(series.whole(host) or series.top or 0.0, highest) or 1.0
    return [spark(values, top)] if tall == 1 else braille(values, top, room, tall)
