"""The process table as rows: columns, sorting, and what a narrow terminal leaves out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from gpumon.layout.cells import Field, Row, fill, restyle
from gpumon.layout.commands import command_line, fit_command
from gpumon.metrics import PROCESS_METRIC
from gpumon.model import ENDED
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
from gpumon.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.history import Spell
    from gpumon.model import GpuProcess, ProcessId


class Sight(NamedTuple):
    """What a row needs to know besides its process.

    Attributes:
        now: The time of the snapshot, or of one shortly before: what ages are told by.
        idle: Since when a process has been idle; ``None`` when it is not, or when that is unknown.
        idle_after: Seconds of idleness from which on the table tells it.
    """

    now: float
    idle: Callable[[ProcessId], Spell | None] = lambda _: None
    idle_after: float = DEFAULTS.idle_after


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
        key: Its line in ``metrics.PROCESS_METRICS``; ``idle`` is told by the history alone.
        width: Cells, without the space before it.
        keep: How long it stays as the terminal narrows: the lowest goes first.
        text: What a process shows in it.
        letter: The key that sorts by it.
        left: Whether its text starts at the left.
        descends: Whether a first press sorts the largest first: so for amounts, not for names.
    """

    key: str
    width: int
    keep: int
    text: Callable[[GpuProcess, Sight], str]
    letter: str
    left: bool = False
    descends: bool = False

    @property
    def label(self) -> str:
        """The heading."""
        return "IDLE" if self.key == "idle" else PROCESS_METRIC[self.key].label

    @property
    def about(self) -> str:
        """What it means, in a sentence."""
        return _IDLE_ABOUT if self.key == "idle" else PROCESS_METRIC[self.key].about


_IDLE_ABOUT = "How long it has held memory and run nothing, as far as gpumon saw; ≥ is at least."


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


def _age(process: GpuProcess, sight: Sight) -> str:
    return duration(None if process.started_at is None else sight.now - process.started_at)


def _idle(process: GpuProcess, sight: Sight) -> str:
    if process.sm is None:
        return UNKNOWN
    spell = sight.idle(process.id)
    if spell is None or spell.seconds < sight.idle_after:
        return ""
    return f"{'' if spell.begin_seen else '≥'}{duration(spell.seconds)}"


def _metric(key: str) -> Callable[[GpuProcess, Sight], str]:
    """A text of the metric table, as it is."""
    read = PROCESS_METRIC[key].read

    def text(process: GpuProcess, sight: Sight) -> str:
        value = read(process, sight.now)
        if value is None:
            return UNKNOWN if process.place is None else ""
        return printable(str(value))

    return text


def _on_cards(text: Callable[[GpuProcess], str]) -> Callable[[GpuProcess, Sight], str]:
    """Blank for who is on no card, such as a shell in the tree."""
    return lambda process, _: text(process) if process.uses else ""


COLUMNS: tuple[Column, ...] = (
    Column("gpu", 7, 90, _on_cards(_gpu), "G"),
    Column("pid", 8, 95, lambda p, _: str(p.id.pid), "P"),
    Column("user", 9, 80, lambda p, _: printable(p.user or UNKNOWN), "U", left=True),
    Column("type", 5, 20, lambda p, _: p.type, "Y", left=True),
    Column(
        "memory_used", 8, 100, _on_cards(lambda p: memory_size(p.memory_used)), "M", descends=True
    ),
    Column("sm", 4, 70, _on_cards(lambda p: number(p.sm)), "S", descends=True),
    Column("idle", 7, 45, lambda p, sight: _idle(p, sight) if p.uses else "", "I", descends=True),
    Column("cpu", 5, 40, lambda p, _: number(p.cpu_percent), "C", descends=True),
    Column("rss", 7, 30, lambda p, _: memory_size(p.rss), "R", descends=True),
    Column("age", 7, 50, _age, "A", descends=True),
    Column("state", 2, 5, lambda p, _: p.state or UNKNOWN, "E", left=True),
    Column("where", 14, 35, _metric("where"), "W", left=True),
    Column("container", 20, 6, _metric("container"), "O", left=True),
    Column("job", 14, 7, _metric("job"), "J", left=True),
    Column("command", 0, 100, lambda p, _: command_line(p), "N", left=True),
)
"""Every column, in the order in which they stand unless told otherwise."""

