"""The process table: columns, sorting, and rows of cells."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from gpumon.config.columns import COLUMN, DEFAULT_COLUMNS
from gpumon.model.metrics import PROCESS_METRIC, Unit
from gpumon.model.process_states import HALTED
from gpumon.model.thresholds import DEFAULTS
from gpumon.text.cells import Field, Row, fill, restyle
from gpumon.text.command_lines import command_line, fit_command
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    memory_size,
    mig_name,
    number,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.config.columns import Column
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.recording.history import Interval
    from gpumon.ui.view.gpu_text import DeviceKey, MigIndices


WATCHED = "★"
"""Marks what is to be notified: a GPU that becomes free, a process that ends."""


class RowContext(NamedTuple):
    """What a row needs besides its process.

    Attributes:
        now: The time that ages are computed from: that of the snapshot, or of one shortly before.
        idle: Returns a process's idle interval; ``None`` if it is not idle or this is unknown.
        idle_after: Idle time in seconds before the table shows it.
        host_memory: Memory of the host in bytes; ``None`` if it is unknown.
        mig: The indices of MIG devices, from ``mig_indices``.
    """

    now: float
    idle: Callable[[ProcessId], Interval | None] = lambda _: None
    idle_after: float = DEFAULTS.idle_after
    host_memory: int | None = None
    mig: Mapping[DeviceKey, int] = {}

    def idle_seconds(self, process: ProcessId) -> float | None:
        """How long a process has been idle; ``None`` if it is not, or this is unknown."""
        interval = self.idle(process)
        return None if interval is None else interval.seconds


_Text: TypeAlias = "Callable[[GpuProcess, RowContext], str]"


class Sort(Struct, frozen=True):
    """How the table is sorted: by the column with this key."""

    column: str = "memory_used"
    descending: bool = True


def devices(process: GpuProcess, mig: MigIndices) -> str:
    """A process's GPUs: ``0,1``; ``0:3`` for MIG device 3 of GPU 0; ``0-7`` for a range."""
    if all(use.instance is None for use in process.uses):
        return gpu_list(process.gpu_indices)
    names = dict.fromkeys(
        str(use.gpu_index)
        if use.instance is None
        else mig_name(use.gpu_index, mig.get((use.gpu_uuid, use.instance)))
        for use in process.uses
    )
    return ",".join(sorted(names))


def gpu_list(indices: Sequence[int]) -> str:
    """Ascending GPU indices in a few cells: ``0,1``, ``0-7``."""
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}-{indices[-1]}"
    return ",".join(map(str, indices))


def _idle(process: GpuProcess, context: RowContext) -> str:
    if process.sm is None:
        return UNKNOWN
    interval = context.idle(process.id)
    if interval is None or interval.seconds < context.idle_after:
        return ""
    return f"{'' if interval.start_observed else '≥'}{duration(interval.seconds)}"


def _host_share(process: GpuProcess, context: RowContext) -> str:
    if process.rss is None or not context.host_memory:
        return UNKNOWN
    return f"{100 * process.rss / context.host_memory:.1f}"


_UNIT_TEXT: dict[Unit, Callable[[Any], str]] = {
    Unit.BYTES: memory_size,
    Unit.PERCENT: number,
    Unit.SECONDS: duration,
}


_OF_PLACE = {"where", "container", "job"}
"""Without a value they are blank, unless the place of the process is unknown."""


def _metric_text(key: str) -> _Text:
    """The value of a metric, in the form that fits its unit."""
    metric = PROCESS_METRIC[key]
    text_of = _UNIT_TEXT.get(metric.unit, lambda value: printable(str(value)))

    def text(process: GpuProcess, context: RowContext) -> str:
        value = metric.read(process, context.now)
        if value is None:
            return "" if key in _OF_PLACE and process.place is not None else UNKNOWN
        return text_of(value)

    return text


def _on_gpu(text: _Text) -> _Text:
    """Blank for a process on no GPU, such as a shell in the tree."""
    return lambda process, context: text(process, context) if process.uses else ""


_TEXT: dict[str, _Text] = {
    **{key: _metric_text(key) for key in PROCESS_METRIC},
    "gpu": _on_gpu(lambda process, context: devices(process, context.mig)),
    "memory_used": _on_gpu(_metric_text("memory_used")),
    "sm": _on_gpu(_metric_text("sm")),
    "memory_activity": _on_gpu(_metric_text("memory_activity")),
    "idle": _on_gpu(_idle),
    "host_memory": _host_share,
    "command": lambda process, _: command_line(process),
}
"""The text of a process, by column: that of its metric unless it is listed here."""

_LEAST_COMMAND = 14


@lru_cache(maxsize=16)
def visible_columns(width: int, chosen: tuple[str, ...] = DEFAULT_COLUMNS) -> tuple[Column, ...]:
    """The chosen columns that fit, without those of the lowest priority."""
    columns = [COLUMN[key] for key in chosen]
    while len(columns) > 2 and _width_without_command(columns) + _LEAST_COMMAND > width:
        columns.remove(min(columns, key=lambda column: column.keep))
    return tuple(columns)


def default_columns(processes: Sequence[GpuProcess]) -> tuple[str, ...]:
    """The default columns: without the type while all processes only compute.

    Args:
        processes: All processes, unfiltered, so that a filter does not move the columns.
    """
    if any(process.type != "C" for process in processes):
        return DEFAULT_COLUMNS
    return tuple(key for key in DEFAULT_COLUMNS if key != "type")


