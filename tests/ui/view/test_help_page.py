"""The search of the help page: it finds what other programs call a thing."""

from __future__ import annotations

import pytest

from gpumon.config.keymap import KEYMAP
from gpumon.ui.view.help_page import find, key_groups

SECTIONS = key_groups(
    (action, next(iter(action.on.values()))) for action in KEYMAP if any(action.on.values())
)
"""The keys of all screens."""

WORDS = {
    "k F9 Del": "kill terminate signal sigkill F9",
    "L": "record save export",
    "[": "history rewind",
    "p": "freeze pause",
    "/": "search find filter grep",
    "Enter": "details info",
    "< ,": "sort",
    "r": "order invert",
    "q": "quit exit",
    "e F2": "setup options columns fields",
    "T": "dark light colors",
    "t": "tree hierarchy",
    "u": "users",
    "space": "mark select",
    "+ =": "refresh rate",
    "- _": "delay",
    "1": "zoom",
    "4": "range",
    "s": "environment",
    "y": "clipboard",
    "w": "bell",
    "c": "chart",
    "? F1": "help manual",
    "Ctrl+P": "menu",
    "←": "collapse",
    "→": "expand",
}
"""Keys, and what somebody types for them who knows nvidia-smi, nvtop, nvitop, htop or btop."""


@pytest.mark.parametrize(
    ("typed", "keys"), [(typed, keys) for keys, words in WORDS.items() for typed in words.split()]
)
def test_a_key_is_found_by_what_others_call_it(typed: str, keys: str) -> None:
    found = [term for section in find(SECTIONS, typed) for term, _ in section.entries]
    assert keys in found


@pytest.mark.parametrize("typed", ["renice", "screenshot", "affinity", "strace", "overclock"])
def test_what_gpumon_cannot_do_is_not_found(typed: str) -> None:
    assert find(SECTIONS, typed) == []
