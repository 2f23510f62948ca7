"""What keys are called on screen: changed ones by their new names."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.keymap import KEYMAP, NAMED, display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import KeyAction, Place


class FooterKey(Struct, frozen=True):
    """Keys in a footer, and the word after them.

    Attributes:
        names: Of their actions, in the keymap.
        label: The word.
    """

    names: tuple[str, ...]
    label: str


def footer_key(*names: str, label: str = "") -> FooterKey:
    """Keys for a footer; the word is that of the keymap by default."""
    return FooterKey(names, label or NAMED[names[0]].label)


class _InForce:
    """One for all of a program's screens: it has one person before it."""

    changed: Mapping[str, Sequence[str]] = {}


def use_keys(changed: Mapping[str, Sequence[str]]) -> None:
    """From now on these actions have these keys, all others their default ones."""
    _InForce.changed = changed
    keycap.cache_clear()


def keys_of(name: str) -> Sequence[str]:
    """The keys that an action has now."""
    return _InForce.changed.get(name) or NAMED[name].keys


def explained(*places: Place) -> list[tuple[KeyAction, str]]:
    """What keys do in these places, with the descriptions."""
    return [(one, one.on[place]) for one in KEYMAP for place in places if one.on.get(place)]


@cache
def keycap(*names: str) -> str:
    """The first key of an action, or of several: ``k``, ``[ ]``, ``Shift+↑↓``."""
    shown = [display(keys_of(name)[:1]) for name in names]
    if len({one[:-1] for one in shown}) == 1 and all(one[-1] in "↑↓←→" for one in shown):
        return shown[0][:-1] + "".join(one[-1] for one in shown)
    return " ".join(shown)
