"""The base of the screens that consist of rows of cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.screen import Screen

if TYPE_CHECKING:
    from textual import events

    from gpumon.ui.palette import Palette
    from gpumon.ui.view.help_page import HelpSection


class PaintedScreen(Screen[None]):
    """A screen with colours of its own and a line for messages."""

    @abstractmethod
    def repaint(self, palette: Palette) -> None:
        """Apply other colours."""

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
