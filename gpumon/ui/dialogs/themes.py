"""The theme dialog: the screen beneath shows the highlighted theme at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gpumon.text.formatting import printable
from gpumon.ui.dialogs.list_dialog import ListDialog
from gpumon.ui.keys import bindings_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.ui.theme_controller import ThemeController


class ThemesDialog(ListDialog["str | None"]):
    """A list of all themes: the user's own, gpumon's, Textual's.

    Args:
        themes: Applies the themes.
        current: The current theme, which Escape restores.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("themes")

    CSS_PATH = "themes.tcss"

    def __init__(self, themes: ThemeController, current: str) -> None:
        super().__init__()
        self._themes = themes
        self._current = current
        self._faulty = False

    def compose(self) -> ComposeResult:
        """Compose the list, the description of a theme, and the keys."""
        with Vertical(id="themes"):
            yield OptionList(id="names")
            yield Static(id="fault")
            yield Static("↑↓ look   Enter keep   Esc as before", id="keys")

    def on_mount(self) -> None:
        """Highlight the current theme."""
        if not self.query("#fault"):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        names, library = self._themes.library.names(), self._themes.library
        own, shipped = set(library.own()), set(library.shipped())
        listed = self.query_one(OptionList)
        for name in names:
            whose = "yours" if name in own else "" if name in shipped else "Textual"
            listed.add_option(Option(Text(f"{printable(name):<22}{whose}"), id=name))
        if self._current in names:
            listed.highlighted = names.index(self._current)
        listed.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the highlighted theme, or what is wrong with it."""
        fault = self._themes.use(event.option_id or "")
        self._faulty = fault is not None
        self.query_one("#fault", Static).update(fault or "")

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        """A click on a theme keeps it."""
        self.action_keep()

    def action_keep(self) -> None:
        """Keep the shown theme; a theme that cannot be shown cannot be kept."""
        highlighted = self.query_one(OptionList).highlighted_option
        if highlighted is not None and not self._faulty:
            self.dismiss(highlighted.id)

    def action_cancel(self) -> None:
        """Restore the previous theme."""
        self._themes.use(self._current)
        self.dismiss(None)
