"""The layout: how a terminal is divided, what the table lists, and a view within its bounds."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings.groups import users
from gpumon.ui.view.cards import CardsShape, card_line, card_lines, cards_shape, list_columns
from gpumon.ui.view.grouped import sort_users, user_columns
from gpumon.ui.view.listing import (
    Entry,
    Key,
    Listing,
    job_entries,
    process_entries,
    tree_entries,
    user_entries,
)
from gpumon.ui.view.processes import ColumnHeader, RowContext, visible_columns
from gpumon.ui.view.tiles import tile_height, tiles_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.config.columns import Column
    from gpumon.filters import Facts
    from gpumon.model.snapshot import Gpu, GpuProcess, ProcessId, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.cards import CardColumns
    from gpumon.ui.view.memo import Memo
    from gpumon.ui.view.view import View

LEAST_WIDTH = 60
LEAST_HEIGHT = 15
_AROUND = 3
"""Header, rule and footer, a row each."""
_FEW_CARDS = 8
LEAST_TABLE = 3
"""The table's heading and two processes."""
_EARLY, _EARLY_SHARE = 0.05, 0.5
"""Seconds, or the part of an interval, by which a sample may come before a whole second is over."""


class DashboardShape(Struct, frozen=True):
    """Where everything goes.

    Attributes:
        cards: The shape of the cards.
        tiles: Rows of each large graph below them; 0 is without.
        table: Rows of the process table, its heading included.
    """

    cards: CardsShape
    tiles: int
    table: int


def is_tiny(width: int, height: int) -> bool:
    """Whether a terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


@lru_cache(maxsize=16)
def dashboard_shape(lines: int, cards: int, width: int, height: int) -> DashboardShape:
    """Share out the rows: the processes keep a third, unless a few cards would not all fit.

    Under tall panels, of which there are one or two, and under large graphs of more cards they keep
    half of them and more.

    Args:
        lines: Lines the cards need, see ``card_lines``.
        cards: Number of cards.
        width: Cells of the terminal.
        height: Rows of the terminal.
    """
    rest = max(0, height - _AROUND)
    panels = rest // 2 if cards > 1 else rest * 2 // 5
    shape = cards_shape(lines, cards, width, rest - rest // 3, panels)
    if lines <= _FEW_CARDS and shape.columns == 1 and shape.rows < lines + 1:
        shape = cards_shape(lines, cards, width, rest - LEAST_TABLE)
    tiles = 0
    if not shape.panels and shape.columns == 1 and shape.rows > lines:
        tiles = tile_height(cards, width, rest // 2 - shape.rows)
    table = rest - shape.rows - tiles_rows(cards, tiles)
    return DashboardShape(shape, tiles, table)


class TableContext(NamedTuple):
    """What the table needs from the history. It is renewed once a second, and with each list.

    Attributes:
        beat: The second, from ``_beat``.
        row: What a row needs.
        held: Answers about processes and users, as of the moment the context was made.
    """

    beat: float
    row: RowContext
    held: History


def table_context(
    memo: Memo, history: History, snapshot: Snapshot, interval: float
) -> TableContext:
    """Return the context of a snapshot."""
    # Once a snapshot, so that a held picture keeps its context when the interval changes.
    beat = memo.by(snapshot, _beat, snapshot, interval)
    key = (beat, snapshot.processes)
    return memo.by(key, _table_context, history, snapshot, beat)


def _table_context(history: History, snapshot: Snapshot, beat: float) -> TableContext:
    held = history.as_of(snapshot)
    row = RowContext(snapshot.time, cache(held.process_idle), held.thresholds.idle_after)
    return TableContext(beat, row, held)


def _beat(snapshot: Snapshot, interval: float) -> float:
    """Changes once a second, for what is told in whole seconds.

    Lists of processes mostly come as often, and what hangs on them is drawn anew with them: on the
    clock's seconds too it would be drawn twice. So seconds are counted from the newest list.
    """
    listed = snapshot.processes_at
    if listed is None or listed > snapshot.time:
        return int(snapshot.time)
    # A sample that comes early after one that came late is meant to be a second later too.
    return listed + int(snapshot.time - listed + max(_EARLY, interval * _EARLY_SHARE))


class Layout(Struct, frozen=True):
    """Where everything is drawn. Keys and clicks are resolved against it.

    Attributes:
        view: The view, with its cursor, tags and scrolling within bounds.
        gpus: The cards.
        shape: How the rows are divided; ``None`` where no dashboard is drawn.
        lines: Lines the cards need.
        card_columns: Columns of a card's line; ``None`` where cards are panels.
        room: Rows the table has for its lines.
        columns: Columns of processes.
        headed: Columns of the table: ``columns``, or those of users.
        shown: The processes that pass the filter.
        entries: The lines of the table, in order.
    """

    view: View
    gpus: Sequence[Gpu] = ()
    shape: DashboardShape | None = None
    lines: int = 0
    card_columns: CardColumns | None = None
    room: int = 0
    columns: tuple[Column, ...] = ()
    headed: Sequence[ColumnHeader] = ()
    shown: Sequence[GpuProcess] = ()
    entries: Sequence[Entry] = ()

    @property
    def hidden_cards(self) -> int:
        """Lines of cards that there is no room for."""
        if self.shape is None or self.shape.cards.panels:
            return 0
        return max(0, self.lines - self.shape.cards.in_sight)

    def index_of(self, key: Key | None) -> int | None:
        """Where a line stands in the table."""
        if key is None:
            return None
        for index, entry in enumerate(self.entries):
            if entry.key == key:
                return index
        return None

    def entry(self, key: Key | None) -> Entry | None:
        """The line of this key, while it is in the table."""
        index = self.index_of(key)
        return None if index is None else self.entries[index]


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
        memo: Keeps the list.
        context: From ``table_context``.
        snapshot: What is shown.
        view: The view.
        width: Cells.
        shape: From ``dashboard_shape``.
        room: Rows of the table, without its heading.
    """
    columns = visible_columns(width, view.columns)
    # Some lists change with time while the processes stay as they are.
    beat = context.beat if _depends_on_time(view) else None
    key = (beat, view.narrowing, view.order, view.listing, view.turned)
    shown, entries = memo.by((*key, snapshot.processes, view.kin), _listed, context, snapshot, view)
    card_columns = list_columns(memo, snapshot, shape.cards, width, not shape.tiles)
    layout = Layout(
        view,
        snapshot.gpus,
        shape,
        card_lines(snapshot),
        card_columns,
        room,
        columns,
        user_columns(width) if view.listing is Listing.USERS else columns,
        shown,
        entries,
    )
    return replace(layout, view=_within_bounds(layout, snapshot))


