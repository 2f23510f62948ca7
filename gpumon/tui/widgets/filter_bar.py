"""The line in which a filter is typed; what is wrong in it is underlined while it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.highlighter import Highlighter
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label

from gpumon.filters import Filter, FilterError, parse_filter
from gpumon.tui.widgets.line import MOST_CHARACTERS, BoundedInput

if TYPE_CHECKING:
    from rich.text import Text
    from textual import events
    from textual.app import ComposeResult


class _Underline(Highlighter):
    """Underlines one part of the text."""

    def __init__(self) -> None:
        self.part: tuple[int, int] | None = None

    def highlight(self, text: Text) -> None:
        """Mark the part; of an error at the end of the text there is nothing to mark."""
        if self.part is not None:
            text.stylize("underline bold red", *self.part)


class _Line(BoundedInput):
    """Leaves every key to the application.

    Textual gives letters to whatever had the focus when they were read, and works off all other
    keys later. Over a slow line many keys are read at once, and each must find what those before it
    have left: the line open, or closed.
    """

    def on_key(self, event: events.Key) -> None:
        """Nothing here: ``FilterBar.insert`` takes letters in their turn."""
        event.prevent_default()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Enter is the screen's."""
        return action != "submit"


class FilterBar(Horizontal):
    """``/`` and the text after it. Every change is told at once, so that it filters as it is typed.

    It is there all the time, and hidden until it is wanted: to make it first would take so long
    that the first letters were taken for commands.
    """

    DEFAULT_CSS = """
    FilterBar { height: 1; background: $panel; display: none; }
    FilterBar Label { width: 2; color: $accent; text-style: bold; padding: 0 0 0 1; }
    FilterBar Input, FilterBar Input:focus {
        width: 1fr; height: 1; border: none; padding: 0; background: $panel;
    }
    """

    class Changed(Message):
        """The text is another filter now.

        Attributes:
            filter: The filter; ``None`` while the text is none, and then the last good one stays.
            wrong: What is wrong with the text.
        """

        def __init__(self, filter: Filter | None, wrong: str) -> None:  # noqa: A002 - the field's own word
            super().__init__()
            self.filter = filter
            self.wrong = wrong

    def __init__(self) -> None:
        super().__init__()
        self._underline = _Underline()
        self._input = _Line(highlighter=self._underline, select_on_focus=False)
        self._input.cursor_blink = False

    def compose(self) -> ComposeResult:
        """The sign and the line."""
        yield Label("/")
        yield self._input

    def open(self, text: str) -> None:
        """Show the line; what is typed from now on goes there.

        Args:
            text: What to begin with.
        """
        self.display = True
        with self._input.prevent(Input.Changed):
            self._input.value = text
        self._input.cursor_position = len(text)
        self._underline.part = None
        self.screen.set_focus(self._input)

    def close(self) -> None:
        """Hide the line; keys are commands again."""
        self.screen.set_focus(None)
        self.display = False

    def insert(self, letter: str) -> None:
        """A letter was typed."""
        line = self._input
        if line.selection.is_empty:
            line.insert_text_at_cursor(letter)
        else:
            line.replace(letter, *line.selection)

    def read(self) -> Changed:
        """What the text is, as it stands."""
        self._underline.part = None
        if len(self._input.value) >= MOST_CHARACTERS:
            return self.Changed(None, f"a filter has fewer than {MOST_CHARACTERS} characters")
        try:
            return self.Changed(parse_filter(self._input.value), "")
        except FilterError as error:
            self._underline.part = (error.start, max(error.end, error.start + 1))
            self._input.refresh()
            return self.Changed(None, error.sentence)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Read the text anew."""
        event.stop()
        self.post_message(self.read())
