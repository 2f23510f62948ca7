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

from gpumon.config.key_changes import keys_in_force, read_keys, settle, works_on_pages
from gpumon.config.keymap import ACTIONS, KEYMAP, MOST_USED, NAMED, display, fixed_keys
from gpumon.config.table import InvalidValue
from gpumon.ui.app import GpumonApp
from gpumon.ui.dialogs.choices import ColumnsDialog, MomentDialog, ThemesDialog, TimespanDialog
from gpumon.ui.dialogs.end import EndDialog, SignalOptions
from gpumon.ui.screens.dashboard import DashboardScreen
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.screens.subjects import GpuScreen, ProcessScreen
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.key_names import active_keys, footer_keys, keycap, use_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.dom import DOMNode

    from gpumon.config.keymap import KeyAction, KeyScope
    from gpumon.config.settings import Preset

PLACES: dict[KeyScope, type[DOMNode]] = {
    "app": GpumonApp,
    "dashboard": DashboardScreen,
    "fleet": FleetScreen,
    "page": PageScreen,
    "gpu": GpuScreen,
    "process": ProcessScreen,
    "help": HelpScreen,
    "themes": ThemesDialog,
    "columns": ColumnsDialog,
    "moment": MomentDialog,
    "timespan": TimespanDialog,
    "end": EndDialog,
    "signals": SignalOptions,
}
DIALOGS: set[KeyScope] = {"help", "themes", "columns", "moment", "timespan", "end", "signals"}


def rows(*places: KeyScope) -> list[KeyAction]:
    return [one for one in KEYMAP if not one.on.keys().isdisjoint(places)]


FIXED = fixed_keys("app", "dashboard")


@pytest.mark.parametrize("place", PLACES)
def test_what_a_screen_binds_is_what_the_keymap_says(place: KeyScope) -> None:
    bound = [one for one in PLACES[place].BINDINGS if isinstance(one, Binding)]
    assert [(one.id, one.action, one.description) for one in bound] == [
        (one.id, one.action, one.on[place]) for one in rows(place)
    ]
    for one in rows(place):
        assert callable(getattr(PLACES[place], f"action_{one.method}")), one.name


@pytest.mark.parametrize("preset", ["default", "vim"])
def test_a_key_does_one_thing_wherever_it_works(preset: Preset) -> None:
    def keys(place: KeyScope) -> list[str]:
        return [key for one in rows(place) for key in one.usual_keys(preset)]

    for place in PLACES:
        assert len(keys(place)) == len(set(keys(place))), place
    pairs: list[tuple[KeyScope, KeyScope]] = [
        *(("app", "dashboard"), ("app", "fleet"), ("page", "gpu"), ("page", "process")),
        ("end", "signals"),
    ]
    shared = {"left", "right", "up", "down", "h", "j", "k", "l"}
    for around, nearer in pairs:
        # In the list of signals the arrows choose one; elsewhere in that dialog they scroll.
        both = shared if nearer == "signals" else set()
        assert set(keys(around)) & set(keys(nearer)) <= both


def test_the_usual_keys_are_no_trap_for_hands_that_know_vim() -> None:
    assert NAMED["end"].keys[0] == "k"
    assert not [one for one in KEYMAP if "j" in one.keys]


def test_vim_moves_everywhere_and_ends_with_shift() -> None:
    for place in ("dashboard", "fleet", "page", "themes", "columns", "end"):
        keys = {key for one in rows(place) for key in one.usual_keys("vim")}
        assert set("jkgG") <= keys, place
    for name, key in (("end", "K"), ("jobs", "J"), ("host_strip", "H"), ("log", "L")):
        assert NAMED[name].usual_keys("vim")[0] == key


def test_the_keys_in_force_are_those_of_the_preset_and_the_changed_ones() -> None:
    assert keys_in_force("default", {}) == {}
    vim = keys_in_force("vim", {"end": ("z",), "tree": ("F",)})
    assert (vim["end"], vim["tree"], vim["next_line"]) == (("z",), ("F",), ("down", "j"))
    assert vim["scroll up"] == ("up", "k")
    assert vim["themes.go('last')"] == ("end", "G")
    # The keys with which gpumon comes, wanted back.
    assert "end" not in keys_in_force("vim", {"end": ("k", "f9", "delete")})


def test_every_action_has_its_own_id_and_every_explained_one_a_group() -> None:
    assert len({one.id for one in KEYMAP}) == len(KEYMAP)
    assert all(one.group for one in KEYMAP if one.name)
    assert NAMED.keys() >= set(MOST_USED)


def test_every_key_of_a_screen_is_explained_and_has_a_name() -> None:
    for place in PLACES.keys() - DIALOGS:
        told = [one for one, _ in active_keys(place)]
        assert told == rows(place)
        assert all(NAMED[one.name] is one for one in told)


@pytest.mark.parametrize("preset", ["default", "vim"])
def test_no_two_actions_share_a_usual_key(preset: Preset) -> None:
    keys = [key for action in ACTIONS.values() for key in action.usual_keys(preset)]
    assert len(keys) == len(set(keys))
    assert not set(keys) & set(FIXED)


