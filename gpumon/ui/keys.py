"""The keymap as Textual wants it, and keys that are pressed with the mouse."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.binding import Binding

from gpumon.config.keymap import KEYMAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.binding import BindingType
    from textual.screen import Screen

    from gpumon.config.keymap import Place


def bindings_of(place: Place) -> list[BindingType]:
    """The keys that work in a place, each known by the name of its action."""
    return [
        Binding(
            _textual(one.keys),
            one.action,
            one.on[place],
            id=one.name or None,
            priority=one.priority,
        )
        for one in KEYMAP
        if place in one.on
    ]


def textual_keymap(changed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Textual's keymap for changed keys, by the names of their actions."""
    return {name: _textual(keys) for name, keys in changed.items()}


def _textual(keys: Iterable[str]) -> str:
    return ",".join("comma" if key == "," else key for key in keys)


def press(screen: Screen[None], name: str | None) -> None:
    """Do what the key of an action does on a screen, if anything.

    Args:
        screen: Where it is pressed.
        name: The action's name in the keymap.
    """
    for active in screen.active_bindings.values():
        if name is not None and active.binding.id == name:
            # Not within the click that asks for it: a dialog would wait for that click to end.
            screen.call_later(partial(screen.app.run_action, active.binding.action, active.node))
            return
