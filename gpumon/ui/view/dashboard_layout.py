"""The layout of the dashboard: rows for each part, the lines of the table, a view within bounds."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import gpu_columns, process_columns
from gpumon.findings.groups import allocated_jobs, users
from gpumon.text.process_columns import PROCESS_COLUMNS, RowContext
from gpumon.text.table import by_column
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.gpu_table import (
    LEAST_PANEL,
    GpusShape,
    gpus_shape,
    line_count,
    line_number,
    list_columns,
)
from gpumon.ui.view.gpu_text import load_word, mig_indices
from gpumon.ui.view.gpu_tiles import NO_TILES, Tiles, least_tiles, tiles_of
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.list_view import ListLayout
from gpumon.ui.view.process_table import (
    Listing,
    TableEntry,
    entry_lines,
    job_entries,
    process_entries,
    steady_columns,
    tree_entries,
    user_entries,
)
from gpumon.ui.view.user_table import USER_COLUMNS, user_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.filters.terms import FilterContext
    from gpumon.findings.groups import UserUse
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.table import Column
    from gpumon.ui.view.frame import Memo
    from gpumon.ui.view.gpu_line import LineColumns

LEAST_WIDTH = 60
LEAST_HEIGHT = 15
TOO_SMALL = f"too small for this: {LEAST_WIDTH}×{LEAST_HEIGHT} at least"
_FRAME_ROWS = 3
"""Header, rule and footer."""
_FEW_GPUS = 8
_LEAST_BELOW_PANELS = 11
"""The heading of the table and ten processes."""
_LEAST_CHART_SHARE = 4
"""Panels keep this part of the screen however many processes there are."""
_LATELY, _LINE_STEP = 60.0, 2
_WITH_EVENT = 20
"""From this height on the past has a row for the event before it."""
LEAST_TABLE = 3
"""The heading of the table and two processes."""
_EARLY, _EARLY_SHARE = 0.05, 0.5
"""Tolerance, in seconds or as a share of the interval, for samples that come early."""


class DashboardShape(Struct, frozen=True):
    """The rows of each part."""

    gpus: GpusShape  # The layout of the GPUs.
    tiles: Tiles  # The charts below them.
    table: int  # Height of the process table with its heading.


def is_tiny(width: int, height: int) -> bool:
    """Whether the terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


