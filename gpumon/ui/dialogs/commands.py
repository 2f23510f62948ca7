"""The command palette: Textual's, in our order, and made safe against being closed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.command import CommandPalette, DiscoveryHit, Hit
from textual.system_commands import SystemCommandsProvider
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.command import Hits
    from textual.events import Mount

    from gpumon.ui.app import BaseApp

_WHOLE_WORDS = 1000.0
"""Words that were typed as they are count more than letters that occur somewhere in that order, and
of those commands the most used ones stand first."""
_MOST_CHARACTERS = 100
"""Textual compares the whole text with all commands for every key; a description is shorter."""


class KeyCommands(SystemCommandsProvider):
    """The application's commands in its own order, where Textual has that of the alphabet."""

    async def discover(self) -> Hits:
        """All commands, before anything is typed."""
        for name, about, callback, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(name, callback, help=about)

    async def search(self, query: str) -> Hits:
        """The commands whose description matches, or whose other words begin with those typed."""
        matcher = self.matcher(query)
        typed = query.casefold().split()
        app = cast("BaseApp", self.app)
        commands = app.key_commands(self.screen)
        for place, ((name, about, callback, _), further) in enumerate(commands):
            words = f"{name} {further}".casefold().split()
            if typed and all(any(word.startswith(part) for word in words) for part in typed):
                match = _WHOLE_WORDS - place
            else:
                match = matcher.match(name)
            if match > 0:
                yield Hit(match, matcher.highlight(name), callback, help=about)


class CommandsDialog(CommandPalette):
    """Textual's palette; if two keys arrive together, one opens it and the next closes it."""

    def on_mount(self, event: Mount) -> None:
        """Search for commands, as Textual does here, unless the palette is closed already."""
        if self not in self.app.screen_stack:
            event.prevent_default()
        # There is none yet if keys that came together close it at once.
        for line in self.query(Input):
            line.max_length = _MOST_CHARACTERS
