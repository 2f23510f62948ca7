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
    "kill": "k F9 Del",
    "terminate": "k F9 Del",
    "signal": "k F9 Del",
    "sigkill": "k F9 Del",
    "F9": "k F9 Del",
    "record": "L",
    "save": "L",
    "export": "L",
    "history": "[",
    "rewind": "[",
    "freeze": "p",
    "pause": "p",
    "search": "/",
    "find": "/",
    "filter": "/",
    "grep": "/",
    "details": "Enter",
    "info": "Enter",
    "sort": "< ,",
    "order": "r",
    "invert": "r",
    "quit": "q",
    "exit": "q",
    "setup": "e F2",
    "options": "e F2",
    "columns": "e F2",
    "fields": "e F2",
    "dark": "T",
    "light": "T",
    "colors": "T",
    "tree": "t",
    "hierarchy": "t",
    "users": "u",
    "mark": "space",
    "select": "space",
    "refresh": "+ =",
    "delay": "- _",
    "rate": "+ =",
    "zoom": "1",
    "range": "4",
    "environment": "s",
    "clipboard": "y",
    "bell": "w",
    "chart": "c",
    "help": "? F1",
    "manual": "? F1",
    "menu": "Ctrl+P",
    "collapse": "←",
    "expand": "→",
}
"""What somebody types who knows nvidia-smi, nvtop, nvitop, htop or btop, and a key that must be
among those found."""


@pytest.mark.parametrize(("typed", "keys"), WORDS.items())
def test_a_key_is_found_by_what_others_call_it(typed: str, keys: str) -> None:
    found = [term for section in find(SECTIONS, typed) for term, _ in section.entries]
    assert keys in found


@pytest.mark.parametrize("typed", ["renice", "screenshot", "affinity", "strace", "overclock"])
def test_what_gpumon_cannot_do_is_not_found(typed: str) -> None:
    assert find(SECTIONS, typed) == []
