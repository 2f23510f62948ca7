"""Which keys the footer of the dashboard offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.ui.view.key_names import footer_key
from gpumon.ui.view.table_entries import Listing

if TYPE_CHECKING:
    from gpumon.ui.view.key_names import FooterKey
    from gpumon.ui.view.table_entries import TableEntry
    from gpumon.ui.view.view import View

SELECT = footer_key("previous_line", "next_line")
_TIME_KEYS = (
    footer_key("step_back", "step_on", label="step"),
    footer_key("back_10s", "on_10s", label="10s"),
    footer_key("back_1m", "on_1m", label="1m"),
    footer_key("next_event", "event_before", label="event"),
    footer_key("longer_interval", "shorter_interval", label="speed"),
    footer_key("go_to"),
    footer_key("filter"),
)
ALWAYS = (footer_key("quit"), footer_key("help"))
_ON_GPU = (footer_key("quit"), footer_key("help", label="why"))
FILTERING = (footer_key("open", label="keep"), footer_key("clear", label="drop"), SELECT)
_DETAILS = footer_key("open", label="details")
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
        play = footer_key("pause", label="hold" if view.timeline.playing.playing else "play")
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
        keys.append(_DETAILS)
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
    lists = [footer_key(one.value, on=listing is one) for one in _LISTINGS]
    rewind = footer_key("step_back", "step_on", label="rewind")
    past = [rewind, footer_key("log", on=view.log is not None)]
    if entry is not None:
        more += [*past, only_user, *lists]
        if entry.processes:
            awaited = any(one.id in view.watched.processes for one in entry.processes)
            more.append(footer_key("notify", label=_WHEN_ENDED, on=awaited))
    else:
        more += [*lists[:2], *past, *lists[2:]]
        more += [only_user] if gpu is None and only_user.on else []
    more += [footer_key("mine", on=view.narrowing.mine is not None), SORT]
    more += [footer_key("pause", on=view.paused)]
    more += [] if entry is None else [footer_key("copy")]
    more += [footer_key("graph")] if view.graph_fits else []
    more += [footer_key("alerts", on=view.unread > 0)]
    more += [footer_key("host_strip", on=view.host_strip), footer_key("theme"), COMMANDS]
    # What is on is in sight on a narrow terminal too.
    always = ALWAYS if gpu is None else _ON_GPU
    return (*always, *keys, *sorted(more, key=lambda one: not one.on))
