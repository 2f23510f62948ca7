"""The process table as rows: columns, sorting, and what a narrow terminal leaves out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from gpumon.config.columns import CHOSEN, COLUMN
from gpumon.model.metrics import PROCESS_METRIC
from gpumon.model.process_states import HALTED
from gpumon.model.thresholds import DEFAULTS
from gpumon.text.cells import Field, Row, fill, restyle
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    memory_size,
    number,
    printable,
)
from gpumon.ui.view.command_lines import command_line, fit_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.config.columns import Column
    from gpumon.model.snapshot import GpuProcess, ProcessId
    from gpumon.recording.history import Interval


class RowContext(NamedTuple):
    """What a row needs to know besides its process.

    Attributes:
        now: The time of the snapshot, or of one shortly before: what ages are told by.
        idle: Since when a process has been idle; ``None`` when it is not, or when that is unknown.
        idle_after: Seconds of idleness from which on the table tells it.
    """

    now: float
    idle: Callable[[ProcessId], Interval | None] = lambda _: None
    idle_after: float = DEFAULTS.idle_after


class Sort(Struct, frozen=True):
    """How the table is sorted.

    Attributes:
        column: Key of the column.
        descending: Largest first.
    """

    column: str = "memory_used"
    descending: bool = True


def _gpu(process: GpuProcess) -> str:
    """``0,1``; ``0/7`` for GPU instance 7 of card 0; ``0-7`` for a whole row of cards."""
    instances = {(use.gpu_index, use.instance) for use in process.uses}
    if any(instance is not None for _, instance in instances):
        return ",".join(
            str(index) if instance is None else f"{index}/{instance[0]}"
            for index, instance in sorted(instances, key=lambda pair: (pair[0], pair[1] or ()))
        )
    return card_list(process.gpu_indices)


def card_list(indices: Sequence[int]) -> str:
    """Ascending indices of cards in a few cells: ``0,1``, ``0-7``."""
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}-{indices[-1]}"
    return ",".join(map(str, indices))


def _age(process: GpuProcess, sight: RowContext) -> str:
    return duration(None if process.started_at is None else sight.now - process.started_at)


def _idle(process: GpuProcess, sight: RowContext) -> str:
    if process.sm is None:
        return UNKNOWN
    spell = sight.idle(process.id)
    if spell is None or spell.seconds < sight.idle_after:
        return ""
    return f"{'' if spell.begin_seen else '≥'}{duration(spell.seconds)}"


def _metric(key: str) -> Callable[[GpuProcess, RowContext], str]:
    """A text of the metric table, as it is."""
    read = PROCESS_METRIC[key].read

    def text(process: GpuProcess, sight: RowContext) -> str:
        value = read(process, sight.now)
        if value is None:
            return UNKNOWN if process.place is None else ""
        return printable(str(value))

    return text


def _on_cards(text: Callable[[GpuProcess], str]) -> Callable[[GpuProcess, RowContext], str]:
    """Blank for who is on no card, such as a shell in the tree."""
    return lambda process, _: text(process) if process.uses else ""


_TEXT: dict[str, Callable[[GpuProcess, RowContext], str]] = {
    "gpu": _on_cards(_gpu),
    "pid": lambda p, _: str(p.id.pid),
    "user": lambda p, _: printable(p.user or UNKNOWN),
    "type": lambda p, _: p.type,
    "memory_used": _on_cards(lambda p: memory_size(p.memory_used)),
    "sm": _on_cards(lambda p: number(p.sm)),
    "idle": lambda p, sight: _idle(p, sight) if p.uses else "",
    "cpu": lambda p, _: number(p.cpu_percent),
    "rss": lambda p, _: memory_size(p.rss),
    "age": _age,
    "state": lambda p, _: p.state or UNKNOWN,
    "where": _metric("where"),
    "container": _metric("container"),
    "job": _metric("job"),
    "command": lambda p, _: command_line(p),
}
"""What a process shows in each column."""

_LEAST_COMMAND = 14


@lru_cache(maxsize=16)
def visible_columns(width: int, chosen: tuple[str, ...] = CHOSEN) -> tuple[Column, ...]:
    """Of the chosen columns those that a width has room for."""
    columns = [COLUMN[key] for key in chosen]
    while len(columns) > 2 and _fixed(columns) + _LEAST_COMMAND > width:
        columns.remove(min(columns, key=lambda column: column.keep))
    return tuple(columns)


def _fixed(columns: Sequence[ColumnHeader]) -> int:
    return sum(column.width + 1 for column in columns[:-1]) + 1


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column]) -> int:
    """Cells of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return _fixed(columns) + longest


