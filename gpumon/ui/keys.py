"""Converts the keymap to Textual's bindings, and runs key actions for clicks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.binding import Binding

from gpumon.config.keymap import KEYMAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.binding import BindingType
    from textual.screen import Screen

    from gpumon.config.keymap import KeyScope


def bindings_of(scope: KeyScope) -> list[BindingType]:
    """Textual's bindings for a screen, with the ids of the actions."""
    return [
        Binding(
            _textual(action.keys),
            action.action,
            action.on[scope],
            id=action.id,
            priority=action.priority,
        )
        for action in KEYMAP
        if scope in action.on
    ]


def textual_keymap(changed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Textual's keymap for keys other than the default ones, by the action's id."""
    return {id_: _textual(keys) for id_, keys in changed.items()}


def _textual(keys: Iterable[str]) -> str:
    return ",".join("comma" if key == "," else key for key in keys)


def click_key(screen: Screen[None], name: str | None) -> None:
    """Run a key's action for a click on its label; does nothing if the screen lacks the action.

    Args:
        screen: The screen.
        name: The action's name in the keymap.
    """
    for active in screen.active_bindings.values():
        if name is not None and active.binding.id == name:
            # Not inside the click handler: a dialog would wait for that handler to return.
            screen.call_later(partial(screen.app.run_action, active.binding.action, active.node))
            return
