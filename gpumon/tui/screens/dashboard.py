"""The dashboard: header, cards, processes, footer. It only reads; snapshots come to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.layout.cards import Cards
from gpumon.layout.chrome import (
    Moment,
    empty_rows,
    footer_row,
    header_row,
    interval_text,
    rule_row,
    tiny_rows,
)
from gpumon.layout.dashboard import dashboard_shape, is_tiny
from gpumon.layout.processes import (
    COLUMNS,
    ProcessRows,
    Sort,
    column_at,
    filter_user,
    sort_processes,
    visible_columns,
)
from gpumon.model import CardStatus
from gpumon.tui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult

    from gpumon.collector import Collector
    from gpumon.history import History
    from gpumon.layout.cells import Row
    from gpumon.layout.processes import Column
    from gpumon.model import GpuProcess, ProcessId, Snapshot
    from gpumon.tui.pen import Pen
    from gpumon.tui.theme import Palette

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The steps of ``+`` and ``-``, seconds."""

_MESSAGE_SECONDS = 3.0
_WHEEL_ROWS = 3

_FOOTER = (
    ("q", "quit"),
    ("?", "help"),
    ("↑↓", "select"),
    ("< >", "sort by"),
    ("r", "reverse"),
    ("p", "pause"),
    ("+ -", "interval"),
    ("o", "own cost"),
)
"""Most needed first: what a narrow terminal has no room for is dropped from the end."""


