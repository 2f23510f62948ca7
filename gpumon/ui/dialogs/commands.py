"""The command palette: Textual's, in our order, and made safe against being closed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.command import CommandPalette, DiscoveryHit
from textual.system_commands import SystemCommandsProvider
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.command import Hits
    from textual.events import Mount

_MOST_CHARACTERS = 100
"""Textual compares the whole text with all commands for every key; a description is shorter."""


class KeyCommands(SystemCommandsProvider):
    """The application's commands in its own order, where Textual has that of the alphabet."""

    async def discover(self) -> Hits:
        """All commands, before anything is typed."""
        for name, about, callback, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(name, callback, help=about)


class CommandsDialog(CommandPalette):
    """Textual's palette; if two keys arrive together, one opens it and the next closes it."""

    def on_mount(self, event: Mount) -> None:
        """Search for commands, as Textual does here, unless the palette is closed already."""
        if self not in self.app.screen_stack:
            event.prevent_default()
        # There is none yet if keys that came together close it at once.
        for line in self.query(Input):
            line.max_length = _MOST_CHARACTERS
