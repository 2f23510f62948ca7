"""The layout of the dashboard: rows for each part, the lines of the table, a view within bounds."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import DEFAULT_COLUMNS, gpu_columns, process_columns
from gpumon.findings.groups import users
from gpumon.text.process_columns import RowContext
from gpumon.text.table import by_column
from gpumon.ui.view.gpu_graphs import tile_height, tiles_rows
from gpumon.ui.view.gpu_table_layout import GpusShape, gpu_line, gpu_lines, gpus_shape, list_columns
from gpumon.ui.view.gpu_text import mig_indices
from gpumon.ui.view.process_table import default_columns, visible_columns
from gpumon.ui.view.table_entries import (
    Key,
    Listing,
    TableEntry,
    job_entries,
    process_entries,
    tree_entries,
    user_entries,
)
from gpumon.ui.view.user_table import USER_COLUMNS, user_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.filters.terms import FilterContext
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import ProcessItem
    from gpumon.text.table import Column
    from gpumon.ui.view.gpu_table_layout import LineColumns
    from gpumon.ui.view.memo import Memo
    from gpumon.ui.view.view import View

LEAST_WIDTH = 60
LEAST_HEIGHT = 15
TOO_SMALL = f"too small for this: {LEAST_WIDTH}×{LEAST_HEIGHT} at least"
_FRAME_ROWS = 3
"""Header, rule and footer."""
_FEW_GPUS = 8
_LEAST_BELOW_PANELS = 11
"""The heading of the table and ten processes."""
LEAST_TABLE = 3
"""The heading of the table and two processes."""
_EARLY, _EARLY_SHARE = 0.05, 0.5
"""Tolerance, in seconds or as a share of the interval, for samples that come early."""


class DashboardShape(Struct, frozen=True):
    """The rows of each part.

    Attributes:
        gpus: The layout of the GPUs.
        tiles: Height of each large graph below them; 0 shows none.
        table: Height of the process table with its heading.
    """

    gpus: GpusShape
    tiles: int
    table: int


def is_tiny(width: int, height: int) -> bool:
    """Whether the terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


