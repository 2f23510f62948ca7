"""The process table as rows: columns, sorting, and what a narrow terminal leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.layout.cells import Field, Row, fill, restyle
from gpumon.metrics import PROCESS_METRIC
from gpumon.text import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    memory_size,
    number,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model import GpuProcess, ProcessId


class Sort(Struct, frozen=True):
    """How the table is sorted.

    Attributes:
        column: Key of the column.
        descending: Largest first.
    """

    column: str = "memory_used"
    descending: bool = True


class Column(Struct, frozen=True):
    """A column of the table.

    Attributes:
        key: Its line in ``metrics.PROCESS_METRICS``.
        width: Cells, without the space before it.
        keep: How long it stays as the terminal narrows: the lowest goes first.
        text: What a process shows in it.
        letter: The key that sorts by it.
        left: Whether its text starts at the left.
    """

    key: str
    width: int
    keep: int
    text: Callable[[GpuProcess, float], str]
    letter: str
    left: bool = False

    @property
    def label(self) -> str:
        """The heading."""
        return PROCESS_METRIC[self.key].label

    @property
    def descends(self) -> bool:
        """Whether a first press sorts the largest first: so for amounts, not for names."""
        return self.key in {"memory_used", "sm", "cpu", "rss", "age"}


def _gpu(process: GpuProcess) -> str:
    """``0,1``; ``0/7`` for GPU instance 7 of card 0; ``0-7`` for a whole row of cards."""
    instances = {(use.gpu_index, use.instance) for use in process.uses}
    if any(instance is not None for _, instance in instances):
        return ",".join(
            str(index) if instance is None else f"{index}/{instance[0]}"
            for index, instance in sorted(instances, key=lambda pair: (pair[0], pair[1] or ()))
        )
    indices = process.gpu_indices
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}-{indices[-1]}"
    return ",".join(map(str, indices))


def command_line(process: GpuProcess) -> str:
    """What the process runs, for a person: the program without its folder, then its arguments."""
    if not process.visible:
        return "(not visible here)"
    if not process.command:
        return printable(f"[{process.name}]" if process.name else UNKNOWN)
    program = process.command[0].rpartition("/")[2] or process.command[0]
    return printable(" ".join((program, *process.command[1:])))


def _age(process: GpuProcess, now: float) -> str:
    return duration(None if process.started_at is None else now - process.started_at)


COLUMNS: tuple[Column, ...] = (
    Column("gpu", 7, 90, lambda p, _: _gpu(p), "G"),
    Column("pid", 8, 95, lambda p, _: str(p.id.pid), "P"),
    Column("user", 9, 80, lambda p, _: printable(p.user or UNKNOWN), "U", left=True),
    Column("type", 5, 20, lambda p, _: p.type, "Y", left=True),
    Column("memory_used", 8, 100, lambda p, _: memory_size(p.memory_used), "M"),
    Column("sm", 4, 70, lambda p, _: number(p.sm), "S"),
    Column("cpu", 5, 40, lambda p, _: number(p.cpu_percent), "C"),
    Column("rss", 7, 30, lambda p, _: memory_size(p.rss), "R"),
    Column("age", 7, 50, _age, "A"),
    Column("command", 0, 100, lambda p, _: command_line(p), "N", left=True),
)
"""In the order in which they stand; the last one takes what is left."""

_LEAST_COMMAND = 14


def visible_columns(width: int) -> tuple[Column, ...]:
    """The columns a width has room for."""
    columns = list(COLUMNS)
    while len(columns) > 2 and _fixed(columns) + _LEAST_COMMAND > width:
        columns.remove(min(columns, key=lambda column: column.keep))
    return tuple(columns)


def _fixed(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns[:-1]) + 1


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column]) -> int:
    """Cells of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return _fixed(columns) + longest


