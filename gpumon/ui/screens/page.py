"""A page over the dashboard: rows that scroll, kept fresh, and a way back."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.message import Message
from textual.screen import Screen

from gpumon.text.cells import fill
from gpumon.ui.keys import bindings_of, press
from gpumon.ui.view.header_footer import footer_row, key_at
from gpumon.ui.view.key_names import FooterKey, explained, footer_key
from gpumon.ui.view.pages import page_header
from gpumon.ui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer

    from gpumon.config.keymap import KeyAction, Place
    from gpumon.host import Target
    from gpumon.recording.history import History
    from gpumon.text.cells import Row
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.theme import Palette
    from gpumon.ui.viewed_time import ViewedTime

SCROLL = footer_key("scroll up", "scroll down", label="scroll")
REBUILD_SECONDS = 0.5
"""A page is made anew at most so often; it is read, not watched."""
_MESSAGE_SECONDS = 3.0
_WHEEL_ROWS = 3
_CHROME = 2
_NOTHING: tuple[object, object, object] = (None, None, None)


class EndRequested(Message):
    """Somebody wants processes ended; whoever handles it asks them to confirm.

    Attributes:
        targets: The processes as they were on screen.
    """

    def __init__(self, targets: tuple[Target, ...]) -> None:
        super().__init__()
        self.targets = targets


class PageScreen(Screen[None]):
    """A header, rows to scroll through, and the keys.

    Subclasses give the rows; what did not change of them sends nothing.
    """

    place: ClassVar[Place] = "page"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(place)

    # Textual looks for a bare name beside each subclass.
    CSS_PATH = Path(__file__).with_name("page.tcss")

    def __init__(self, stage: ViewedTime, pen: TerminalRenderer, palette: Palette) -> None:
        """Make the screen.

        Args:
            stage: Where all that is shown comes from.
            pen: Writes changed cells.
            palette: Colours.
        """
        super().__init__()
        self._stage = stage
        self._pen = pen
        self._palette = palette
        self._views: dict[str, CellView] = {}
        self._rows: list[Row] = []
        self._rows_width = 0
        self._drawn_from = _NOTHING
        self._top = 0
        self._message = ""
        self._unsaying: Timer | None = None

    # -- what subclasses say ---------------------------------------------------------------------

    @property
    @abstractmethod
    def heading(self) -> str:
        """What the page is of."""

    @property
    @abstractmethod
    def keys(self) -> Sequence[FooterKey]:
        """The footer's keys, most needed first."""

    @abstractmethod
    def follow(self) -> None:
        """Take what the page is of from the newest snapshot."""

    @abstractmethod
    def page(self, width: int) -> list[Row]:
        """All rows of the page."""

    def explained(self) -> list[tuple[KeyAction, str]]:
        """Its keys that do something now, and what."""
        return [
            (one, about)
            for one, about in explained(self.place, "page")
            if self.check_action(one.method, ())
        ]

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def _history(self) -> History:
        return self._stage.history

    @property
    def in_sight(self) -> bool:
        """Whether anything of the page can be seen: it is on top, or under a dialog."""
        # Textual also calls the screen current that lies under one without a hole.
        top = self.app.screen
        return self.is_attached and self.is_current and (top is self or top.is_modal)

    def compose(self) -> ComposeResult:
        """Header, body, footer."""
        self._views = {
            name: CellView(self._pen, self._palette, id=name)
            for name in ("header", "body", "footer")
        }
        yield from self._views.values()

    def on_mount(self) -> None:
        """Show it at once, then keep it fresh."""
        self.renew()
        self.set_interval(REBUILD_SECONDS, self._refresh_page)

    def on_resize(self) -> None:
        """Other rows for another width."""
        self.renew()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen lay on top."""
        self.renew()

    def on_screen_suspend(self) -> None:
        """The keys of the footer do not work under a dialog."""
        self.draw()

    def repaint(self, palette: Palette) -> None:
        """Take other colours."""
        self._palette = palette
        for view in self._views.values():
            view.repaint(palette)

    def _refresh_page(self) -> None:
        """Make the rows anew when there is something new, and nobody else is on top."""
        now = self._told()
        if any(one is not before for one, before in zip(now, self._drawn_from, strict=True)):
            self.renew()

    def _told(self) -> tuple[object, object, object]:
        """What the rows are made of: of the past, more may be known of the same moment later."""
        settled, history = self._stage.settled, self._history
        return history, history.latest, settled

    def renew(self) -> None:
        """Make the rows anew and show them."""
        if not self.in_sight:
            return
        self._drawn_from = self._told()
        # The screen has no size before its first layout; the terminal has.
        self._rows_width = (self.size if self.size.width else self.app.size).width
        self.follow()
        self._rows = self.page(self._rows_width)
        self.draw()

    def draw(self) -> None:
        """Show the part of the rows that is scrolled to."""
        if not self.in_sight:
            return
        if self._pen.behind():
            self._drawn_from = _NOTHING
            return
        width, height = self._rows_width, self.body_height
        self._top = max(0, min(self._top, len(self._rows) - height))
        shown = self._rows[self._top : self._top + height]
        blank = fill((), width)
        body = [*shown, *([blank] * (height - len(shown)))]
        source = "REWIND" if self._stage.is_past and self._stage.is_live else ""
        latest = self._history.latest
        header = page_header(self.heading, self._place(height), latest, width, source)
        self._views["header"].show([header], width)
        self._views["body"].show(body, width)
        # A dialog on top has keys of its own.
        keys = self.keys if self.app.screen is self else ()
        self._views["footer"].show([footer_row(keys, self._message, width)], width)
        self._pen.flush()

    @property
    def body_height(self) -> int:
        """Rows of the page that are in sight."""
        height = (self.size if self.size.height else self.app.size).height
        return max(0, height - _CHROME)

    def _place(self, height: int) -> str:
        """Which of the rows are in sight, where not all of them are."""
        count = len(self._rows)
        if count <= height:
            return ""
        return f"{self._top + 1}–{min(count, self._top + height)} of {count}"

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Put a message in the footer's place: for a moment, or until the next key."""
        self._message = message
        if self._unsaying is not None:
            self._unsaying.stop()
            self._unsaying = None
        if message and not lasting:
            self._unsaying = self.set_timer(_MESSAGE_SECONDS, self._unsay)
        self.draw()

    def _unsay(self) -> None:
        self.say("")

    def on_key(self) -> None:
        """A key ends a message that stays until then."""
        if self._message and self._unsaying is None:
            self._unsay()

    # -- keys and mouse --------------------------------------------------------------------------

    def action_close(self) -> None:
        """Back to where it was opened."""
        self.dismiss()

    def action_scroll_rows(self, rows: int) -> None:
        """Scroll by rows."""
        self._top += rows
        self.draw()

    def action_scroll_pages(self, pages: int) -> None:
        """Scroll by what is in sight, less a row to find one's place by."""
        self.action_scroll_rows(pages * max(1, self.body_height - 1))

    def action_scroll_edge(self, edge: int) -> None:
        """Scroll to the top or to the end."""
        self._top = 0 if edge < 0 else len(self._rows)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """A word of the footer does what its key does."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is self._views["footer"] and not self._message:
            press(self, key_at(self.keys, self.size.width, event.screen_x))

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        """Scroll down."""
        self.action_scroll_rows(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        """Scroll up."""
        self.action_scroll_rows(-_WHEEL_ROWS)
