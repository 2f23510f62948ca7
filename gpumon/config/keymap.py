"""What keys do: an action a line, with its usual keys; and what becomes of changed ones.

The names are those of ``[keys]`` in the file. Letters and signs stand for themselves, other keys
have a name: ``f9``, ``delete``, ``shift+up``, ``ctrl+k``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.chart_windows import WINDOWS
from gpumon.config.columns import COLUMNS
from gpumon.config.table import InvalidValue, meant, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Action(Struct, frozen=True):
    """Something that a key does.

    Attributes:
        name: What it is called in the file.
        call: What the screens call it, with its arguments.
        keys: Its usual keys.
    """

    name: str
    call: str
    keys: tuple[str, ...]


ACTIONS: dict[str, Action] = {
    one.name: one
    for one in (
        Action("help", "help", ("?", "f1")),
        Action("quit", "leave", ("q",)),
        Action("filter", "filter", ("/",)),
        Action("end", "end", ("k", "f9", "delete")),
        Action("tag", "tag", ("space",)),
        Action("tag_all", "tag_all", ("a",)),
        Action("copy", "copy", ("y",)),
        Action("tell_when_free", "tell_when_free", ("w",)),
        Action("mine", "mine", ("m",)),
        Action("kind", "kind", ("v",)),
        Action("tree", "listing('tree')", ("t",)),
        Action("users", "listing('users')", ("u",)),
        Action("jobs", "listing('jobs')", ("g",)),
        Action("columns", "columns", ("e", "f2")),
        Action("previous_line", "move(-1)", ("up",)),
        Action("next_line", "move(1)", ("down", "j")),
        Action("page_up", "page(-1)", ("pageup",)),
        Action("page_down", "page(1)", ("pagedown",)),
        Action("first_line", "edge(-1)", ("home",)),
        Action("last_line", "edge(1)", ("end",)),
        Action("scroll_back", "aside(-1)", ("left",)),
        Action("scroll_on", "aside(1)", ("right",)),
        Action("change_side", "change_side", ("tab",)),
        Action("cards_before", "cards(-1)", ("shift+up",)),
        Action("cards_after", "cards(1)", ("shift+down",)),
        Action("sort_before", "sort_step(-1)", ("<", ",")),
        Action("sort_next", "sort_step(1)", (">", ".")),
        Action("reverse", "reverse", ("r",)),
        *(Action(f"sort_{one.key}", f"sort('{one.key}')", (one.letter,)) for one in COLUMNS),
        Action("graph", "next_graph", ("c",)),
        Action("host_strip", "host_strip", ("h",)),
        Action("theme", "themes", ("T",)),
        Action("pause", "pause", ("p",)),
        Action("longer_interval", "pace(1)", ("+", "=")),
        Action("shorter_interval", "pace(-1)", ("-", "_")),
        Action("log", "log", ("L",)),
        Action("own_cost", "own_cost", ("o",)),
        *(Action(f"chart_{one.label}", f"window('{one.key}')", (one.key,)) for one in WINDOWS),
        Action("secrets", "reveal", ("s",)),
        Action("step_back", "step(-1)", ("[",)),
        Action("step_on", "step(1)", ("]",)),
        Action("back_10s", "jump(-10)", ("{",)),
        Action("on_10s", "jump(10)", ("}",)),
        Action("back_1m", "jump(-60)", ("(",)),
        Action("on_1m", "jump(60)", (")",)),
        Action("back_10m", "jump(-600)", ("shift+left",)),
        Action("on_10m", "jump(600)", ("shift+right",)),
        Action("next_event", "event(1)", ("n",)),
        Action("event_before", "event(-1)", ("b",)),
        Action("go_to", "go_to", ("@",)),
    )
}

FIXED = {
    "enter": "opens what is under the cursor",
    "escape": "goes back",
    "ctrl+c": "quits",
    "ctrl+z": "suspends gpumon",
    "ctrl+p": "opens the list of commands",
    "ctrl+q": "quits",
}
"""Keys that cannot be given to anything else."""

PAGE_KEYS = {
    "q": "goes back",
    **dict.fromkeys(("up", "down", "j", "pageup", "pagedown", "space", "home", "end"), "scrolls"),
}
"""Keys that do the same on every page."""
ON_PAGES = (
    *("help", "theme", "end", "copy", "secrets"),
    *(f"chart_{one.label}" for one in WINDOWS),
)
"""Actions that pages have too, and so need keys that are free there."""

_NAMED = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert", "delete"),
    *("backspace", "tab", "space", "enter", "escape", *(f"f{number}" for number in range(1, 25))),
)
_WITH = re.compile(r"((?:ctrl|shift|alt)\+)+")


def read_keys(value: object) -> tuple[str, ...]:
    """The keys that stand in the file for an action.

    Raises:
        Wrong: They are no keys, or none.
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
            # In this order Textual names what is held.
            return "+".join((*held, name))
    raise InvalidValue(
        f"{shown(key)} is no key{meant(key, _NAMED)}; give a letter or sign, or a name such as f5, "
        "delete, pageup, shift+up or ctrl+k"
    )


