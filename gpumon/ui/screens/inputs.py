"""Text inputs of bounded length, the screens that have one, and the line for a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.highlighter import Highlighter
from textual.binding import Binding
from textual.containers import Horizontal, ScrollableContainer
from textual.message import Message
from textual.screen import Screen, ScreenResultType
from textual.widgets import Input, Label

from gpumon.filters.language import FilterError, parse
from gpumon.filters.terms import PROCESSES

if TYPE_CHECKING:
    from typing import Any

    from rich.text import Text
    from textual import events
    from textual.app import ComposeResult

    from gpumon.filters.language import Language, Selection


MOST_CHARACTERS = 1000
"""Maximum length: more than anybody types, and fast enough to draw for each key."""

_SCROLLING = frozenset(
    binding.action for binding in ScrollableContainer.BINDINGS if isinstance(binding, Binding)
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

    def accept_text(self, text: str) -> bool:
        """Insert a text at the cursor; returns True, because there is an input."""
        if inputs := self.query(TextInput):
            inputs.first().insert_text_at_cursor(text)
        else:
            self._early += text
        return True

    def accept_key(self, event: events.Key) -> bool:
        """Insert a letter; False for other keys."""
        if event.character is None or not event.is_printable:
            return False
        return self.accept_text(event.character)


class _Underline(Highlighter):
    """Underlines one part of the text."""

    def __init__(self) -> None:
        self.part: tuple[int, int] | None = None

    def highlight(self, text: Text) -> None:
        """Underline the part; an error at the end of the text has none."""
        if self.part is not None:
            text.stylize("underline bold red", *self.part)


class _Line(BoundedInput):
    """An input that leaves every key to the application.

    Textual passes letters to the widget that had the focus when they were read, and handles other
    keys later. Over a slow line many keys are read together, and each must find the state that the
    previous ones left: the line open or closed.
    """

    def on_key(self, event: events.Key) -> None:
        """Ignore the key: ``FilterBar.insert`` gets letters in their order."""
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        """Leave it to the application too: ``FilterBar.paste`` gets it after the keys before it."""
        event.prevent_default()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Enter to the screen."""
        return action != "submit" and super().check_action(action, parameters)


class FilterBar(Horizontal):
    """The filter line: ``/`` and the text. It announces every change.

    It always exists and is only hidden: creating it takes so long that the first letters would be
    taken for commands.
    """

    DEFAULT_CSS = """
    FilterBar { height: 1; background: $panel; display: none; }
    FilterBar Label { width: 2; color: $accent; text-style: bold; padding: 0 0 0 1; }
    FilterBar Input, FilterBar Input:focus {
        width: 1fr; height: 1; border: none; padding: 0; background: $panel;
    }
    """

    class Changed(Message):
        """The text has changed.

        Attributes:
            filter: The filter; ``None`` if the text is invalid.
            wrong: The error in the text; empty if it is valid.
        """

        def __init__(self, filter: Selection[Any, Any] | None, wrong: str) -> None:  # noqa: A002 - the field's own word
            super().__init__()
            self.filter = filter
            self.wrong = wrong

    def __init__(self) -> None:
        super().__init__()
        self._language: Language[Any, Any] = PROCESSES
        self._underline = _Underline()
        self._input = _Line(highlighter=self._underline, select_on_focus=False)
        self._input.cursor_blink = False

    def compose(self) -> ComposeResult:
        """Compose the sign and the input."""
        yield Label("/")
        yield self._input

    def open(self, text: str, language: Language[Any, Any] = PROCESSES) -> None:
        """Show and focus the line.

        Args:
            text: The initial text.
            language: The language of the filter.
        """
        self._language = language
        self.display = True
        with self._input.prevent(Input.Changed):
            self._input.value = text
        self._input.cursor_position = len(text)
        self._underline.part = None
        self.screen.set_focus(self._input)

    def close(self) -> None:
        """Hide the line, so that keys are commands again."""
        self.screen.set_focus(None)
        self.display = False

    def insert(self, letter: str) -> None:
        """Insert a typed letter."""
        line = self._input
        if line.selection.is_empty:
            line.insert_text_at_cursor(letter)
        else:
            line.replace(letter, *line.selection)

    def paste(self, text: str) -> None:
        """Insert a text with the effect of typing it.

        If the whole is no valid filter, the last valid one on the way there applies.
        """
        before = self._input.value
        with self._input.prevent(Input.Changed):
            self.insert(text)
        after, end = self._input.value, self._input.cursor_position
        start = end - max(0, len(after) - len(before))
        for at in range(end, start, -1):
            read = self.read(after[:at] + after[end:])
            if not read.wrong:
                self.post_message(read)
                break
        self.post_message(self.read())

    def read(self, value: str | None = None) -> Changed:
        """Parse a text, by default the current one."""
        value = self._input.value if value is None else value
        self._underline.part = None
        if len(value) >= MOST_CHARACTERS:
            return self.Changed(None, f"a filter has fewer than {MOST_CHARACTERS} characters")
        try:
            return self.Changed(parse(value, self._language), "")
        except FilterError as error:
            self._underline.part = (error.start, max(error.end, error.start + 1))
            self._input.refresh()
            return self.Changed(None, error.sentence)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Announce the new text: of letters that are read together, each one's."""
        event.stop()
        self.post_message(self.read(event.value))