def _width_without_command(columns: Sequence[ColumnHeader]) -> int:
    return sum(column.width + 1 for column in columns[:-1]) + 1


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column]) -> int:
    """Width of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return _width_without_command(columns) + longest


def sort_processes(
    processes: Sequence[GpuProcess], sort: Sort, context: RowContext
) -> list[GpuProcess]:
    """Sort processes; unknown values come last, and ties are sorted by PID."""
    ordered = sorted(processes, key=by_pid)
    return in_order(ordered, sort_value(sort.column, context), descending=sort.descending)


def by_pid(process: GpuProcess) -> tuple[int, int]:
    """The order of processes that a column does not tell apart."""
    return process.id.pid, process.id.start_time or 0


_Item = TypeVar("_Item")


def in_order(
    items: Iterable[_Item], value_of: Callable[[_Item], object], *, descending: bool
) -> list[_Item]:
    """Sort items by their values; the sort is stable, and ``None`` (unknown) comes last."""
    known: list[tuple[object, _Item]] = []
    unknown: list[_Item] = []
    for item in items:
        value = value_of(item)
        if value is None:
            unknown.append(item)
        else:
            known.append((value, item))
    # The values of one column are comparable, which their type does not say.
    known.sort(key=lambda pair: pair[0], reverse=descending)  # type: ignore[arg-type,return-value]  # no None here
    return [item for _, item in known] + unknown


def next_sort(now: Sort, column: ColumnHeader) -> tuple[Sort, str]:
    """The order by a column, reversed if it is the order of now, and a message about it."""
    descending = not now.descending if column.key == now.column else column.descends
    words = "descending" if descending else "ascending"
    return Sort(column.key, descending), f"sorted by {column.label}, {words}"


def column_beside(columns: Sequence[ColumnHeader], sort: Sort, step: int) -> str | None:
    """The column so many steps from the sorted one; ``None`` if there are no columns."""
    keys = [column.key for column in columns]
    at = keys.index(sort.column) if sort.column in keys else -1
    return keys[(at + step) % len(keys)] if keys else None


def sort_value(column: str, context: RowContext) -> Callable[[GpuProcess], object]:
    """The value that a column is sorted by."""
    # The text of these columns has no metric, or sorts differently from it.
    if column == "gpu":
        return lambda process: process.gpu_indices
    if column == "command":
        return command_line
    if column == "idle":
        return lambda process: context.idle_seconds(process.id)
    read = PROCESS_METRIC["rss" if column == "host_memory" else column].read
    return lambda process: read(process, context.now)


class ColumnHeader(Protocol):
    """A column as the heading sees it."""

    @property
    def key(self) -> str:
        """Identifies it."""

    @property
    def label(self) -> str:
        """The heading."""

    @property
    def width(self) -> int:
        """Cells; 0 takes the remaining width."""

    @property
    def left(self) -> bool:
        """Whether its text is left-aligned."""

    @property
    def descends(self) -> bool:
        """Whether the first press sorts in descending order."""


def heading_row(columns: Sequence[ColumnHeader], sort: Sort, width: int, load: str = "SM") -> Row:
    """The column labels, with an arrow at the sorted one.

    Args:
        columns: The columns.
        sort: How the table is sorted.
        width: Cells.
        load: See ``load_word``.
    """
    fields: list[Field] = [(" ", "heading")]
    for column in columns:
        marked = column.key == sort.column
        name = f"{load}%" if column.key == "sm" else column.label
        label = name + (("▼" if sort.descending else "▲") if marked else "")
        size = column.width or max(0, width - _width_without_command(columns))
        text = (fit if column.left else fit_right)(label, size)
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
    """How a row is marked.

    Attributes:
        cursor: Whether it is under the cursor.
        tagged: Whether it is tagged.
        branch: Tree glyphs before the command.
        shift: Cells that commands are scrolled sideways.
        dimmed: Whether it is not on the GPU under the cursor.
        watched: Whether its end is to be notified.
    """

    cursor: bool = False
    tagged: bool = False
    branch: str = ""
    shift: int = 0
    dimmed: bool = False
    watched: bool = False

    @property
    def gap(self) -> str:
        """The cell after the first column."""
        return WATCHED if self.watched else " "

    @property
    def style(self) -> str:
        """The style of the whole row; empty for a row without marks."""
        if self.cursor:
            return "cursor"
        if self.tagged:
            return "tagged"
        return "dim" if self.dimmed else ""

    @property
    def sign(self) -> str:
        """The glyph in the row's first cell."""
        if self.tagged:
            return "◉" if self.cursor else "●"
        return "▸" if self.cursor else " "


PLAIN = RowMarks()


def process_row(
    process: GpuProcess,
    columns: Sequence[Column],
    context: RowContext,
    width: int,
    marks: RowMarks = PLAIN,
) -> Row:
    """One process."""
    fields: list[Field] = [(marks.sign, "tagged" if marks.tagged else "")]
    fixed = _width_without_command(columns)
    for column in columns:
        style = _STYLES.get(column.key, "")
        if not column.width:
            fields += _command_fields(process, marks, max(0, width - fixed))
            break
        text = _TEXT[column.key](process, context)
        fields.append(((fit if column.left else fit_right)(text, column.width), style))
        fields.append((" ", "") if len(fields) > 2 else (marks.gap, "state.note"))
    row = fill(fields, width)
    if marks.style:
        return restyle(row, marks.style)
    if not process.uses:
        return restyle(row, "dim")
    return row if process.visible else restyle(row, "stale")


def _command_fields(process: GpuProcess, marks: RowMarks, room: int) -> list[Field]:
    """The tree glyphs, an unusual process state, and the command."""
    fields: list[Field] = []
    if marks.branch:
        # A deep tree leaves a third of the width to the command.
        branch = marks.branch[-max(2, room * 2 // 3) :]
        fields.append((branch, "rule"))
        room -= cell_width(branch)
    # The command of one that was never seen says that it has ended.
    state = HALTED.get(process.state or "") if process.visible else None
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
