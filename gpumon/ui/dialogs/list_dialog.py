"""Moves the cursor of a dialog's list with the keys of the keymap."""

from __future__ import annotations

from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import OptionList


class ListDialog(ModalScreen[ScreenResultType]):
    """A dialog with one list."""

    def action_go(self, where: str) -> None:
        """Move the cursor: the list's own keys are the arrows only."""
        getattr(self.query_one(OptionList), f"action_{where}")()
