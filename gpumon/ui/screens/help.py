"""The help page, made from the keymap and the tables of columns and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from gpumon import __version__
from gpumon.text.formatting import spelled_out
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.inputs import InputScreen, TextInput
from gpumon.ui.view.header_footer import own_cost_sentence
from gpumon.ui.view.help_page import find, help_rows, key_groups, other_sections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.config.keymap import KeyAction
    from gpumon.recording.history import History
    from gpumon.ui.view.help_page import HelpSection

_MARGIN = 5
"""Cells beside the text: the padding, and the scroll bar."""


class _Search(TextInput):
    """The line for a search. While it is empty, the keys that close the page close it."""

    async def on_key(self, event: events.Key) -> None:
        """Clear the search with Escape, and leave the page the keys that move in it."""
        if event.key == "escape" and self.value:
            self.value = ""
            event.stop()
            event.prevent_default()
        elif event.key in {"home", "end"} or _closes(event.key, self.value):
            # A letter would become text before the page sees the key.
            event.prevent_default()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Leave a key that closes the page to its binding, although it is a letter."""
        return not _closes(key, self.value) and super().check_consume_key(key, character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Home and End to the page."""
        return action not in {"home", "end"} and super().check_action(action, parameters)


_CLOSING = {"q", "question_mark"}


def _closes(key: str, typed: str) -> bool:
    """Whether a key closes the page: a letter does until something is typed."""
    return not typed and key in _CLOSING


class HelpScreen(InputScreen[None]):
    """Keys, signs, columns and metrics, and what gpumon itself costs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("help")

    # Textual would focus the search line only after the first frame: earlier letters would be lost.
    AUTO_FOCUS = ""
    CSS_PATH = "help.tcss"

    def __init__(
        self,
        keys: Iterable[tuple[KeyAction, str]],
        history: History | None,
        first: Iterable[HelpSection] = (),
        sections: Iterable[HelpSection] = (),
    ) -> None:
        """Make the page.

        Args:
            keys: The keys of the application and its main screen, with descriptions.
            history: The source of gpumon's own cost; ``None`` if that is not measured.
            first: Sections before the keys, about what it was opened from.
            sections: Further sections, after the keys.
        """
        super().__init__()
        self._sections = [*first, *key_groups(keys), *sections, *other_sections()]
        self._history = history

    def compose(self) -> ComposeResult:
        """Compose the search line, and one long page that scrolls."""
        yield Static(f"gpumon {__version__}    ↑↓ scroll   Esc back", classes="title")
        yield _Search(
            self._early,
            placeholder="type to search keys, signs and columns",
            select_on_focus=False,
        )
        with VerticalScroll(can_focus=False):
            yield Static(id="found")
            yield Static(self._cost(), id="cost")

    def accept_key(self, event: events.Key) -> bool:
        """Insert a letter, unless it closes the page."""
        return not _closes(event.key, self.typed) and super().accept_key(event)

    def on_mount(self) -> None:
        """Show all, and update the cost repeatedly."""
        if not self.query("#cost"):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        self.set_focus(self.query_one(_Search))
        self._show()
        self.set_interval(1.0, self._update_cost)

    def on_resize(self) -> None:
        """Show it in as many columns as have room now."""
        if self.query("#cost"):
            self._show()

    def on_screen_resume(self) -> None:
        """Show it in the colours of another theme."""
        self.on_resize()

    def on_input_changed(self) -> None:
        """Show what the search finds."""
        self._show()
        self.action_scroll("home")

    def _show(self) -> None:
        search = self.query_one(Input).value
        found = find(self._sections, search)
        styles = {"title": f"bold {self.app.theme_variables['primary']}", "strong": "bold"}
        text = Text()
        for row in help_rows(found, max(1, self.app.size.width - _MARGIN)):
            for part, style in row:
                text.append(spelled_out(part), styles.get(style, ""))
            text.append("\n")
        if not found:
            text.append("Nothing here has these words: Esc shows all.")
        self.query_one("#found", Static).update(text)

    def action_close(self) -> None:
        """Close the page."""
        self.dismiss()

    def action_scroll(self, where: str) -> None:
        """Scroll by a line, by a page, or to either end."""
        getattr(self.query_one(VerticalScroll), f"scroll_{where}")(animate=False)

    def _update_cost(self) -> None:
        cost, scroll = self.query_one("#cost", Static), self.query_one(VerticalScroll)
        # Only if visible: a new layout at the end of a scroll makes Textual drop its last frame.
        if scroll.scroll_y + scroll.size.height > cost.virtual_region.y:
            cost.update(self._cost())

    def _cost(self) -> str:
        if self._history is None:
            return ""
        latest = self._history.latest
        return own_cost_sentence(None if latest is None else latest.cost)