@lru_cache(maxsize=16)
def dashboard_shape(
    lines: int, gpus: int, width: int, height: int, processes: int, charted: int
) -> DashboardShape:
    """Divide the rows between GPUs and processes.

    The processes come first: charts get the rows that these leave, and at least their least height
    if the processes do not all fit anyway, as long as the table keeps most of the screen. The
    processes keep a third below the list of GPUs, or less if a few GPUs would not all fit
    otherwise.

    Args:
        lines: Number of lines for the GPUs, from ``line_count``.
        gpus: Number of GPUs.
        width: Cells.
        height: Rows.
        processes: Number of lines that the table needs, from ``lines_wanted``.
        charted: Number of GPUs that have something to show in a chart.
    """
    rest = max(0, height - _FRAME_ROWS)
    wanted = 1 + processes
    panels = max(rest - wanted, gpus * LEAST_PANEL, rest // _LEAST_CHART_SHARE)
    if rest - panels < min(wanted, _LEAST_BELOW_PANELS):
        panels = 0
    shape = gpus_shape(lines, gpus, width, rest - rest // 3, panels)
    if lines <= _FEW_GPUS and shape.columns == 1 and shape.rows < lines + 1:
        shape = gpus_shape(lines, gpus, width, rest - LEAST_TABLE)
    tiles = NO_TILES
    if not shape.panels and shape.columns == 1 and shape.rows > lines:
        below = rest - shape.rows
        tiles = tiles_of(charted, width, below - wanted)
        if not tiles.height:
            tiles = least_tiles(charted, width)
            if below - tiles.rows < rest // 2:
                tiles = NO_TILES
    return DashboardShape(shape, tiles, rest - shape.rows - tiles.rows)


def lines_wanted(history: History, snapshot: Snapshot, view: View, height: int) -> int:
    """The number of lines for which the table gets room before charts do.

    It is that of the processes of the last minute, in steps, so that a process that comes and goes
    moves nothing. Other lists may be longer and have charts of their own: they get half.
    """
    count = max(len(snapshot.processes), history.listed_lately(_LATELY))
    lines = max(LEAST_TABLE - 1, -(-count // _LINE_STEP) * _LINE_STEP)
    lines += timeline_height(view, height)
    return lines if view.listing is Listing.PROCESSES else max(lines, height // 2)


def timeline_height(view: View, height: int) -> int:
    """Rows of the timeline: of the past, and of the event before it unless the terminal is low."""
    if view.timeline is None:
        return 0
    return 2 if height >= _WITH_EVENT else 1


class TableContext(NamedTuple):
    """The part of the history that the table needs, renewed once a second and with each list."""

    second: float  # From ``_table_second``.
    row: RowContext  # The context of the rows.
    history: History  # As of the moment when the context was made.


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


class Layout(ListLayout[View, TableEntry], frozen=True, kw_only=True):
    """Where the dashboard is drawn; its list is the table."""

    gpus: Sequence[Gpu] = ()
    # The rows of each part; ``None`` if no dashboard is drawn.
    shape: DashboardShape | None = None
    lines: int = 0  # Number of lines for the GPUs.
    line_columns: LineColumns | None = None  # Of a GPU's line; ``None`` if the GPUs are panels.
    shown: Sequence[GpuProcess] = ()  # The processes that pass the filter.
    charted: Sequence[Gpu] = ()  # The GPUs that have a chart below the list.

    @property
    def sortable(self) -> tuple[Sequence[Column[Any]], str]:
        """See ``ListLayout.sortable``."""
        if self.view.listing is Listing.USERS:
            return USER_COLUMNS, f"users; {keycap('users')} goes back to processes"
        return PROCESS_COLUMNS, "processes"

    @property
    def hidden_gpus(self) -> int:
        """Number of lines of GPUs that do not fit."""
        if self.shape is None or self.shape.gpus.panels:
            return 0
        return max(0, self.lines - self.shape.gpus.in_sight)

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

    The memo keeps the list. ``room`` is the rows of the table without its heading.
    """
    # Some lists change with time although the processes do not.
    second = context.second if _depends_on_time(view) else None
    gpu = gpu_of(snapshot.gpus, view.gpu)
    first_gpu = None if gpu is None else gpu.index
    scope = (view.narrowing, view.listing, view.toggled, view.columns, width)
    key = (second, view.narrowing, view.sort, view.listing, view.toggled, first_gpu)
    listed = (snapshot.processes, snapshot.allocations, view.relatives)
    shown, entries = memo.by((*key, *listed), _listed, context, snapshot, view, first_gpu)
    columns = steady_columns(
        memo,
        (context.second, *listed),
        scope,
        context.row.now,
        process_columns(view.columns),
        entry_lines(entries, context.row),
        width,
        view.sort.column,
        load_word(snapshot.gpus),
    )
    line_columns = list_columns(
        memo, snapshot, shape.gpus, width, not shape.tiles.height, gpu_columns(view.columns)
    )
    layout = Layout(
        view=view,
        entries=entries,
        headers=_user_columns(snapshot, width) if view.listing is Listing.USERS else columns,
        columns=columns,
        width=width,
        room=room,
        gpus=snapshot.gpus,
        shape=shape,
        lines=line_count(snapshot),
        line_columns=line_columns,
        shown=shown,
    )
    return replace(layout, view=_within_bounds(layout, snapshot))


def _listed(
    context: TableContext, snapshot: Snapshot, view: View, first_gpu: int | None
) -> tuple[Sequence[GpuProcess], Sequence[TableEntry]]:
    """The processes that pass the filter, and the lines of the table."""
    filter_context = None
    if view.narrowing.filter is not None:
        filter_context = _filter_context(context.row, snapshot)
    shown = view.narrowing.apply(snapshot.processes, filter_context)
    if view.listing is Listing.TREE:
        return shown, tree_entries(
            shown, view.relatives, view.sort, context.row, view.toggled, first_gpu
        )
    if view.listing is Listing.PROCESSES:
        return shown, process_entries(shown, view.sort, context.row, first_gpu)
    allocated = view.narrowing.apply_to_allocated(
        allocated_jobs(snapshot, context.history), snapshot.gpus, filter_context
    )
    if view.listing is Listing.JOBS:
        return shown, job_entries(shown, view.sort, context.row, view.toggled, first_gpu, allocated)
    narrowed = replace(snapshot, time=context.row.now, processes=tuple(shown))
    uses = by_column(users(narrowed, context.history, allocated), USER_COLUMNS, view.sort)
    return shown, user_entries(uses, first_gpu)


def _depends_on_time(view: View) -> bool:
    """Whether the lines or their order can change while the processes do not."""
    filtered = view.narrowing.filter is not None and bool(view.narrowing.filter.text)
    return filtered or view.listing is Listing.USERS or view.sort.column == "idle"


def _user_columns(snapshot: Snapshot, width: int) -> Sequence[Column[UserUse]]:
    return user_columns(width, allocated=snapshot.allocations is not None)


def _filter_context(row: RowContext, snapshot: Snapshot) -> FilterContext:
    from gpumon.filters.terms import FilterContext

    allocations = snapshot.allocations or ()
    return FilterContext(row.now, row.idle_seconds, row.idle_after, allocations=allocations)


def _within_bounds(layout: Layout, snapshot: Snapshot) -> View:
    """Keep the cursor on its line and the line visible, and limit scrolling to the end.

    When a process ends, its cursor and tag go too: if they moved to another process, the next key
    would act on that one.
    """
    view, shape = layout.view, layout.shape
    assert shape is not None  # noqa: S101 - lay_out was given one
    tags = view.tags
    if tags:
        living = {process.id for process in snapshot.processes}
        tags &= living | {relative.id for relative in view.relatives}
    gpu_tags = view.gpu_tags
    if gpu_tags:
        gpu_tags &= {gpu.uuid for gpu in snapshot.gpus}
    gpus_top, hidden = view.gpus_top, layout.hidden_gpus
    line = line_number(snapshot, view.gpu)
    if line is not None and hidden:
        gpus_top = max(min(gpus_top, line), line - shape.gpus.in_sight + 1)
    index = layout.index_of(view.cursor)
    follow = index if view.follows_cursor and line is None else None
    parts = layout.line_columns
    return replace(
        view,
        tags=tags,
        gpu_tags=gpu_tags,
        cursor=None if index is None else view.cursor,
        top=layout.bounded_top(view.top, follow),
        top_on_gpu=layout.bounded_top(view.top_on_gpu),
        gpu=None if line is None else view.gpu,
        gpus_top=max(0, min(gpus_top, hidden)),
        graph_fits=parts is None or parts.width_of("spark") > 0 or shape.tiles.height > 0,
        has_charts=shape.gpus.panels > 0 or shape.tiles.height > 0,
    )
