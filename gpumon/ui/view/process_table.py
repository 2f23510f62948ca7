"""The table of processes: its lines (a list, a tree, users or jobs), columns, order and drawing."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import COLUMN, PROCESS_DEFAULTS
from gpumon.findings.groups import jobs
from gpumon.findings.phrases import count_processes
from gpumon.model.metrics import PROCESS_METRICS
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    gpu_list,
    memory_size,
    number,
    printable,
)
from gpumon.text.process_columns import AMPLE_COMMAND, LEAST_COMMAND, ProcessItem, load_texts
from gpumon.text.table import PLAIN, in_order, line, remaining
from gpumon.ui.view.allocated import job_texts, with_allocated
from gpumon.ui.view.list_view import ListEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gpumon.findings.groups import AllocatedJob, JobGroup, UserUse
    from gpumon.host.process_host import RelatedProcess
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.text.cells import Field, Row
    from gpumon.text.process_columns import RowContext
    from gpumon.text.table import Column, Marks, Sort
    from gpumon.ui.view.frame import Memo
    from gpumon.ui.view.list_view import Key


Cells: TypeAlias = "tuple[tuple[str, int], ...]"
"""The key of each column in order, with the cells that its texts need; 0 if they say nothing."""

Line: TypeAlias = "ProcessItem | Mapping[str, str]"
"""A line of the table: a process, or the texts of its cells by column."""

_SHRINK_AFTER = 30.0
"""Seconds after which a column shrinks or disappears if its texts do not need the cells."""


class NeededCells(Struct, frozen=True):
    """The cells that the columns of a list need: more at once, fewer only after a while."""

    scope: object  # What is listed, as the user chose; another choice starts afresh.
    time: float  # Of the snapshot.
    cells: Cells
    needed_at: tuple[float, ...]  # When the texts of each column last needed its cells.


def needed_cells(
    before: NeededCells | None,
    scope: object,
    time: float,
    keys: Sequence[str],
    lines: Iterable[Line],
) -> NeededCells:
    """The cells of each column, so that nothing jumps while values change.

    Args:
        before: The result for the snapshot before; ``None`` for the first one.
        scope: What is listed, as the user chose.
        time: Time of the snapshot.
        keys: The columns.
        lines: All lines, also those scrolled away.
    """
    cells = cells_of(keys, lines)
    # A rewind to another time starts afresh.
    if before is None or before.scope != scope or not 0 <= time - before.time <= _SHRINK_AFTER:
        return NeededCells(scope, time, cells, (time,) * len(cells))
    kept: list[tuple[str, int]] = []
    needed_at: list[float] = []
    for now, then, at in zip(cells, before.cells, before.needed_at, strict=True):
        waits = now[1] < then[1] and time - at <= _SHRINK_AFTER
        kept.append(then if waits else now)
        needed_at.append(at if waits else time)
    return NeededCells(scope, time, tuple(kept), tuple(needed_at))


def cells_of(keys: Iterable[str], lines: Iterable[Line]) -> Cells:
    """The cells that the texts of these lines need."""
    items: list[ProcessItem] = []
    sums: list[Mapping[str, str]] = []
    for entry in lines:
        if isinstance(entry, ProcessItem):
            items.append(entry)
        else:
            sums.append(entry)
    return tuple((key, _cells_of_column(COLUMN[key], items, sums)) for key in keys)


def _cells_of_column(
    column: Column[ProcessItem], items: Sequence[ProcessItem], sums: Sequence[Mapping[str, str]]
) -> int:
    if column.least is None:
        return column.width
    if column.grows and items:
        # Thousands of processes are measured each second.
        value_of: Callable[[ProcessItem], Any] = column.value
        known = ((value, index) for index, item in enumerate(items) if (value := value_of(item)))
        items = [items[max(known, default=(0, 0))[1]]]
    texts = {column.text(item) for item in items}
    texts.update(texts_of_job.get(column.key, "") for texts_of_job in sums)
    texts.difference_update(column.vacant)
    if column.vacant and not texts:
        return 0
    return max(column.least, max(map(cell_width, texts), default=0))


def steady_columns(
    memo: Memo,
    news: object,
    scope: object,
    time: float,
    chosen: tuple[str, ...],
    lines: Iterable[Line],
    width: int,
    sorted_by: str,
    load: str,
) -> tuple[Column[ProcessItem], ...]:
    """The columns of a table that is drawn again and again, for ``visible_columns``.

    Args:
        memo: Keeps what the table needed before.
        news: Changes when the lines are to be measured again.
        scope: What is listed, as the user chose.
        time: Time of the snapshot.
        chosen: The columns.
        lines: All lines, also those scrolled away; read only if they are measured.
        width: Cells of the table.
        sorted_by: The column with an arrow in its heading.
        load: From ``load_word``, for the heading of SM use.
    """
    before = memo.newest(needed_cells)
    needed = memo.by((scope, news), needed_cells, before, scope, time, chosen, lines)
    hides = chosen == PROCESS_DEFAULTS
    return visible_columns(width, needed.cells, sorted_by, load, hides=hides)


def entry_lines(entries: Iterable[TableEntry], context: RowContext) -> Iterator[Line]:
    """What ``needed_cells`` measures of these entries."""
    for entry in entries:
        if entry.job is not None:
            yield _job_texts(entry.job, context)
        elif entry.process is not None:
            yield ProcessItem(entry.process, context)


@lru_cache(maxsize=64)
def visible_columns(
    width: int, cells: Cells, sorted_by: str, load: str, hides: bool
) -> tuple[Column[ProcessItem], ...]:
    """The columns that fit, each with its width; those of the lowest priority are left out.

    Args:
        width: Cells of the table.
        cells: What each column needs.
        sorted_by: The column with an arrow in its heading.
        load: From ``load_word``, for the heading of SM use.
        hides: Whether columns are left out that say nothing of any process.
    """
    columns = [
        _with_width(COLUMN[key], size, sorted_by, load)
        for key, size in cells
        if size or key == sorted_by or not (hides and COLUMN[key].vacant)
    ]
    while len(columns) > 2 and remaining(columns, width) < LEAST_COMMAND:
        columns.remove(min(columns, key=lambda column: column.keep))
    needed = dict(cells)
    spare = remaining(columns, width) - AMPLE_COMMAND
    for column in sorted(columns, key=lambda column: -column.keep):
        more = min(spare, min(needed[column.key], column.most) - column.width)
        if more > 0:
            spare -= more
            columns[columns.index(column)] = replace(column, width=column.width + more)
    return tuple(columns)


def _with_width(
    column: Column[ProcessItem], size: int, sorted_by: str, load: str
) -> Column[ProcessItem]:
    """A column as wide as it needs, or as wide as its heading with the arrow."""
    if column.key == "sm":
        column = replace(column, label=f"{load}%")
    heading = len(column.short or column.label) + (column.key == sorted_by)
    return replace(column, width=max(heading, min(size, column.width))) if column.width else column


def fitting_columns(
    lines: Iterable[Line], width: int, sort: Sort, load: str, keys: Iterable[str] = PROCESS_DEFAULTS
) -> tuple[Column[ProcessItem], ...]:
    """The default columns for a table that is drawn once, or without a drawing before."""
    return visible_columns(width, cells_of(keys, lines), sort.column, load, hides=True)


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column[ProcessItem]]) -> int:
    """Width of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return 1 + sum(column.width + 1 for column in columns if column.width) + longest


