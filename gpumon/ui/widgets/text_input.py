"""Text inputs of bounded length; one of them handles keys in the order of typing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

if TYPE_CHECKING:
    from textual import events


MOST_CHARACTERS = 1000
"""Maximum length: more than anybody types, and fast enough to draw for each key."""


class BoundedInput(Input):
    """An input of at most ``MOST_CHARACTERS``.

    Textual measures and draws the whole text for every key. Some terminals send a paste as keys, so
    without a limit its time would grow with the square of its length.
    """

    def replace(self, text: str, start: int, end: int) -> None:
        """See Textual's; text beyond the limit is dropped."""
        room = MOST_CHARACTERS - len(self.value) + abs(end - start)
        fitting = text[: max(0, room)]
        if fitting or start != end:
            super().replace(fitting, start, end)


class TextInput(BoundedInput):
    """An input that handles its keys in the order of typing.

    Textual handles letters at once, and other keys later through bindings. Over a slow line many
    keys are read together, and letters would then overtake a Backspace before them.
    """

    async def on_key(self, event: events.Key) -> None:
        """Run this widget's binding of the key at once; other keys are handled as usual."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)
            return
