"""The large charts of a GPU's page: values over time with limits and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model.makers import maker_of, metric_label
from gpumon.model.snapshot import GPU_METRIC, Unknown
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import UNKNOWN, cell_width, fit, fit_right
from gpumon.ui.view.chart_plot import (
    chart_width,
    event_bits,
    legend,
    series_rows,
    side_by_side,
    span_until,
    sparkline,
)
from gpumon.ui.view.chart_series import (
    ALL_ZERO,
    AXIS_WIDTH,
    GPU_SERIES,
    NO_VALUES,
    PAGE_SERIES,
    end_of_chart,
    highest,
    value_count,
    window_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import ChartWindow
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History
    from gpumon.recording.recording import Recording
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries
    from gpumon.ui.view.frame import Memo


_COLUMNS = ((190, 4), (150, 3), (70, 2))
"""The least width for a number of charts side by side."""
_LEAST_MAIN, _LEAST_HEIGHT, _MOST_HEIGHT = 4, 5, 18
"""Height of a chart with its title: the least of the main ones, of all, and the most."""
_WITH_TIMES = 7
"""From this height on each row of charts has its times, otherwise only the last."""
_LINE_LABEL, _LINE_NOW = 13, 18
_PEAK_VALUES = 120
"""The highest of so many values is the peak of a window."""


class _ChartSource(NamedTuple):
    """What the charts show."""

    gpu: Gpu
    history: History
    seconds: float  # The length of the charts.
    recording: Recording  # Has the events.
    is_past: bool  # Whether they do not end now.


class _Seen(NamedTuple):
    """What is known of the values of a chart."""

    peak: str  # The text on the highest value.
    nothing: str = ""  # Why there is nothing to draw; empty if there is something.


class _Peak(Struct, gc=False):
    """The highest value of a chart; newer values raise it until it is searched again."""

    value: float | None


class _DrawnChart(NamedTuple):
    """A chart without its title."""

    rows: list[Row]
    events: Mapping[int, int]  # The kinds of its events, by cell.


def least_height(width: int) -> int:
    """The least height at which ``chart_rows`` draws the main charts."""
    return _least_height(len(PAGE_SERIES), _LEAST_MAIN, width)


def _least_height(count: int, tall: int, width: int) -> int:
    """The rows that a number of charts need, and one for their times."""
    return -(-count // _across(width)) * tall + 1 if count else 0


def _across(width: int) -> int:
    return next((count for least, count in _COLUMNS if width >= least), 1)


def chart_rows(
    memo: Memo,
    gpu: Gpu,
    history: History,
    window: ChartWindow,
    recording: Recording,
    width: int,
    room: int,
    *,
    is_past: bool = False,
) -> list[Row]:
    """All charts, and the legend.

    The charts share the room: all of them, or the main ones if not all fit, or a line for each.
    What does not fit follows below. A chart with nothing in it has a line that says so.

    Args:
        memo: Caches the charts of this GPU.
        gpu: The GPU.
        history: The history; the charts end at its newest sample.
        window: The time to show.
        recording: Has the events of that time.
        width: Cells.
        room: Rows of the visible part of the page that are left.
        is_past: Whether the charts do not end now: their axis has clock times.
    """
    if history.started is None:
        return []
    source = _ChartSource(gpu, history, window_seconds(window, history), recording, is_past)
    seen = {series.label: _seen(memo.part(series.label), series, source) for series in GPU_SERIES}
    listed = [
        series
        for series in GPU_SERIES
        if not (series.optional and seen[series.label].nothing)
        and GPU_METRIC[series.fields[0]].is_for(maker_of(gpu.name))
    ]
    charts = [series for series in listed if not seen[series.label].nothing]
    if not charts and len({seen[series.label].nothing for series in listed}) == 1:
        return [fill([(seen[GPU_SERIES[0].label].nothing, "dim")], width)]
    above, empty = (
        [
            _empty_line(series, gpu, seen[series.label], width)
            for series in listed
            if series not in charts and (series in PAGE_SERIES) is is_main
        ]
        for is_main in (True, False)
    )
    room -= len(above)
    below = len(empty) + bool(charts)
    if room - below >= _least_height(len(charts), _LEAST_HEIGHT, width):
        first, room = charts, room - below
    else:
        first = [series for series in PAGE_SERIES if series in charts]
        if room < _least_height(len(first), _LEAST_MAIN, width):
            first = []
    rows, bits = _grid(memo, first, seen, source, width, room)
    if not first:
        rows = [_line(memo.part(series.label), series, source, seen, width) for series in charts]
    rest = [series for series in charts if series not in first]
    tall = _least_height(len(rest), _WITH_TIMES, width)
    more, others = _grid(memo, rest, seen, source, width, tall)
    if charts:
        empty.append(legend((bits or others).values(), width))
    return [*above, *rows, *more, *empty]


def _empty_line(series: ChartSeries[Gpu], gpu: Gpu, seen: _Seen, width: int) -> Row:
    label = metric_label(series.label, gpu.name)
    return fill([(fit(label, _LINE_LABEL) + seen.nothing, "dim")], width)


def _grid(
    memo: Memo,
    charts: Sequence[ChartSeries[Gpu]],
    seen: Mapping[str, _Seen],
    source: _ChartSource,
    width: int,
    room: int,
) -> tuple[list[Row], Mapping[int, int]]:
    """Charts in rows that fill the width, and the kinds of events of the last one by cell."""
    if not charts:
        return [], {}
    down = -(-len(charts) // _across(width))
    tall = min(_MOST_HEIGHT, room // down)
    shared = tall < _WITH_TIMES
    if shared:
        tall = min(_WITH_TIMES, (room - 1) // down)
    rows: list[Row] = []
    bits: Mapping[int, int] = {}
    for line in range(down):
        beside = charts[line * len(charts) // down : (line + 1) * len(charts) // down]
        each = chart_width(width, len(beside))
        times = not shared or line == down - 1
        height = tall + (shared and times)
        drawn = [
            _drawn(memo.part(series.label), series, source, each, height, times)
            for series in beside
        ]
        bits = drawn[-1].events
        titles = [_title(series, source.gpu, seen[series.label].peak, each) for series in beside]
        rows += side_by_side(
            [[title, *chart.rows] for title, chart in zip(titles, drawn, strict=True)], width
        )
    return rows, bits


def _seen(memo: Memo, series: ChartSeries[Gpu], source: _ChartSource) -> _Seen:
    gpu, quantity = source.gpu, series.quantity
    if not _is_reported(gpu, series):
        return _Seen("", f"{UNKNOWN}  {gpu.unknown[series.fields[0]].value}")
    end = end_of_chart(source.history.now, source.seconds, _PEAK_VALUES)
    peak = memo.by((source.history, source.seconds, end), _find_peak, series, source, end)
    newest: list[float | None] = [getattr(gpu, field) for field in series.fields]
    peak.value = highest([peak.value, *newest])
    if peak.value is None:
        return _Seen("", f"{UNKNOWN}  {NO_VALUES}")
    text = quantity.text(peak.value)
    # Zero on a scale that begins elsewhere, such as Fahrenheit, is a value like any other.
    is_zero = text == quantity.text(0.0) and not quantity.convert(0.0)
    return _Seen(f"peak {text}", ALL_ZERO if is_zero else "")


def _find_peak(series: ChartSeries[Gpu], source: _ChartSource, end: ChartEnd) -> _Peak:
    history, gpu, seconds = source.history, source.gpu, source.seconds
    values = [
        value
        for field in series.fields
        for value in series.values(history, gpu, field, seconds, _PEAK_VALUES, end, peak=True)
    ]
    return _Peak(highest(values))


def _line(
    memo: Memo,
    series: ChartSeries[Gpu],
    source: _ChartSource,
    seen: Mapping[str, _Seen],
    width: int,
) -> Row:
    """A chart in one line: its newest value, and a small graph of the first field."""
    peak = seen[series.label].peak
    now = "".join(_newest(series, source.gpu))
    room = max(1, width - _LINE_LABEL - _LINE_NOW - cell_width(peak) - 1)
    end = end_of_chart(source.history.now, source.seconds, 2 * room)
    shown = source.history, source.gpu, source.seconds, room, end
    key = (source.history, source.seconds, room, end)
    graph = memo.by(key, sparkline, series, *shown)
    return fill(
        [
            (fit(metric_label(series.label, source.gpu.name), _LINE_LABEL), "dim"),
            (fit(now, _LINE_NOW - 1) + " ", "strong"),
            (graph, series.style),
            (f" {peak}", "dim"),
        ],
        width,
    )


def _drawn(
    memo: Memo,
    series: ChartSeries[Gpu],
    source: _ChartSource,
    width: int,
    height: int,
    times: bool,
) -> _DrawnChart:
    end = end_of_chart(source.history.now, source.seconds, value_count(width))
    shown = source.history, source.seconds, series.bounds(source.gpu), source.is_past
    key = (shown, end, width, height, times)
    return memo.by(key, _draw, series, source, end, width, height - 1, times)


def _draw(
    series: ChartSeries[Gpu],
    source: _ChartSource,
    end: ChartEnd,
    width: int,
    height: int,
    times: bool,
) -> _DrawnChart:
    gpu, history, seconds, recording, is_past = source
    span = span_until(end.time, seconds, value_count(width))
    events = recording.events(span.start, span.start + seconds)
    bits = event_bits((event for event in events if gpu.uuid in event.gpus), span, width)
    rows = series_rows(
        series, history, gpu, span, end, bits, width, height, times=times, is_past=is_past
    )
    return _DrawnChart(rows, bits)


def _is_reported(gpu: Gpu, series: ChartSeries[Gpu]) -> bool:
    """Whether the GPU reports these values, even if they are unknown at the moment."""
    return any(
        getattr(gpu, field) is not None or gpu.unknown.get(field) not in _NEVER
        for field in series.fields
    )


_NEVER = (Unknown.NOT_SUPPORTED, Unknown.NOT_RECORDED, Unknown.NO_PERMISSION)


def _newest(series: ChartSeries[Gpu], gpu: Gpu) -> tuple[str, ...]:
    """The newest value of each field, and the dimmed text after them."""
    values: list[float | None] = [getattr(gpu, field) for field in series.fields]
    texts = [UNKNOWN if value is None else series.quantity.text(value) for value in values]
    if len(texts) > 1:
        received, sent = texts
        return f"▲ in {received:>4}", f"  ▼ out {sent:>4}", f" {series.quantity.unit()}"
    return texts[0], "" if values[0] is None else series.rest(gpu, on_page=True)


def _title(series: ChartSeries[Gpu], gpu: Gpu, peak: str, width: int) -> Row:
    """The name, the newest value, and the highest value if it fits."""
    *values, rest = _newest(series, gpu)
    _, limit = series.bounds(gpu)
    newest = series.newest(gpu)
    styles = series.styles if len(values) > 1 else ("strong",)
    if limit is not None and newest is not None and newest >= limit:
        styles = ("state.warning",)
    label = metric_label(series.label, gpu.name)
    fields: list[Field] = [(" " * AXIS_WIDTH, ""), (f"{label}  ", "dim")]
    fields += zip(values, styles, strict=True)
    used = row_width(fields)
    if used + cell_width(rest) <= width:
        fields.append((rest, "dim"))
        used += cell_width(rest)
    if used + 2 + cell_width(peak) <= width:
        fields.append((fit_right(peak, width - used), "dim"))
    return fill(fields, width)
