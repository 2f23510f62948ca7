"""The command palette: Textual's, made safe against being closed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.command import CommandPalette

if TYPE_CHECKING:
    from textual.events import Mount


class CommandsDialog(CommandPalette):
    """Textual's palette; if two keys arrive together, one opens it and the next closes it."""

    def on_mount(self, event: Mount) -> None:
        """Search for commands, as Textual does here, unless the palette is closed already."""
        if self not in self.app.screen_stack:
            event.prevent_default()
