"""Drawings of GPUs on the dashboard: panels with charts or meters, and charts below the list."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from gpumon.model.makers import maker_of
from gpumon.model.snapshot import GPU_METRIC
from gpumon.text.cells import Field, Row, bar, fill, row_width
from gpumon.text.formatting import (
    cell_width,
    fit,
    fit_right,
    memory_size,
    number,
)
from gpumon.text.table import WATCHED, Marks, with_sign
from gpumon.ui.view.chart_series import (
    AXIS_WIDTH,
    FIRST_SIGN,
    LOAD_AND_MEMORY,
    MAIN_SERIES,
    SECOND_SIGN,
    end_of_chart,
    value_count,
)
from gpumon.ui.view.gpu_text import (
    STATE_STYLES,
    holders,
    is_stale,
    rate,
    short_name,
    state_fields,
    state_glyph,
    unlisted_holder,
)
from gpumon.ui.view.gpu_tiles import parts_of, tiles_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries
    from gpumon.ui.view.frame import Frame, Memo
    from gpumon.ui.view.gpu_tiles import Tiles


_LABEL = 8
_VALUE = 10
_LEAST_METERS, _MOST_METERS = 44, 72
_LEAST_CHART = 24
"""Cells of the least chart beside meters, if there is another one."""
_WITH_TIMES = 6
"""From this height on the rows of a chart, without its title, end with the times."""

_Arrangement: TypeAlias = "Sequence[Sequence[Sequence[int]]]"
"""The numbers of the charts of a panel: bands from the top, their columns, charts in a column."""
_SPLIT: _Arrangement = (((0,), (1, 2)),)
_ABREAST: _Arrangement = (((0,), (1,), (2,)),)
_STACKED: _Arrangement = (((0,),), ((1,), (2,)))
_PAIR: _Arrangement = (((0,), (1,)),)
_SINGLE: _Arrangement = (((0,),),)
_ARRANGEMENTS = ((108, 16, _SPLIT), (108, 10, _ABREAST), (72, 16, _STACKED))
"""The least width and height of a panel with charts; a smaller one has meters and one chart."""


def panel_rows(frame: Frame, height: int) -> list[Row]:
    """One panel per GPU, each of this height."""
    memo, snapshot, _, states, view, width = frame
    held = memo(holders, snapshot.processes)
    rows: list[Row] = []
    for gpu in snapshot.gpus:
        state = states[gpu.uuid]
        holder = held.get(gpu.uuid) or unlisted_holder(gpu)
        part = memo.part(gpu.uuid)
        mark = WATCHED if gpu.uuid in view.watched.gpus else " "
        title = part(_title, gpu.index, gpu.name, state, holder, width, mark)
        marks = Marks(gpu.uuid == view.gpu, gpu.uuid in view.gpu_tags)
        rows.append(with_sign(title, marks) if marks.cursor or marks.tagged else title)
        stale = is_stale(gpu, state)
        arrangement = _arrangement(width, height)
        if arrangement is None:
            rows += _meters_rows(frame, part, gpu, height - 1, stale)
        else:
            rows += _charts_rows(frame, part, gpu, arrangement, width, height - 2, stale)
            rows.append(part(_facts_row, tuple(_facts(gpu)), width))
    return rows


def _title(
    index: int, model: str | None, state: Finding, holder: Sequence[str], width: int, mark: str
) -> Row:
    name = f" {index}{mark} {short_name(model)}  "
    words = state_fields(
        state, holder, width - cell_width(name), style="panel.", holder_style="header"
    )
    return fill([(name, "panel.title"), *words], width, "header")


def _arrangement(width: int, height: int) -> _Arrangement | None:
    """How the charts of a panel stand; ``None`` if it has meters."""
    fitting = (
        arrangement
        for least_width, least_height, arrangement in _ARRANGEMENTS
        if width >= least_width and height >= least_height
    )
    return next(fitting, None)


def _shown_series(graph: ChartSeries[Gpu]) -> Sequence[Sequence[ChartSeries[Gpu]]]:
    """What each of three charts shows, the chosen series in the first one."""
    others = [(series,) for series in MAIN_SERIES if series not in (*LOAD_AND_MEMORY, graph)]
    chosen = [] if graph in LOAD_AND_MEMORY else [(graph,)]
    return [*chosen, LOAD_AND_MEMORY, *others]


def _charts_rows(
    frame: Frame,
    memo: Memo,
    gpu: Gpu,
    arrangement: _Arrangement,
    width: int,
    height: int,
    stale: bool,
) -> list[Row]:
    """The charts of a panel, with the newest values above each."""
    shown, label = _shown_series(frame.graph), frame.view.window.label
    rows: list[Row] = []
    for band, high in zip(arrangement, parts_of(height, len(arrangement)), strict=True):
        columns: list[list[Row]] = []
        for numbers, each in zip(band, _widths(band, width), strict=True):
            column: list[Row] = []
            for place, tall in zip(numbers, parts_of(high, len(numbers)), strict=True):
                part, charted = memo.part(place), shown[place]
                at_foot = "" if tall > _WITH_TIMES else label
                column.append(part(_chart_title, *_values(charted, gpu), each, at_foot, stale))
                column += _plot(frame, part, gpu, charted, each, tall - 1)
            columns.append(column)
        rows += columns[0] if len(columns) == 1 else _side_by_side(*columns)
    return rows


def _widths(band: Sequence[Sequence[int]], width: int) -> list[int]:
    """The widths of the columns of a band; the first chart has half of the width."""
    if len(band) == 1 or band[0] != (0,):
        return parts_of(width, len(band))
    first = -(-width // 2)
    return [first, *parts_of(width - first, len(band) - 1)]


def _plot(
    frame: Frame,
    memo: Memo,
    gpu: Gpu,
    shown: Sequence[ChartSeries[Gpu]],
    width: int,
    height: int,
) -> list[Row]:
    """A chart of one series, or of two as shares, without its title; its last cell is blank."""
    end = end_of_chart(frame.snapshot.time, frame.seconds, value_count(width - 1))
    bounds = [series.bounds(gpu) for series in shown]
    key = (frame.seconds, end, frame.view.is_past, shown, bounds, width, height)
    return memo.by(key, _draw_plot, frame, gpu, shown, end, width, height)


def _draw_plot(
    frame: Frame,
    gpu: Gpu,
    shown: Sequence[ChartSeries[Gpu]],
    end: ChartEnd,
    width: int,
    height: int,
) -> list[Row]:
    from gpumon.ui.view.chart_plot import series_rows, share_rows, span_until

    history, is_past = frame.history, frame.view.is_past
    span = span_until(end.time, frame.seconds, value_count(width - 1))
    times = height >= _WITH_TIMES
    size = width - 1, height
    if len(shown) > 1:
        rows = share_rows(shown, history, gpu, span, end, *size, times=times, is_past=is_past)
    else:
        rows = series_rows(
            shown[0], history, gpu, span, end, {}, *size, times=times, is_past=is_past
        )
    return [(*row, (" ", "")) for row in rows]


def _values(
    shown: Sequence[ChartSeries[Gpu]], gpu: Gpu
) -> tuple[tuple[tuple[str, str, str, str], ...]]:
    """What a chart's title says of each series: name, style, newest value, and what follows it."""
    return (
        tuple(
            (series.name if len(shown) == 1 else series.short, series.style, *series.texts(gpu))
            for series in shown
        ),
    )


