"""The whole dashboard as rows: how a terminal is shared out, and what stands in each part.

The screen, a first frame and the tests all draw through ``Dashboard.rows``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import Finding, Severity, card_state
from gpumon.layout.cards import Cards, CardsShape, cards_shape
from gpumon.layout.cells import Row, fill
from gpumon.layout.chrome import (
    Moment,
    Scrolled,
    empty_rows,
    footer_row,
    header_row,
    rule_row,
    tiny_rows,
)
from gpumon.layout.processes import ProcessRows, Sort, filter_user, sort_processes
from gpumon.model import CardStatus, ProcessId
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.history import History
    from gpumon.model import GpuProcess, Snapshot

LEAST_WIDTH = 60
LEAST_HEIGHT = 15

_CHROME = 3
"""Header, rule and footer, a row each."""
_FEW_CARDS = 8
_LEAST_TABLE = 3
"""The table's heading and two processes."""
_TABLE_UNDER_PANELS = 9
"""The heading and eight processes."""

KEYS = (
    ("q", "quit"),
    ("?", "help"),
    ("↑↓", "select"),
    ("< >", "sort by"),
    ("r", "reverse"),
    ("p", "pause"),
    ("+ -", "interval"),
    ("o", "own cost"),
)
"""The footer's keys, most needed first: what has no room is dropped from the end."""


class DashboardShape(Struct, frozen=True):
    """Where everything goes.

    Attributes:
        cards: The shape of the cards.
        table: Rows of the process table, its heading included.
    """

    cards: CardsShape
    table: int


