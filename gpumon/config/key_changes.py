"""Configured keys: how they are written, and which action gets which key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.config.keymap import ACTIONS, KeyAction, fixed_keys
from gpumon.config.table import InvalidValue, meant, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMED = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert", "delete"),
    *("backspace", "tab", "space", "enter", "escape", *(f"f{number}" for number in range(1, 25))),
)
_WITH = re.compile(r"((?:ctrl|shift|alt)\+)+")


def read_keys(value: object) -> tuple[str, ...]:
    """The keys that the file has for an action.

    Raises:
        Wrong: They are not valid keys, or there are none.
    """
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys:
        raise InvalidValue('give a key such as "x", or several: ["x", "f5"]')
    return tuple(dict.fromkeys(map(_read_key, keys)))


def _read_key(key: object) -> str:
    if isinstance(key, str):
        if key == " ":
            return "space"
        if len(key) == 1 and key.isprintable():
            return key
        lower = key.lower()
        prefix = _WITH.match(lower)
        name = lower[prefix.end() :] if prefix else lower
        held = sorted(set(prefix[0].split("+")[:-1])) if prefix else []
        if held == ["shift"] and len(name) == 1 and name.isalpha():
            return name.upper()
        if name in _NAMED or (held and len(name) == 1 and name.isascii() and name.isalnum()):
            # Textual names modifiers in this order.
            return "+".join((*held, name))
    raise InvalidValue(
        f"{shown(key)} is no key{meant(key, _NAMED)}; give a letter or sign, or a name such as f5, "
        "delete, pageup, shift+up or ctrl+k"
    )


def settle(
    changes: Mapping[str, Sequence[str]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Decide which of the configured keys apply.

    An action that requests a fixed key, or a key of another action, keeps its default keys. If two
    actions request the same key, the first one in the file gets it.

    Args:
        changes: The requested keys by action name, in the order of the file.

    Returns:
        The keys of actions that have other than their usual ones, and what to say of the actions
        that do not get theirs.
    """
    granted = {name: tuple(keys) for name, keys in changes.items()}
    refused: dict[str, str] = {}
    while clash := _clash(granted):
        name, why = clash
        # Its default keys may now conflict with others, so they are checked again.
        del granted[name]
        refused[name] = why
    return granted, refused


def _clash(granted: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    fixed, on_pages = fixed_keys("app", "dashboard"), fixed_keys("page")
    taken = {
        key: action
        for name, action in ACTIONS.items()
        if name not in granted
        for key in action.keys
    }
    for name, keys in granted.items():
        for key in keys:
            other = fixed.get(key)
            if other is None and works_on_pages(ACTIONS[name]):
                other = on_pages.get(key)
            other = other or taken.get(key)
            if other is not None:
                said = f'{key} is already the key for "{other.name}"'
                if not other.fixed:
                    said += f": give {other.name} another one, or {name}"
                return name, f"{said}; its usual keys stay"
        taken |= dict.fromkeys(keys, ACTIONS[name])
    return None


def works_on_pages(action: KeyAction) -> bool:
    """Whether pages have the action too, so that its keys must be free there."""
    # The default key of "quit" closes a page.
    return not action.on.keys().isdisjoint(("app", "card", "process")) and fixed_keys(
        "page"
    ).keys().isdisjoint(action.keys)
