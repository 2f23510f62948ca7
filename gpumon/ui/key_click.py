"""Keys that are pressed with the mouse."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.keys import key_to_character

from gpumon.config.keymap import display

if TYPE_CHECKING:
    from textual.binding import Binding
    from textual.screen import Screen


def press(screen: Screen[None], key: str | None) -> None:
    """Do what a key does on a screen, if anything.

    Args:
        screen: Where it is pressed.
        key: As the footer and the help page call it.
    """
    for active in screen.active_bindings.values():
        binding = active.binding
        if key is not None and key in _names(binding):
            # Not within the click that asks for it: a dialog would wait for that click to end.
            screen.call_later(partial(screen.app.run_action, binding.action, active.node))
            return


def _names(binding: Binding) -> set[str]:
    """What the key of a binding is called; one that was changed has no display of its own."""
    named = display([key_to_character(binding.key) or binding.key])
    return {binding.key, named, *(binding.key_display or "").split()}