def _chart_title(
    values: Sequence[tuple[str, str, str, str]],
    width: int,
    label: str,
    stale: bool,
    start: Sequence[Field] = ((" " * AXIS_WIDTH, ""),),
) -> Row:
    """The names of the series of a chart with their newest values.

    Args:
        values: From ``_values``.
        width: Cells.
        label: The window, if no axis says it.
        stale: Whether the values are old.
        start: What stands over the axis of values.
    """
    fields, used = list(start), AXIS_WIDTH
    name_style, unit_style, value_style = ("stale",) * 3 if stale else ("dim", "dim", "strong")
    signs = (f"{FIRST_SIGN} ", f"  {SECOND_SIGN} ")
    for sign, (name, style, value, unit) in zip(signs, values, strict=False):
        used += len(sign) + len(name) + 1 + len(value)
        # A number that is cut would look like another number.
        if used > width:
            break
        fields += [(sign, style), (f"{name} ", name_style), (value, value_style)]
        if used + len(unit) <= width:
            fields.append((unit, unit_style))
            used += len(unit)
    else:
        fields.append((fit_right(label, max(0, width - used - 1)), "dim"))
    return fill(fields, width)


def _facts_row(facts: Sequence[tuple[str, str]], width: int) -> Row:
    """The facts that fit, in one line."""
    row: list[Field] = []
    for label, text in facts:
        fact: list[Field] = [(f" {label} ", "dim"), (f"{text}  ", "")]
        if row_width([*row, *fact]) <= width:
            row += fact
    return fill(row, width)


