"""The charts of the dashboard: their room, which GPUs have one, and what can be read in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.config.keymap import WINDOWS, ChartWindow
from gpumon.model.processes import GpuProcess
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot
from gpumon.recording.history import History
from gpumon.recording.playback.replay import Playing
from gpumon.text.cells import Row, row_width
from gpumon.text.charset import substitute
from gpumon.ui.view import chart_plot
from gpumon.ui.view.chart_plot import curve_cells, plot, span_until
from gpumon.ui.view.chart_series import PERCENT, UTIL, end_of_chart
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import Timeline, View
from gpumon.ui.view.key_names import footer_keys
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.ui.view.drawing import Live, demo, history_of, lines_of, text_of

pytestmark = pytest.mark.usefixtures("utc")

MINUTE, FIVE, HALF_HOUR, ALL = WINDOWS
VIEW = View(interval=1.0)
BUSY = gpu(utilization_gpu=97, memory_used=64 * GIB, memory_total=80 * GIB)
IDLE = replace(BUSY, utilization_gpu=0)


def of_index(card: Gpu, index: int) -> Gpu:
    return replace(card, index=index, uuid=f"GPU-{index}")


def busy(count: int) -> list[Gpu]:
    return [of_index(BUSY, index) for index in range(count)]


QUIET = [gpu(index=index, utilization_gpu=0, memory_used=0) for index in range(3)]
LOADED = [BUSY, *QUIET[1:]]


def processes(count: int, first: int = 4000) -> tuple[GpuProcess, ...]:
    return tuple(process(first + number, user="ann", memory_used=GIB) for number in range(count))


def seen(
    cards: Sequence[Gpu],
    listed: Sequence[GpuProcess] = (),
    seconds: int = 300,
    history: History | None = None,
    start: int = 0,
) -> History:
    history = history or history_of()
    for second in range(start, start + seconds):
        history.add(snapshot(NOON + second, *cards, processes=tuple(listed)))
    return history


def lines(
    history: History, width: int, height: int, view: View = VIEW, now: Snapshot | None = None
) -> list[str]:
    rows = Dashboard(history).rows(now or history.latest, view, width, height).all()
    assert [row_width(row) for row in rows] == [width] * height
    return [text_of(row).rstrip() for row in rows]


def boxes(
    history: History,
    width: int = 200,
    height: int = 50,
    view: View = VIEW,
    dashboard: Dashboard | None = None,
    now: Snapshot | None = None,
) -> list[int]:
    """The indices of the GPUs that have a chart below the list."""
    dashboard = dashboard or Dashboard(history)
    text = "\n".join(lines_of(dashboard.rows(now or history.latest, view, width, height).graphs))
    return [int(index) for index in re.findall(r"(?m)[^\w\s] (\d+) +⠒ util", text)]


# -- room ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cards", "size", "count"),
    [(1, (120, 35), 12), (1, (200, 50), 30), (2, (120, 35), 12), (8, (200, 50), 18)],
)
def test_all_processes_are_visible_and_charts_have_the_other_rows(
    cards: int, size: tuple[int, int], count: int
) -> None:
    text = lines(seen(busy(cards), processes(count), 3), *size)
    assert len(re.findall(r" 40\d\d ann ", "\n".join(text))) == count
    assert "now" in "\n".join(text), "there are charts, with times"
    assert sum(not line for line in text) <= max(1, cards), "and no blank rows"


def test_charts_keep_their_least_height_where_the_processes_do_not_fit_anyway() -> None:
    text = lines(seen([BUSY], processes(200), 3), 120, 35)
    assert any("⠒ util" in line for line in text)
    assert sum(" ann " in line for line in text) >= 20


@pytest.mark.parametrize("cards", [1, 8])
def test_a_process_that_comes_and_goes_moves_nothing(cards: int) -> None:
    gpus, tops = busy(cards), []
    screen = Live(VIEW, 200, 50, seen(gpus, processes(12), 90))
    for second in range(90, 150):
        listed = processes(12 + (second % 10 < 2))
        screen.see(snapshot(NOON + second, *gpus, processes=listed))
        parts = screen.draw()
        tops.append(len(parts.gpus) + len(parts.graphs))
    assert len(set(tops)) == 1, "it came in the first of these seconds"


def test_short_processes_one_after_the_other_take_the_room_of_one() -> None:
    history = history_of()
    for second in range(100):
        seen([BUSY], processes(1, 4000 + second), 1, history, second)
    assert history.listed_lately(60.0) == 1
    seen([BUSY], processes(3, 5000), 1, history, 100)
    assert history.listed_lately(60.0) in {3, 4}


# -- which GPUs ----------------------------------------------------------------------------------


def test_gpus_with_nothing_to_show_have_no_chart_and_leave_their_room() -> None:
    free = gpu(utilization_gpu=0, memory_used=GIB // 2, memory_total=80 * GIB)
    lost = gpu(utilization_gpu=None, memory_used=None, status=GpuStatus.LOST)
    held = gpu(utilization_gpu=0, memory_used=40 * GIB, memory_total=80 * GIB)
    kinds = [BUSY, free, lost, held, free, free, lost, free]
    history = seen([of_index(kind, index) for index, kind in enumerate(kinds)])
    assert boxes(history) == [0, 3]
    parts = Dashboard(history).rows(history.latest, VIEW, 200, 50)
    below = "".join(text for row in parts.graphs for text, _ in row)
    assert below.count("-5m") == below.count("now") == 2
    assert len(parts.graphs) >= 30
    idle = seen([of_index(free, index) for index in range(8)])
    assert boxes(idle) == []


def test_a_chart_stays_as_long_as_its_window_has_something_to_show() -> None:
    history = seen(QUIET, seconds=60)
    assert boxes(history) == []
    seen(LOADED, (), 1, history, 60)
    assert boxes(history) == [0], "at once"
    short = replace(VIEW, window=MINUTE)
    checked = {100, 115, 125, 200, 340, 370, 400}
    for second in range(61, 401):
        seen(QUIET, (), 1, history, second)
        if second in checked:
            assert boxes(history, view=short) == boxes(history) == ([0] if second < 360 else [])


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_a_chart_of_one_second_of_load_does_not_blink(window: ChartWindow) -> None:
    history = seen(QUIET, seconds=61)
    dashboard, view = Dashboard(history), replace(VIEW, window=window)
    for second in range(61, 130):
        seen(LOADED if second == 65 else QUIET, (), 1, history, second)
        expected = [0] if second >= 65 else []
        assert boxes(history, view=view, dashboard=dashboard) == expected, f"second {second}"
    before = snapshot(NOON + 40, *QUIET)
    assert boxes(history.as_of(before), view=view, dashboard=dashboard, now=before) == []


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_load_while_another_screen_was_drawn_has_a_chart_within_seconds(
    window: ChartWindow,
) -> None:
    history = seen(QUIET, seconds=1801)
    dashboard, view = Dashboard(history), replace(VIEW, window=window)
    assert boxes(history, view=view, dashboard=dashboard) == []
    seen(LOADED, (), 5, history, 1801)
    seen(QUIET, (), 6, history, 1806)
    assert boxes(history, view=view, dashboard=dashboard) == [0]


def test_another_window_is_drawn_at_once() -> None:
    history = seen(busy(8))
    dashboard, first = Dashboard(history), []
    for window in WINDOWS:
        parts = dashboard.rows(history.latest, replace(VIEW, window=window), 200, 50)
        first += re.findall(r"-\d+m", "".join(text for row in parts.graphs for text, _ in row))[:1]
    assert first == ["-1m", "-5m", "-30m", "-5m"]


def test_a_tool_that_reads_a_free_gpu_gives_it_no_chart() -> None:
    history = seen(QUIET, seconds=60)
    seen([replace(QUIET[0], utilization_gpu=1), *QUIET[1:]], (), 1, history, 60)
    assert boxes(history) == []


@pytest.mark.parametrize("height", [50, 60])
def test_charts_leave_room_for_all_processes_in_the_past_too(height: int) -> None:
    now, history = demo()
    playing = Playing(NOON, NOON - 3600, NOON, False, 1.0, True)
    past = replace(VIEW, timeline=Timeline(playing, (), live=True))
    for view in (VIEW, past):
        parts = Dashboard(history).rows(now, view, 200, height)
        assert parts.graphs
        assert parts.layout.room >= len(now.processes)


# -- what can be read ----------------------------------------------------------------------------


def test_a_gpu_that_is_busy_all_the_time_is_a_line_at_its_level() -> None:
    text = lines(seen([BUSY]), 120, 35)
    curve = [line for line in text if re.search("[│┤]", line) and re.search("[⠁-⣿]", line[6:60])]
    assert len(curve) <= 2
    assert "⣿" not in "".join(text)
    top = next(y for y, line in enumerate(text) if "100%┤" in line)
    near = text[top] + text[top + 1]
    assert re.search("[⠉⠒⠤⣀]{9}", near), "97 % is in the row of 100 % or below it"


@pytest.mark.parametrize(("size", "cards"), [((120, 35), 1), ((200, 50), 8), ((80, 24), 1)])
def test_load_and_memory_are_two_lines_in_one_chart_with_names_and_ticks(
    size: tuple[int, int], cards: int
) -> None:
    card = replace(BUSY, utilization_gpu=30)
    history = seen([of_index(card, index) for index in range(cards)])
    rows = Dashboard(history).rows(history.latest, VIEW, *size).all()
    text = "\n".join(lines_of(rows))
    assert "⠒ util  30%  ─ mem 64.0/80.0G" in text
    for tick in ("100%┤", "50%┤", " 0┼", "now"):
        assert tick in text
    for style, look in (("graph.util", "[⠉⠒⠤⣀]{9}"), ("graph.memory", "[▁─▔]{9}")):
        drawn = [part for row in rows for part, name in row if name == style]
        assert any(re.search(look, part) for part in drawn)
    plain = {substitute(part[-1]) for row in rows for part, name in row if name == "graph.util"}
    other = {substitute(part[-1]) for row in rows for part, name in row if name == "graph.memory"}
    assert not (plain - {" "}) & (other - {" "}), "without colours, in ASCII too"


def test_a_tall_chart_has_a_tick_at_each_quarter() -> None:
    text = "\n".join(lines(seen([BUSY]), 120, 50))
    assert [tick for tick in ("25%┤", "50%┤", "75%┤", "100%┤") if tick not in text] == []


@pytest.mark.parametrize("size", [(120, 35), (200, 50), (100, 24)])
def test_the_window_is_that_of_the_view_on_every_chart(size: tuple[int, int]) -> None:
    history = seen([BUSY], seconds=200)
    for window, first in ((MINUTE, "-1m"), (FIVE, "-5m"), (HALF_HOUR, "-30m"), (ALL, "-4m")):
        text = "\n".join(lines(history, *size, replace(VIEW, window=window)))
        assert first in text
        assert not re.search(r"\d s\b", text), "no number of seconds of its own"
        keys = footer_keys(replace(VIEW, window=window, has_charts=True), None)
        assert [key.label for key in keys if key.names[0].startswith("chart_") and key.on] == [
            window.label
        ]


def test_where_no_axis_has_times_the_title_names_the_window() -> None:
    text = lines(seen([BUSY], processes(16), 3), 100, 24)
    assert not any(" now" in line for line in text)
    assert any(line.endswith(" 5m") for line in text if "⠒ util" in line)


def test_the_past_has_times_of_day() -> None:
    history = seen([BUSY], seconds=300)
    playing = Playing(NOON + 299, NOON, NOON + 299, False, 1.0, True)
    past = replace(VIEW, timeline=Timeline(playing, (), live=True))
    text = "\n".join(lines(history, 120, 35, past))
    assert "12:04" in text
    assert "now" not in text.partition("──")[0]


def test_a_paused_screen_has_times_of_day_and_a_resumed_one_does_not() -> None:
    history = seen([BUSY], seconds=300)
    dashboard = Dashboard(history)
    ends = []
    for paused in (False, True, False):
        parts = dashboard.rows(history.latest, replace(VIEW, paused=paused), 120, 35)
        charts = "".join(text for row in parts.gpus + parts.graphs for text, _ in row)
        ends.append((" now" in charts, "12:04" in charts))
    assert ends == [(True, False), (False, True), (True, False)]


@pytest.mark.parametrize("cards", [1, 8])
def test_a_chart_is_drawn_no_more_than_once_a_second(
    cards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[object] = []

    def counted(draw: Callable[..., list[Row]]) -> Callable[..., list[Row]]:
        def draw_counted(
            shown: object, history: History, card: Gpu, *rest: Any, **more: Any
        ) -> Any:
            drawn.append((card.uuid, shown))
            return draw(shown, history, card, *rest, **more)

        return draw_counted

    for draw in (chart_plot.series_rows, chart_plot.share_rows):
        monkeypatch.setattr(chart_plot, draw.__name__, counted(draw))
    screen = Live(replace(VIEW, interval=0.1), 200, 50, seen(busy(cards), seconds=100))
    for window in (MINUTE, HALF_HOUR):
        drawn.clear()
        screen.change(window=window)
        for tenth in range(100):
            screen.see(snapshot(NOON + 100 + tenth / 10, *busy(cards)))
            screen.draw()
        # A cell of half an hour is drawn while it passes, after five seconds at most.
        most = 11 if window is MINUTE else 4
        assert max(drawn.count(one) for one in drawn) <= most


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
@pytest.mark.parametrize("start", [1800, 1809, 1823])
def test_a_long_chart_shows_what_is_new_within_seconds(start: int, size: tuple[int, int]) -> None:
    screen = Live(replace(VIEW, window=HALF_HOUR), *size, seen([BUSY], seconds=start - 1))

    def drawn_at(second: int, card: Gpu) -> list[str]:
        screen.see(snapshot(NOON + second, card))
        rows = screen.draw().all()
        return ["".join(part for part, style in row if style == "graph.util") for row in rows]

    before = drawn_at(start - 1, BUSY)
    # Twice five seconds: the mean of the newest value may first change by less than a dot.
    for second in range(12):
        if drawn_at(start + second, IDLE) != before:
            return
    pytest.fail("the load has ended and the chart does not show it")


def test_a_chart_moves_by_whole_cells_and_its_past_stays() -> None:
    history = history_of()
    before: dict[int, list[float | None]] = {}
    for second in range(2400):
        card = replace(BUSY, utilization_gpu=second * second % 101)
        history.add(snapshot(NOON + second, card))
        if second < 1800:
            continue
        end = end_of_chart(history.now, 1800.0, 100)
        cell = int(end.time // 36)
        values = UTIL.values(history, card, "utilization_gpu", 1800.0, 100, end)
        kept = {cell - 49 + at // 2: values[at : at + 2] for at in range(0, 98, 2)}
        assert [kept[at] for at in kept if at in before] == [
            before[at] for at in kept if at in before
        ]
        before = kept
        assert values[-2] is not None, "the newest cell is drawn from what there is"
        assert (values[-1] is None) is (known(end.seen) % 36 < 18)


def test_a_chart_of_the_past_has_no_values_of_later() -> None:
    history = seen([BUSY], seconds=1810)
    viewed = known(history.latest)
    seen([IDLE], (), 30, history, 1810)
    past = history.as_of(viewed)
    end = end_of_chart(past.now, 1800.0, 100)
    values = UTIL.values(past, BUSY, "utilization_gpu", 1800.0, 100, end)
    assert {value for value in values if value is not None} == {97}


def test_a_screen_that_stands_still_keeps_its_charts_when_drawn_anew() -> None:
    history = seen([BUSY], seconds=1820)
    end = end_of_chart(history.now, 1800.0, 100)
    ask = (BUSY, "utilization_gpu", 1800.0, 100, end)
    before = UTIL.values(history, *ask)
    seen([IDLE], (), 100, history, 1820)
    assert UTIL.values(history, *ask) == before


@pytest.mark.parametrize(("load", "first", "below"), [(96, "⠒⠒⠒⠒", "▔▔▔▔"), (80, "▁▁▁▁", "⠒⠒⠒⠒")])
def test_a_second_curve_between_two_rows_stands_in_the_one_without_the_first(
    load: int, first: str, below: str
) -> None:
    assert curve_cells([load] * 8, 100.0, 4, 6, [83] * 8)[:2] == [first, below]


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_the_newest_value_of_a_second_curve_is_visible_where_both_meet(
    width: int, unknown: int
) -> None:
    both = [50.0] * (2 * width - unknown) + [None] * unknown
    row = curve_cells(both, 100.0, width, 1, both)[0]
    assert row.rstrip()[-1] == "─"
    assert re.search("[⠁-⣿]", row), "and the first is visible beside it"


@pytest.mark.parametrize("rows", [3, 4, 5, 8])
def test_a_value_is_drawn_at_its_place_between_the_labels_of_the_axis(rows: int) -> None:
    span = span_until(NOON, 300.0, 80)
    for percent in range(0, 101, 5):
        size = 30, rows + 2
        drawn = plot(
            [[]], ["graph.util"], PERCENT, (100.0, None), span, {}, *size, second=[percent]
        )
        text = lines_of(drawn)
        assert "100%┤" in text[0]
        assert " 0┼" in text[rows]
        at = next(y for y in range(rows) if text[y][-1] in "▔─▁")
        height = at + "▔─▁".index(text[at][-1]) / 2
        expected = 0.5 + (1 - percent / 100) * rows
        # Half a row at zero, which is drawn above the axis, and half a step of a row.
        assert abs(height - expected) <= 0.5 * (1 - percent / 100) + 0.26


def test_a_cap_that_is_changed_is_drawn_at_once() -> None:
    card = replace(BUSY, power_draw=300.0, power_limit=700.0)
    screen = Live(VIEW, 120, 35, seen([card]))
    for seconds, limit in ((300.0, 700.0), (300.1, 450.0)):
        screen.see(snapshot(NOON + seconds, replace(card, power_limit=limit)))
        assert ("450W┤" in "".join(lines_of(screen.draw().all()))) is (limit == 450.0)
