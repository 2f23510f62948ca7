"""Text inputs of bounded length, and the screens that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.containers import ScrollableContainer
from textual.screen import Screen, ScreenResultType
from textual.widgets import Input

if TYPE_CHECKING:
    from textual import events


MOST_CHARACTERS = 1000
"""Maximum length: more than anybody types, and fast enough to draw for each key."""

_SCROLLING = frozenset(
    one.action for one in ScrollableContainer.BINDINGS if isinstance(one, Binding)
)


class BoundedInput(Input):
    """An input of at most ``MOST_CHARACTERS``.

    Textual measures and draws the whole text for every key. Some terminals send a paste as keys, so
    without a limit its time would grow with the square of its length.
    """

    def replace(self, text: str, start: int, end: int) -> None:
        """See Textual's; text beyond the limit is dropped, and control characters become blanks."""
        text = "".join(letter if letter.isprintable() else " " for letter in text)
        room = MOST_CHARACTERS - len(self.value) + abs(end - start)
        fitting = text[: max(0, room)]
        if fitting or start != end:
            super().replace(fitting, start, end)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Leave keys that scroll to the screen: Textual's input is a scroll view of one line."""
        return action not in _SCROLLING


class TextInput(BoundedInput):
    """An input that handles its keys in the order of typing.

    Textual handles letters at once, and other keys later through bindings. Over a slow line many
    keys are read together, and letters would then overtake a Backspace before them.
    """

    async def on_key(self, event: events.Key) -> None:
        """Run this widget's binding of the key at once; other keys are handled as usual."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class InputScreen(Screen[ScreenResultType]):
    """A screen with one input.

    What is read together with the key that opens the screen is handed to the screen that was shown
    until then, before this one has an input.
    """

    def __init__(self) -> None:
        super().__init__()
        self._early = ""

    @property
    def typed(self) -> str:
        """The text so far."""
        return self.query_one(TextInput).value if self.query(TextInput) else self._early

    def take_text(self, text: str) -> bool:
        """Insert a text at the cursor; returns True, because there is an input."""
        if inputs := self.query(TextInput):
            inputs.first().insert_text_at_cursor(text)
        else:
            self._early += text
        return True

    def take_key(self, event: events.Key) -> bool:
        """Insert a letter; False for other keys."""
        if event.character is None or not event.is_printable:
            return False
        return self.take_text(event.character)