def settle(
    changes: Mapping[str, Sequence[str]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Which of the changed keys can be had.

    An action that wants a fixed key, or one that another action has, keeps its usual keys. Of two
    that want the same key the one that stands first in the file gets it.

    Args:
        changes: By the name of the action, in the order of the file.

    Returns:
        The keys of actions that have other than their usual ones, and what to say of the actions
        that do not get theirs.
    """
    granted = {name: tuple(keys) for name, keys in changes.items()}
    refused: dict[str, str] = {}
    while clash := _clash(granted):
        name, why = clash
        # Its usual keys may be in the way of others now: they are looked at again.
        del granted[name]
        refused[name] = why
    return granted, refused


def _clash(granted: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    taken = {
        key: name for name, action in ACTIONS.items() if name not in granted for key in action.keys
    }
    for name, keys in granted.items():
        for key in keys:
            if key in FIXED:
                return name, f"{key} always {FIXED[key]}; its usual keys stay"
            if key in PAGE_KEYS and name in ON_PAGES:
                return name, (
                    f"{key} {PAGE_KEYS[key]} on pages, which have {name} too; its usual keys stay"
                )
            if key in taken:
                return name, (
                    f"{key} is the key of {taken[key]} already: give {taken[key]} another one, or "
                    f"{name}; its usual keys stay"
                )
        taken |= dict.fromkeys(keys, name)
    return None


_DISPLAYS = {
    "space": "Space",
    "delete": "Del",
    "insert": "Ins",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def display(keys: Iterable[str]) -> str:
    """Keys as the help page and the footer write them: ``k F9 Del``."""
    return " ".join(map(_display, keys))


def _display(key: str) -> str:
    if len(key) == 1:
        return key
    *held, name = key.split("+")
    return "+".join([*(part.capitalize() for part in held), _DISPLAYS.get(name, name.capitalize())])


_FOOTER = {
    "/": ("filter",),
    "k": ("end",),
    "space": ("tag",),
    "y": ("copy",),
    "Space": ("tag",),
    "w": ("tell_when_free",),
    "↑↓": ("previous_line", "next_line"),
    "↑ ↓": ("previous_line", "next_line"),
    "Shift+↑↓": ("cards_before", "cards_after"),
    "Tab": ("change_side",),
    "t": ("tree",),
    "u": ("users",),
    "g": ("jobs",),
    "m": ("mine",),
    "[": ("step_back",),
    "[ ]": ("step_back", "step_on"),
    "{ }": ("back_10s", "on_10s"),
    "( )": ("back_1m", "on_1m"),
    "n b": ("next_event", "event_before"),
    "+ -": ("longer_interval", "shorter_interval"),
    "@": ("go_to",),
    "L": ("log",),
    "< >": ("sort_before", "sort_next"),
    "c": ("graph",),
    "h": ("host_strip",),
    "T": ("theme",),
    "s": ("secrets",),
    **{one.key: (f"chart_{one.label}",) for one in WINDOWS},
    "p": ("pause",),
    "q": ("quit",),
    "?": ("help",),
    "Home": ("first_line",),
    "End": ("last_line",),
}
"""What footers and sentences call keys -> the actions that they mean."""


def footer_names(granted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What is to be written in place of the usual keys: of each action the first key."""
    return {
        usual: display((granted.get(name) or ACTIONS[name].keys)[0] for name in names)
        for usual, names in _FOOTER.items()
        if any(name in granted for name in names)
    }
