"""The keys of actions as the screen shows them, with the user's changes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.keymap import KEYMAP, NAMED, display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import KeyAction, KeyScope

_METHODS_BEYOND_LOOKING = frozenset(action.method for action in KEYMAP if action.beyond_looking)


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
    visitor = False


def use_keys(changed: Mapping[str, Sequence[str]], *, visitor: bool = False) -> None:
    """Set the keys of actions by their id; other actions get their default keys.

    Args:
        changed: The keys by the id of their action.
        visitor: Whether the user only looks on, in a browser.
    """
    _Current.changed, _Current.visitor = changed, visitor
    keycap.cache_clear()


def is_refused(name: str) -> bool:
    """Whether an action is refused because the user only looks on."""
    return _Current.visitor and name in NAMED and NAMED[name].beyond_looking


def is_method_refused(method: str) -> bool:
    """The same for the method of an action."""
    return _Current.visitor and method in _METHODS_BEYOND_LOOKING


def keys_of(name: str) -> Sequence[str]:
    """The current keys of an action."""
    return _Current.changed.get(name) or NAMED[name].keys


def explained(*places: KeyScope) -> list[tuple[KeyAction, str]]:
    """The actions in these places, with their descriptions."""
    return [
        (action, action.on[place])
        for action in KEYMAP
        for place in places
        if action.on.get(place) and not is_refused(action.name)
    ]


@cache
def keycap(*names: str) -> str:
    """The first key of each action: ``k``, ``[ ]``, ``Shift+↑↓``."""
    keys = [display(keys_of(name)[:1]) for name in names]
    if len({key[:-1] for key in keys}) == 1 and all(key[-1] in "↑↓←→" for key in keys):
        return keys[0][:-1] + "".join(key[-1] for key in keys)
    return " ".join(keys)
