"""The base of the screens that consist of rows of cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.message import Message
from textual.screen import Screen

from gpumon.ui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual import events
    from textual.timer import Timer

    from gpumon.findings.groups import JobGroup
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
    from gpumon.ui.palette import Palette
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.help_page import HelpSection


class TellRequested(Message):
    """The user wants to be told when a GPU is free, or a process or job has ended, or no longer.

    Attributes:
        subject: The GPU, process or job.
    """

    def __init__(self, subject: Gpu | GpuProcess | JobGroup) -> None:
        super().__init__()
        self.subject = subject


class PaintedScreen(Screen[None]):
    """A screen with colours of its own and a line for messages.

    Args:
        renderer: Writes changed cells.
        palette: The colours.
    """

    def __init__(self, renderer: TerminalRenderer, palette: Palette) -> None:
        super().__init__()
        self._renderer = renderer
        self._palette = palette
        self._views: dict[str, CellView] = {}
        self._message_timer: Timer | None = None

    def _make_views(self, names: Iterable[str]) -> None:
        """Make the parts of the screen."""
        self._views = {name: CellView(self._renderer, self._palette, id=name) for name in names}

    def repaint(self, palette: Palette) -> None:
        """Apply other colours."""
        self._palette = palette
        for view in self._views.values():
            view.repaint(palette)

    def _expire_after(self, seconds: float | None) -> None:
        """Remove the message after these seconds; ``None`` leaves it."""
        if self._message_timer is not None:
            self._message_timer.stop()
        self._message_timer = (
            None if seconds is None else self.set_timer(seconds, self._expire_message)
        )

    @abstractmethod
    def _expire_message(self) -> None:
        """Remove the message."""

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