def sort_processes(processes: Sequence[GpuProcess], sort: Sort, now: float) -> list[GpuProcess]:
    """Sorted, stable, the unknown always last, ties by PID."""
    read = PROCESS_METRIC[sort.column].read
    by_text = _ORDERS.get(sort.column)
    known: list[tuple[object, GpuProcess]] = []
    unknown: list[GpuProcess] = []
    for process in sorted(processes, key=lambda p: (p.id.pid, p.id.start_time or 0)):
        value = read(process, now) if by_text is None else by_text(process)
        if value is None:
            unknown.append(process)
        else:
            known.append((value, process))
    # One column's values are all of one type, so they compare.
    known.sort(key=lambda pair: pair[0], reverse=sort.descending)  # type: ignore[arg-type,return-value]
    return [process for _, process in known] + unknown


# Columns whose text is made for people are sorted by what that text stands for.
_ORDERS: dict[str, Callable[[GpuProcess], object]] = {
    "gpu": lambda process: process.gpu_indices,
    "command": command_line,
}


def heading_row(columns: Sequence[Column], sort: Sort, width: int) -> Row:
    """The names of the columns, the sorted one marked."""
    fields: list[Field] = [(" ", "heading")]
    for column in columns:
        marked = column.key == sort.column
        label = column.label + (("▼" if sort.descending else "▲") if marked else "")
        size = column.width or max(0, width - _fixed(columns))
        text = fit(label, size) if column.left else fit_right(label, size)
        fields.append((text, "heading.sorted" if marked else "heading"))
        fields.append((" ", "heading"))
    return fill(fields[:-1], width, "heading")


def column_at(columns: Sequence[Column], x: int) -> Column:
    """The column under a cell of the heading."""
    edge = 1
    for column in columns[:-1]:
        edge += column.width + 1
        if x < edge:
            return column
    return columns[-1]


def process_row(
    process: GpuProcess, columns: Sequence[Column], now: float, width: int, cursor: bool
) -> Row:
    """One process."""
    fields: list[Field] = [("▸" if cursor else " ", "")]
    for column in columns:
        style = _STYLES.get(column.key, "")
        text = column.text(process, now)
        if not column.width:
            fields.append((fit(text, max(0, width - _fixed(columns))), style))
            break
        if column.left:
            fields.append((fit(text, column.width), style))
        else:
            fields.append((fit_right(text, column.width), style))
        fields.append((" ", ""))
    row = fill(fields, width)
    if cursor:
        return restyle(row, "cursor")
    return row if process.visible else restyle(row, "stale")


_STYLES = {"pid": "dim", "type": "dim", "memory_used": "strong", "user": "user", "age": "dim"}


class ProcessRows:
    """Draws the table, keeping the rows of processes that did not change."""

    def __init__(self) -> None:
        self._kept: dict[ProcessId, tuple[GpuProcess, object, Row]] = {}

    def rows(
        self,
        processes: Sequence[GpuProcess],
        now: float,
        width: int,
        height: int,
        sort: Sort,
        cursor: ProcessId | None,
    ) -> list[Row]:
        """The heading and as many of the processes as there are rows.

        Args:
            processes: In order, from the first to show.
            now: The time of the snapshot.
            width: Cells.
            height: Rows, the heading included.
            sort: To be marked in the heading.
            cursor: The process under the cursor.
        """
        columns = visible_columns(width)
        rows = [heading_row(columns, sort, width)]
        kept: dict[ProcessId, tuple[GpuProcess, object, Row]] = {}
        for process in processes[: max(0, height - 1)]:
            chosen = process.id == cursor
            # The age is the only text that changes without the process: it shows whole seconds.
            key = (_age(process, now), width, chosen)
            known = self._kept.get(process.id)
            if known is not None and known[0] is process and known[1] == key:
                row = known[2]
            else:
                row = process_row(process, columns, now, width, chosen)
            kept[process.id] = (process, key, row)
            rows.append(row)
        self._kept = kept
        return rows


def users_of(processes: Sequence[GpuProcess]) -> int:
    """How many users own a process."""
    return len({process.user for process in processes if process.user is not None})


def filter_user(processes: Sequence[GpuProcess], user: str | None) -> Sequence[GpuProcess]:
    """The processes of one user; all of them when none is named."""
    if user is None:
        return processes
    return [process for process in processes if process.user == user]