def sort_processes(
    processes: Sequence[GpuProcess], sort: Sort, sight: RowContext
) -> list[GpuProcess]:
    """Sorted, stable, the unknown always last, ties by PID."""
    by_pid = sorted(processes, key=lambda p: (p.id.pid, p.id.start_time or 0))
    return in_order(by_pid, _order(sort.column, sight), descending=sort.descending)


_Item = TypeVar("_Item")


def in_order(
    items: Iterable[_Item], value_of: Callable[[_Item], object], *, descending: bool
) -> list[_Item]:
    """Sorted by their values, which are all of one type; stable, the unknown (``None``) last."""
    known: list[tuple[object, _Item]] = []
    unknown: list[_Item] = []
    for item in items:
        value = value_of(item)
        if value is None:
            unknown.append(item)
        else:
            known.append((value, item))
    # A column has values of one kind, which its type does not tell.
    known.sort(key=lambda pair: pair[0], reverse=descending)  # type: ignore[arg-type,return-value]  # all of them are known here
    return [item for _, item in known] + unknown


def _order(column: str, sight: RowContext) -> Callable[[GpuProcess], object]:
    """What a column is sorted by."""
    # Columns whose text is made for people are sorted by what that text stands for.
    if column == "gpu":
        return lambda process: process.gpu_indices
    if column == "command":
        return command_line
    if column == "idle":
        return lambda process: None if (s := sight.idle(process.id)) is None else s.seconds
    read = PROCESS_METRIC[column].read
    return lambda process: read(process, sight.now)


class ColumnHeader(Protocol):
    """What a heading needs to know of a column."""

    @property
    def key(self) -> str:
        """Names it."""

    @property
    def label(self) -> str:
        """The heading."""

    @property
    def width(self) -> int:
        """Cells; 0 takes what is left."""

    @property
    def left(self) -> bool:
        """Whether its text starts at the left."""

    @property
    def descends(self) -> bool:
        """Whether a first press sorts the largest first."""


def heading_row(columns: Sequence[ColumnHeader], sort: Sort, width: int) -> Row:
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


def column_at(columns: Sequence[ColumnHeader], x: int) -> ColumnHeader | None:
    """The column under a cell of the heading."""
    edge = 1
    for column in columns:
        edge += column.width + 1
        if x < edge or not column.width:
            return column
    return None


class RowMarks(NamedTuple):
    """What is special about a row.

    Attributes:
        cursor: It is under the cursor.
        tagged: It is tagged.
        branch: What stands before the command in a tree.
        shift: Cells by which commands are scrolled to the side.
    """

    cursor: bool = False
    tagged: bool = False
    branch: str = ""
    shift: int = 0

    @property
    def sign(self) -> str:
        """What stands in the row's first cell."""
        if self.tagged:
            return "◉" if self.cursor else "●"
        return "▸" if self.cursor else " "


PLAIN = RowMarks()


def process_row(
    process: GpuProcess,
    columns: Sequence[Column],
    sight: RowContext,
    width: int,
    marks: RowMarks = PLAIN,
) -> Row:
    """One process."""
    fields: list[Field] = [(marks.sign, "tagged" if marks.tagged else "")]
    fixed = _fixed(columns)
    for column in columns:
        style = _STYLES.get(column.key, "")
        if not column.width:
            fields += _command_fields(process, marks, max(0, width - fixed))
            break
        text = _TEXT[column.key](process, sight)
        if column.left:
            fields.append((fit(text, column.width), style))
        else:
            fields.append((fit_right(text, column.width), style))
        fields.append((" ", ""))
    row = fill(fields, width)
    if marks.cursor:
        return restyle(row, "cursor")
    if marks.tagged:
        return restyle(row, "tagged")
    if not process.uses:
        return restyle(row, "dim")
    return row if process.visible else restyle(row, "stale")


def _command_fields(process: GpuProcess, marks: RowMarks, room: int) -> list[Field]:
    """The branch of the tree, what is special about the process's state, and what it runs."""
    fields: list[Field] = []
    if marks.branch:
        # A deep tree leaves the command a third of the room.
        branch = marks.branch[-max(2, room * 2 // 3) :]
        fields.append((branch, "rule"))
        room -= cell_width(branch)
    state = HALTED.get(process.state or "")
    if state is not None and room > cell_width(state.word) + _LEAST_COMMAND // 2:
        fields.append((f"{state.word} ", "state.warning"))
        room -= cell_width(state.word) + 1
    fields.append((fit_command(process, max(0, room), marks.shift), ""))
    return fields


_STYLES = {
    "pid": "dim",
    "type": "dim",
    "memory_used": "strong",
    "user": "user",
    "age": "dim",
    "idle": "state.note",
    "where": "dim",
    "container": "dim",
    "job": "dim",
    "state": "dim",
}


def users_of(processes: Sequence[GpuProcess]) -> int:
    """How many users own a process."""
    return len({process.user for process in processes if process.user is not None})
