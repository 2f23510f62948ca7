"""Lines to type into: of bounded length, and one that takes keys in the order of typing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

if TYPE_CHECKING:
    from textual import events


MOST_CHARACTERS = 1000
"""What a line holds: far more than anybody types, and little enough to be drawn for each key."""


class BoundedInput(Input):
    """An input that takes no more characters than ``MOST_CHARACTERS``.

    Textual measures and draws all of the text for every key: without a bound, the time for a text
    that comes as keys, as a paste does on some terminals, grows with the square of its length.
    """

    def replace(self, text: str, start: int, end: int) -> None:
        """See Textual's; what there is no room for is left out."""
        room = MOST_CHARACTERS - len(self.value) + abs(end - start)
        fitting = text[: max(0, room)]
        if fitting or start != end:
            super().replace(fitting, start, end)


class Line(BoundedInput):
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
