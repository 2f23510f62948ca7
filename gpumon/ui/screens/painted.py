"""The base of the screens that consist of rows of cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.screen import Screen

from gpumon.ui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual import events
    from textual.geometry import Size
    from textual.timer import Timer

    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.help_page import HelpSection

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
        self.renew()

    def on_screen_resume(self) -> None:
        """Redraw: nothing was drawn while another screen was on top."""
        self.renew()

    def on_screen_suspend(self) -> None:
        """Redraw without the footer's keys, which do not work under a dialog."""
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Update all parts; unchanged cells are not sent."""

    def renew(self) -> None:
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

    def take_key(self, event: events.Key) -> bool:  # noqa: ARG002 - most screens have no filter line
        """Handle a key that is no command now, such as a letter of the filter.

        Returns:
            False when it may be a command.
        """
        return False

    def take_text(self, text: str) -> bool:  # noqa: ARG002 - most screens have no filter line
        """Insert a pasted line into the filter line; False if that is not open."""
        return False

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        self._scroll(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        self._scroll(event, -_WHEEL_ROWS)

    @abstractmethod
    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        """Scroll what is under the pointer."""
