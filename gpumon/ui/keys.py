"""Gives bindings the names by which the configuration knows them, and changed ones their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpumon.config.keymap import ACTIONS, display, footer_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.binding import Binding, BindingType

__all__ = ["footer_names", "keymap", "renamed", "with_names"]

_NAMES = {action.call: action.name for action in ACTIONS.values()}


def with_names(*bindings: Binding) -> list[BindingType]:
    """The bindings; those whose keys can be changed have the action's name as their id."""
    return [
        # What the terminal itself is used to do stays where it is.
        binding if binding.system else replace(binding, id=_NAMES.get(binding.action))
        for binding in bindings
    ]


def keymap(keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What Textual's keymap is for changed keys, by the names of their actions."""
    return {
        name: ",".join("comma" if key == "," else key for key in given)
        for name, given in keys.items()
    }


def renamed(binding: Binding, keys: Mapping[str, Sequence[str]]) -> Binding:
    """A binding as the help page shows it."""
    given = keys.get(binding.id or "")
    return binding if given is None else replace(binding, key_display=display(given))
