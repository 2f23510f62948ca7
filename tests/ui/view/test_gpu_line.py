"""The line of a GPU: what its cells are used for at each width."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpumon.findings import conditions
from gpumon.recording.history import History
from gpumon.ui.view import dashboard_view
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from tests.build import GIB, NOON, gpu, snapshot
from tests.ui.view.test_dashboard_rows import demo


def drawn(width: int, height: int = 24, **view: Any) -> Parts:
    now, history = demo()
    return Dashboard(history).rows(now, View(interval=0.5, **view), width, height)


def lines(parts: Parts) -> list[str]:
    return ["".join(text for text, _ in row) for row in parts.gpus]


def widths(parts: Parts) -> dict[str, int]:
    assert parts.layout.line_columns is not None
    return dict(parts.layout.line_columns.widths)


@pytest.mark.parametrize(("width", "height"), [(200, 24), (200, 50), (240, 50), (300, 60)])
def test_the_bars_of_a_wide_terminal_have_more_cells_than_blank_cells_of_the_state(
    width: int, height: int
) -> None:
    parts = drawn(width, height)
    found = widths(parts)
    at = lines(parts)[0].index("state")
    states = [line[at : at + found["state"]] for line in lines(parts)[1:]]
    blank = min(len(state) - len(state.rstrip()) for state in states)
    assert blank <= 20
    bars = found["memory_bar"] + found["util_bar"] + found.get("spark", 0)
    assert bars >= (width - 100) // 2


@pytest.mark.parametrize("width", [200, 240, 300])
def test_a_wide_terminal_names_every_holder(width: int) -> None:
    shown = lines(drawn(width, 50))[8]
    assert re.search(r"svc-llm 26\.0G, finn.*, dara.*, gina", shown)
    if width >= 240:
        assert "svc-llm 26.0G, finn 6.8G, dara 4.7G, gina 1.2G" in shown


def test_the_first_holder_keeps_the_amount_where_the_others_have_only_names() -> None:
    assert "ann 48.5G, dara  " in lines(drawn(80))[1]


@pytest.mark.parametrize("width", [80, 120, 200, 300])
def test_no_state_moves_a_column(width: int) -> None:
    now, history = demo()
    dashboard = Dashboard(history)
    before = dashboard.rows(now, View(interval=0.5), width, 50).layout.line_columns
    quiet = snapshot(now.time, *now.gpus)
    after = Dashboard(history).rows(quiet, View(interval=0.5), width, 50).layout.line_columns
    assert before == after


def test_the_small_graph_tells_apart_what_the_bar_of_utilisation_shows_alike() -> None:
    heading, *rows = lines(drawn(100))
    assert heading.endswith(" power 60 s")
    graph = {index: rows[index][-10:] for index in (1, 2, 5)}
    bars = {index: re.search(r"% (▇+) ", rows[index]) for index in graph}
    assert {match and match[1] for match in bars.values()} == {"▇" * 5}
    assert set(graph[1]) == {"▃"}, "busy but empty"
    assert set(graph[2]) == {"▇"}, "hot"
    assert set(graph[5]) == {"▂"}, "stuck"


@pytest.mark.parametrize("changes", [{"power_draw": None}, {"power_limit": None}])
def test_without_a_power_cap_the_small_graph_is_utilisation(changes: dict[str, None]) -> None:
    cards = [gpu(index=index, utilization_gpu=50, **changes) for index in range(8)]
    now, history = snapshot(NOON, *cards), History(conditions())
    history.add(now)
    parts = Dashboard(history).rows(now, View(interval=0.5), 100, 24)
    assert lines(parts)[0].endswith(" util 60 s ")
    assert "▅" in lines(parts)[1]


def test_the_key_goes_on_from_what_the_small_graph_shows() -> None:
    parts = drawn(100, 24)
    view, message = dashboard_view.show_next_graph(parts.layout.view, parts.layout)
    assert message == "the graphs show temperature, against where it slows down"
    assert view.graph == "temperature"


@pytest.mark.parametrize("cards", [1, 8])
def test_the_key_changes_large_charts_each_time(cards: int) -> None:
    gpus = [gpu(index=index, utilization_gpu=50, memory_used=GIB) for index in range(cards)]
    now, history = snapshot(NOON, *gpus), History(conditions())
    history.add(now)
    dashboard, view = Dashboard(history), View(interval=0.5)
    names, messages = [], []
    for _ in range(4):
        parts = dashboard.rows(now, view, 200, 50)
        before = parts.gpus, parts.graphs
        view, message = dashboard_view.show_next_graph(parts.layout.view, parts.layout)
        parts = dashboard.rows(now, view, 200, 50)
        assert before != (parts.gpus, parts.graphs)
        names.append(view.graph)
        messages.append(message)
    assert names == ["power", "temperature", "util", "power"]
    assert messages[2] == "the graphs show utilisation and memory"
    assert messages[3] == "the graphs show power, against its cap"
