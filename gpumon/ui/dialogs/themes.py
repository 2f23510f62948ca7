"""Which theme: the screen beneath shows the one under the cursor at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gpumon.text.formatting import printable
from gpumon.ui.keys import bindings_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.ui.themes import ThemeController


class ThemesDialog(ModalScreen["str | None"]):
    """A list of all themes: a person's own, gpumon's, Textual's.

    Args:
        themes: What shows them.
        current: The one in force, which Escape brings back.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("themes")

    CSS_PATH = "themes.tcss"

    def __init__(self, themes: ThemeController, current: str) -> None:
        super().__init__()
        self._themes = themes
        self._current = current
        self._faulty = False

    def compose(self) -> ComposeResult:
        """The list, what there is to say of a theme, and the keys."""
        with Vertical(id="themes"):
            yield OptionList(id="names")
            yield Static(id="fault", markup=False)
            yield Static("↑↓ look   Enter keep   Esc as before", id="keys")

    def on_mount(self) -> None:
        """The theme in force is under the cursor."""
        if not self.query("#fault"):
            # Closed in the moment it was opened, it gets none.
            return
        names, shelf = self._themes.shelf.names(), self._themes.shelf
        own, shipped = set(shelf.own()), set(shelf.shipped())
        listed = self.query_one(OptionList)
        for name in names:
            whose = "yours" if name in own else "" if name in shipped else "Textual"
            listed.add_option(Option(Text(f"{printable(name):<22}{whose}"), id=name))
        if self._current in names:
            listed.highlighted = names.index(self._current)
        listed.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the theme under the cursor, or what is wrong with it."""
        fault = self._themes.use(event.option_id or "")
        self._faulty = fault is not None
        self.query_one("#fault", Static).update(fault or "")

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        """A click on a theme keeps it."""
        self.action_keep()

    def action_step(self, step: int) -> None:
        """Move as the dashboard's keys do."""
        listed = self.query_one(OptionList)
        listed.highlighted = min((listed.highlighted or 0) + step, listed.option_count - 1)

    def action_keep(self) -> None:
        """Keep the theme shown; one that cannot be shown cannot be kept."""
        highlighted = self.query_one(OptionList).highlighted_option
        if highlighted is not None and not self._faulty:
            self.dismiss(highlighted.id)

    def action_cancel(self) -> None:
        """Leave the theme as it was."""
        self._themes.use(self._current)
        self.dismiss(None)
