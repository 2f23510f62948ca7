"""The dashboard on screen: rows go to the widgets that send them, keys change what is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.layout.chrome import interval_text
from gpumon.layout.dashboard import Dashboard, View
from gpumon.layout.processes import COLUMNS, Sort, column_at, visible_columns
from gpumon.tui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.timer import Timer

    from gpumon.collector import Collector
    from gpumon.history import History
    from gpumon.layout.dashboard import Parts
    from gpumon.layout.processes import Column
    from gpumon.model import Snapshot
    from gpumon.tui.pen import Pen
    from gpumon.tui.theme import Palette

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The steps of ``+`` and ``-``, seconds."""

_PARTS = ("header", "cards", "rule", "processes", "footer", "tiny")
_MESSAGE_SECONDS = 3.0
_CATCH_UP_SECONDS = 0.1
_WHEEL_ROWS = 3


class DashboardScreen(Screen[None]):
    """What a person sees after typing ``gpumon``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Previous process", key_display="↑"),
        Binding("down,j", "move(1)", "Next process", key_display="↓ j"),
        Binding("pageup", "page(-1)", "Page up", key_display="PgUp"),
        Binding("pagedown", "page(1)", "Page down", key_display="PgDn"),
        Binding("home", "edge(-1)", "First process", key_display="Home"),
        Binding("end", "edge(1)", "Last process", key_display="End"),
        Binding("shift+up", "cards(-1)", "Cards before", key_display="Shift+↑"),
        Binding("shift+down", "cards(1)", "Cards after, where not all fit", key_display="Shift+↓"),
        Binding("escape", "release", "No selection", key_display="Esc"),
        Binding(
            "less_than_sign,comma", "sort_step(-1)", "Sort by the column before", key_display="<"
        ),
        Binding(
            "greater_than_sign,full_stop",
            "sort_step(1)",
            "Sort by the next column",
            key_display=">",
        ),
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
            collector: For its interval.
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
        self._view = View(interval=collector.interval, user=user)
        self._dashboard = Dashboard(history)
        self._snapshot = history.latest
        self._views: dict[str, CellView] = {}
        self._heights: tuple[int, ...] = ()
        self._owed: Timer | None = None
        self._unsaying: Timer | None = None

    def compose(self) -> ComposeResult:
        """The parts from the top down."""
        self._views = {name: CellView(self._pen, self._palette, id=name) for name in _PARTS}
        yield from self._views.values()

    def on_mount(self) -> None:
        """Give the parts their places before the first layout."""
        self.draw()

    def on_resize(self) -> None:
        """Share the terminal out anew."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen lay on top."""
        self.draw()

    def repaint(self, palette: Palette) -> None:
        """Take other colours."""
        self._palette = palette
        for view in self._views.values():
            view.repaint(palette)

    # -- what is shown ---------------------------------------------------------------------------

    def take(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot, unless the picture is held or the terminal is behind."""
        if self._view.paused:
            return
        self._snapshot = snapshot
        self.draw()

    def draw(self) -> None:
        """Bring every part up to date; what did not change sends nothing.

        While the terminal has not taken what was written before, nothing is added to it: the frame
        is left out, and its changes come with the one that is drawn when there is room again.
        """
        if not self.is_attached or not self.is_current:
            return
        if self._pen.behind():
            if self._owed is None:
                self._owed = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
            return
        # The screen has no size before its first layout; the terminal has.
        width, height = self.size if self.size.width else self.app.size
        parts = self._dashboard.rows(self._snapshot, self._view, width, height)
        moved = self._place(parts)
        for name, view in self._views.items():
            view.show(getattr(parts, name), width, moved=moved)
        self._pen.flush()

    def _catch_up(self) -> None:
        self._owed = None
        self.draw()

    def _place(self, parts: Parts) -> bool:
        """Give each part its height; a layout pass only when one changes. Returns whether."""
        heights = tuple(len(getattr(parts, name)) for name in _PARTS)
        if heights == self._heights:
            return False
        self._heights = heights
        for name, view in self._views.items():
            height = len(getattr(parts, name))
            view.display = height > 0
            view.styles.height = height
        return True

    # -- keys ------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        index = self._dashboard.index_of(self._view.cursor)
        # The first press only shows where the cursor is.
        self._move_to(self._view.top if index is None else index + step)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what the table shows."""
        self.action_move(pages * max(1, self._dashboard.room))

    def action_edge(self, edge: int) -> None:
        """Move the cursor to the first or last process."""
        self._move_to(0 if edge < 0 else len(self._dashboard.processes) - 1)

    def action_cards(self, step: int) -> None:
        """Scroll the cards."""
        self._view.cards_top += step
        self.draw()

    def action_release(self) -> None:
        """Leave no process selected."""
        self._view.cursor = None
        self._view.top = 0
        self.draw()

    def _move_to(self, index: int) -> None:
        processes = self._dashboard.processes
        if not processes:
            return
        self._view.cursor = processes[max(0, min(index, len(processes) - 1))].id
        self._view.following = True
        self.draw()

    def action_sort(self, column: str) -> None:
        """Sort by a column; by the same once more: reverse."""
        before = self._view.sort
        descending = not before.descending if column == before.column else _column(column).descends
        self._view.sort = Sort(column, descending)
        self._view.following = True
        order = "descending" if descending else "ascending"
        self.say(f"sorted by {_column(column).label}, {order}")

    def action_sort_step(self, step: int) -> None:
        """Sort by the next column on screen."""
        keys = [column.key for column in visible_columns(self.size.width)]
        column = self._view.sort.column
        at = keys.index(column) if column in keys else -1
        self.action_sort(keys[(at + step) % len(keys)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.action_sort(self._view.sort.column)

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest. Sampling goes on all the while."""
        self._view.paused = not self._view.paused
        if not self._view.paused:
            self._snapshot = self._history.latest
        self.say("the picture is held; p goes on" if self._view.paused else "")

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval."""
        now = self._collector.interval
        longer = [value for value in INTERVALS if value > now + 1e-9]
        shorter = [value for value in INTERVALS if value < now - 1e-9]
        if step > 0 and longer:
            self._collector.interval = longer[0]
        elif step < 0 and shorter:
            self._collector.interval = shorter[-1]
        self._view.interval = self._collector.interval
        self.say(f"a sample every {interval_text(self._view.interval)}")

    def action_own_cost(self) -> None:
        """Show or hide gpumon's own cost in the header."""
        self._view.show_cost = not self._view.show_cost
        self.draw()

    def say(self, message: str) -> None:
        """Put a message in the footer's place for a moment."""
        self._view.message = message
        self.draw()
        if self._unsaying is not None:
            self._unsaying.stop()
        self._unsaying = self.set_timer(_MESSAGE_SECONDS, self._unsay) if message else None

    def _unsay(self) -> None:
        self._view.message = ""
        self.draw()

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """The heading sorts, a row takes the cursor."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is not self._views["processes"]:
            return
        line = event.screen_y - view.region.y
        if line == 0:
            self.action_sort(column_at(visible_columns(self.size.width), event.screen_x).key)
        elif self._view.top + line - 1 < len(self._dashboard.processes):
            self._move_to(self._view.top + line - 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, -_WHEEL_ROWS)

    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is self._views["cards"]:
            self.action_cards(rows)
            return
        self._view.top += rows
        self._view.following = False
        self.draw()


def _column(key: str) -> Column:
    return next(column for column in COLUMNS if column.key == key)
