"""The line of the host: CPU, memory and load over time, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import Field, Row, braille, fill, row_width, spark
from gpumon.text.formatting import UNKNOWN, cell_width, gibibytes, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Host
    from gpumon.recording.history import History
    from gpumon.ui.view.memo import Memo

_TALL = 40
"""A terminal of this height or more shows a second row of it."""
_GAP = 2
_LEAST_SECONDS = 60


class _HostValue(Struct, frozen=True):
    """A value with its graph.

    Attributes:
        label: The name.
        value: The newest value.
        unit: The dimmed text after it.
        field: The field of the history.
        top: The value at the upper edge; ``None`` scales to the highest value.
        style: The style of the graph.
    """

    label: str
    value: str
    unit: str
    field: str
    top: float | None
    style: str


def strip_rows(height: int) -> int:
    """Number of rows that it takes on a terminal of this height."""
    return 2 if height >= _TALL else 1


def host_rows(
    memo: Memo, host: Host, history: History, now: float, width: int, tall: int
) -> list[Row]:
    """The rows of the host.

    Args:
        memo: Caches the graphs.
        host: The newest values.
        history: The values of the graphs.
        now: The end of the graphs.
        width: Cells.
        tall: Number of rows, 1 or 2; 0 if it is hidden.
    """
    if not tall:
        return []
    shown = _host_values(host)
    heads = [_head(value) for value in shown]
    each = (width - 1 - _GAP * len(shown)) // len(shown)
    rooms = [max(0, each - row_width(head)) for head in heads]
    # The graphs change once a second.
    key = (int(now), tall, rooms, [value.top for value in shown])
    graphs = memo.by(key, _graphs, shown, history, now, rooms, tall)
    rows: list[Row] = []
    for y in range(tall):
        fields: list[Field] = [(" ", "")]
        for value, head, graph in zip(shown, heads, graphs, strict=True):
            start = head if y == tall - 1 else [(" " * row_width(head), "")]
            fields += [*start, (graph[y], value.style), (" " * _GAP, "")]
        rows.append(fill((field for field in fields if field[0]), width))
    return rows


def _host_values(host: Host) -> Sequence[_HostValue]:
    used, total = host.memory_used, host.memory_total
    load = None if host.load is None else host.load[0]
    cores = host.cpu_count
    whole = "" if total is None else f"/{gibibytes(total, 0)}"
    size = UNKNOWN if used is None else gibibytes(used, 0).rjust(max(1, len(whole) - 1))
    return (
        _HostValue(
            "cpu", f"{number(host.cpu_percent):>3}", "%", "cpu_percent", 100.0, "graph.util"
        ),
        _HostValue("ram", size, f"{whole}G", "memory_used", total, "graph.memory"),
        _HostValue(
            "load",
            UNKNOWN if load is None else f"{load:>5.2f}",
            "" if cores is None else f"/{cores}",
            "load",
            cores,
            "graph.other",
        ),
    )


def _head(value: _HostValue) -> list[Field]:
    """The name and the newest value, in a constant width."""
    unit = value.unit if value.value.strip() != UNKNOWN else " " * cell_width(value.unit)
    return [(f"{value.label} ", "dim"), (value.value, "strong"), (f"{unit} ", "dim")]


def _graphs(
    shown: Sequence[_HostValue], history: History, now: float, rooms: Sequence[int], tall: int
) -> list[list[str]]:
    return [
        _graph(value, history, now, room, tall) for value, room in zip(shown, rooms, strict=True)
    ]


def _graph(value: _HostValue, history: History, now: float, room: int, tall: int) -> list[str]:
    """The rows of a graph: block characters in one row, braille in two."""
    if not room:
        return [""] * tall
    count = room if tall == 1 else 2 * room
    # Buckets of whole seconds all hold the same number of samples.
    seconds = count * -(-_LEAST_SECONDS // count)
    values = history.host_series().buckets(value.field, seconds, count, now)
    highest = max((one for one in values if one is not None), default=0.0)
    # The load can exceed the number of cores.
    top = max(value.top or 0.0, highest) or 1.0
    return [spark(values, top)] if tall == 1 else braille(values, top, room, tall)
