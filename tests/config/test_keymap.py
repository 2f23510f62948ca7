"""Keys that are changed: who gets which."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.binding import Binding

from gpumon.config.keymap import (
    ACTIONS,
    FIXED,
    ON_PAGES,
    PAGE_KEYS,
    display,
    footer_names,
    read_keys,
    settle,
)
from gpumon.config.table import InvalidValue
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.card import CardScreen
from gpumon.ui.screens.dashboard import DashboardScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.timed import TimedScreen
from gpumon.ui.view.dashboard import footer_keys
from gpumon.ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence


def bound() -> dict[str, list[Binding]]:
    """What the screens bind, by the name of the action; ``""`` is what has none."""
    found: dict[str, list[Binding]] = {}
    for screen in (GpumonApp, DashboardScreen, TimedScreen, CardScreen, ProcessScreen):
        for binding in screen.BINDINGS:
            assert isinstance(binding, Binding)
            found.setdefault(binding.id or "", []).append(binding)
    return found


def test_every_key_can_be_changed_but_the_fixed_ones() -> None:
    unnamed = bound().pop("", [])
    assert {key for one in unnamed for key in one.key.split(",")} <= set(FIXED)


def test_the_usual_keys_are_those_of_the_screens() -> None:
    from textual.keys import _character_to_key

    found = bound()
    assert set(found) - {""} == set(ACTIONS)
    for name, action in ACTIONS.items():
        usual = [_character_to_key(key) if len(key) == 1 else key for key in action.keys]
        for binding in found[name]:
            assert binding.key == ",".join(usual)


def test_no_two_actions_share_a_usual_key() -> None:
    keys = [key for action in ACTIONS.values() for key in action.keys]
    assert len(keys) == len(set(keys))
    assert not set(keys) & set(FIXED)


def test_a_key_that_is_free_is_given() -> None:
    assert settle({"end": ["x", "f5"]}) == ({"end": ("x", "f5")}, {})
    assert settle({"mine": ["k"], "end": ["m"]}) == ({"mine": ("k",), "end": ("m",)}, {})


def test_a_key_of_another_action_is_refused_and_both_keep_theirs() -> None:
    granted, refused = settle({"mine": ["x", "k"]})
    assert granted == {}
    assert "k is the key of end already" in refused["mine"]


def test_of_two_that_want_the_same_the_first_gets_it() -> None:
    granted, refused = settle({"mine": ["x"], "end": ["x"]})
    assert granted == {"mine": ("x",)}
    assert "x is the key of mine" in refused["end"]


def test_who_is_refused_is_in_the_way_with_the_usual_keys() -> None:
    granted, refused = settle({"tree": ["m"], "mine": ["ctrl+c"]})
    assert granted == {}
    assert "always quits" in refused["mine"]
    assert "m is the key of mine" in refused["tree"]


@given(
    st.dictionaries(
        st.sampled_from(list(ACTIONS)),
        st.lists(st.sampled_from([*"abckmqxyz", "f5", "enter", "up"]), min_size=1, max_size=3),
    )
)
def test_however_keys_are_changed_no_two_actions_share_one(
    changes: dict[str, Sequence[str]],
) -> None:
    granted, refused = settle(changes)
    assert set(granted) | set(refused) == set(changes)
    held = [key for name, one in ACTIONS.items() for key in set(granted.get(name, one.keys))]
    assert len(held) == len(set(held))
    assert not set(held) & set(FIXED)


@pytest.mark.parametrize("key", ["x", "é", "?", ",", "space", " ", "F5", "ctrl+K", "shift+up"])
def test_keys_can_be_named(key: str) -> None:
    assert len(read_keys(key)) == 1


def test_a_key_is_known_by_any_name_of_it() -> None:
    assert read_keys(["Shift+Ctrl+Up", "ctrl+shift+up"]) == ("ctrl+shift+up",)
    assert read_keys("shift+alt+ctrl+k") == ("alt+ctrl+shift+k",), "as Textual orders them"
    assert read_keys(["shift+k", "K"]) == ("K",)


def test_an_action_that_pages_have_cannot_have_a_key_that_every_page_has() -> None:
    on_pages = {
        binding.id
        for screen in (GpumonApp, CardScreen, ProcessScreen)
        for binding in screen.BINDINGS
        if isinstance(binding, Binding) and binding.id
    }
    # What closes a page and what quits is the same key to begin with.
    assert on_pages - {"quit"} == set(ON_PAGES)
    keys = {
        key
        for binding in PageScreen.BINDINGS
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }
    assert keys - set(FIXED) == set(PAGE_KEYS)
    granted, refused = settle(
        {"tag": ["x"], "copy": ["space"], "tree": ["home"], "first_line": "Z"}
    )
    assert set(granted) == {"tag", "tree", "first_line"}
    assert refused == {"copy": "space scrolls on pages, which have copy too; its usual keys stay"}


@pytest.mark.parametrize("key", ["", "xy", "f25", "ctrl+", "hyper+x", "\n", 5, [], ["x", 5], {}])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidValue):
        read_keys(key)


def test_no_sentence_names_a_key_that_may_have_been_changed() -> None:
    for path in sorted((Path(__file__).parents[2] / "gpumon" / "tui").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if call.func.attr != "say":
                continue
            allowed = {
                id(one) for key in ast.walk(call) if _is_keycap(key) for one in ast.walk(key)
            }
            for one in ast.walk(call):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    named = re.search(r"\b(Tab|Space|Home|End|Shift)\b|[↑↓←→]", one.value)
                    assert id(one) in allowed or not named, f"{path}:{one.lineno}: use keycap()"


def _is_keycap(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "keycap"
    )


def test_the_footer_names_changed_keys() -> None:
    assert footer_names({}) == {}
    names = footer_names({"step_on": ("f5",), "end": ("x", "delete")})
    assert names == {"[ ]": "[ F5", "k": "x"}
    usual = {key for key, _ in footer_keys(View(1.0), None)} | {"Home", "End", "Tab", "Space", "["}
    every = footer_names(dict.fromkeys(ACTIONS, ("ä",)))
    assert usual - {"Enter"} <= set(every)
    assert display(("k", "f9", "delete", "shift+up")) == "k F9 Del Shift+↑"
