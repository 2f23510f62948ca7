"""The base of the screens that consist of rows of cells, and the widget that shows rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from gpumon.text.cells import fill
from gpumon.text.formatting import spelled_out
from gpumon.ui.keys import click_key
from gpumon.ui.terminal.cell_writer import CellWriter, RowPainter
from gpumon.ui.terminal.widget_output import rich_style
from gpumon.ui.view.header_footer import key_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from textual import events
    from textual.geometry import Size
    from textual.timer import Timer

    from gpumon.text.cells import Row
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.terminal.styles import SgrStyles
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.view.key_names import FooterKey


MESSAGE_SECONDS = 3.0
_WHEEL_ROWS = 3


class PaintedScreen(Screen[None]):
    """A screen of rows of cells with a line for messages."""

    CSS = """
    PaintedScreen { layout: vertical; overflow: hidden; background: $background; }
    """

    def __init__(self, renderer: TerminalRenderer) -> None:
        super().__init__()
        self._renderer = renderer
        self._views: dict[str, CellView] = {}
        self._message_timer: Timer | None = None
        self._message_seconds: float | None = None
        """How long a message that has not been drawn yet will stay."""

    @property
    def in_sight(self) -> bool:
        """Whether the screen is visible: on top, or under a dialog."""
        if not self.is_attached:
            return False
        # Textual also treats the screen right under a page as current.
        top = self.app.screen
        return top is self or (top.is_modal and self.is_current)

    @property
    def _room(self) -> Size:
        """The size in cells."""
        size = self.size
        # The screen has no size before its first layout; the terminal has.
        return size if size.width else self.app.size

    def _make_views(self, names: Iterable[str]) -> None:
        """Make the parts of the screen."""
        self._views = {name: CellView(self._renderer, id=name) for name in names}

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.rebuild()

    def on_screen_resume(self) -> None:
        """Redraw: nothing was drawn while another screen was on top."""
        self.rebuild()

    def on_screen_suspend(self) -> None:
        """Redraw without the footer's keys, which do not work under a dialog."""
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Update all parts; unchanged cells are not sent."""

    def rebuild(self) -> None:
        """Draw also what does not change with every key."""
        self.draw()

    def repaint(self) -> None:
        """Draw everything again, in the colours of now."""
        for view in self._views.values():
            view.repaint()

    def _expire_after(self, seconds: float | None) -> None:
        """Remove the message after these seconds on the screen; ``None`` leaves it."""
        if self._message_timer is not None:
            self._message_timer.stop()
            self._message_timer = None
        self._message_seconds = seconds

    def _message_drawn(self) -> None:
        """Start the time of a new message: on a slow line it may be drawn much later than set."""
        if self._message_seconds is not None:
            self._message_timer = self.set_timer(self._message_seconds, lambda: self.say(""))
            self._message_seconds = None

    @property
    def _message_stays(self) -> bool:
        """Whether the message stays until something removes it."""
        return self._message_timer is None and self._message_seconds is None

    @abstractmethod
    def say(self, message: str, *, lasting: bool = False) -> None:
        """Show a message for a few seconds, or longer."""

    def state_help(self) -> list[HelpSection]:
        """The sections of the help page that explain the state under the cursor, as it is shown."""
        return []

    def accept_key(self, event: events.Key) -> bool:  # noqa: ARG002 - most screens have no filter line
        """Handle a key that is no command now, such as a letter of the filter.

        Returns:
            False when it may be a command.
        """
        return False

    def accept_text(self, text: str) -> bool:  # noqa: ARG002 - most screens have no filter line
        """Insert a pasted line into the filter line; False if that is not open."""
        return False

    @property
    @abstractmethod
    def footer_keys(self) -> Sequence[FooterKey]:
        """The keys in the footer, most important first."""

    @property
    @abstractmethod
    def message(self) -> str:
        """What stands in their place; empty if nothing does."""

    def on_click(self, event: events.Click) -> None:
        """Run the action of a clicked key in the footer."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        x, y = event.screen_x, event.screen_y - view.region.y
        if view is not self._views["footer"]:
            self._click(view.id or "", x, y, again=event.chain == 2)
        elif not self.message:
            click_key(self, key_at(self.footer_keys, self.size.width, x))

    def _click(self, part: str, x: int, y: int, *, again: bool) -> None:
        """Handle a click on a cell of another part; ``again`` if it is the second of two."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        self._scroll(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        self._scroll(event, -_WHEEL_ROWS)

    @abstractmethod
    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        """Scroll what is under the pointer."""


class CellStrip(Strip):
    """A row in few bytes: Textual itself repeats the whole style for every segment."""

    __slots__ = ["_written"]

    def __init__(self, row: Row, width: int, styles: SgrStyles) -> None:
        segments = [
            Segment(spelled_out(text), rich_style(styles.by_name[style])) for text, style in row
        ]
        super().__init__(segments, width)
        writer = CellWriter(styles)
        writer.row(row)
        self._written = writer.take()

    def render(self, console: Console) -> str:  # noqa: ARG002 - Textual's signature
        """The row as terminal output."""
        return self._written


class CellView(Widget):
    """A widget whose content is rows of cells.

    ``show`` compares new rows with the old ones and sends the difference, without a layout.
    """

    DEFAULT_CSS = """
    CellView { width: 1fr; height: 1; }
    """

    def __init__(
        self,
        renderer: TerminalRenderer,
        *,
        id: str | None = None,  # noqa: A002 - Textual's own name
    ) -> None:
        super().__init__(id=id)
        self._renderer = renderer
        self.rows: Sequence[Row] = []
        """The current rows."""
        self._painter = RowPainter()
        self._strips: dict[int, tuple[Row, Strip]] = {}

    def repaint(self) -> None:
        """Draw everything again, in the colours of now."""
        self._strips.clear()
        self.refresh()

    def show(
        self,
        rows: Sequence[Row],
        width: int,
        *,
        moved: bool = False,
        ready: bool | None = None,
    ) -> None:
        """Show these rows from the widget's top.

        Args:
            rows: The rows.
            width: Their width in cells.
            moved: Whether a pending layout may move the widget.
            ready: The result of ``TerminalRenderer.ready``, if known.
        """
        self.rows = rows
        if not moved and rows == self._painter.painted:
            return
        self._send(width, moved=moved, ready=ready)

    def send_on(self) -> None:
        """Send changes that earlier frames had no room for."""
        if self.rows != self._painter.painted:
            self._send(self.region.width, moved=False, ready=None)

    def _send(self, width: int, *, moved: bool, ready: bool | None) -> None:
        rows, painter, region = self.rows, self._painter, self.region
        lines = len(painter.painted)
        # Before the layout the widget is not yet where these rows belong.
        in_place = lines == len(rows) == region.height and width == region.width
        if (
            in_place
            and not moved
            and (self._renderer.ready(self.screen) if ready is None else ready)
        ):
            full = self._renderer.full if self._renderer.limited else None
            painter.paint(rows, self._renderer.writer, region.x, region.y, full)
            return
        dirty = painter.expect(rows)
        if len(rows) < lines:
            self.refresh()
        elif dirty:
            self.refresh(*(Region(0, y, region.width, 1) for y in dirty))

    def render_line(self, y: int) -> Strip:
        """One row as Textual's strip, for complete repaints."""
        row = self.rows[y] if y < len(self.rows) else ()
        painted = self._painter.painted
        if y < len(painted) and painted[y] != row:
            # Textual may be painting part of a pending row: its state is unknown then.
            painted[y] = None
        known = self._strips.get(y)
        if known is not None and known[0] is row:
            return known[1]
        width = self.size.width
        strip = CellStrip(fill(row, width), width, self._renderer.styles)
        self._strips[y] = (row, strip)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of a region, without Textual's style cache: they contain their styles."""
        return [
            self.render_line(y).crop(crop.x, crop.right)
            for y in range(crop.y, crop.y + crop.height)
        ]

    def on_resize(self) -> None:
        """Discard the cached strips, which have the old width."""
        self._strips.clear()
