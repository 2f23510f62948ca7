"""The base of the screens that consist of rows of cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.message import Message
from textual.screen import Screen

if TYPE_CHECKING:
    from textual import events

    from gpumon.findings.groups import JobGroup
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
    from gpumon.ui.palette import Palette
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
