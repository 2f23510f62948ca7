"""The keymap: every key of the screens and dialogs, its action and its name.

This table defines the bindings of the screens, footers, the help page, the command palette,
``[keys]`` in the configuration, the tables of ``docs/config.md`` and clicks on a footer. Letters
and signs stand for themselves; other keys have a name: ``f9``, ``delete``, ``shift+up``,
``ctrl+k``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.text.process_columns import PROCESS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal, TypeAlias

    from gpumon.config.settings import Preset

    KeyScope: TypeAlias = Literal[
        "app",
        "dashboard",
        "fleet",
        "page",
        "gpu",
        "compare",
        "process",
        "job",
        "alerts",
        "accidents",
        "help",
        "themes",
        "columns",
        "moment",
        "timespan",
        "end",
        "signals",
    ]
    """Where a key works: everywhere, on a screen, on all pages, in a dialog or in a part of it."""


class KeyAction(Struct, frozen=True):
    """An action on one or several screens, and its keys."""

    name: str  # In the configuration.
    keys: tuple[str, ...]
    action: str  # The method of the screens, with its arguments, as Textual writes it.
    on: Mapping[KeyScope, str]  # Its description on each screen; the help page omits an empty one.
    label: str = ""  # In a footer.
    # Its keys with the preset ``vim``; empty if they are the default ones.
    vim: tuple[str, ...] = ()
    group: str = ""  # On the help page and in the command palette.
    fixed: bool = False  # Its keys cannot be changed.
    priority: bool = False  # It takes precedence over the keys of the focused widget.
    beyond_looking: bool = False  # Visitors in a browser (``gpumon serve``) do not have it.
    # Other words by which the help page and the command palette find it.
    synonyms: str = ""

    @property
    def id(self) -> str:
        """Its unique name, for actions of dialogs too, which have no name."""
        return self.name or f"{next(iter(self.on))}.{self.action}"

    @property
    def method(self) -> str:
        """The action without its arguments."""
        return self.action.partition("(")[0]

    def usual_keys(self, preset: Preset) -> tuple[str, ...]:
        """Its keys with a preset."""
        return self.vim if self.vim and preset == "vim" else self.keys


def changeable(
    name: str,
    keys: str,
    action: str,
    about: str,
    label: str = "",
    place: KeyScope = "dashboard",
    vim: str = "",
    fleet: str = "",
    synonyms: str = "",
) -> KeyAction:
    """Configurable keys of one screen, and of that of many hosts if they are described for it."""
    on = {place: about} | ({"fleet": fleet} if fleet else {})
    vim_keys = tuple(vim.split())
    return KeyAction(name, tuple(keys.split()), action, on, label, vim_keys, synonyms=synonyms)


def fixed(
    place: KeyScope,
    keys: str,
    action: str,
    about: str = "",
    name: str = "",
    *,
    vim: str = "",
    priority: bool = False,
    fleet: str = "",
    synonyms: str = "",
) -> KeyAction:
    """Keys that cannot be changed; without a name no footer offers them."""
    usual = changeable(name, keys, action, about, name, place, vim, fleet, synonyms)
    return replace(usual, fixed=True, priority=priority)


def in_group(group: str, *actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions in the order in which the help page and the command palette list them."""
    return tuple(replace(action, group=group) for action in actions)