def is_tiny(width: int, height: int) -> bool:
    """Whether a terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def dashboard_shape(lines: int, cards: int, width: int, height: int) -> DashboardShape:
    """Share out the rows: the processes keep a third, unless a few cards would not all fit.

    Args:
        lines: Lines the cards need, see ``Cards.line_count``.
        cards: Number of cards.
        width: Cells of the terminal.
        height: Rows of the terminal.
    """
    rest = max(0, height - _CHROME)
    shape = cards_shape(lines, cards, width, rest - rest // 3, rest - _TABLE_UNDER_PANELS)
    if lines <= _FEW_CARDS and shape.columns == 1 and shape.rows < lines + 1:
        shape = cards_shape(lines, cards, width, rest - _LEAST_TABLE)
    return DashboardShape(shape, rest - shape.rows)


class View(Struct):
    """What the person at the keyboard has chosen.

    Attributes:
        interval: Seconds between samples.
        user: The one user whose processes to show; ``None`` is everybody.
        sort: Order of the processes.
        cursor: The process under the cursor.
        top: Processes scrolled away.
        following: Whether the table scrolls with the cursor; a turn of the wheel ends that.
        cards_top: Lines of cards scrolled away.
        paused: Whether the picture is held.
        show_cost: Whether the header tells gpumon's own cost.
        message: What stands in the footer in place of the keys.
    """

    interval: float
    user: str | None = None
    sort: Sort = Sort()
    cursor: ProcessId | None = None
    top: int = 0
    following: bool = True
    cards_top: int = 0
    paused: bool = False
    show_cost: bool = False
    message: str = ""


class Parts(Struct):
    """The dashboard from the top down; in a tiny terminal only ``tiny``."""

    header: list[Row] = []
    cards: list[Row] = []
    rule: list[Row] = []
    processes: list[Row] = []
    footer: list[Row] = []
    tiny: list[Row] = []

    def all(self) -> list[Row]:
        """Every row of the screen."""
        return [
            *self.header,
            *self.cards,
            *self.rule,
            *self.processes,
            *self.footer,
            *self.tiny,
        ]


class Dashboard:
    """Draws the dashboard, keeping what did not change.

    Args:
        history: Where graphs and states come from.

    Attributes:
        processes: The table's processes, in its order, as last drawn.
        room: Rows the table had for processes, as last drawn.
        lines: Lines the cards need, as last drawn.
    """

    def __init__(self, history: History) -> None:
        self.processes: Sequence[GpuProcess] = ()
        self.room = 0
        self.lines = 0
        self._history = history
        self._cards = Cards()
        self._states: tuple[Snapshot | None, dict[str, Finding]] = (None, {})
        self._process_rows = ProcessRows()
        self._drawn_from: tuple[object, ...] = ()

    def rows(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """All rows for a terminal of this size.

        Args:
            snapshot: What to show; ``None`` while there is nothing yet.
            view: What is chosen; its cursor and scrolling are brought within bounds.
            width: Cells.
            height: Rows.
        """
        if is_tiny(width, height):
            states = self._states_of(snapshot)
            moment = Moment() if snapshot is None else _moment(snapshot, view)
            return Parts(tiny=tiny_rows(snapshot, states, moment, width, height))
        if snapshot is None or not snapshot.gpus:
            return self._empty(snapshot, view, width, height)
        self.lines = self._cards.line_count(snapshot)
        shape = dashboard_shape(self.lines, len(snapshot.gpus), width, height)
        self.room = max(0, shape.table - 1)
        self._order(snapshot, view)
        self._settle(view)
        states = self._states_of(snapshot)
        scrolled = self._scrolled(snapshot, view, shape)
        cards = self._cards.rows(
            snapshot, self._history, states, width, shape.cards, view.cards_top
        )
        table = self._process_rows.rows(
            self.processes[view.top : view.top + self.room],
            snapshot.time,
            width,
            shape.table,
            view.sort,
            view.cursor,
        )
        return Parts(
            header=[header_row(snapshot, _moment(snapshot, view), width)],
            cards=_filled(cards, width, shape.cards.rows),
            rule=[rule_row(snapshot, self.processes, scrolled, width)],
            processes=_filled(table, width, shape.table),
            footer=[footer_row(KEYS, view.message, width)],
        )

    def _empty(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """No cards: the reason fills the room."""
        self.processes, self.room, self.lines = (), 0, 0
        header = fill((), width, "header")
        if snapshot is not None:
            header = header_row(snapshot, _moment(snapshot, view), width)
        trouble = None if snapshot is None else snapshot.trouble
        return Parts(
            header=[header],
            cards=empty_rows(trouble, width, height - 2),
            footer=[footer_row(KEYS[:2], view.message, width)],
        )

    def _states_of(self, snapshot: Snapshot | None) -> dict[str, Finding]:
        """What is said of each card, once a snapshot: a held picture keeps its words."""
        if snapshot is not self._states[0]:
            gpus = () if snapshot is None else snapshot.gpus
            states = {gpu.uuid: card_state(self._history, gpu) for gpu in gpus}
            self._states = (snapshot, states)
        return self._states[1]

    def _order(self, snapshot: Snapshot, view: View) -> None:
        """Sort anew only when there is something to sort."""
        drawn_from = (snapshot.processes, view.sort, view.user)
        before = self._drawn_from
        if before and before[0] is drawn_from[0] and before[1:] == drawn_from[1:]:
            return
        self._drawn_from = drawn_from
        chosen = filter_user(snapshot.processes, view.user)
        self.processes = sort_processes(chosen, view.sort, snapshot.time)

    def _scrolled(self, snapshot: Snapshot, view: View, shape: DashboardShape) -> Scrolled:
        """What of cards and processes is out of sight; brings the scrolling within bounds."""
        shown = shape.cards.columns * (shape.cards.rows - 1)
        hidden = 0 if shape.cards.panels else max(0, self.lines - shown)
        view.cards_top = max(0, min(view.cards_top, hidden))
        return Scrolled(
            view.user,
            view.top,
            self.room,
            view.cards_top,
            hidden - view.cards_top,
            self._worst_hidden(snapshot, view.cards_top, shown) if hidden else "",
        )

    def _worst_hidden(self, snapshot: Snapshot, above: int, shown: int) -> str:
        """What is wrong with the worst of the cards out of sight."""
        worst: Finding | None = None
        index = line = 0
        for gpu in snapshot.gpus:
            state = self._states[1][gpu.uuid]
            in_sight = above <= line < above + shown
            if not in_sight and (worst is None or state.severity > worst.severity):
                worst, index = state, gpu.index
            line += 1 + len(gpu.mig)
        if worst is None or worst.severity < Severity.WARNING:
            return ""
        return f"GPU {index}: {printable(worst.brief)}"

    def _settle(self, view: View) -> None:
        """Keep the cursor on its process and that in sight, and scroll no further than the end.

        A process that ended leaves no cursor: moving it to a neighbour unasked would offer another
        process to the next key.
        """
        index = self.index_of(view.cursor)
        if index is None:
            view.cursor = None
        elif view.following:
            view.top = max(min(view.top, index), index - self.room + 1)
        view.top = max(0, min(view.top, len(self.processes) - self.room))

    def index_of(self, process: ProcessId | None) -> int | None:
        """Where a process stands in the table."""
        if process is None:
            return None
        for index, other in enumerate(self.processes):
            if other.id == process:
                return index
        return None


def _moment(snapshot: Snapshot, view: View) -> Moment:
    return Moment(
        interval=view.interval,
        age=None if view.paused else _silence(snapshot),
        paused=view.paused,
        cost=snapshot.cost if view.show_cost else None,
    )


def _silence(snapshot: Snapshot) -> float | None:
    """Seconds since the card that has been silent longest answered; ``None`` when all answer."""
    ages = [
        snapshot.time - gpu.sampled_at
        for gpu in snapshot.gpus
        if gpu.status is CardStatus.NO_ANSWER and gpu.sampled_at is not None
    ]
    return max(ages, default=None)


def _filled(rows: list[Row], width: int, height: int) -> list[Row]:
    """The rows, and blank ones up to the height."""
    blank = fill((), width)
    return rows + [blank] * (height - len(rows))
