"""The line of the host: CPU, memory and load over time, and the share of the GPU processes.

It adds to the header: the cores in use, the free memory, three load averages, who uses them, and
the traffic of the network adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.arithmetic import known_sum
from gpumon.text.cells import Field, Row, braille, fill, row_width, spark
from gpumon.text.formatting import UNKNOWN, cell_width, fit, gibibytes, printable
from gpumon.ui.view.chart_series import HOST_SERIES, end_of_chart
from gpumon.ui.view.network_view import host_text, host_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Host
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Memo

_TALL = 40
"""A terminal of this height or more shows a second row of it."""
_GAP = 2
_LEAST_GRAPH = 8
"""The least cells of each graph beside the text on the GPU processes."""
_SHORT_TEXT, _LONG_TEXT = 38, 72
"""Cells of that text without and with the busiest process: constant, so that no graph moves."""
_NETWORK_TEXT = 33
"""Cells of the text on the network adapters, with the gap before it."""


def host_height(height: int) -> int:
    """Number of rows that it takes on a terminal of this height."""
    return 2 if height >= _TALL else 1


def host_rows(
    memo: Memo,
    host: Host,
    processes: Sequence[GpuProcess],
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
        processes: The newest GPU processes.
        history: The values of the graphs.
        now: The end of the graphs.
        seconds: Their length.
        width: Cells.
        tall: Number of rows, 1 or 2; 0 if it is hidden.
    """
    if not tall:
        return []
    heads = [_cpu_head(host), _memory_head(host), _load_head(host)]
    around = 1 + _GAP * len(heads)
    if around + sum(map(row_width, heads)) > width:
        # A number that is cut would look like another number.
        heads[-1] = _load_head(host, count=1)
    spare = width - around - sum(map(row_width, heads))
    network_text, network_style = host_text(host, now)
    size, network_size = _text_sizes(
        network_text, spare, len(heads), is_warning=bool(host_warnings(host, now))
    )
    text = memo(_use_text, processes, size == _LONG_TEXT) if size else ""
    # The first graphs get the cells that are left over.
    each, more = divmod(max(0, spare - size - network_size), len(heads))
    rooms = [each + (place < more) for place in range(len(heads))]
    ends = [end_of_chart(now, seconds, 2 * max(1, room)) for room in rooms]
    key = (ends, seconds, tall, rooms, host.memory_total, host.cpu_count)
    graphs = memo.by(key, _graphs, host, history, now, seconds, rooms, tall)
    rows: list[Row] = []
    for y in range(tall):
        fields: list[Field] = [(" ", "")]
        for series, head, graph in zip(HOST_SERIES, heads, graphs, strict=True):
            start = head if y == tall - 1 else [(" " * row_width(head), "")]
            fields += [*start, (graph[y], series.style), (" " * _GAP, "")]
        if y == tall - 1:
            fields.append((fit(text, size), "dim"))
            fields.append((fit(f"  {network_text}", network_size), network_style))
        rows.append(fill((field for field in fields if field[0]), width))
    return rows


def _text_sizes(network: str, spare: int, graphs: int, *, is_warning: bool) -> tuple[int, int]:
    """The cells of the texts on the GPU processes and on the network adapters.

    A warning is shown even if the graphs have no room.
    """
    for_network = cell_width(network) + _GAP if is_warning else _NETWORK_TEXT if network else 0
    room = spare if is_warning else spare - _LEAST_GRAPH * graphs
    sizes = [
        *((size, for_network) for size in (_LONG_TEXT, _SHORT_TEXT)),
        *([(0, for_network)] if is_warning else [(_LONG_TEXT, 0), (_SHORT_TEXT, 0)]),
    ]
    return next((both for both in sizes if sum(both) <= room), (0, 0))


def _cpu_head(host: Host) -> list[Field]:
    """The cores in use of all; without their number the share of the CPU."""
    if host.cpu_count is None:
        percent = UNKNOWN if host.cpu_percent is None else f"{host.cpu_percent:.0f}"
        return [("cpu ", "dim"), (f"{percent:>3}", "strong"), ("% ", "dim")]
    used = UNKNOWN
    if host.cpu_percent is not None:
        used = f"{host.cpu_percent / 100 * host.cpu_count:.0f}"
    return [
        ("cpu ", "dim"),
        (f"{used:>{len(str(host.cpu_count))}}", "strong"),
        (f"/{host.cpu_count} cores ", "dim"),
    ]


def _memory_head(host: Host) -> list[Field]:
    free, width = UNKNOWN, 4
    if host.memory_total is not None:
        width = len(gibibytes(host.memory_total, 0))
        if host.memory_used is not None:
            free = gibibytes(max(0, host.memory_total - host.memory_used), 0)
    return [("ram ", "dim"), (f"{free:>{width}}", "strong"), ("G free ", "dim")]


def _load_head(host: Host, count: int = 3) -> list[Field]:
    """The load averages over 1, 5 and 15 minutes, or the first of them."""
    loads = [f"{load:.1f}" for load in host.load] if host.load is not None else [UNKNOWN] * 3
    first, *others = (f"{text:>5}" for text in loads[:count])
    return [("load ", "dim"), (first, "strong"), ("".join(others) + " ", "dim")]


def _use_text(processes: Sequence[GpuProcess], long: bool) -> str:
    """What the GPU processes use of the host, and which of them uses most."""
    cpu = known_sum(process.cpu_percent for process in processes)
    memory = known_sum(process.rss for process in processes)
    cores = UNKNOWN if cpu is None else f"{cpu / 100:.1f}"
    ram = UNKNOWN if memory is None else gibibytes(memory, 0)
    text = f"GPU processes: {cores:>5} cores, {ram:>4}G ram"
    busiest = max(processes, key=lambda process: process.cpu_percent or 0.0, default=None)
    if not long or busiest is None or not busiest.cpu_percent:
        return text
    user = printable(busiest.user or UNKNOWN)
    return f"{text}, most by {busiest.id.pid} {user}: {busiest.cpu_percent / 100:.1f}"


def _graphs(
    host: Host, history: History, now: float, seconds: float, rooms: Sequence[int], tall: int
) -> list[list[str]]:
    return [
        _graph(series, host, history, now, seconds, room, tall)
        for series, room in zip(HOST_SERIES, rooms, strict=True)
    ]


def _count(room: int, tall: int) -> int:
    """The number of values in a graph: in two rows there are two in a cell."""
    return max(1, room * tall)


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
    count, end = _count(room, tall), end_of_chart(now, seconds, 2 * max(1, room))
    values = series.values(history, host, series.fields[0], seconds, count, end)
    highest = max((value for value in values if value is not None), default=0.0)
    # The load can exceed the number of cores.
    top = max(series.whole(host) or series.top or 0.0, highest) or 1.0
    return [spark(values, top)] if tall == 1 else braille(values, top, room, tall)