COLUMN: dict[str, Column] = {column.key: column for column in COLUMNS}

CHOSEN = tuple(key for key in COLUMN if key not in {"state", "container", "job"})
"""Keys of the columns that are shown unless told otherwise; the command is always the last."""


def with_command(keys: Sequence[str]) -> tuple[str, ...]:
    """The columns for these keys: each once, the PID among them, the command last."""
    kept = dict.fromkeys(keys if "pid" in keys else ["pid", *keys])
    kept.pop("command", None)
    return (*kept, "command")


_LEAST_COMMAND = 14


@lru_cache(maxsize=16)
def visible_columns(width: int, chosen: tuple[str, ...] = CHOSEN) -> tuple[Column, ...]:
    """Of the chosen columns those that a width has room for."""
    columns = [COLUMN[key] for key in chosen]
    while len(columns) > 2 and _fixed(columns) + _LEAST_COMMAND > width:
        columns.remove(min(columns, key=lambda column: column.keep))
    return tuple(columns)


def _fixed(columns: Sequence[Headed]) -> int:
    return sum(column.width + 1 for column in columns[:-1]) + 1


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column]) -> int:
    """Cells of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return _fixed(columns) + longest


def sort_processes(processes: Sequence[GpuProcess], sort: Sort, sight: Sight) -> list[GpuProcess]:
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


def _order(column: str, sight: Sight) -> Callable[[GpuProcess], object]:
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


class Headed(Protocol):
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


def heading_row(columns: Sequence[Headed], sort: Sort, width: int) -> Row:
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


def column_at(columns: Sequence[Headed], x: int) -> Headed | None:
    """The column under a cell of the heading."""
    edge = 1
    for column in columns:
        edge += column.width + 1
        if x < edge or not column.width:
            return column
    return None


class Marks(NamedTuple):
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


PLAIN = Marks()


def process_row(
    process: GpuProcess,
    columns: Sequence[Column],
    sight: Sight,
    width: int,
    marks: Marks = PLAIN,
) -> Row:
    """One process."""
    fields: list[Field] = [(marks.sign, "tagged" if marks.tagged else "")]
    fixed = _fixed(columns)
    for column in columns:
        style = _STYLES.get(column.key, "")
        if not column.width:
            fields += _command_fields(process, marks, max(0, width - fixed))
            break
        text = column.text(process, sight)
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


def _command_fields(process: GpuProcess, marks: Marks, room: int) -> list[Field]:
    """The branch of the tree, what is special about the process's state, and what it runs."""
    fields: list[Field] = []
    if marks.branch:
        # A deep tree leaves the command a third of the room.
        branch = marks.branch[-max(2, room * 2 // 3) :]
        fields.append((branch, "rule"))
        room -= cell_width(branch)
    state = STATE_WORDS.get(process.state or "")
    if state is not None and room > cell_width(state) + _LEAST_COMMAND // 2:
        fields.append((f"{state} ", "state.warning"))
        room -= cell_width(state) + 1
    fields.append((fit_command(process, max(0, room), marks.shift), ""))
    return fields


STATE_WORDS = {
    "D": "D(uninterruptible)",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    ENDED: "ended(still listed)",
}
"""States in which a process does not go on by itself."""

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


class ProcessRows:
    """Draws processes, keeping the rows of those that did not change."""

    def __init__(self) -> None:
        self._kept: dict[ProcessId, tuple[GpuProcess, object, Row]] = {}
        self._drawn: dict[ProcessId, tuple[GpuProcess, object, Row]] = {}

    def begin(self) -> None:
        """Begin a new picture: what is not drawn in it is forgotten at the next."""
        self._kept, self._drawn = self._drawn, {}

    def row(
        self,
        process: GpuProcess,
        columns: Sequence[Column],
        sight: Sight,
        width: int,
        marks: Marks,
    ) -> Row:
        """``process_row``, drawn anew only when something in it can have changed."""
        # Ages are the only texts that change without the process.
        key = (sight.now, width, columns, marks)
        known = self._kept.get(process.id)
        if known is None or known[0] is not process or known[1] != key:
            known = (process, key, process_row(process, columns, sight, width, marks))
        self._drawn[process.id] = known
        return known[2]


def users_of(processes: Sequence[GpuProcess]) -> int:
    """How many users own a process."""
    return len({process.user for process in processes if process.user is not None})
