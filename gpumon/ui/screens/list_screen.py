"""The base of the dashboard and of the screen of a fleet: a list, its filter line, and messages."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from msgspec.structs import replace

from gpumon.ui.screens.inputs import FilterBar
from gpumon.ui.screens.painted import MESSAGE_SECONDS, PaintedScreen
from gpumon.ui.view import list_view
from gpumon.ui.view.list_view import ViewT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from textual import events
    from textual.app import ComposeResult
    from textual.timer import Timer

    from gpumon.filters.language import Language, Selection
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.list_view import ListLayout

_P = ParamSpec("_P")
LayoutT = TypeVar("LayoutT", bound="ListLayout[Any, Any]")

_READING_SECONDS = 10.0
_CATCH_UP_SECONDS = 0.1
_BENEATH_SECONDS = 0.5
"""Seconds between two frames under a dialog: Textual draws these, which is slower."""
_BEHIND_SECONDS = 1.0
"""Seconds between two updates of the table while the terminal accepts no output."""


def updating(
    change: Callable[Concatenate[ViewT, LayoutT, _P], ViewT | tuple[ViewT, str]],
) -> Callable[Concatenate[ListScreen[ViewT, LayoutT], _P], None]:
    """Make an action from a function that returns the next view; it shows that view."""

    def action(self: ListScreen[ViewT, LayoutT], /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        self._show(change(self._view, self._layout, *args, **kwargs))

    return action


class ListScreen(PaintedScreen, Generic[ViewT, LayoutT]):
    """A screen whose keys give the next view, with a filter line above the footer.

    The message of the initial view is shown longer than others.
    """

    AUTO_FOCUS = ""
    parts: ClassVar[tuple[str, ...]]
    """The parts from top to bottom."""
    list_part: ClassVar[str]
    """The part with the heading and the lines of the list."""

    def __init__(self, renderer: TerminalRenderer, view: ViewT, layout: LayoutT) -> None:
        super().__init__(renderer)
        self._view = view
        self._layout = layout
        self._heights: tuple[int, ...] = ()
        self._bar = FilterBar()
        self._drawn_beneath = 0.0
        self._listed_behind = 0.0
        self._catch_up_timer: Timer | None = None
        self._key_pending = False

    def compose(self) -> ComposeResult:
        """Compose the parts from top to bottom."""
        self._make_views(self.parts)
        for name, view in self._views.items():
            if name == "footer":
                yield self._bar
            yield view

    def on_mount(self) -> None:
        """Draw before the first layout."""
        self.say(self._view.message, lasting=True)

    def on_screen_resume(self) -> None:
        """Draw at once, also beneath a dialog. Textual also calls the handler of the base."""
        self._drawn_beneath = 0.0

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def _urgent(self) -> tuple[str, ...]:
        """The parts that show the effect of keys: first on a slow line."""
        return self.parts

    @abstractmethod
    def _draw_rows(self, view: ViewT, width: int, height: int) -> object:
        """The rows of the parts, by name; updates the view and the layout."""

    def draw(self) -> None:
        """Update all parts; unchanged cells are not sent.

        While the terminal has not accepted the previous output, the frame is dropped, and a later
        frame contains its changes.
        """
        if not self._is_seen():
            return
        # The first frame is always drawn, because Textual draws blank rows before it.
        behind = bool(self._heights) and self._renderer.behind()
        if behind and not self._is_due():
            return
        width, height = self._room
        view = replace(self._view, dialog_open=self.app.screen is not self)
        # The next key may refer to these rows, even if the terminal does not show them yet.
        rows = self._draw_rows(view, width, height)
        if behind:
            return
        moved, ready = self._place(rows), self._renderer.ready(self.screen)
        for name in dict.fromkeys((*self._urgent, *self.parts)):
            self._views[name].show(getattr(rows, name), width, moved=moved, ready=ready)
        self._renderer.flush()
        self._message_drawn()

    def _place(self, rows: object) -> bool:
        """Set the heights of the parts; returns whether one has changed, which causes a layout."""
        heights = (*(len(getattr(rows, name)) for name in self.parts), int(self._view.editing))
        if heights == self._heights:
            return False
        self._heights = heights
        for view, height in zip(self._views.values(), heights, strict=False):
            view.display = height > 0
            view.styles.height = height
        return True

    def _is_seen(self) -> bool:
        """Whether this screen is on top, or lies beneath a dialog and may be drawn."""
        if not self.in_sight:
            return False
        if self.app.screen is self:
            return True
        now = time.monotonic()
        if now - self._drawn_beneath < _BENEATH_SECONDS:
            return False
        self._drawn_beneath = now
        return True

    def _is_due(self) -> bool:
        """Whether to update the table on a slow terminal: after a key, or once in a while."""
        if self._catch_up_timer is None:
            self._catch_up_timer = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
        self._key_pending |= self._renderer.interactive
        now = time.monotonic()
        if not self._renderer.interactive and now - self._listed_behind < _BEHIND_SECONDS:
            return False
        self._listed_behind = now
        return True

    def _catch_up(self) -> None:
        self._catch_up_timer = None
        with nullcontext() if self._key_pending else self._renderer.in_background():
            if self._renderer.behind():
                self._catch_up_timer = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
            else:
                self._key_pending = False
                self.draw()

    def _show(self, after: ViewT | tuple[ViewT, str]) -> None:
        """Draw the next view, and show its message if it has one."""
        if isinstance(after, tuple):
            self._view, message = after
            self.say(message)
        else:
            self._view = after
            self.draw()

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Show a message in place of the footer, longer if it may contain a path."""
        self._view = replace(self._view, message=message)
        seconds = _READING_SECONDS if lasting else MESSAGE_SECONDS
        self._expire_after(seconds if message else None)
        self.draw()

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, lines: int) -> None:
        """Move the cursor by lines."""
        self._show(list_view.move(self._view, self._layout, lines))

    def action_page(self, pages: int) -> None:
        """Move the cursor by the height of the list."""
        self._show(list_view.page(self._view, self._layout, pages))

    def action_edge(self, end: int) -> None:
        """Move the cursor to the first or last line."""
        self._show(list_view.move_to_end(self._view, self._layout, end))

    def action_sort(self, column: str) -> None:
        """Sort by a column, or reverse the order."""
        self._show(list_view.sort(self._view, self._layout, column))

    def action_sort_step(self, step: int) -> None:
        """Sort by the next visible column, or by the one before."""
        self._show(list_view.sort_step(self._view, self._layout, step))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._show(list_view.reverse(self._view, self._layout))

    def action_open(self) -> None:
        """Open the line under the cursor; while a filter is typed, keep the filter."""
        if self._view.editing:
            self._keep_filter()
        else:
            self._open()

    @abstractmethod
    def _open(self) -> None:
        """Open what is under the cursor."""

    def action_release(self) -> None:
        """Clear the filter that is typed, or the most recent choice."""
        if self._view.editing:
            self._close_bar()
            self._show(self._unfiltered())
        else:
            self._clear_choice()

    @abstractmethod
    def _clear_choice(self) -> None:
        """Clear the most recent choice."""

    # -- mouse -----------------------------------------------------------------------------------

    def _click(self, part: str, x: int, y: int, *, again: bool) -> None:
        """Sort by a clicked heading, select a clicked line; a double click opens it."""
        if part != self.list_part:
            return
        if y == 0:
            if (column := self._layout.column_at(x)) is not None:
                self.action_sort(column.key)
        elif (index := self._layout.line_at(x, y - 1)) is None:
            return
        elif again:
            # The first click has moved the cursor, and with it perhaps the row.
            self.action_open()
        else:
            self._show(list_view.move_to(self._view, self._layout, index))

    @property
    def message(self) -> str:
        """See ``PaintedScreen.message``."""
        return self._view.message

    def _scroll(self, _: events.MouseEvent, rows: int) -> None:
        self._show(self._view.scrolled(rows))

    # -- the filter line -------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Open the filter line."""
        if not self._view.editing:
            self._view = replace(self._view, editing=True)
            self._bar.open(*self._filter)
            self.draw()

    @property
    @abstractmethod
    def _filter(self) -> tuple[str, Language[Any, Any]]:
        """The text of the filter, and its language."""

    @abstractmethod
    def _narrowed(self, chosen: Selection[Any, Any]) -> ViewT:
        """The view with another filter."""

    @abstractmethod
    def _unfiltered(self) -> ViewT:
        """The view without a filter."""

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Apply the typed filter; after an error the last valid filter stays."""
        if self._view.editing:
            view = self._view if event.filter is None else self._narrowed(event.filter)
            self._show(replace(view, message=event.wrong))

    def accept_key(self, event: events.Key) -> bool:
        """Handle a letter of the filter."""
        if self._view.editing and event.is_printable and event.character:
            self._bar.insert(event.character)
            return True
        return False

    def accept_text(self, text: str) -> bool:
        """Insert a pasted line into the filter line; False if that is not open."""
        if self._view.editing:
            self._bar.paste(text)
        return self._view.editing

    def _keep_filter(self) -> None:
        """Close the filter line, and move the cursor to a visible line; stay after an error."""
        read = self._bar.read()
        self.on_filter_bar_changed(read)
        if not read.wrong:
            self._close_bar()
            if self._view.in_list and self._layout.entry is None:
                self._view = list_view.move_to(self._view, self._layout, self._view.top)
            self.draw()

    def _close_bar(self) -> None:
        self._bar.close()
        self._view = replace(self._view, editing=False, message="")