def _meters_rows(frame: Frame, memo: Memo, gpu: Gpu, height: int, stale: bool) -> list[Row]:
    """Meters on the left, charts on the right."""
    width = frame.width
    left = max(_LEAST_METERS, min(_MOST_METERS, width * 2 // 5))
    right = width - left
    both = frame.graph not in LOAD_AND_MEMORY and right >= 2 * _LEAST_CHART
    drawn = _charts_rows(frame, memo, gpu, _PAIR if both else _SINGLE, right, height, stale)
    lines = _meters(gpu, left - 2, stale)
    lines += [
        fill([(fit(label, _LABEL), "dim"), (text, "")], left - 2) for label, text in _facts(gpu)
    ]
    lines += [()] * (height - len(lines))
    return [
        (*fill([(" ", ""), *start], left), *row) for start, row in zip(lines, drawn, strict=False)
    ]


def _meters(gpu: Gpu, width: int, stale: bool) -> list[Row]:
    """The main values, each with a bar."""
    return [_meter(series, gpu, width, stale) for series in MAIN_SERIES]


def _meter(series: ChartSeries[Gpu], gpu: Gpu, width: int, stale: bool) -> Row:
    label = series.name if len(series.name) < _LABEL else series.short
    value, unit = series.text(gpu), series.rest(gpu)
    filled = series.share(gpu)
    style = "bar.stale" if stale else series.bar_style(filled)
    return (
        (fit(label, _LABEL), "dim"),
        (fit_right(value, _VALUE - cell_width(unit)), "stale" if stale else "strong"),
        (unit, "dim"),
        (" ", ""),
        (bar(filled, width - _LABEL - _VALUE - 1), style),
    )


def _facts(gpu: Gpu) -> list[tuple[str, str]]:
    """Further values, most wanted first: the panel shows those that fit."""
    state = "" if gpu.pstate is None else f"  P{gpu.pstate}"
    core, memory = f"{number(gpu.clock_sm):>4}", f"{number(gpu.clock_memory):>5}"
    generation, lanes = number(gpu.pcie_generation), number(gpu.pcie_width)
    activity, fan = number(gpu.utilization_memory, "%"), number(gpu.fan_speed, "%")
    received, sent = rate(gpu.pcie_rx), rate(gpu.pcie_tx)
    encoder, decoder = number(gpu.utilization_encoder, "%"), number(gpu.utilization_decoder, "%")
    facts = [
        ("clocks", f"{maker_of(gpu.name).cores} {core}  memory {memory} MHz{state}"),
        ("PCIe", f"gen {generation} x{lanes:<2} rx {received:>5}/s tx {sent:>5}/s"),
    ]
    if GPU_METRIC["memory_reserved"].is_for(maker_of(gpu.name)):
        reserved = memory_size(gpu.memory_reserved)
        facts.append(("driver", f"reserves {reserved}  memory active {activity}"))
    elif gpu.utilization_memory is not None:
        facts.append(("memory", f"active {activity}"))
    if gpu.sm_active is not None:
        tensor, dram = number(gpu.tensor_active, "%"), number(gpu.dram_active, "%")
        sms = number(gpu.sm_active, "%")
        facts.insert(1, ("SMs", f"{sms:>4}  tensor {tensor:>4}  DRAM {dram:>4}"))
    if gpu.fan_speed is not None:
        facts.append(("fan", fan))
    if gpu.utilization_encoder or gpu.utilization_decoder:
        # The last line, because it appears and disappears.
        facts.append(("video", f"encoder {encoder:>4}  decoder {decoder:>4}"))
    return facts


def tile_rows(frame: Frame, tiles: Tiles, gpus: Sequence[Gpu]) -> list[Row]:
    """The charts of GPUs.

    Args:
        frame: What is drawn.
        tiles: From ``tiles_of``.
        gpus: The GPUs that have a chart.
    """
    if not tiles.height:
        return []
    view = frame.view
    # A press of a key draws the dashboard again, but changes nothing else of the charts.
    key = (frame.snapshot, tiles, gpus, view.graph, view.window, view.is_past, frame.width)
    return frame.memo.by(key, _draw_tiles, frame, tiles, gpus)


def _draw_tiles(frame: Frame, tiles: Tiles, gpus: Sequence[Gpu]) -> list[Row]:
    memo, _, _, states, view, width = frame
    shown = _shown_series(frame.graph)[0]
    label = "" if tiles.height > _WITH_TIMES else view.window.label
    rows: list[Row] = []
    for line in range(tiles.lines):
        titles: list[Row] = []
        plots: list[list[Row]] = []
        for gpu, each in tiles_beside(gpus, tiles, line, width):
            state, part = states[gpu.uuid], memo.part(gpu.uuid)
            sign, style = state_glyph(state), STATE_STYLES[state.severity]
            values, stale = _values(shown, gpu), is_stale(gpu, state)
            titles.append(part(_tile_title, gpu.index, sign, style, *values, each, label, stale))
            plots.append(_plot(frame, part, gpu, shown, each, tiles.height - 1))
        part = memo.part(line)
        rows += [part(_join, *titles), *part(_side_by_side, *plots)]
    return rows


def _join(*parts: Row) -> Row:
    return tuple(chain.from_iterable(parts))


def _side_by_side(*plots: list[Row]) -> list[Row]:
    return [_join(*parts) for parts in zip(*plots, strict=True)]


def _tile_title(
    index: int,
    sign: str,
    style: str,
    values: Sequence[tuple[str, str, str, str]],
    width: int,
    label: str,
    stale: bool,
) -> Row:
    """The state and the index of the GPU over the axis, then what the chart shows."""
    start = ((f"{sign} ", style), (fit(str(index), AXIS_WIDTH - 2), "stale" if stale else "strong"))
    return _chart_title(values, width, label, stale, start)