class Dashboard(Screen[None]):
    """What a person sees after typing ``gpumon``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Previous process", key_display="↑"),
        Binding("down,j", "move(1)", "Next process", key_display="↓ j"),
        Binding("pageup", "page(-1)", "Page up", key_display="PgUp"),
        Binding("pagedown", "page(1)", "Page down", key_display="PgDn"),
        Binding("home", "edge(-1)", "First process", key_display="Home"),
        Binding("end", "edge(1)", "Last process", key_display="End"),
        Binding("escape", "release", "No selection", key_display="Esc"),
        Binding("less_than_sign,comma", "sort_step(-1)", "Sort by the column before", key_display="<"),
        Binding("greater_than_sign,full_stop", "sort_step(1)", "Sort by the next column", key_display=">"),
        Binding("r", "reverse", "Reverse the order"),
        *(
            Binding(
                column.letter,
                f"sort('{column.key}')",
                f"Sort by {column.label}; again: reverse",
                key_display=column.letter,
            )
            for column in COLUMNS
        ),
        Binding("p", "pause", "Hold the picture; again: go on"),
        Binding("plus,equals_sign", "interval(1)", "Longer interval", key_display="+"),
        Binding("minus,underscore", "interval(-1)", "Shorter interval", key_display="-"),
        Binding("o", "own_cost", "Show what gpumon itself costs"),
    ]

    CSS_PATH = "dashboard.tcss"

    def __init__(
        self,
        collector: Collector,
        history: History,
        pen: Pen,
        palette: Palette,
        user: str | None = None,
    ) -> None:
        """Make the screen.

        Args:
            collector: For its interval and the age of its data.
            history: Where graphs and states come from.
            pen: Writes changed cells.
            palette: Colours.
            user: The one user whose processes to show; ``None`` is everybody.
        """
        super().__init__()
        self._collector = collector
        self._history = history
        self._pen = pen
        self._palette = palette
        self._user = user
        self._snapshot: Snapshot | None = None
        self._paused = False
        self._show_cost = False
        self._message = ""
        self._sort = Sort()
        self._sorted: list[GpuProcess] = []
        self._sorted_from: tuple[object, ...] | None = None
        self._cursor: ProcessId | None = None
        self._top = 0
        self._following = True
        self._cards_top = 0
        self._cards = Cards()
        self._process_rows = ProcessRows()
        self._heights: tuple[int, int, bool] | None = None

    def compose(self) -> ComposeResult:
        """The four parts, and one in place of all of them for a tiny terminal."""
        for name in ("header", "cards", "rule", "processes", "footer", "tiny"):
            yield CellView(self._pen, self._palette, id=name)

    def on_mount(self) -> None:
        """Find the parts once, and give them their places before the first layout."""
        self._parts = {view.id: view for view in self.query(CellView)}
        self._snapshot = self._history.latest
        self.draw()
        self.set_interval(1.0, self._tell_age)

    def on_resize(self) -> None:
        """Share the terminal out anew."""
        self._heights = None
        self.draw()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen lay on top."""
        self.draw()

    def repaint(self, palette: Palette) -> None:
        """Take other colours."""
        self._palette = palette
        for view in self._parts.values():
            view.repaint(palette)

    # -- what is shown ---------------------------------------------------------------------------

    def take(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot, unless the picture is held or the terminal is behind."""
        if not self._paused:
            self._snapshot = snapshot
        if self.is_current and not self._pen.behind():
            self.draw()

    def draw(self) -> None:
        """Bring every part up to date; what did not change sends nothing."""
        if not self.is_attached or not self.is_current:
            return
        # The screen has no size before its first layout; the terminal has.
        width, height = self.size if self.size.width else self.app.size
        if is_tiny(width, height):
            self._place(0, 0, tiny=True)
            tiny = tiny_rows(self._snapshot, self._history, width, height)
            self._parts["tiny"].show(tiny, width)
        else:
            self._draw_parts(width, height)
        self._pen.flush()

    def _draw_parts(self, width: int, height: int) -> None:
        snapshot = self._snapshot
        if snapshot is None or not snapshot.gpus:
            self._draw_empty(width, height)
            return
        lines = self._cards.line_count(snapshot)
        shape = dashboard_shape(lines, len(snapshot.gpus), width, height)
        self._place(shape.cards.rows, shape.table, tiny=False)
        processes = self._processes(snapshot)
        room = max(0, shape.table - 1)
        self._settle(processes, room)
        parts = self._parts
        parts["header"].show([header_row(snapshot, self._moment(), width)], width)
        cards = self._cards.rows(snapshot, self._history, width, shape.cards, self._cards_top)
        cards += [((" " * width, ""),)] * (shape.cards.rows - len(cards))
        parts["cards"].show(cards, width)
        rule = rule_row(snapshot, processes, self._user, self._top, width)
        parts["rule"].show([rule], width)
        table = self._process_rows.rows(
            processes[self._top : self._top + room],
            snapshot.time,
            width,
            shape.table,
            self._sort,
            self._cursor,
        )
        table += [((" " * width, ""),)] * (shape.table - len(table))
        parts["processes"].show(table, width)
        parts["footer"].show([footer_row(_FOOTER, self._message, width)], width)

    def _draw_empty(self, width: int, height: int) -> None:
        """No cards: the reason fills the room."""
        snapshot = self._snapshot
        self._place(height - 3, 0, tiny=False)
        blank: Row = ((" " * width, "header"),)
        head = blank if snapshot is None else header_row(snapshot, self._moment(), width)
        self._parts["header"].show([head], width)
        trouble = None if snapshot is None else snapshot.trouble
        self._parts["cards"].show(empty_rows(trouble, width, height - 3), width)
        self._parts["rule"].show([((" " * width, ""),)], width)
        self._parts["footer"].show([footer_row(_FOOTER[:2], self._message, width)], width)

    def _place(self, cards: int, table: int, *, tiny: bool) -> None:
        """Set the heights of the parts; a layout pass only when they change."""
        if self._heights == (cards, table, tiny):
            return
        self._heights = (cards, table, tiny)
        for name, view in self._parts.items():
            view.display = (name == "tiny") == tiny
        self._parts["tiny"].styles.height = self.size.height
        self._parts["cards"].styles.height = cards
        self._parts["processes"].styles.height = table
        self._parts["processes"].display = table > 0

    def _moment(self) -> Moment:
        snapshot = self._snapshot
        return Moment(
            interval=self._collector.interval,
            age=self._age(),
            paused=self._paused,
            cost=snapshot.cost if snapshot is not None and self._show_cost else None,
        )

    def _age(self) -> float | None:
        """Seconds since a card last answered, when that is longer than two intervals."""
        snapshot = self._snapshot
        if snapshot is None or self._paused:
            return None
        silent = [gpu for gpu in snapshot.gpus if gpu.status is CardStatus.NO_ANSWER]
        ages = [
            snapshot.time - gpu.sampled_at for gpu in silent if gpu.sampled_at is not None
        ]
        return max(ages, default=None)

    def _tell_age(self) -> None:
        """Between snapshots only the clock can have changed."""
        if not self._paused:
            self.draw()

    def _processes(self, snapshot: Snapshot) -> Sequence[GpuProcess]:
        """The table's processes in order; sorted anew only when there is something to sort."""
        key = (snapshot.processes, self._sort, self._user)
        kept = self._sorted_from
        if kept is None or kept[0] is not key[0] or kept[1:] != key[1:]:
            chosen = filter_user(snapshot.processes, self._user)
            self._sorted = sort_processes(chosen, self._sort, snapshot.time)
            self._sorted_from = key
        return self._sorted

    def _settle(self, processes: Sequence[GpuProcess], room: int) -> None:
        """Keep the cursor on its process and that in sight, and scroll no further than the end.

        A process that ended leaves no cursor: moving it to a neighbour unasked would offer another
        process to the next key.
        """
        index = self._cursor_index(processes)
        if index is None:
            self._cursor = None
        elif self._following:
            self._top = min(self._top, index)
            self._top = max(self._top, index - room + 1)
        self._top = max(0, min(self._top, len(processes) - room))

    def _cursor_index(self, processes: Sequence[GpuProcess]) -> int | None:
        for index, process in enumerate(processes):
            if process.id == self._cursor:
                return index
        return None

    # -- keys ------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        index = self._cursor_index(self._sorted)
        # The first press only shows where the cursor is.
        self._move_to(self._top if index is None else index + step)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what the table shows."""
        self.action_move(pages * max(1, self._room()))

    def action_edge(self, edge: int) -> None:
        """Move the cursor to the first or last process."""
        self._move_to(0 if edge < 0 else len(self._sorted) - 1)

    def action_release(self) -> None:
        """Leave no process selected."""
        self._cursor = None
        self._top = 0
        self.draw()

    def _room(self) -> int:
        return max(0, (self._heights or (0, 0, False))[1] - 1)

    def _move_to(self, index: int) -> None:
        if not self._sorted:
            return
        self._cursor = self._sorted[max(0, min(index, len(self._sorted) - 1))].id
        self._following = True
        self.draw()

    def action_sort(self, column: str) -> None:
        """Sort by a column; by the same once more: reverse."""
        if column == self._sort.column:
            self._sort = Sort(column, not self._sort.descending)
        else:
            self._sort = Sort(column, _column(column).descends)
        self._following = True
        order = "descending" if self._sort.descending else "ascending"
        self.say(f"sorted by {_column(column).label}, {order}")

    def action_sort_step(self, step: int) -> None:
        """Sort by the next column on screen."""
        columns = visible_columns(self.size.width)
        keys = [column.key for column in columns]
        at = keys.index(self._sort.column) if self._sort.column in keys else -1
        self.action_sort(keys[(at + step) % len(keys)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.action_sort(self._sort.column)

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest. Sampling goes on all the while."""
        self._paused = not self._paused
        if not self._paused and self._history.latest is not None:
            self._snapshot = self._history.latest
        self.say("the picture is held; p goes on" if self._paused else "")

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval."""
        now = self._collector.interval
        longer = [value for value in INTERVALS if value > now + 1e-9]
        shorter = [value for value in INTERVALS if value < now - 1e-9]
        if step > 0 and longer:
            self._collector.interval = longer[0]
        elif step < 0 and shorter:
            self._collector.interval = shorter[-1]
        self.say(f"a sample every {interval_text(self._collector.interval)}")

    def action_own_cost(self) -> None:
        """Show or hide gpumon's own cost in the header."""
        self._show_cost = not self._show_cost
        self.draw()

    def say(self, message: str) -> None:
        """Put a message in the footer's place for a moment."""
        self._message = message
        self.draw()
        if message:
            self.set_timer(_MESSAGE_SECONDS, lambda: self._unsay(message))

    def _unsay(self, message: str) -> None:
        if self._message == message:
            self._message = ""
            self.draw()

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """The heading sorts, a row takes the cursor."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is not self._parts["processes"]:
            return
        line = event.screen_y - view.region.y
        if line == 0:
            self.action_sort(column_at(visible_columns(self.size.width), event.screen_x).key)
        elif self._top + line - 1 < len(self._sorted):
            self._move_to(self._top + line - 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, -_WHEEL_ROWS)

    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is self._parts["cards"] and self._snapshot is not None:
            lines = self._cards.line_count(self._snapshot)
            self._cards_top = max(0, min(self._cards_top + rows, lines - 1))
        else:
            self._top += rows
            self._following = False
        self.draw()


def _column(key: str) -> Column:
    return next(column for column in COLUMNS if column.key == key)
