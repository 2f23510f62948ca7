"""The dialog for the columns of the process table and of the list of GPUs, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import OptionList, Static

from gpumon.config.columns import COLUMN, COLUMN_SETS, GPU_COLUMN, whole_choice
from gpumon.ui.dialogs.list_dialog import ListDialog
from gpumon.ui.keys import bindings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

_ALWAYS = frozenset({"pid", "command"})
"""Without PID and command it is not visible which process a key affects."""


class ColumnsDialog(ListDialog["tuple[str, ...] | None"]):
    """A list of all columns, the chosen ones first and in their order.

    Args:
        chosen: Keys of the columns shown now.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("columns")

    CSS_PATH = "columns.tcss"

    def __init__(self, chosen: Sequence[str]) -> None:
        super().__init__()
        self._chosen = set(chosen)
        self._order = _with_hidden(chosen)

    def compose(self) -> ComposeResult:
        """Compose the list and its keys."""
        with Vertical(id="columns"):
            yield OptionList(id="list")
            yield Static("Space show or hide  Shift+↑↓ move  d next set  Enter keep  Esc cancel")

    def on_mount(self) -> None:
        """Highlight the first column."""
        if not self.query(OptionList):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        self._fill(0)
        self.query_one(OptionList).focus()

    def _fill(self, at: int) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([self._line(key) for key in self._order])
        listed.highlighted = at

    def _line(self, key: str) -> Text:
        shown = key in self._chosen
        # No colours: they would have to be legible on the highlighted line's background, too.
        text = Text("● " if shown else "○ ")
        gpu = GPU_COLUMN.get(key)
        label = f"GPU {gpu.label}" if gpu is not None else COLUMN[key].label
        text.append(f"{label:<11}", "bold" if shown else "")
        text.append((gpu or COLUMN[key]).about)
        return text

    @property
    def _at(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    def on_option_list_option_selected(self) -> None:
        """A click has the effect of Space."""
        self.action_turn()

    def action_turn(self) -> None:
        """Show the column, or hide it."""
        key = self._order[self._at]
        if key not in _ALWAYS:
            self._chosen ^= {key}
        self._fill(self._at)

    def action_shift(self, step: int) -> None:
        """Move the column; the command stays last, because it takes the rest of its row."""
        at, to = self._at, self._at + step
        if "command" in (self._order[at], self._order[max(0, min(to, len(self._order) - 1))]):
            return
        if 0 <= to < len(self._order):
            self._order[at], self._order[to] = self._order[to], self._order[at]
            self._fill(to)

    def action_default(self) -> None:
        """Show the next named set: the default first, unless it is shown already."""
        sets = list(COLUMN_SETS.values())
        shown = tuple(key for key in self._order if key in self._chosen)
        columns = sets[(sets.index(shown) + 1) % len(sets) if shown in sets else 0]
        self._chosen = set(columns)
        self._order = _with_hidden(columns)
        self._fill(0)

    def action_keep(self) -> None:
        """Apply the choice."""
        self.dismiss(tuple(key for key in self._order if key in self._chosen))

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)


def _with_hidden(chosen: Sequence[str]) -> list[str]:
    """All columns: of each table the chosen ones in order, then the others."""
    return list(whole_choice([*chosen, *COLUMN, *GPU_COLUMN]))
