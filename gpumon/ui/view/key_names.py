"""What keys are called where a person reads of them: those that were changed by their new names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class _InForce:
    """One for all of a program's screens: it has one person before it."""

    names: Mapping[str, str] = {}


def use_key_names(names: Mapping[str, str]) -> None:
    """Call keys so from now on: by what they are usually called, where that is another name."""
    _InForce.names = names


def keycap(usual: str) -> str:
    """What a key is called, or several: ``k``, ``[ ]``, ``Shift+↑↓``."""
    return _InForce.names.get(usual, usual)