def beyond_looking(*actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions that visitors in a browser do not have."""
    return tuple(replace(action, beyond_looking=True) for action in actions)


def also_on_fleet(*actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions that the screen of many hosts has too, with the same description."""
    return tuple(
        replace(action, on={**action.on, "fleet": action.on["dashboard"]}) for action in actions
    )


class ChartWindow(Struct, frozen=True):
    """A time window of the charts."""

    key: str
    label: str  # In the footer.
    title: str  # Over the charts.
    seconds: float | None  # ``None`` is the whole history.


WINDOWS = (
    ChartWindow("1", "1m", "The last minute", 60.0),
    ChartWindow("2", "5m", "The last 5 minutes", 300.0),
    ChartWindow("3", "30m", "The last 30 minutes", 1800.0),
    ChartWindow("4", "all", "All that was seen", None),
)
DEFAULT_WINDOW = WINDOWS[1]
_CHARTED: tuple[KeyScope, ...] = ("dashboard", "gpu", "compare", "process")
"""Screens with charts."""

_LISTS: tuple[KeyScope, ...] = ("themes", "columns")
"""Dialogs with a list."""
_SORT_IN_VIM = {"gpu": "#", "job": "X"}
"""Letters that move the cursor with the preset ``vim`` do not sort."""

KEYMAP: tuple[KeyAction, ...] = (
    *in_group(
        "Find",
        changeable(
            "filter",
            "/",
            "filter",
            "Filter the processes as you type",
            "filter",
            fleet="Filter the hosts or processes as you type",
            synonyms="search find grep",
        ),
        changeable(
            "mine", "m", "mine", "Show only my processes (toggle)", "mine", synonyms="own me"
        ),
        changeable(
            "only_gpu", "d", "only_gpu", "Show only this GPU's processes (toggle)", "only this GPU"
        ),
        changeable(
            "only_user",
            "f",
            "only_user",
            "Show only this user's processes (toggle)",
            "only this user",
        ),
        changeable(
            "kind", "v", "kind", "Show only compute, only graphics, or both", synonyms="type"
        ),
        fixed(
            "dashboard",
            "escape",
            "release",
            "Clear in turn: report, tags, filter, list, selection; then back to now or the hosts",
            "clear",
            fleet="Clear in turn: filter, list, selection",
        ),
    ),
    *in_group(
        "Look",
        fixed(
            "dashboard",
            "enter",
            "open",
            "Open the process, job or GPU under the cursor; compare the tagged GPUs",
            "open",
            fleet="Open the host, the host of a process, the processes of a user, or the machines "
            "of a job",
            synonyms="details info show inspect metrics",
        ),
        changeable(
            "users",
            "u",
            "listing('users')",
            "Users and their totals (toggle)",
            "users",
            fleet="Users across all hosts (toggle)",
            synonyms="owners people accounts",
        ),
        changeable(
            "jobs",
            "g",
            "listing('jobs')",
            "Group by job (toggle)",
            "jobs",
            vim="J",
            fleet="Jobs across all hosts, and their machines (toggle)",
            synonyms="slurm torchrun",
        ),
        changeable(
            "tree",
            "t",
            "listing('tree')",
            "Tree: launchers, shells, data loaders (toggle)",
            "tree",
            synonyms="parents children forest hierarchy",
        ),
        changeable(
            "graph",
            "c",
            "next_graph",
            "Change what the graphs show: load, memory, power, temperature, SMs, DRAM",
            "graph",
            synonyms="chart plot sparkline",
        ),
        changeable(
            "host_strip",
            "h",
            "host_strip",
            "Host: cores, memory, NICs (toggle)",
            "host",
            vim="H",
            synonyms="ram cpu",
        ),
        changeable(
            "topology",
            "i",
            "topology",
            "Topology: the links of GPUs and NICs",
            synonyms="interconnect matrix nvlink xgmi pcie numa nic infiniband",
        ),
        changeable(
            "columns",
            "e f2",
            "columns",
            "Choose columns …",
            synonyms="fields setup options settings configure",
        ),
        *(
            KeyAction(
                f"chart_{window.label}",
                (window.key,),
                f"window('{window.key}')",
                dict.fromkeys(_CHARTED, f"Charts: {window.title.lower()}"),
                window.label,
                synonyms="zoom range",
            )
            for window in WINDOWS
        ),
        *beyond_looking(
            changeable(
                "secrets",
                "s",
                "reveal",
                "Show what looks like secrets (toggle)",
                place="process",
                synonyms="environment tokens passwords",
            )
        ),
    ),
    *in_group(
        "End",
        *beyond_looking(
            KeyAction(
                "end",
                ("k", "f9", "delete"),
                "end",
                {
                    "dashboard": "End the process or job, or the tagged processes …",
                    "gpu": "End unlisted processes that hold the GPU …",
                    "process": "End the process …",
                    "job": "End the job …",
                },
                "end…",
                ("K", "f9", "delete"),
                synonyms="kill terminate stop abort signal sigterm sigkill sigint",
            )
        ),
        # Visitors compare the GPUs that they tag.
        changeable(
            "tag",
            "space",
            "tag",
            "Tag the process or GPU (toggle)",
            "tag",
            synonyms="select mark check",
        ),
        *beyond_looking(
            changeable(
                "tag_all",
                "a",
                "tag_all",
                "Tag all listed processes (toggle)",
                synonyms="select mark everything",
            ),
            KeyAction(
                "copy",
                ("y",),
                "copy",
                {
                    "dashboard": "Copy the kill command, or the GPUs' CUDA_VISIBLE_DEVICES",
                    "gpu": "Copy the GPU's CUDA_VISIBLE_DEVICES",
                    "compare": "Copy CUDA_VISIBLE_DEVICES of these GPUs",
                    "process": "Copy the kill command",
                },
                "copy",
                synonyms="clipboard yank",
            ),
        ),
    ),
    *in_group(
        "Log",
        *beyond_looking(
            changeable(
                "log",
                "L",
                "log",
                "Log every sample to a file (toggle)",
                "log",
                synonyms="record save write export csv",
            ),
            changeable(
                "log_for",
                "l",
                "log_for",
                "Log for a length of time …",
                vim="ctrl+l",
                synonyms="record save write export csv duration timer",
            ),
        ),
    ),
    *in_group(
        "Time",
        changeable(
            "pause",
            "p",
            "pause",
            "Pause; in the past: play or pause",
            "pause",
            synonyms="freeze stop resume hold",
        ),
        changeable(
            "step_back",
            "[",
            "step(-1)",
            "Back in time by a sample",
            synonyms="rewind history past previous undo",
        ),
        changeable(
            "step_on", "]", "step(1)", "Forward in time by a sample", synonyms="rewind history past"
        ),
        changeable(
            "next_event",
            "n",
            "event(1)",
            "Next event: process started or exited, error, accident, full",
        ),
        changeable("event_before", "b", "event(-1)", "Previous event"),
        changeable(
            "go_to",
            "@",
            "go_to",
            "Go to a time of day …",
            "go to",
            synonyms="jump clock rewind history past",
        ),
        changeable("back_10s", "{", "jump(-10)", "Back by 10 s"),
        changeable("on_10s", "}", "jump(10)", "Forward by 10 s"),
        changeable("back_1m", "(", "jump(-60)", "Back by a minute"),
        changeable("on_1m", ")", "jump(60)", "Forward by a minute"),
        changeable("back_10m", "shift+left", "jump(-600)", "Back by ten minutes"),
        changeable("on_10m", "shift+right", "jump(600)", "Forward by ten minutes"),
        changeable(
            "longer_interval",
            "+ =",
            "pace(1)",
            "Longer interval; in the past: faster",
            synonyms="slower refresh rate delay period",
        ),
        changeable(
            "shorter_interval",
            "- _",
            "pace(-1)",
            "Shorter interval; in the past: slower",
            synonyms="faster refresh rate delay period",
        ),
    ),
    *in_group(
        "Move",
        *also_on_fleet(
            changeable("previous_line", "up", "move(-1)", "Previous line", "select", vim="up k"),
            changeable("next_line", "down", "move(1)", "Next line", "select", vim="down j"),
        ),
        changeable(
            "change_side",
            "tab",
            "change_side",
            "From a process to its GPU, or from a GPU to its process",
            fleet="From the hosts to the processes of all hosts, or back",
        ),
        changeable(
            "first_line",
            "home",
            "edge(-1)",
            "First line; in the past: oldest sample",
            "first",
            vim="home g",
            fleet="First line",
        ),
        changeable(
            "last_line",
            "end",
            "edge(1)",
            "Last line; in the past: now, or end of the log",
            "last",
            vim="end G",
            fleet="Last line",
        ),
        *also_on_fleet(
            changeable("page_up", "pageup", "page(-1)", "Page up"),
            changeable("page_down", "pagedown", "page(1)", "Page down"),
        ),
        changeable(
            "scroll_back",
            "left",
            "aside(-1)",
            "Scroll commands back; fold; GPU at the left",
            vim="left h",
            fleet="Host at the left",
            synonyms="collapse",
        ),
        changeable(
            "scroll_on",
            "right",
            "aside(1)",
            "Scroll commands; unfold; GPU at the right",
            vim="right l",
            fleet="Host at the right",
            synonyms="expand",
        ),
        changeable("gpus_before", "shift+up", "gpus(-1)", "Scroll the GPUs up"),
        changeable("gpus_after", "shift+down", "gpus(1)", "Scroll the GPUs down"),
        fixed("gpu", ", left", "gpu(-1)", "Previous GPU", "previous GPU", vim=", left h"),
        fixed("gpu", ". right", "gpu(1)", "Next GPU", "next GPU", vim=". right l"),
        fixed("page", "escape q", "close", "Back", "back"),
        fixed("page", "up", "scroll_rows(-1)", "Up", "scroll up", vim="up k"),
        fixed("page", "down", "scroll_rows(1)", "Down", "scroll down", vim="down j"),
        fixed("page", "pageup", "scroll_pages(-1)", "Page up", "page up"),
        fixed("page", "pagedown space", "scroll_pages(1)", "Page down", "page down"),
        fixed("page", "home", "scroll_edge(-1)", "To the top", "top", vim="home g"),
        fixed("page", "end", "scroll_edge(1)", "To the end", "bottom", vim="end G"),
    ),
    *in_group(
        "gpumon",
        changeable(
            "help",
            "? f1",
            "help",
            "Help: keys, signs, columns",
            "help",
            place="app",
            synonyms="keyboard shortcuts manual",
        ),
        changeable(
            "quit", "q", "leave", "Quit", "quit", place="app", synonyms="exit leave close stop end"
        ),
        fixed(
            "app",
            "ctrl+p",
            "command_palette",
            "Find a command by name",
            "palette",
            priority=True,
            synonyms="search menu",
        ),
        changeable(
            "theme",
            "T",
            "themes",
            "Choose a theme …",
            "theme",
            place="app",
            synonyms="colours colors dark light scheme setup options settings",
        ),
        changeable(
            "own_cost",
            "o",
            "own_cost",
            "Show what gpumon itself costs (toggle)",
            synonyms="overhead",
        ),
        *beyond_looking(
            fixed(
                "app",
                "ctrl+z",
                "suspend_process",
                "Suspend gpumon",
                "suspend",
                synonyms="background stop",
            )
        ),
        fixed("app", "ctrl+c ctrl+q", "leave", "Quit", "interrupt", priority=True),
    ),
    *in_group(
        "Alerts",
        KeyAction(
            "notify",
            ("w",),
            "watch",
            {
                "dashboard": "Notify when this GPU is free, or this process or job ends (toggle)",
                "gpu": "Notify when this GPU is free (toggle)",
                "process": "Notify when this process ends (toggle)",
                "job": "Notify when this job ends (toggle)",
            },
            "notify if free",
            synonyms="alert watch tell bell notification",
        ),
        changeable(
            "alerts",
            "!",
            "alerts",
            "List the notifications of alerts",
            "alerts",
            synonyms="warnings messages",
        ),
        fixed("alerts", "enter", "open", "Open the GPU or process", "open subject"),
        changeable(
            "accidents",
            "x",
            "accidents",
            "Accidents: errors, resets, killed processes",
            "accidents",
            synonyms="xid crash oom failure dead",
        ),
        fixed("accidents", "enter", "open", "Go back to that moment", "open moment"),
    ),
    *in_group(
        "Sort",
        *also_on_fleet(
            changeable("sort_before", "< ,", "sort_step(-1)", "Sort by the previous column"),
            changeable("sort_next", "> .", "sort_step(1)", "Sort by the next column"),
            changeable(
                "reverse",
                "r",
                "reverse",
                "Reverse the order",
                synonyms="invert ascending descending",
            ),
            *(
                changeable(
                    f"sort_{column.key}",
                    column.letter,
                    f"sort('{column.key}')",
                    f"Sort by {column.name} (again: reverse)",
                    vim=_SORT_IN_VIM.get(column.key, ""),
                    synonyms="order",
                )
                for column in PROCESS_COLUMNS
                if column.letter
            ),
        ),
        *(
            changeable(
                name,
                key,
                f"sort('{column}')",
                f"Sort by {about} (again: reverse)",
                place="fleet",
                synonyms="order",
            )
            for name, key, column, about in (
                ("sort_free", "F", "free", "free GPUs"),
                ("sort_most_free", "D", "most_free", "the free memory of one GPU"),
                ("sort_host", "Z", "host", "host"),
            )
        ),
    ),
    # -- the help page and dialogs, which describe their own keys --------------------------------
    fixed("help", "escape ? q", "close"),
    fixed("help", "up", "scroll('up')", vim="up k"),
    fixed("help", "down", "scroll('down')", vim="down j"),
    fixed("help", "pageup", "scroll('page_up')"),
    fixed("help", "pagedown", "scroll('page_down')"),
    fixed("help", "home", "scroll('home')", vim="home g"),
    fixed("help", "end", "scroll('end')", vim="end G"),
    *(
        action
        for place in _LISTS
        for action in (
            fixed(place, "up", "go('cursor_up')", vim="up k"),
            fixed(place, "down", "go('cursor_down')", vim="down j"),
            fixed(place, "home", "go('first')", vim="home g"),
            fixed(place, "end", "go('last')", vim="end G"),
        )
    ),
    fixed("themes", "enter", "keep", priority=True),
    fixed("themes", "escape q T", "cancel"),
    fixed("columns", "space", "turn"),
    fixed("columns", "shift+up", "shift(-1)", vim="shift+up K"),
    fixed("columns", "shift+down", "shift(1)", vim="shift+down J"),
    fixed("columns", "d", "default"),
    fixed("columns", "enter", "keep", priority=True),
    fixed("columns", "escape q", "cancel"),
    fixed("moment", "escape", "cancel"),
    fixed("timespan", "escape", "cancel"),
    fixed("end", "escape q", "cancel"),
    fixed("end", "left", "button('cancel')", vim="left h"),
    fixed("end", "right", "button('send')", vim="right l"),
    fixed("end", "up", "scroll_who('up')", vim="up k"),
    fixed("end", "down", "scroll_who('down')", vim="down j"),
    fixed("end", "pageup", "scroll_who('page_up')"),
    fixed("end", "pagedown", "scroll_who('page_down')"),
    fixed("end", "home", "scroll_who('home')", vim="home g"),
    fixed("end", "end", "scroll_who('end')", vim="end G"),
    fixed("end", "i", "choose('INT')"),
    fixed("end", "t", "choose('TERM')"),
    fixed("end", "9", "choose('KILL')"),
    fixed("end", "w", "turn_tree"),
    fixed("signals", "down right", "choose_next(1)", vim="down right j l"),
    fixed("signals", "up left", "choose_next(-1)", vim="up left k h"),
    fixed("signals", "enter space", "leave"),
)

MOST_USED = (
    *("filter", "open", "end", "users", "jobs", "tree", "mine"),
    *("sort_memory_used", "step_back", "pause", "log", "help", "quit"),
)
"""The actions with which the command palette opens."""

NAMED = {action.name: action for action in KEYMAP if action.name}
"""Actions that footers and messages can refer to."""
ACTIONS = {name: action for name, action in NAMED.items() if not action.fixed}
"""Actions whose keys can be configured."""


def fixed_keys(*places: KeyScope, preset: Preset = "default") -> dict[str, KeyAction]:
    """The keys that always have the same effect on these screens."""
    return {
        key: action
        for action in KEYMAP
        if action.fixed and not action.on.keys().isdisjoint(places)
        for key in action.usual_keys(preset)
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
