"""The keymap: every key of the screens and dialogs, its action and its name.

This table defines the bindings of the screens, footers, the help page, the command palette,
``[keys]`` in the configuration, the tables of ``docs/config.md`` and clicks on a footer. Letters
and signs stand for themselves; other keys have a name: ``f9``, ``delete``, ``shift+up``,
``ctrl+k``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.chart_windows import WINDOWS
from gpumon.config.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal, TypeAlias

    Place: TypeAlias = Literal[
        "app", "dashboard", "page", "card", "process", "help", "themes", "columns", "moment", "end"
    ]
    """Where a key works: everywhere, on a screen, on all pages, in a dialog."""


class KeyAction(Struct, frozen=True):
    """An action on one or several screens, and its keys.

    Attributes:
        name: Its name in the configuration.
        keys: Its default keys.
        action: The action method of the screens, with its arguments, as Textual writes it.
        on: The screens, with its description on each; the help page omits an empty one.
        label: Its word in a footer.
        fixed: Whether its keys cannot be changed.
        priority: Whether it takes precedence over the focused widget's keys.
    """

    name: str
    keys: tuple[str, ...]
    action: str
    on: Mapping[Place, str]
    label: str = ""
    fixed: bool = False
    priority: bool = False

    @property
    def method(self) -> str:
        """The action without its arguments."""
        return self.action.partition("(")[0]


def _key(
    name: str, keys: str, action: str, about: str, label: str = "", place: Place = "dashboard"
) -> KeyAction:
    """Configurable keys of one screen."""
    return KeyAction(name, tuple(keys.split()), action, {place: about}, label)


def _fixed(
    place: Place, keys: str, action: str, about: str = "", name: str = "", *, priority: bool = False
) -> KeyAction:
    """Keys that cannot be changed; without a name no footer offers them."""
    return KeyAction(
        name, tuple(keys.split()), action, {place: about}, name, fixed=True, priority=priority
    )


KEYMAP: tuple[KeyAction, ...] = (
    _key("help", "? f1", "help", "Help: keys, signs, columns", "help", place="app"),
    _key("quit", "q", "leave", "Quit", "quit", place="app"),
    _fixed("app", "ctrl+c ctrl+q", "leave", "Quit", "interrupt", priority=True),
    _fixed("app", "ctrl+z", "suspend_process", "Suspend gpumon", "suspend"),
    _fixed("app", "ctrl+p", "command_palette", "Find a command by name", "palette", priority=True),
    # -- the dashboard ---------------------------------------------------------------------------
    _key("filter", "/", "filter", "Filter the processes as you type", "filter"),
    KeyAction(
        "end",
        ("k", "f9", "delete"),
        "end",
        {
            "dashboard": "End the process, or the tagged ones …",
            "card": "End the processes that hold the card unlisted …",
            "process": "End the process …",
        },
        "end…",
    ),
    _key("tag", "space", "tag", "Tag the process (toggle)", "tag"),
    _key("tag_all", "a", "tag_all", "Tag all listed processes (toggle)"),
    _fixed("dashboard", "enter", "open", "Open the process or card under the cursor", "open"),
    KeyAction(
        "copy",
        ("y",),
        "copy",
        {
            "dashboard": "Copy the kill command, or the card's CUDA_VISIBLE_DEVICES",
            "card": "Copy the card's CUDA_VISIBLE_DEVICES",
            "process": "Copy the kill command",
        },
        "copy",
    ),
    _key(
        "tell_when_free",
        "w",
        "tell_when_free",
        "Notify when this GPU is free (toggle)",
        "tell if free",
    ),
    _key("mine", "m", "mine", "Show only my processes (toggle)", "mine"),
    _key("kind", "v", "kind", "Show only compute, only graphics, or both"),
    _key("tree", "t", "listing('tree')", "Tree: launchers, shells, data loaders (toggle)", "tree"),
    _key("users", "u", "listing('users')", "Users and their totals (toggle)", "users"),
    _key("jobs", "g", "listing('jobs')", "Group by job (toggle)", "jobs"),
    _key("columns", "e f2", "columns", "Choose columns …"),
    _key("previous_line", "up", "move(-1)", "Previous line", "select"),
    _key("next_line", "down j", "move(1)", "Next line", "select"),
    _key("page_up", "pageup", "page(-1)", "Page up"),
    _key("page_down", "pagedown", "page(1)", "Page down"),
    _key("first_line", "home", "edge(-1)", "First line; in the past: oldest sample", "first"),
    _key("last_line", "end", "edge(1)", "Last line; in the past: now, or end of the log", "last"),
    _key("scroll_back", "left", "aside(-1)", "Scroll commands back; fold in a tree"),
    _key("scroll_on", "right", "aside(1)", "Scroll commands; unfold in a tree"),
    _key("change_side", "tab", "change_side", "Switch between processes and cards"),
    _key("cards_before", "shift+up", "cards(-1)", "Scroll the cards up"),
    _key("cards_after", "shift+down", "cards(1)", "Scroll the cards down"),
    _fixed(
        "dashboard",
        "escape",
        "release",
        "Clear in turn: report, tags, filter, selection; then return to now",
        "clear",
    ),
    _key("sort_before", "< ,", "sort_step(-1)", "Sort by the previous column"),
    _key("sort_next", "> .", "sort_step(1)", "Sort by the next column"),
    _key("reverse", "r", "reverse", "Reverse the order"),
    *(
        _key(
            f"sort_{one.key}",
            one.letter,
            f"sort('{one.key}')",
            f"Sort by {one.label} (again: reverse)",
        )
        for one in COLUMNS
    ),
    _key(
        "graph",
        "c",
        "next_graph",
        "Change the small graph: utilisation, memory, power, temperature",
        "graph",
    ),
    _key("host_strip", "h", "host_strip", "Host: CPU, memory, load over time (toggle)", "host"),
    _key("theme", "T", "themes", "Choose a theme …", "theme", place="app"),
    _key("pause", "p", "pause", "Hold the picture (toggle); in the past: play or hold", "pause"),
    _key("longer_interval", "+ =", "pace(1)", "Longer interval; in the past: faster"),
    _key("shorter_interval", "- _", "pace(-1)", "Shorter interval; in the past: slower"),
    _key("log", "L", "log", "Log every sample to a file (toggle)", "log"),
    _key("own_cost", "o", "own_cost", "Show what gpumon itself costs (toggle)"),
    # -- pages -----------------------------------------------------------------------------------
    *(
        _key(
            f"chart_{one.label}",
            one.key,
            f"window('{one.key}')",
            f"Charts: {one.title.lower()}",
            one.label,
            place="card",
        )
        for one in WINDOWS
    ),
    _key("secrets", "s", "reveal", "Show what looks like secrets (toggle)", place="process"),
    _fixed("page", "escape q", "close", "Back", "back"),
    _fixed("page", "up", "scroll_rows(-1)", "Up", "scroll up"),
    _fixed("page", "down j", "scroll_rows(1)", "Down", "scroll down"),
    _fixed("page", "pageup", "scroll_pages(-1)", "Page up", "page up"),
    _fixed("page", "pagedown space", "scroll_pages(1)", "Page down", "page down"),
    _fixed("page", "home", "scroll_edge(-1)", "To the top", "top"),
    _fixed("page", "end", "scroll_edge(1)", "To the end", "bottom"),
    # -- the past, on the dashboard --------------------------------------------------------------
    _key("step_back", "[", "step(-1)", "Back in time by a sample"),
    _key("step_on", "]", "step(1)", "Forward in time by a sample"),
    _key("back_10s", "{", "jump(-10)", "Back by 10 s"),
    _key("on_10s", "}", "jump(10)", "Forward by 10 s"),
    _key("back_1m", "(", "jump(-60)", "Back by a minute"),
    _key("on_1m", ")", "jump(60)", "Forward by a minute"),
    _key("back_10m", "shift+left", "jump(-600)", "Back by ten minutes"),
    _key("on_10m", "shift+right", "jump(600)", "Forward by ten minutes"),
    _key("next_event", "n", "event(1)", "Next event: process started or exited, error, full"),
    _key("event_before", "b", "event(-1)", "Previous event"),
    _key("go_to", "@", "go_to", "Go to a time of day …", "go to"),
    # -- the help page and dialogs, which say themselves what their keys do ----------------------
    _fixed("help", "escape ? q", "close"),
    _fixed("themes", "j", "step(1)"),
    _fixed("themes", "enter", "keep", priority=True),
    _fixed("themes", "escape q T", "cancel"),
    _fixed("columns", "space", "turn"),
    _fixed("columns", "shift+up", "shift(-1)"),
    _fixed("columns", "shift+down", "shift(1)"),
    _fixed("columns", "d", "default"),
    _fixed("columns", "enter", "keep", priority=True),
    _fixed("columns", "escape q", "cancel"),
    _fixed("moment", "escape", "cancel"),
    _fixed("end", "escape q", "cancel"),
    _fixed("end", "left", "button('cancel')"),
    _fixed("end", "right", "button('send')"),
    _fixed("end", "up", "scroll_who('up')"),
    _fixed("end", "down", "scroll_who('down')"),
    _fixed("end", "pageup", "scroll_who('page_up')"),
    _fixed("end", "pagedown", "scroll_who('page_down')"),
    _fixed("end", "home", "scroll_who('home')"),
    _fixed("end", "end", "scroll_who('end')"),
    _fixed("end", "i", "choose('INT')"),
    _fixed("end", "t", "choose('TERM')"),
    _fixed("end", "9", "choose('KILL')"),
    _fixed("end", "w", "turn_tree"),
)

NAMED = {one.name: one for one in KEYMAP if one.name}
"""What footers and sentences can name."""
ACTIONS = {name: one for name, one in NAMED.items() if not one.fixed}
"""What the configuration can give other keys."""


def fixed_keys(*places: Place) -> dict[str, KeyAction]:
    """The keys that always have the same effect on these screens."""
    return {
        key: one
        for one in KEYMAP
        if one.fixed and not one.on.keys().isdisjoint(places)
        for key in one.keys
    }


_DISPLAYS = {
    "space": "space",
    "delete": "Del",
    "insert": "Ins",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
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
