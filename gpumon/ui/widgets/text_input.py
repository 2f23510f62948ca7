"""A line to type into that takes its keys in the order in which they were typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

if TYPE_CHECKING:
    from textual import events


class TextInput(Input):
    """An input that does at once what a key means to it.

    Textual takes a letter at once, and hands every other key round to whoever may want it. Over a
    slow line many keys are read together, and letters then overtake a Backspace before them.
    """

    async def on_key(self, event: events.Key) -> None:
        """Do what the key is bound to here; any other goes its usual way."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)
            return
