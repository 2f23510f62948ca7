"""The large charts of a GPU's page: values over time with limits and events.

They are drawn with ``braille`` of ``text.cells``: a chart of 98 by 11 cells takes 0.6 ms, but
3.6 ms with plotext, which also has no gaps in curves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model.makers import maker_of, metric_label
from gpumon.model.snapshot import GPU_METRIC, Unknown
from gpumon.text.cells import Field, Row, fill, row_width, spark
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    gib,
    gibibytes,
    number,
    temperature,
)
from gpumon.text.units import degree, degrees, memory_units
from gpumon.ui.view.chart_plot import EDGE, Scale, event_bits, legend, plot, span_until
from gpumon.ui.view.gpu_text import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.config.keymap import ChartWindow
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History
    from gpumon.recording.recording import Event
    from gpumon.ui.view.memo import Memo


_SPANS = (
    *(60.0 * one for one in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
    *(3600.0 * one for one in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21)),
)
_DAY = 86400.0
"""The history of a GPU is no longer."""
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 5.0
"""A chart is drawn again after the time of a dot, within these bounds."""

_GUTTER = 3
_COLUMNS = ((190, 4), (150, 3), (70, 2))
"""The least width for a number of charts side by side."""
_MAIN = 4
"""Number of charts, from the first, that come first where not all fit."""
_LEAST_MAIN, _LEAST_HEIGHT, _MOST_HEIGHT = 4, 5, 18
"""Height of a chart with its title: the least of the main ones, of all, and the most."""
_WITH_TIMES = 7
"""From this height on each row of charts has its times of day, otherwise only the last."""
_LINE_LABEL, _LINE_NOW = 13, 18


class _Chart(Struct, frozen=True):
    """A chart of one value, or of two values in opposite directions.

    Attributes:
        label: The name.
        fields: One field of ``Gpu``, or two: the first is drawn upwards, the second downwards.
        styles: The style of each field.
        now: The newest value of each field, and the dimmed text after them.
        axis_label: The label of a value on the axis.
        top: The maximum possible value; ``None`` scales to the highest value.
        limit: A value that should not be exceeded, if the GPU reports one.
        peak: The text of the highest value.
        convert: Converts a value to the unit of the axis.
        unit: The unit of round values on the axis; ``None`` is bytes.
        zero: The unit after a zero.
        optional: Whether it is left out where there is nothing in it: most GPUs do not tell it.
    """

    label: str
    fields: tuple[str, ...]
    styles: tuple[str, ...]
    now: Callable[[Gpu], tuple[str, ...]]
    axis_label: Callable[[float], str]
    top: Callable[[Gpu], float | None] = lambda _: None
    limit: Callable[[Gpu], float | None] = lambda _: None
    peak: Callable[[float], str] = lambda value: f"{value:.0f}"
    convert: Callable[[float], float] = lambda value: value
    unit: float | None = 1.0
    zero: str = ""
    optional: bool = False


def _of(value: str, whole: str, unit: str) -> tuple[str, ...]:
    """A value and its maximum with the unit: ``340``, ``/700 W``."""
    return value, "" if value == UNKNOWN else f"/{whole}{unit}" if whole != UNKNOWN else unit


def _percent_chart(label: str, field: str, style: str, *, optional: bool = False) -> _Chart:
    return _Chart(
        label,
        (field,),
        (style,),
        lambda gpu: _of(number(getattr(gpu, field)), UNKNOWN, " %"),
        lambda value: f"{value:.0f}%",
        top=lambda _: 100.0,
        zero=" %",
        optional=optional,
    )


def _traffic_chart(label: str, received: str, sent: str) -> _Chart:
    return _Chart(
        label,
        (received, sent),
        ("graph.memory", "graph.util"),
        lambda gpu: (
            f"▲ in {rate(getattr(gpu, received)):>4}",
            f"  ▼ out {rate(getattr(gpu, sent)):>4}",
            "  a second",
        ),
        lambda value: rate(value).replace(".0", ""),
        peak=rate,
        unit=None,
        zero=" a second",
    )


_CHARTS = (
    _percent_chart("utilisation", "utilization_gpu", "graph.util"),
    _Chart(
        "memory",
        ("memory_used",),
        ("graph.memory",),
        lambda gpu: _of(gibibytes(gpu.memory_used), gibibytes(gpu.memory_total), f" {gib()}"),
        lambda value: f"{value:.{0 if value >= 1000 else 1}f}".removesuffix(".0") + "G",
        top=lambda gpu: None if gpu.memory_total is None else float(gpu.memory_total),
        peak=lambda value: f"{value:.1f}",
        convert=lambda value: value / memory_units().kilo ** 3,
    ),
    _Chart(
        "power",
        ("power_draw",),
        ("graph.other",),
        lambda gpu: _of(number(gpu.power_draw), number(gpu.power_limit), " W"),
        lambda value: f"{value:.0f}W",
        limit=lambda gpu: gpu.power_limit,
    ),
    _Chart(
        "temperature",
        ("temperature_gpu",),
        ("graph.other",),
        lambda gpu: _of(
            temperature(gpu.temperature_gpu), temperature(gpu.temperature_slowdown), f" {degree()}"
        ),
        lambda value: f"{value:.0f}°",
        limit=lambda gpu: gpu.temperature_slowdown,
        convert=degrees,
    ),
    _percent_chart("SMs active", "sm_active", "graph.util", optional=True),
    _percent_chart("DRAM", "dram_active", "graph.memory", optional=True),
    _Chart(
        "SM clock",
        ("clock_sm",),
        ("graph.other",),
        lambda gpu: _of(number(gpu.clock_sm), number(gpu.clock_sm_max), " MHz"),
        lambda value: f"{value:.0f}",
        top=lambda gpu: gpu.clock_sm_max,
    ),
    _traffic_chart("PCIe", "pcie_rx", "pcie_tx"),
    _traffic_chart("NVLink", "nvlink_rx", "nvlink_tx"),
)


def window_seconds(window: ChartWindow, history: History) -> float:
    """The length of a window; the window of everything is rounded up."""
    if window.seconds is not None:
        return window.seconds
    seen = 0.0 if history.started is None else history.now - history.started
    return next((span for span in _SPANS if span >= seen), _DAY)


def window_title(window: ChartWindow, history: History) -> str:
    """The heading of the charts."""
    if window.seconds is not None or history.started is None:
        return window.title
    seen = history.now - history.started
    return f"{window.title}: {duration(seen)}" if seen <= _DAY else "The last 24 hours"


class _ChartSource(NamedTuple):
    """What the charts show.

    Attributes:
        gpu: The GPU.
        history: The history.
        seconds: The length of the charts.
        events: Returns the events between two moments.
    """

    gpu: Gpu
    history: History
    seconds: float
    events: Callable[[float, float], Iterable[Event]]


class _Seen(NamedTuple):
    """What is known of the values of a chart.

    Attributes:
        peak: The text on the highest value.
        nothing: Why there is nothing to draw; empty if there is something.
    """

    peak: str
    nothing: str = ""


class _DrawnChart(NamedTuple):
    """A chart without its title.

    Attributes:
        rows: The rows.
        events: The kinds of its events, by cell.
    """

    rows: list[Row]
    events: Mapping[int, int]


def least_rows(width: int) -> int:
    """The least height at which ``chart_rows`` draws the main charts."""
    return _least_rows(_MAIN, _LEAST_MAIN, width)


def _least_rows(count: int, tall: int, width: int) -> int:
    """The rows that a number of charts need, and one for their times of day."""
    return -(-count // _across(width)) * tall + 1 if count else 0


def _across(width: int) -> int:
    return next((count for least, count in _COLUMNS if width >= least), 1)


def chart_rows(
    memo: Memo,
    gpu: Gpu,
    history: History,
    window: ChartWindow,
    events: Callable[[float, float], Iterable[Event]],
    width: int,
    room: int,
) -> list[Row]:
    """All charts, and the legend.

    The charts share the room: all of them, or the main ones if not all fit, or a line for each.
    What does not fit follows below. A chart with nothing in it has a line that says so.

    Args:
        memo: Caches the charts of this GPU.
        gpu: The GPU.
        history: The history; the charts end at its newest moment.
        window: The time to show.
        events: Returns the events of the GPU between two moments.
        width: Cells.
        room: Rows of the visible part of the page that are left.
    """
    if history.started is None:
        return []
    source = _ChartSource(gpu, history, window_seconds(window, history), events)
    seen = {chart.label: _seen(memo.part(chart.label), chart, source) for chart in _CHARTS}
    told = [
        chart
        for chart in _CHARTS
        if not (chart.optional and seen[chart.label].nothing)
        and GPU_METRIC[chart.fields[0]].is_for(maker_of(gpu.name))
    ]
    charts = [chart for chart in told if not seen[chart.label].nothing]
    if not charts and len({seen[chart.label].nothing for chart in told}) == 1:
        return [fill([(seen[_CHARTS[0].label].nothing, "dim")], width)]
    above, empty = (
        [_empty_line(chart, gpu, seen[chart.label], width) for chart in part if chart not in charts]
        for part in (told[:_MAIN], told[_MAIN:])
    )
    room -= len(above)
    below = len(empty) + bool(charts)
    if room - below >= _least_rows(len(charts), _LEAST_HEIGHT, width):
        first, room = charts, room - below
    else:
        first = [chart for chart in _CHARTS[:_MAIN] if chart in charts]
        if room < _least_rows(len(first), _LEAST_MAIN, width):
            first = []
    rows, bits = _grid(memo, first, seen, source, width, room)
    if not first:
        rows = [_line(memo.part(chart.label), chart, source, seen, width) for chart in charts]
    rest = [chart for chart in charts if chart not in first]
    tall = _least_rows(len(rest), _WITH_TIMES, width)
    more, others = _grid(memo, rest, seen, source, width, tall)
    if charts:
        empty.append(legend((bits or others).values(), width))
    return [*above, *rows, *more, *empty]


def _empty_line(chart: _Chart, gpu: Gpu, seen: _Seen, width: int) -> Row:
    label = metric_label(chart.label, gpu.name)
    return fill([(fit(label, _LINE_LABEL) + seen.nothing, "dim")], width)


def _grid(
    memo: Memo,
    charts: Sequence[_Chart],
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
    gap: Field = (" " * _GUTTER, "")
    rows: list[Row] = []
    bits: Mapping[int, int] = {}
    for line in range(down):
        beside = charts[line * len(charts) // down : (line + 1) * len(charts) // down]
        each = (width - _GUTTER * (len(beside) - 1)) // len(beside)
        times = not shared or line == down - 1
        height = tall + (shared and times)
        drawn = [_drawn(memo.part(one.label), one, source, each, height, times) for one in beside]
        bits = drawn[-1].events
        titles = [_title(one, source.gpu, seen[one.label].peak, each) for one in beside]
        rows += [
            fill([field for row in parts for field in (*row, gap)][:-1], width)
            for parts in (titles, *zip(*(one.rows for one in drawn), strict=True))
        ]
    return rows, bits


def _key(source: _ChartSource, count: int) -> tuple[object, ...]:
    """Changes when a chart of that many values is to be drawn again."""
    history, seconds = source.history, source.seconds
    interval = min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds / count))
    return history, seconds, int(history.now / interval)


def _seen(memo: Memo, chart: _Chart, source: _ChartSource) -> _Seen:
    gpu = source.gpu
    if not _is_reported(gpu, chart):
        return _Seen("", f"{UNKNOWN}  {gpu.unknown[chart.fields[0]].value}")
    newest = any(getattr(gpu, field) for field in chart.fields)
    return memo.by((*_key(source, 1), newest), _find_peak, chart, source)


def _find_peak(chart: _Chart, source: _ChartSource) -> _Seen:
    gpu, history, seconds, _ = source
    peaks = [history.gpu_series(gpu.uuid).peak(field, seconds) for field in chart.fields]
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return _Seen("", f"{UNKNOWN}  nothing known of it in this time")
    text, zero = (chart.peak(chart.convert(value)) for value in (max(known), 0.0))
    return _Seen(f"peak {text}", f"{text}{chart.zero} throughout" if text == zero else "")


def _line(
    memo: Memo, chart: _Chart, source: _ChartSource, seen: Mapping[str, _Seen], width: int
) -> Row:
    """A chart in one line: its newest value, and a small graph of the first field."""
    peak = seen[chart.label].peak
    now = "".join(chart.now(source.gpu))
    room = max(1, width - _LINE_LABEL - _LINE_NOW - cell_width(peak) - 1)
    graph = memo.by((*_key(source, room), room), _draw_line, chart, source, room)
    return fill(
        [
            (fit(metric_label(chart.label, source.gpu.name), _LINE_LABEL), "dim"),
            (fit(now, _LINE_NOW - 1) + " ", "strong"),
            (graph, chart.styles[0]),
            (f" {peak}", "dim"),
        ],
        width,
    )


def _draw_line(chart: _Chart, source: _ChartSource, count: int) -> str:
    gpu, history, seconds, _ = source
    values = history.gpu_series(gpu.uuid).buckets(chart.fields[0], seconds, count)
    known = [value for value in values if value is not None]
    top = chart.top(gpu) or chart.limit(gpu) or 0.0
    return spark(values, max([top, *known]) or 1.0)


def _drawn(
    memo: Memo, chart: _Chart, source: _ChartSource, width: int, height: int, times: bool
) -> _DrawnChart:
    gpu = source.gpu
    key = (*_key(source, _dots(width)), width, height, chart.top(gpu), chart.limit(gpu))
    return memo.by(key, _draw, chart, source, width, height - 1, times)


def _draw(chart: _Chart, source: _ChartSource, width: int, height: int, times: bool) -> _DrawnChart:
    gpu, history, seconds, events = source
    dots = _dots(width)
    span = span_until(history.now, seconds, dots)
    curves = [
        [
            _converted(chart, value)
            for value in history.gpu_series(gpu.uuid).buckets(field, seconds, dots)
        ]
        for field in chart.fields
    ]
    bits = event_bits(events(span.start, span.start + seconds), span, width)
    top, limit = _converted(chart, chart.top(gpu)), _converted(chart, chart.limit(gpu))
    scale = Scale(chart.axis_label, chart.unit, top, limit)
    rows = plot(curves, chart.styles, scale, span, bits, width, height, times=times)
    return _DrawnChart(rows, bits)


def _converted(chart: _Chart, value: float | None) -> float | None:
    return None if value is None else chart.convert(value)


def _dots(width: int) -> int:
    """The number of values in a chart: two per cell."""
    return 2 * max(1, width - EDGE)


def _is_reported(gpu: Gpu, chart: _Chart) -> bool:
    """Whether the GPU reports these values, even if they are unknown at the moment."""
    return any(
        getattr(gpu, field) is not None or gpu.unknown.get(field) not in _NEVER
        for field in chart.fields
    )


_NEVER = (Unknown.NOT_SUPPORTED, Unknown.NOT_RECORDED, Unknown.NO_PERMISSION)


def _title(chart: _Chart, gpu: Gpu, peak: str, width: int) -> Row:
    """The name, the newest value, and the highest value if it fits."""
    *values, rest = chart.now(gpu)
    newest, limit = getattr(gpu, chart.fields[0]), chart.limit(gpu)
    styles = chart.styles if len(values) > 1 else ("strong",)
    if limit is not None and newest is not None and newest >= limit:
        styles = ("state.warning",)
    label = metric_label(chart.label, gpu.name)
    fields: list[Field] = [(" " * EDGE, ""), (f"{label}  ", "dim")]
    fields += zip(values, styles, strict=True)
    used = row_width(fields)
    if used + cell_width(rest) <= width:
        fields.append((rest, "dim"))
        used += cell_width(rest)
    if used + 2 + cell_width(peak) <= width:
        fields.append((fit_right(peak, width - used), "dim"))
    return fill(fields, width)