def test_what_is_wanted_is_held_against_the_keys_of_the_preset() -> None:
    assert settle({"mine": ["j"]}) == ({"mine": ("j",)}, {})
    assert 'j is already the key for "next_line"' in settle({"mine": ["j"]}, "vim")[1]["mine"]
    refused = settle({"end": ["k"], "previous_line": ["up"]}, "vim")[1]
    assert refused.keys() == {"end"}
    assert 'k is already the key for "scroll up"' in refused["end"]


@pytest.mark.parametrize(
    ("changes", "granted", "refused"),
    [
        ({"end": ["z", "f5"]}, {"end": ("z", "f5")}, {}),
        ({"mine": ["k"], "end": ["m"]}, {"mine": ("k",), "end": ("m",)}, {}),
        ({"mine": ["z", "k"]}, {}, {"mine": 'k is already the key for "end"'}),
        # Of two that want the same the first gets it.
        (
            {"mine": ["z"], "end": ["z"]},
            {"mine": ("z",)},
            {"end": 'z is already the key for "mine"'},
        ),
        # Who is refused is in the way with the usual keys.
        (
            *({"tree": ["m"], "mine": ["ctrl+c"]}, {}),
            {
                "mine": 'ctrl+c is already the key for "interrupt"',
                "tree": 'already the key for "mine"',
            },
        ),
    ],
    ids=["free", "exchanged", "of another", "twice", "in the way"],
)
def test_a_key_is_given_if_it_is_free_and_else_both_keep_theirs(
    changes: dict[str, list[str]], granted: dict[str, tuple[str, ...]], refused: dict[str, str]
) -> None:
    given_, sentences = settle(changes)
    assert given_ == granted
    assert sentences.keys() == refused.keys()
    assert [name for name, words in refused.items() if words not in sentences[name]] == []


@given(
    st.dictionaries(
        st.sampled_from(list(ACTIONS)),
        st.lists(st.sampled_from([*"abcjkmqxyz", "f5", "enter", "up"]), min_size=1, max_size=3),
    ),
    st.sampled_from(["default", "vim"]),
)
def test_however_keys_are_changed_no_two_actions_share_one(
    changes: dict[str, Sequence[str]], preset: Preset
) -> None:
    granted, refused = settle(changes, preset)
    assert set(granted) | set(refused) == set(changes)
    held = [
        key
        for name, one in ACTIONS.items()
        for key in set(granted.get(name, one.usual_keys(preset)))
    ]
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
    on_pages = {name for name, one in ACTIONS.items() if works_on_pages(one)}
    # What closes a page and what quits is the same key to begin with.
    there = {one.name for one in rows("app", "gpu", "process") if not one.fixed}
    assert on_pages == there - {"quit"}
    granted, refused = settle(
        {"tag": ["$"], "copy": ["space"], "tree": ["home"], "first_line": "z", "quit": ["q", "0"]}
    )
    assert set(granted) == {"tag", "tree", "first_line", "quit"}
    said = 'space is already the key for "page down"; its usual keys stay'
    assert refused == {"copy": said}
    assert 'q is already the key for "back"' in settle({"quit": ["z"], "end": ["q"]})[1]["end"]


@pytest.mark.parametrize("key", ["", "xy", "f25", "ctrl+", "hyper+x", "\n", 5, [], ["x", 5], {}])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidValue):
        read_keys(key)


def test_no_sentence_names_a_key_that_may_have_been_changed() -> None:
    paths = sorted((Path(__file__).parents[2] / "gpumon" / "ui").rglob("*.py"))
    assert len(paths) > 20
    for path in paths:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if call.func.attr != "say":
                continue
            for one in ast.walk(call):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    named = re.search(r"\b(Tab|Space|Home|End|Shift)\b|[↑↓←→]", one.value)
                    assert not named, f"{path}:{one.lineno}: use keycap()"


@pytest.fixture
def usual_keys() -> Iterator[None]:
    yield
    use_keys({})


@pytest.mark.usefixtures("usual_keys")
def test_sentences_and_footers_name_changed_keys() -> None:
    assert keycap("step_back", "step_on") == "[ ]"
    assert keycap("gpus_before", "gpus_after") == "Shift+↑↓"
    use_keys({"step_on": ("f5",), "end": ("x", "delete"), "next_line": ("j",)})
    assert keycap("step_back", "step_on") == "[ F5"
    assert keycap("previous_line", "next_line") == "↑ j"
    assert keycap("end") == "x"
    use_keys(dict.fromkeys(ACTIONS, ("ä",)))
    shown = {keycap(*one.names) for one in footer_keys(View(interval=1.0), None)}
    assert shown == {"ä", "ä ä", display(NAMED["palette"].keys)}
    assert display(("k", "f9", "delete", "shift+up")) == "k F9 Del Shift+↑"


def test_synonyms_are_not_words_of_the_description() -> None:
    for action in KEYMAP:
        said = {
            word.strip("(),;:…").casefold()
            for about in action.on.values()
            for word in about.split()
        }
        assert not said & set(action.synonyms.split()), action.name
        assert action.synonyms == action.synonyms.casefold()