@lru_cache(maxsize=16)
def dashboard_shape(lines: int, gpus: int, width: int, height: int) -> DashboardShape:
    """Divide the rows between GPUs and processes.

    The processes keep a third, or less if otherwise a few GPUs would not all fit. Below panels they
    keep at least ten lines, below large graphs half or more.

    Args:
        lines: Number of lines for the GPUs, see ``gpu_lines``.
        gpus: Number of GPUs.
        width: Cells of the terminal.
        height: Rows of the terminal.
    """
    rest = max(0, height - _FRAME_ROWS)
    panels = rest - max(_LEAST_BELOW_PANELS, rest // 3)
    shape = gpus_shape(lines, gpus, width, rest - rest // 3, panels)
    if lines <= _FEW_GPUS and shape.columns == 1 and shape.rows < lines + 1:
        shape = gpus_shape(lines, gpus, width, rest - LEAST_TABLE)
    tiles = 0
    if not shape.panels and shape.columns == 1 and shape.rows > lines:
        tiles = tile_height(gpus, width, rest // 2 - shape.rows)
    table = rest - shape.rows - tiles_rows(gpus, tiles)
    return DashboardShape(shape, tiles, table)


class TableContext(NamedTuple):
    """The part of the history that the table needs, renewed once a second and with each list.

    Attributes:
        second: The second, from ``_table_second``.
        row: The context of the rows.
        history: The history as of the moment when the context was made.
    """

    second: float
    row: RowContext
    history: History


def table_context(
    memo: Memo, history: History, snapshot: Snapshot, interval: float
) -> TableContext:
    """Return the context of a snapshot."""
    # Computed once per snapshot: a paused screen keeps its context when the interval changes.
    second = memo.by(snapshot, _table_second, snapshot, interval)
    key = (second, snapshot.processes)
    return memo.by(key, _table_context, history, snapshot, second)


def _table_context(history: History, snapshot: Snapshot, second: float) -> TableContext:
    history = history.as_of(snapshot)
    row = RowContext(
        snapshot.time,
        cache(history.process_idle),
        history.thresholds.idle_after,
        snapshot.host.memory_total,
        mig_indices(snapshot.gpus),
    )
    return TableContext(second, row, history)


def _table_second(snapshot: Snapshot, interval: float) -> float:
    """A value that changes once a second, for texts in whole seconds.

    Seconds are counted from the newest process list: lists also come about once a second and
    redraw the table, so clock seconds would redraw it a second time.
    """
    listed = snapshot.processes_at
    if listed is None or listed > snapshot.time:
        return int(snapshot.time)
    # An early sample after a late one still counts as one second later.
    return listed + int(snapshot.time - listed + max(_EARLY, interval * _EARLY_SHARE))


class Layout(Struct, frozen=True):
    """Where everything is drawn. Keys and clicks are resolved against it.

    Attributes:
        view: The view with its cursor, tags and scroll positions within bounds.
        gpus: The GPUs.
        shape: The rows of each part; ``None`` if no dashboard is drawn.
        lines: Number of lines for the GPUs.
        line_columns: Columns of a GPU's line; ``None`` if the GPUs are panels.
        room: Rows for the lines of the table.
        columns: Columns of processes.
        headers: Columns of the table: ``columns``, or those of users.
        shown: The processes that pass the filter.
        entries: The lines of the table.
    """

    view: View
    gpus: Sequence[Gpu] = ()
    shape: DashboardShape | None = None
    lines: int = 0
    line_columns: LineColumns | None = None
    room: int = 0
    columns: tuple[Column[ProcessItem], ...] = ()
    headers: Sequence[Column[Any]] = ()
    shown: Sequence[GpuProcess] = ()
    entries: Sequence[TableEntry] = ()

    @property
    def hidden_gpus(self) -> int:
        """Number of lines of GPUs that do not fit."""
        if self.shape is None or self.shape.gpus.panels:
            return 0
        return max(0, self.lines - self.shape.gpus.in_sight)

    def index_of(self, key: Key | None) -> int | None:
        """The index of a line in the table."""
        if key is None:
            return None
        return next((at for at, entry in enumerate(self.entries) if entry.key == key), None)

    @property
    def entry(self) -> TableEntry | None:
        """The line under the cursor; ``None`` if the cursor is on a GPU."""
        index = self.index_of(self.view.cursor) if self.view.gpu is None else None
        return None if index is None else self.entries[index]

    @property
    def gpu(self) -> Gpu | None:
        """The GPU under the cursor."""
        return gpu_of(self.gpus, self.view.gpu)


def gpu_of(gpus: Sequence[Gpu], uuid: str | None) -> Gpu | None:
    """The GPU with this UUID, if there is one."""
    return next((gpu for gpu in gpus if gpu.uuid == uuid), None)


def lay_out(
    memo: Memo,
    context: TableContext,
    snapshot: Snapshot,
    view: View,
    width: int,
    shape: DashboardShape,
    room: int,
) -> Layout:
    """List the processes, and bring the view within bounds.

    Args:
        memo: Caches the list.
        context: From ``table_context``.
        snapshot: The snapshot.
        view: The view.
        width: Cells.
        shape: From ``dashboard_shape``.
        room: Rows of the table without its heading.
    """
    chosen = process_columns(view.columns)
    if chosen == DEFAULT_COLUMNS:
        chosen = default_columns(snapshot.processes)
    columns = visible_columns(width, chosen)
    # Some lists change with time although the processes do not.
    second = context.second if _depends_on_time(view) else None
    gpu = gpu_of(snapshot.gpus, view.gpu)
    first_gpu = None if gpu is None else gpu.index
    key = (second, view.narrowing, view.order, view.listing, view.toggled, first_gpu)
    shown, entries = memo.by(
        (*key, snapshot.processes, view.relatives), _listed, context, snapshot, view, first_gpu
    )
    line_columns = list_columns(
        memo, snapshot, shape.gpus, width, not shape.tiles, gpu_columns(view.columns)
    )
    layout = Layout(
        view,
        snapshot.gpus,
        shape,
        gpu_lines(snapshot),
        line_columns,
        room,
        columns,
        user_columns(width) if view.listing is Listing.USERS else columns,
        shown,
        entries,
    )
    return replace(layout, view=_within_bounds(layout, snapshot))


def _listed(
    context: TableContext, snapshot: Snapshot, view: View, first_gpu: int | None
) -> tuple[Sequence[GpuProcess], Sequence[TableEntry]]:
    """The processes that pass the filter, and the lines of the table."""
    filter_context = None if view.narrowing.filter is None else _filter_context(context.row)
    shown = view.narrowing.apply(snapshot.processes, filter_context)
    if view.listing is Listing.TREE:
        return shown, tree_entries(
            shown, view.relatives, view.sort, context.row, view.toggled, first_gpu
        )
    if view.listing is Listing.JOBS:
        return shown, job_entries(shown, view.sort, context.row, view.toggled, first_gpu)
    if view.listing is Listing.USERS:
        narrowed = replace(snapshot, time=context.row.now, processes=tuple(shown))
        uses = by_column(users(narrowed, context.history), USER_COLUMNS, view.user_sort)
        return shown, user_entries(uses, first_gpu)
    return shown, process_entries(shown, view.sort, context.row, first_gpu)


def _depends_on_time(view: View) -> bool:
    """Whether the lines or their order can change while the processes do not."""
    filtered = view.narrowing.filter is not None and bool(view.narrowing.filter.text)
    return filtered or view.listing is Listing.USERS or view.sort.column == "idle"


def _filter_context(row: RowContext) -> FilterContext:
    from gpumon.filters.terms import FilterContext

    return FilterContext(row.now, row.idle_seconds, row.idle_after)


def _within_bounds(layout: Layout, snapshot: Snapshot) -> View:
    """Keep the cursor on its line and the line visible, and limit scrolling to the end.

    When a process ends, its cursor and tag go too: if they moved to another process, the next key
    would act on that one.
    """
    view, shape, room = layout.view, layout.shape, layout.room
    assert shape is not None  # noqa: S101 - lay_out was given one
    tags, cursor, top = view.tags, view.cursor, view.top
    if tags:
        living = {process.id for process in snapshot.processes}
        tags &= living | {relative.id for relative in view.relatives}
    gpu, gpus_top, hidden = view.gpu, view.gpus_top, layout.hidden_gpus
    line = gpu_line(snapshot, gpu)
    index = layout.index_of(cursor)
    if index is None:
        cursor = None
    elif view.follows_cursor and line is None:
        top = max(min(top, index), index - room + 1)
    end = len(layout.entries) - room
    if line is None:
        gpu = None
    elif hidden:
        gpus_top = max(min(gpus_top, line), line - shape.gpus.in_sight + 1)
    parts = layout.line_columns
    return replace(
        view,
        tags=tags,
        cursor=cursor,
        top=max(0, min(top, end)),
        top_on_gpu=max(0, min(view.top_on_gpu, end)),
        gpu=gpu,
        gpus_top=max(0, min(gpus_top, hidden)),
        graph_fits=parts is None or parts.width_of("spark") > 0 or shape.tiles > 0,
    )
