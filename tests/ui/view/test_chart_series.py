"""The series of a GPU: which have charts, and what its small graph and the heading show."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, Gpu
from gpumon.recording.history import CHARTED, History
from gpumon.ui.view.chart_series import (
    GPU_SERIES,
    SMALL_GRAPH,
    SMALL_GRAPHS,
    charts_of,
    end_of_second,
    next_small_graph,
)
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.gpu_tiles import Tiles, tile_at
from tests.build import GIB, NOON, gpu, snapshot
from tests.known import known
from tests.ui.view.drawing import Live, history_of, text_of

CARD = gpu(
    utilization_gpu=100,
    memory_used=40 * GIB,
    memory_total=80 * GIB,
    power_draw=175.0,
    power_limit=700.0,
    temperature_gpu=69,
    temperature_slowdown=92,
    sm_active=25.0,
    dram_active=50.0,
)


def seen(*cards: Gpu) -> History:
    return history_of(*(snapshot(NOON + second, *cards) for second in range(100)))


def shares(key: str, card: Gpu) -> set[float | None]:
    return set(SMALL_GRAPH[key].shares(seen(card), card, 60, 30, end_of_second(int(NOON) + 99)))


def screen(key: str, history: History, width: int, height: int = 15) -> list[tuple[str, set[str]]]:
    """The rows of the dashboard as text, and the styles in each."""
    view = View(interval=1.0, graph=key)
    rows = Dashboard(history).rows(history.latest, view, width, height).all()
    return [(text_of(row), {style for _, style in row}) for row in rows]


def test_each_is_a_share_of_what_it_can_be() -> None:
    assert shares("util", CARD) == {1.0}
    assert shares("memory", CARD) == {0.5}
    assert shares("power", CARD) == {0.25}
    assert shares("temperature", CARD) == {0.75}
    assert shares("sm", CARD) == {0.25}
    assert shares("dram", CARD) == {0.5}
    silent = gpu(temperature_gpu=50, temperature_slowdown=None, power_limit=None)
    assert shares("temperature", silent) == {0.5}
    assert shares("power", silent) == {None}
    assert shares("util", gpu(utilization_gpu=None)) == {None}


@pytest.mark.slow
@pytest.mark.parametrize(("cards", "size"), [(8, (160, 50)), (1, (100, 24)), (8, (100, 24))])
def test_the_newest_column_shows_within_its_own_time_what_has_come(
    cards: int, size: tuple[int, int]
) -> None:
    screen = Live(View(interval=1.0, graph="util"), *size)

    def drawn_at(second: float, utilization: int) -> str:
        gpus = [gpu(index=index, utilization_gpu=utilization) for index in range(cards)]
        screen.see(snapshot(NOON + second, *gpus))
        rows = screen.draw().all()
        return "".join(text for row in rows for text, style in row if style == "graph.util")

    idle = [drawn_at(second + 0.2, 0) for second in range(99)]
    assert idle[-1] == idle[-2]
    # A cell of five minutes is of seconds.
    assert drawn_at(99.2, 100) != idle[-1] or drawn_at(107.2, 100) != idle[-1]


def test_every_metric_whose_values_are_kept_has_a_chart() -> None:
    kept = {metric.field for metric in GPU_METRICS if metric.charted}
    assert {field for series in GPU_SERIES for field in series.fields} == kept == set(CHARTED)


def test_a_chart_of_another_metric_needs_no_more_than_its_mark() -> None:
    marked = replace(GPU_METRIC["clock_memory"], charted="mean")
    *listed, added = charts_of([*GPU_METRICS, marked])
    assert tuple(listed) == GPU_SERIES
    card = gpu(clock_memory=1313, clock_memory_max=2619)
    assert (added.label, added.fields) == ("Memory clock", ("clock_memory",))
    assert (added.text(card), added.rest(card, on_page=True)) == ("1313", "/2619 MHz")
    assert added.bounds(card) == (2619, None)


def test_after_the_last_comes_the_first() -> None:
    keys = [SMALL_GRAPHS[0].name]
    for _ in SMALL_GRAPHS:
        keys.append(next_small_graph(keys[-1], [gpu(), CARD]).name)
    assert keys == ["util", "memory", "power", "temperature", "sm", "dram", "util"]


def test_what_no_gpu_reports_is_left_out() -> None:
    older = gpu(utilization_gpu=None)
    assert next_small_graph("temperature", [older]).name == "util"
    assert next_small_graph("sm", [older]).name == "util"
    assert next_small_graph("temperature", [older, gpu(dram_active=0.0)]).name == "dram"


@pytest.mark.parametrize(
    ("key", "heading", "style", "level"),
    [
        ("util", " util 60 s ", "graph.util", "▇▇▇▇"),
        ("memory", " mem 60 s ", "graph.memory", "▅▅▅▅"),
        ("power", " power 60 s", "graph.other", "▃▃▃▃"),
        ("temperature", " temp 60 s ", "graph.other", "▇▇▇▇"),
        ("sm", " SMs 60 s ", "graph.util", "▃▃▃▃"),
        ("dram", " DRAM 60 s ", "graph.memory", "▅▅▅▅"),
    ],
)
@pytest.mark.parametrize("width", [92, 99])
def test_heading_and_colour_follow_what_is_shown(
    width: int, key: str, heading: str, style: str, level: str
) -> None:
    rows = screen(key, seen(CARD, gpu(index=1), gpu(index=2)), width)
    assert heading in rows[1][0]
    line, styles = rows[2]
    assert level in line
    assert [name for name in styles if name.startswith("graph.")] == [style]


@pytest.mark.parametrize("key", list(SMALL_GRAPH))
@pytest.mark.parametrize(("width", "height"), [(100, 24), (120, 30), (120, 50), (80, 50)])
def test_a_panel_shows_it_first_and_never_the_same_twice(key: str, width: int, height: int) -> None:
    text = "\n".join(line for line, _ in screen(key, seen(CARD), width, height))
    shown = re.findall(r"[⠒─] (\w+)", text)
    assert len(shown) == len(set(shown))
    pair = ["util", "mem"]
    assert shown[:2] == pair if key in {"util", "memory"} else shown[:3] == [key, *pair]


def eight() -> History:
    cards = [gpu(index=index, utilization_gpu=10 * index) for index in range(7)]
    return seen(*cards, gpu(index=7, utilization_gpu=None, temperature_gpu=None))


def test_a_graph_belongs_to_the_card_over_whose_cells_it_stands() -> None:
    shown = known(eight().latest)
    found = [
        tile_at(shown.gpus, Tiles(7, 2), 200, x, y) for y in (0, 13) for x in (3, 60, 110, 199)
    ]
    assert [card.index if card else None for card in found] == list(range(8))
    assert tile_at(shown.gpus[:3], Tiles(7, 1), 200, 199, 9) is None
    five = [tile_at(shown.gpus[:5], Tiles(7, 2), 200, x, y) for y in (0, 7) for x in (50, 199)]
    assert [card.index if card else None for card in five] == [0, 1, 2, 4]
