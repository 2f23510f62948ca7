"""A view is a value: a key gives the next one, and drawing it changes nothing."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.makers.demo import DemoSource
from gpumon.model.snapshot import Snapshot
from gpumon.text.process_columns import PROCESS_COLUMNS
from gpumon.ui.view import dashboard_view, list_view
from gpumon.ui.view.dashboard_layout import Layout
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_table import Listing
from tests.build import NOON
from tests.clock import HandClock
from tests.ui.view.drawing import VIEW, dashboard_of, history_of

Key = Callable[[View, Layout], View | tuple[View, str]]

SIZES = [(200, 50), (140, 40), (100, 24), (60, 15), (50, 12)]


@functools.cache
def course() -> list[Snapshot]:
    """The demo for half a minute."""
    clock, shown = HandClock(epoch=NOON - 1000.0), []
    source = DemoSource(clock=clock)
    for _ in range(60):
        clock.now += 0.5
        shown.append(source.sample())
    return shown


def scrolled(view: View, _: Layout, lines: int) -> View:
    return view.scrolled(lines)


def with_argument(change: Callable[..., View | tuple[View, str]], *arguments: object) -> Key:
    return lambda view, layout: change(view, layout, *arguments)


KEYS: dict[str, Key] = {
    "up": with_argument(dashboard_view.move, -1),
    "down": with_argument(dashboard_view.move, 1),
    "pageup": with_argument(dashboard_view.page, -1),
    "pagedown": with_argument(dashboard_view.page, 1),
    "home": with_argument(dashboard_view.move_to_end, -1),
    "end": with_argument(dashboard_view.move_to_end, 1),
    "left": with_argument(dashboard_view.fold_or_scroll, -1),
    "right": with_argument(dashboard_view.fold_or_scroll, 1),
    **{f"cards {step:+}": with_argument(dashboard_view.scroll_gpus, step) for step in (-1, 3)},
    **{f"wheel {step:+}": with_argument(scrolled, step) for step in (-3, 3)},
    **{one.value: with_argument(dashboard_view.switch_listing, one.value) for one in Listing},
    **{f"sort {one.key}": with_argument(list_view.sort, one.key) for one in PROCESS_COLUMNS},
    **{f"sort {step:+}": with_argument(list_view.sort_step, step) for step in (-1, 1)},
    "tab": dashboard_view.change_side,
    "d": dashboard_view.toggle_only_gpu,
    "f": lambda view, layout: dashboard_view.toggle_only_user(view, layout, layout.shown),
    "kind": dashboard_view.cycle_kind,
    "reverse": list_view.reverse,
    "space": dashboard_view.tag,
    "tag all": dashboard_view.tag_all,
    "graph": dashboard_view.show_next_graph,
    "cost": dashboard_view.show_cost,
    "escape": lambda view, _: dashboard_view.clear_choice(view),
    "m": lambda view, _: dashboard_view.toggle_mine(view, "ann"),
    "pause": lambda view, _: replace(view, paused=not view.paused),
    "host": lambda view, _: replace(view, host_strip=not view.host_strip),
}


def rows_of(parts: Parts) -> dict[str, object]:
    return {name: getattr(parts, name) for name in parts.__struct_fields__ if name != "layout"}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*KEYS, "next", "size"]), min_size=10, max_size=50), st.data())
def test_drawing_twice_gives_equal_rows_and_leaves_everything_as_it_was(
    keys: list[str], data: st.DataObject
) -> None:
    samples = iter(course())
    shown = next(samples)
    history = history_of(shown)
    dashboard = Dashboard(history)
    view, size = View(interval=0.5), SIZES[0]
    for key in keys:
        layout = dashboard.rows(shown, view, *size).layout
        if key == "next":
            newer = next(samples, shown)
            history.add(newer)
            shown = shown if view.paused else newer
        elif key == "size":
            size = data.draw(st.sampled_from(SIZES))
        else:
            before = copy.deepcopy(view)
            after = KEYS[key](view, layout)
            assert view == before, key
            view = after[0] if isinstance(after, tuple) else after
        before = copy.deepcopy(view)
        once, again = (dashboard.rows(shown, view, *size) for _ in range(2))
        assert view == before
        assert rows_of(once) == rows_of(again)
        assert once.layout == again.layout
        # A view within bounds is one that drawing finds within bounds.
        settled = dashboard.rows(shown, once.layout.view, *size)
        assert settled.layout.view == once.layout.view
        assert rows_of(settled) == rows_of(once)
        new = history.latest is shown and shown.processes_at == shown.time == int(shown.time)
        if new and not view.paused:
            # Where everything is new, nothing that is drawn was kept from before.
            assert rows_of(Dashboard(history).rows(shown, view, *size)) == rows_of(once)
        view = once.layout.view


def test_a_cursor_that_the_cards_take_leaves_its_line_with_the_same_key() -> None:
    shown = course()[0]
    dashboard = Dashboard(history_of(shown))
    layout = dashboard.rows(shown, VIEW, 100, 24).layout
    view = dashboard_view.move(layout.view, layout, 0)
    assert [row[0][0] for row in dashboard.rows(shown, view, 100, 24).processes].count("▸") == 1
    view = dashboard_view.change_side(view, layout)
    assert all(row[0][0] != "▸" for row in dashboard.rows(shown, view, 100, 24).processes)


def test_escape_clears_one_thing_after_the_other() -> None:
    layout = dashboard_of(course()[0]).layout
    view = dashboard_view.toggle_mine(dashboard_view.tag_all(layout.view, layout), "ann")
    view = dashboard_view.change_side(dashboard_view.move(view, layout, 3), layout)
    cleared = []
    while (after := dashboard_view.clear_choice(view)) is not view:
        fields = View.__struct_fields__
        cleared.append([name for name in fields if getattr(view, name) != getattr(after, name)])
        view = after
    assert cleared == [["tags"], ["narrowing"], ["gpu"], ["cursor"]]
    assert view == layout.view


def test_the_same_key_again_takes_back_what_it_did() -> None:
    layout = dashboard_of(course()[0]).layout
    view = layout.view
    for key in ("tree", "users", "jobs", "tab", "tag all", "m", "cost"):
        once = KEYS[key](view, layout)
        assert isinstance(once, View)
        assert once != view
        assert KEYS[key](once, layout) == view, key