def _listed(
    context: TableContext, snapshot: Snapshot, view: View
) -> tuple[Sequence[GpuProcess], Sequence[Entry]]:
    """The processes that pass the filter, and the lines of the table."""
    facts = None if view.narrowing.filter is None else _facts(context.row)
    shown = view.narrowing.apply(snapshot.processes, facts)
    if view.listing is Listing.TREE:
        return shown, tree_entries(shown, view.kin, view.sort, context.row, view.turned)
    if view.listing is Listing.JOBS:
        return shown, job_entries(shown, view.sort, context.row, view.turned)
    if view.listing is Listing.USERS:
        narrowed = replace(snapshot, time=context.row.now, processes=tuple(shown))
        return shown, user_entries(sort_users(users(narrowed, context.held), view.user_sort))
    return shown, process_entries(shown, view.sort, context.row)


def _depends_on_time(view: View) -> bool:
    """Whether what is listed, or its order, changes while the processes stay as they are."""
    filtered = view.narrowing.filter is not None and bool(view.narrowing.filter.text)
    return filtered or view.listing is Listing.USERS or view.sort.column == "idle"


def _facts(sight: RowContext) -> Facts:
    """What a filter needs to know."""
    from gpumon.filters import Facts

    def idle(process: ProcessId) -> float | None:
        spell = sight.idle(process)
        return None if spell is None else spell.seconds

    return Facts(sight.now, idle, sight.idle_after)


def _within_bounds(layout: Layout, snapshot: Snapshot) -> View:
    """Keep the cursor on its line and that in sight, and scroll no further than the end.

    A process that ended leaves no cursor and no tag: moving either to a neighbour unasked would
    offer another process to the next key.
    """
    view, shape, room = layout.view, layout.shape, layout.room
    assert shape is not None  # noqa: S101 - lay_out was given one
    tags, cursor, top = view.tags, view.cursor, view.top
    if tags:
        living = {process.id for process in snapshot.processes}
        tags &= living | {relative.id for relative in view.kin}
    index = layout.index_of(cursor)
    if index is None:
        cursor = None
    elif view.following:
        top = max(min(top, index), index - room + 1)
    card, cards_top, hidden = view.card, view.cards_top, layout.hidden_cards
    line = card_line(snapshot, card)
    if line is None:
        card = None
    elif hidden:
        cards_top = max(min(cards_top, line), line - shape.cards.in_sight + 1)
    parts = layout.card_columns
    return replace(
        view,
        tags=tags,
        cursor=cursor,
        top=max(0, min(top, len(layout.entries) - room)),
        card=card,
        cards_top=max(0, min(cards_top, hidden)),
        graphed=parts is None or parts.spark > 0 or shape.tiles > 0,
    )