def sort_processes(
    processes: Sequence[GpuProcess], sort: Sort, context: RowContext
) -> list[GpuProcess]:
    """Sort processes; unknown values come last, and ties are sorted by PID."""
    ordered = sorted(processes, key=by_pid)
    return in_order(ordered, sort_value(sort.column, context), descending=sort.descending)


def by_pid(process: GpuProcess) -> tuple[int, int]:
    """The order of processes that a column does not tell apart."""
    return process.id.pid, process.id.start_time or 0


def sort_value(column: str, context: RowContext) -> Callable[[GpuProcess], object]:
    """The value that a column is sorted by."""
    value = COLUMN[column].value
    return lambda process: value(ProcessItem(process, context))


def process_row(
    process: GpuProcess,
    columns: Sequence[Column[ProcessItem]],
    context: RowContext,
    width: int,
    marks: Marks = PLAIN,
) -> Row:
    """One process."""
    item = ProcessItem(process, context, marks)
    left = remaining(columns, width)
    style = "dim" if not process.uses else "" if process.visible else "stale"
    cells = [column.fields(item, column.width or left) for column in columns]
    return line(cells, width, marks, style)


def job_row(
    job: JobGroup,
    columns: Sequence[Column[ProcessItem]],
    context: RowContext,
    width: int,
    marks: Marks,
    folded: bool,
) -> Row:
    """One job in the columns of processes: sums, and its label in the command column."""
    texts = _job_texts(job, context)
    about = [printable(job.label)]
    if job.has_all_processes:
        about.append(count_processes(len(job.processes)))
    if job.allocated is not None:
        about += job_texts(job.allocated, context.now)
    texts["command"] = ("+ " if folded else "") + " · ".join(about)
    left = remaining(columns, width)
    cells: list[list[Field]] = [
        [(column.fit(texts.get(column.key, ""), column.width or left), "strong")]
        for column in columns
    ]
    return line(cells, width, marks)


