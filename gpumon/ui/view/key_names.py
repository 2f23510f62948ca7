"""The keys of actions as the screen shows them, with the user's changes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.keymap import KEYMAP, NAMED, display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.key_action import KeyAction, Place


class FooterKey(Struct, frozen=True):
    """Keys in a footer with their label.

    Attributes:
        names: The names of their actions in the keymap.
        label: The label.
        on: Whether they switch something on and off that is on now.
    """

    names: tuple[str, ...]
    label: str
    on: bool = False


@cache
def footer_key(*names: str, label: str = "", on: bool = False) -> FooterKey:
    """Keys for a footer; the default label is that of the keymap."""
    return FooterKey(names, label or NAMED[names[0]].label, on)


class _Current:
    """Global, because all screens of the program have the same user."""

    changed: Mapping[str, Sequence[str]] = {}


def use_keys(changed: Mapping[str, Sequence[str]]) -> None:
    """Set the keys of actions by their id; other actions get their default keys."""
    _Current.changed = changed
    keycap.cache_clear()


def keys_of(name: str) -> Sequence[str]:
    """The current keys of an action."""
    return _Current.changed.get(name) or NAMED[name].keys


def explained(*places: Place) -> list[tuple[KeyAction, str]]:
    """The actions in these places, with their descriptions."""
    return [(one, one.on[place]) for one in KEYMAP for place in places if one.on.get(place)]


@cache
def keycap(*names: str) -> str:
    """The first key of each action: ``k``, ``[ ]``, ``Shift+↑↓``."""
    shown = [display(keys_of(name)[:1]) for name in names]
    if len({one[:-1] for one in shown}) == 1 and all(one[-1] in "↑↓←→" for one in shown):
        return shown[0][:-1] + "".join(one[-1] for one in shown)
    return " ".join(shown)
