"""The machine around the cards over time: processor, memory and load, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import Field, Row, braille, fill, spark
from gpumon.text.formatting import UNKNOWN, cell_width, gibibytes, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Host
    from gpumon.recording.history import History
    from gpumon.ui.view.memo import Memo

_TALL = 40
"""Rows of a terminal from which on it has a second line."""
_GAP = 2
_LEAST_SECONDS = 60


class _Course(Struct, frozen=True):
    """One of the three.

    Attributes:
        label: Its name.
        value: The newest value.
        unit: What stands dimmed behind it.
        field: Its values over time.
        top: The value at the upper edge; ``None`` where the values themselves tell.
        style: Its colour.
    """

    label: str
    value: str
    unit: str
    field: str
    top: float | None
    style: str


def strip_rows(height: int) -> int:
    """Rows that it takes on a terminal so high."""
    return 2 if height >= _TALL else 1


def host_rows(
    memo: Memo, host: Host, history: History, now: float, width: int, tall: int
) -> list[Row]:
    """The line, or two, or none.

    Args:
        memo: Keeps what was drawn.
        host: The machine as of now.
        history: Where the graphs come from.
        now: At which moment they end.
        width: Cells.
        tall: Rows, 1 or 2; 0 where it is hidden.
    """
    if not tall:
        return []
    courses = _courses(host)
    heads = [_head(course) for course in courses]
    each = (width - 1 - _GAP * len(courses)) // len(courses)
    rooms = [max(0, each - sum(cell_width(text) for text, _ in head)) for head in heads]
    # The graphs stay the same for as long as their newest second lasts.
    key = (int(now), tall, rooms, [course.top for course in courses])
    graphs = memo.by(key, _graphs, courses, history, now, rooms, tall)
    rows: list[Row] = []
    for y in range(tall):
        fields: list[Field] = [(" ", "")]
        for course, head, graph in zip(courses, heads, graphs, strict=True):
            start = head if y == tall - 1 else [(" " * sum(cell_width(t) for t, _ in head), "")]
            fields += [*start, (graph[y], course.style), (" " * _GAP, "")]
        rows.append(fill((field for field in fields if field[0]), width))
    return rows


def _courses(host: Host) -> Sequence[_Course]:
    used, total = host.memory_used, host.memory_total
    load = None if host.load is None else host.load[0]
    cores = host.cpu_count
    whole = "" if total is None else f"/{gibibytes(total, 0)}"
    size = UNKNOWN if used is None else gibibytes(used, 0).rjust(max(1, len(whole) - 1))
    return (
        _Course("cpu", f"{number(host.cpu_percent):>3}", "%", "cpu_percent", 100.0, "graph.util"),
        _Course("mem", size, f"{whole}G", "memory_used", total, "graph.memory"),
        _Course(
            "load",
            UNKNOWN if load is None else f"{load:>5.2f}",
            "" if cores is None else f"/{cores}",
            "load",
            cores,
            "graph.other",
        ),
    )


def _head(course: _Course) -> list[Field]:
    """Name and newest value, as wide at every value."""
    unit = course.unit if course.value.strip() != UNKNOWN else " " * cell_width(course.unit)
    return [(f"{course.label} ", "dim"), (course.value, "strong"), (f"{unit} ", "dim")]


def _graphs(
    courses: Sequence[_Course], history: History, now: float, rooms: Sequence[int], tall: int
) -> list[list[str]]:
    return [
        _graph(course, history, now, room, tall)
        for course, room in zip(courses, rooms, strict=True)
    ]


def _graph(course: _Course, history: History, now: float, room: int, tall: int) -> list[str]:
    """Its rows: eighths of a cell where it has one, dots where it has two."""
    if not room:
        return [""] * tall
    count = room if tall == 1 else 2 * room
    # Whole seconds a bucket, so that all of them hold as many.
    seconds = count * -(-_LEAST_SECONDS // count)
    values = history.host_buckets(course.field, seconds, count, now)
    highest = max((value for value in values if value is not None), default=0.0)
    # A load above the number of cores is still to be seen.
    top = max(course.top or 0.0, highest) or 1.0
    return [spark(values, top)] if tall == 1 else braille(values, top, room, tall)
