"""Configured keys: how they are written, and which action gets which key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.config.keymap import ACTIONS, KEYMAP, fixed_keys
from gpumon.config.suggestions import did_you_mean
from gpumon.config.table import InvalidValue, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import KeyAction
    from gpumon.config.settings import Preset

_NAMED = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert", "delete"),
    *("backspace", "tab", "space", "enter", "escape", *(f"f{number}" for number in range(1, 25))),
)
_WITH = re.compile(r"((?:ctrl|shift|alt)\+)+")


def read_keys(value: object) -> tuple[str, ...]:
    """The keys that the file has for an action.

    Raises:
        InvalidValue: They are not valid keys, or there are none.
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
        f"{shown(key)} is no key{did_you_mean(key, _NAMED)}; give a letter or sign, or a name "
        "such as f5, delete, pageup, shift+up or ctrl+k"
    )


def settle(
    changes: Mapping[str, Sequence[str]], preset: Preset = "default"
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Decide which of the configured keys apply.

    An action that requests a fixed key, or a key of another action, keeps its usual keys. If two
    actions request the same key, the first one in the file gets it.

    Returns:
        The keys of each action with changed keys, and an error message for each action that keeps
        its usual keys.
    """
    granted = {name: tuple(keys) for name, keys in changes.items()}
    refused: dict[str, str] = {}
    while clash := _clash(granted, preset):
        name, why = clash
        # Its usual keys may now conflict with others, so they are checked again.
        del granted[name]
        refused[name] = why
    return granted, refused


def keys_in_force(
    preset: Preset, changed: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The keys of each action that has other keys than the default ones, by the action's id."""
    keys = [(action, changed.get(action.name, action.usual_keys(preset))) for action in KEYMAP]
    return {action.id: now for action, now in keys if now != action.keys}


def _clash(granted: Mapping[str, tuple[str, ...]], preset: Preset) -> tuple[str, str] | None:
    fixed = fixed_keys("app", "dashboard", preset=preset)
    on_pages = fixed_keys("page", preset=preset)
    taken = {
        key: action
        for name, action in ACTIONS.items()
        if name not in granted
        for key in action.usual_keys(preset)
    }
    for name, keys in granted.items():
        for key in keys:
            other = fixed.get(key)
            if other is None and works_on_pages(ACTIONS[name]):
                other = on_pages.get(key)
            other = other or taken.get(key)
            if other is not None:
                fault = f'{key} is already the key for "{other.name}"'
                if not other.fixed:
                    fault += f": give {other.name} another one, or {name}"
                return name, f"{fault}; its usual keys stay"
        taken |= dict.fromkeys(keys, ACTIONS[name])
    return None


def works_on_pages(action: KeyAction) -> bool:
    """Whether pages have the action too, so that its keys must be free there."""
    # The default key of "quit" closes a page.
    return not action.on.keys().isdisjoint(("app", "gpu", "process", "job")) and fixed_keys(
        "page"
    ).keys().isdisjoint(action.keys)
