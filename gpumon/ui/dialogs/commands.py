"""The list of all commands: Textual's palette, which may be closed before it has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.command import CommandPalette

if TYPE_CHECKING:
    from textual.events import Mount


class CommandsDialog(CommandPalette):
    """Textual's palette; of keys that come together, one opens it and the next closes it."""

    def on_mount(self, event: Mount) -> None:
        """Look for commands, as Textual does here, unless nobody sees the palette any more."""
        if self not in self.app.screen_stack:
            event.prevent_default()
