"""The help page, made from the keymap and the tables of columns and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from gpumon import __version__
from gpumon.text.formatting import spelled_out
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.inputs import InputScreen, TextInput
from gpumon.ui.view.header_footer import own_cost_sentence
from gpumon.ui.view.help_page import find, help_rows, key_groups, other_sections
from gpumon.ui.view.key_names import letters_on

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


_CLOSING = frozenset("q?")
_BEGIN = "/"
"""Begins a search where further letters than those that close the page are keys."""


class _Search(TextInput):
    """The line for a search. While it is empty, the keys of the page have their effect.

    Attributes:
        begun: Whether a search was begun: then every letter is text.
    """

    def __init__(self, value: str, **named: Any) -> None:
        super().__init__(value, **named)
        self.begun = False
        self._letters = letters_on("help")

    async def on_key(self, event: events.Key) -> None:
        """Clear the search with Escape, and leave the page the keys that move in it."""
        if event.key == "escape" and (self.value or self.begun):
            self.value = ""
            self.begun = False
            event.stop()
            event.prevent_default()
        elif event.key in {"home", "end"} or self.is_key(event.character):
            # A letter would become text before the page sees the key.
            event.prevent_default()
        elif event.character == _BEGIN and self.begins():
            self.begun = True
            event.stop()
            event.prevent_default()

    def is_key(self, character: str | None) -> bool:
        """Whether a letter is a key: those of the page are until something is typed."""
        return not (self.value or self.begun) and character in self._letters

    def begins(self) -> bool:
        """Whether the sign that begins a search would not be text."""
        return not (self.value or self.begun) and self._letters > _CLOSING

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Leave a key of the page to its binding, although it is a letter."""
        return not self.is_key(character) and super().check_consume_key(key, character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Home and End to the page."""
        return action not in {"home", "end"} and super().check_action(action, parameters)


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
        more = sorted(letters_on("help") - _CLOSING)
        keys = " ".join(["↑↓", *more])
        how = f"{_BEGIN} and words" if more else "type"
        yield Static(f"gpumon {__version__}    {keys} scroll   Esc back", classes="title")
        yield _Search(
            self._early,
            placeholder=f"{how} to search keys, signs and columns",
            select_on_focus=False,
        )
        with VerticalScroll(can_focus=False):
            yield Static(id="found")
            yield Static(self._cost(), id="cost")

    def accept_key(self, event: events.Key) -> bool:
        """Insert a letter, unless it is a key of the page."""
        searches = self.query(_Search)
        if not searches:
            # It was opened just now.
            is_key = not self.typed and event.character in letters_on("help")
        else:
            search = searches.first()
            is_key = search.is_key(event.character)
            is_key = is_key or (event.character == _BEGIN and search.begins())
        return not is_key and super().accept_key(event)

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