def _job_texts(job: JobGroup, context: RowContext) -> dict[str, str]:
    """The sums of a job, by column."""
    users = printable(job.users[0] or UNKNOWN) if job.users else UNKNOWN
    if len(job.users) > 1:
        users = f"{users} +{len(job.users) - 1}"
    gpus, started = job.gpus, job.started_at
    if job.allocated is not None:
        gpus = with_allocated(gpus, (job.allocated,))
        started = job.allocated.allocation.since or started
    return {
        "gpu": gpu_list(gpus),
        "user": users,
        "memory_used": memory_size(job.memory),
        "sm": number(job.sm),
        "age": duration(None if started is None else context.now - started),
        **({} if job.load is None else load_texts(job.load)),
    }


def users_of(processes: Sequence[GpuProcess]) -> int:
    """How many users own a process."""
    return len({process.user for process in processes if process.user is not None})


class Listing(str, Enum):
    """The kinds of lists."""

    PROCESSES = "processes"
    TREE = "tree"
    USERS = "users"
    JOBS = "jobs"


class TableEntry(ListEntry, frozen=True):
    """A line of the table."""

    # A process on no GPU, such as a shell in the tree, has no uses.
    process: GpuProcess | None = None
    branch: str = ""  # Tree glyphs before the command.
    below: int = 0  # Number of lines under it that can be folded.
    folded: bool = False  # Whether these are folded.
    user: UserUse | None = None  # In the list of users.
    job: JobGroup | None = None  # On its summary line.

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indices of the GPUs that the line is about."""
        if self.job is not None:
            allocated = () if self.job.allocated is None else (self.job.allocated,)
            return with_allocated(self.job.gpus, allocated)
        if self.user is not None:
            return with_allocated(self.user.gpus, self.user.allocated)
        return () if self.process is None else self.process.gpu_indices

    @property
    def users(self) -> Sequence[str | None]:
        """Owners of the line's processes; ``None`` is an unknown owner."""
        if self.job is not None:
            return self.job.users
        owner = self.user or self.process
        return () if owner is None else (owner.user,)

    @property
    def processes(self) -> tuple[GpuProcess, ...]:
        """The processes that a key on this line applies to; none on the line of a user."""
        if self.job is not None:
            return self.job.processes
        return () if self.process is None else (self.process,)


_LAST = float("inf")
"""The rank of what has no process on a GPU."""
FOLDED_FROM = 5
"""A process with this many descendants, none of them on a GPU, starts folded: data loaders."""


def process_entries(
    processes: Sequence[GpuProcess], sort: Sort, context: RowContext, first_gpu: int | None = None
) -> list[TableEntry]:
    """One line per process; those on ``first_gpu`` come first."""
    ordered = _sorted(processes, sort, context, first_gpu)
    return [TableEntry(process.id, process) for process in ordered]


def _sorted(
    processes: Sequence[GpuProcess], sort: Sort, context: RowContext, first_gpu: int | None
) -> list[GpuProcess]:
    """Sort processes; those on ``first_gpu`` come first."""
    ordered = sort_processes(processes, sort, context)
    return _with_first(first_gpu, ordered, lambda process: process.gpu_indices)


_Item = TypeVar("_Item")


def _with_first(
    first_gpu: int | None, items: list[_Item], gpus_of: Callable[[_Item], Collection[int]]
) -> list[_Item]:
    """Move the items on a GPU to the front; otherwise keep the order."""
    if first_gpu is None:
        return items
    return sorted(items, key=lambda item: first_gpu not in gpus_of(item))


def job_entries(
    processes: Sequence[GpuProcess],
    sort: Sort,
    context: RowContext,
    toggled: Collection[Key],
    first_gpu: int | None = None,
    allocated: Sequence[AllocatedJob] = (),
) -> list[TableEntry]:
    """One line per job with its processes below it.

    A job of one process is only that process, unless a scheduler has given it GPUs. Jobs are sorted
    by their own value, or by their first process where a job has no value in this column. Those on
    ``first_gpu`` come first; those in ``toggled`` are folded.
    """
    ordered = _sorted(processes, sort, context, first_gpu)
    rank = {process.id: float(place) for place, process in enumerate(ordered)}
    found = sorted(
        jobs(ordered, allocated),
        key=lambda job: min((rank[process.id] for process in job.processes), default=_LAST),
    )
    if (value_of := _JOB_VALUES.get(sort.column)) is not None:
        found = in_order(found, value_of, descending=sort.descending)
    found = _with_first(first_gpu, found, lambda job: TableEntry(job.key, job=job).gpus)
    entries: list[TableEntry] = []
    for job in found:
        members = sorted(job.processes, key=lambda process: rank[process.id])
        if len(members) == 1 and job.allocated is None:
            entries.append(TableEntry(members[0].id, members[0]))
            continue
        key = f"job:{job.key}"
        folded = key in toggled
        entries.append(TableEntry(key, below=len(members), folded=folded, job=job))
        if not folded:
            entries += [
                TableEntry(process.id, process, branch="└─" if process is members[-1] else "├─")
                for process in members
            ]
    return entries


