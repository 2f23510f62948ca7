"""The keys of actions as the screen shows them, with the user's changes; the footer's keys."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.keymap import KEYMAP, NAMED, WINDOWS, display
from gpumon.ui.view.process_table import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import ChartWindow, KeyAction, KeyScope
    from gpumon.ui.view.dashboard_view import View
    from gpumon.ui.view.process_table import TableEntry


_METHODS_BEYOND_LOOKING = frozenset(action.method for action in KEYMAP if action.beyond_looking)


class FooterKey(Struct, frozen=True):
    """Keys in a footer with their label."""

    names: tuple[str, ...]  # The names of their actions in the keymap.
    label: str  # The label.
    on: bool = False  # Whether they switch something on and off that is on now.


@cache
def footer_key(*names: str, label: str = "", on: bool = False) -> FooterKey:
    """Keys for a footer; the default label is that of the keymap."""
    return FooterKey(names, label or NAMED[names[0]].label, on)


class _Current:
    """Global, because all screens of the program have the same user."""

    changed: Mapping[str, Sequence[str]] = {}
    visitor = False


def use_keys(changed: Mapping[str, Sequence[str]], *, visitor: bool = False) -> None:
    """Set the keys of actions by their id; other actions get their default keys.

    Args:
        changed: The keys by the id of their action.
        visitor: Whether the user only looks on, in a browser.
    """
    _Current.changed, _Current.visitor = changed, visitor
    keycap.cache_clear()


def is_refused(name: str) -> bool:
    """Whether an action is refused because the user only looks on."""
    return _Current.visitor and name in NAMED and NAMED[name].beyond_looking


def is_method_refused(method: str) -> bool:
    """The same for the method of an action."""
    return _Current.visitor and method in _METHODS_BEYOND_LOOKING


def keys_of(name: str) -> Sequence[str]:
    """The current keys of an action."""
    return _Current.changed.get(name) or NAMED[name].keys


def letters_on(scope: KeyScope) -> frozenset[str]:
    """The letters and signs that are keys in a scope."""
    keys = (
        key
        for action in KEYMAP
        if scope in action.on
        for key in _Current.changed.get(action.id) or action.keys
    )
    return frozenset(key for key in keys if len(key) == 1)


def active_keys(*scopes: KeyScope) -> list[tuple[KeyAction, str]]:
    """The actions in these scopes, with their descriptions."""
    return [
        (action, action.on[scope])
        for action in KEYMAP
        for scope in scopes
        if action.on.get(scope) and not is_refused(action.name)
    ]


@cache
def keycap(*names: str) -> str:
    """The first key of each action: ``k``, ``[ ]``, ``Shift+↑↓``."""
    keys = [display(keys_of(name)[:1]) for name in names]
    if len({key[:-1] for key in keys}) == 1 and all(key[-1] in "↑↓←→" for key in keys):
        return keys[0][:-1] + "".join(key[-1] for key in keys)
    return " ".join(keys)


def window_keys(window: ChartWindow) -> list[FooterKey]:
    """The keys of the windows of the charts; one of them is on."""
    return [footer_key(f"chart_{each.label}", on=each is window) for each in WINDOWS]


SELECT = footer_key("previous_line", "next_line")
_TIME_KEYS = (
    footer_key("step_back", "step_on", label="step"),
    footer_key("go_to"),
    footer_key("back_10s", "on_10s", label="10s"),
    footer_key("back_1m", "on_1m", label="1m"),
    footer_key("next_event", "event_before", label="event"),
    footer_key("longer_interval", "shorter_interval", label="speed"),
    footer_key("filter"),
)
ALWAYS = (footer_key("quit"), footer_key("help"))
_ON_GPU = (footer_key("quit"), footer_key("help", label="why"))
FILTERING = (footer_key("open", label="keep"), footer_key("clear", label="drop"), SELECT)
_DETAILS = footer_key("open", label="details")
_COMPARE = footer_key("open", label="compare")
_TAG_TO_COMPARE = footer_key("tag", label="compare…")
_WHEN_ENDED = "notify when ended"
_SIDE = footer_key("change_side", label="processes")
SORT = footer_key("sort_before", "sort_next", label="sort")
COMMANDS = footer_key("palette", label="commands")
_LISTINGS = (Listing.USERS, Listing.TREE, Listing.JOBS)


def footer_keys(view: View, entry: TableEntry | None) -> tuple[FooterKey, ...]:
    """The keys for the footer, most needed first, because the last may not fit."""
    if view.dialog_open:
        return ()
    if view.editing:
        return FILTERING
    if view.timeline is not None:
        play = footer_key("pause", label="pause" if view.timeline.playing.playing else "play")
        end = footer_key("last_line", label="now" if view.timeline.live else "last")
        return (*ALWAYS, play, footer_key("first_line"), end, *_TIME_KEYS)
    gpu, listing = view.gpu, view.listing
    entry = entry if gpu is None else None
    keys = [] if entry is not None or gpu is not None else [SELECT]
    if not view.readonly and (view.tags or (entry is not None and entry.processes)):
        keys.append(footer_key("end"))
    narrowed = view.narrowing.gpu is not None
    only_user = footer_key("only_user", on=view.narrowing.only_user is not None)
    more = [footer_key("only_gpu", on=narrowed)] if gpu is not None or narrowed else []
    if gpu is not None:
        watched = gpu in view.watched.gpus
        keys += [_COMPARE if view.compares else _DETAILS, _TAG_TO_COMPARE]
        more += [_SIDE, footer_key("notify", on=watched), only_user]
        more += [footer_key("copy"), footer_key("filter")]
    else:
        keys.append(footer_key("filter"))
    if entry is not None:
        keys.append(_DETAILS if entry.user is None else footer_key("open"))
        more += [footer_key("tag")] if entry.processes else []
        if entry.below:
            fold = "unfold" if entry.folded else "fold"
            more.append(footer_key("scroll_back", "scroll_on", label=fold))
    lists = [footer_key(kind.value, on=listing is kind) for kind in _LISTINGS]
    rewind = footer_key("step_back", "step_on", label="rewind")
    past = [rewind, footer_key("log", on=view.log is not None)]
    if entry is not None:
        more += [*past, only_user, *lists]
        if entry.processes:
            awaited = any(process.id in view.watched.processes for process in entry.processes)
            more.append(footer_key("notify", label=_WHEN_ENDED, on=awaited))
    else:
        more += [*lists[:2], *past, *lists[2:]]
        more += [only_user] if gpu is None and only_user.on else []
    more += [footer_key("mine", on=view.narrowing.mine is not None), SORT]
    more += [footer_key("pause", on=view.paused)]
    more += [] if entry is None else [footer_key("copy")]
    more += [footer_key("graph")] if view.graph_fits else []
    windows = window_keys(view.window) if view.has_charts or view.host_strip else []
    more += windows
    more += [footer_key("alerts", on=view.unread > 0)]
    more += [footer_key("host_strip", on=view.host_strip), footer_key("theme"), COMMANDS]
    # What is on is in sight on a narrow terminal too.
    always = ALWAYS if gpu is None else _ON_GPU
    return (*always, *keys, *sorted(more, key=lambda key: not key.on or key in windows))