def _of_load(key: str) -> Callable[[JobGroup], object]:
    return lambda job: getattr(job.load, key, None)


_JOB_VALUES: dict[str, Callable[[JobGroup], object]] = {
    "gpu": lambda job: job.gpus,
    "memory_used": lambda job: job.memory,
    "sm": lambda job: job.sm,
    "age": lambda job: None if job.started_at is None else -job.started_at,
    **{metric.key: _of_load(metric.key) for metric in PROCESS_METRICS if metric.in_load},
}
"""The values of a job as a whole, by column."""


def user_entries(uses: list[UserUse], first_gpu: int | None = None) -> list[TableEntry]:
    """One line per user; those on ``first_gpu`` come first."""
    entries = [TableEntry(f"user:{use.user}", user=use) for use in uses]
    return _with_first(first_gpu, entries, lambda entry: entry.gpus)


class _Node:
    """A node of the process tree."""

    __slots__ = ("below", "process", "rank")

    def __init__(self, process: GpuProcess, rank: float) -> None:
        self.process = process
        self.rank = rank
        self.below: list[_Node] = []

    def count(self) -> int:
        return sum(1 + node.count() for node in self.below)

    def holds_gpus(self) -> bool:
        return any(node.process.uses or node.holds_gpus() for node in self.below)


def tree_entries(
    processes: Sequence[GpuProcess],
    relatives: Sequence[RelatedProcess],
    sort: Sort,
    context: RowContext,
    toggled: Collection[Key],
    first_gpu: int | None = None,
) -> list[TableEntry]:
    """The processes with their ancestors and descendants, as a tree.

    A parent is sorted among its siblings by the first GPU process in its subtree. Processes on
    ``first_gpu`` come first. ``relatives`` are from ``ProcessHost.relatives``, parents first.
    """
    ordered = _sorted(processes, sort, context, first_gpu)
    rank = {process.id: float(place) for place, process in enumerate(ordered)}
    nodes: dict[ProcessId, _Node] = {}
    shown = {process.id: process for process in ordered}
    known = {relative.id: relative for relative in relatives}
    by_pid = {relative.id.pid: relative.id for relative in relatives}
    for identity in _with_families(shown, known, by_pid):
        process = shown.get(identity) or known[identity].on_no_gpu()
        nodes[identity] = _Node(process, rank.get(identity, _LAST))
    roots: list[_Node] = []
    for identity, node in nodes.items():
        parent = by_pid.get(known[identity].parent) if identity in known else None
        above = None if parent is None or parent == identity else nodes.get(parent)
        (roots if above is None else above.below).append(node)
    entries: list[TableEntry] = []
    _sort_siblings(roots)
    for root in roots:
        _add_subtree(root, "", "", toggled, entries)
    return entries


def _with_families(
    shown: dict[ProcessId, GpuProcess],
    known: dict[ProcessId, RelatedProcess],
    by_pid: dict[int, ProcessId],
) -> list[ProcessId]:
    """The shown processes and their known ancestors and descendants."""
    children: defaultdict[int, list[ProcessId]] = defaultdict(list)
    for relative in known.values():
        children[relative.parent].append(relative.id)
    wanted = dict.fromkeys(shown)
    for identity in shown:
        above = known.get(identity)
        while above is not None and (parent := by_pid.get(above.parent)) is not None:
            if parent in wanted:
                break
            wanted[parent] = None
            above = known[parent]
    waiting = list(shown)
    while waiting:
        for child in children[waiting.pop().pid]:
            if child not in wanted:
                wanted[child] = None
                waiting.append(child)
    return list(wanted)


def _sort_siblings(nodes: list[_Node]) -> None:
    """Sort siblings by the first GPU process in each subtree, then by PID."""
    for node in nodes:
        _sort_siblings(node.below)
        node.rank = min([node.rank, *(below.rank for below in node.below)])
    nodes.sort(key=lambda node: (node.rank, node.process.id.pid))


def _add_subtree(
    node: _Node, branch: str, after: str, toggled: Collection[Key], entries: list[TableEntry]
) -> None:
    count = node.count()
    folded = False
    if count:
        begins_folded = count >= FOLDED_FROM and not node.holds_gpus()
        folded = begins_folded != (node.process.id in toggled)
    mark = f"{branch}+{count} " if folded else branch
    entries.append(TableEntry(node.process.id, node.process, mark, count, folded))
    if folded:
        return
    for below in node.below:
        last = below is node.below[-1]
        _add_subtree(
            below,
            after + ("└─" if last else "├─"),
            after + ("  " if last else "│ "),
            toggled,
            entries,
        )
