"""Charts of GPUs on the dashboard: tall panels with charts or meters, and tiles below the list."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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
    ChartEnd,
    end_of_chart,
    end_of_second,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Frame, Memo


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
    for band, high in zip(arrangement, _parts_of(height, len(arrangement)), strict=True):
        columns: list[list[Row]] = []
        for numbers, each in zip(band, _widths(band, width), strict=True):
            column: list[Row] = []
            for place, tall in zip(numbers, _parts_of(high, len(numbers)), strict=True):
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
        return _parts_of(width, len(band))
    first = -(-width // 2)
    return [first, *_parts_of(width - first, len(band) - 1)]


def _parts_of(whole: int, count: int) -> list[int]:
    """A number of cells in equal parts; the remainder goes to the first ones."""
    return [whole // count + (part < whole % count) for part in range(count)]


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


_LEAST_TILE_WIDTH, _LEAST_TILE_HEIGHT = 36, 6
_LEAST_WIDTH = 100
"""A narrower terminal has only the small graphs in the table."""
_TALL_TILE = 3
"""A tile that is not as many times wider than high leaves its line to fewer others."""
_BUSY_SHARE, _BUSY_PERCENT = 0.02, 5.0
"""Less memory is the driver's on a free GPU, and a lower load that of a tool that reads it."""
_BUSY_BUCKETS = 30
_BUSY_SECONDS = 300.0
"""A chart stays for this time after the last load, or for all that it shows: the screen is calm."""
_REREAD_SECONDS = 10
"""The newest values of a GPU without load are read again after this time."""


class Tiles(NamedTuple):
    """How the charts of the GPUs stand below their list."""

    height: int  # Of each chart with its title; 0 shows none.
    lines: int  # Lines of charts.

    @property
    def rows(self) -> int:
        """Height of all of them."""
        return self.height * self.lines


NO_TILES = Tiles(0, 0)


def tiles_of(count: int, width: int, room: int) -> Tiles:
    """The arrangement of a number of charts in that many rows, if they fit."""
    across = (width + 1) // (_LEAST_TILE_WIDTH + 1)
    if not count or width < _LEAST_WIDTH or not across:
        return NO_TILES
    lines = -(-count // across)
    if room // lines < _LEAST_TILE_HEIGHT:
        return NO_TILES
    while lines < count and room // (lines + 1) >= _LEAST_TILE_HEIGHT:
        each = width // -(-count // lines)
        if each >= _TALL_TILE * (room // lines):
            break
        lines += 1
    return Tiles(room // lines, lines)


def least_tiles(count: int, width: int) -> Tiles:
    """The lowest arrangement of a number of charts."""
    across = max(1, (width + 1) // (_LEAST_TILE_WIDTH + 1))
    return tiles_of(count, width, -(-count // across) * _LEAST_TILE_HEIGHT)


def charted_gpus(
    memo: Memo, history: History, snapshot: Snapshot, seconds: float, width: int
) -> tuple[Gpu, ...]:
    """The GPUs that had something to show in this time: load, or more memory than a free GPU.

    There are none on a terminal that is too narrow for charts.
    """
    if width < _LEAST_WIDTH:
        return ()
    seconds = max(seconds, _BUSY_SECONDS)
    shown: list[Gpu] = []
    for gpu in snapshot.gpus:
        part = memo.part(gpu.uuid)
        if _has_load(gpu.utilization_gpu, gpu.memory_used, gpu.memory_total):
            part(_loaded_at, snapshot.time)
        elif not _had_load(part, history, gpu, seconds, snapshot.time):
            continue
        shown.append(gpu)
    return tuple(shown)


def _loaded_at(time: float) -> float:
    """A time at which a GPU had load: a memo keeps the newest."""
    return time


def _has_load(load: float | None, memory: float | None, total: float | None) -> bool:
    is_busy = (load or 0.0) >= _BUSY_PERCENT
    return is_busy or (memory or 0.0) > _BUSY_SHARE * (total or math.inf)


def _had_load(memo: Memo, history: History, gpu: Gpu, seconds: float, now: float) -> bool:
    """Whether a GPU without load had some in this time.

    Its complete parts are read once. The newest ones are known from the frames before, and read
    from time to time for what happened while another screen was drawn.
    """
    step, total = seconds / _BUSY_BUCKETS, gpu.memory_total
    loaded_at = memo.newest(_loaded_at)
    if loaded_at is not None and 0 <= now - loaded_at < 2 * step:
        return True
    second, whole = int(now), math.floor(now / step)
    lately = (history, gpu, 2 * step, 2, end_of_second(second))
    before = (history, gpu, seconds, _BUSY_BUCKETS, ChartEnd((whole - 0.001) * step, True))
    return memo.part("newest").by(
        (seconds, second // _REREAD_SECONDS, total), _had_load_until, *lately
    ) or memo.by((seconds, whole, total), _had_load_until, *before)


def _had_load_until(history: History, gpu: Gpu, seconds: float, count: int, end: ChartEnd) -> bool:
    series = history.gpu_series(gpu.uuid)
    load, memory = (
        max(
            filter(
                None,
                series.buckets(
                    field, seconds, count, end.time, peak=True, complete=end.is_complete
                ),
            ),
            default=None,
        )
        for each in LOAD_AND_MEMORY
        for field in each.fields
    )
    return _has_load(load, memory, gpu.memory_total)


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
    # A key of the user changes nothing else of them.
    key = (frame.snapshot, tiles, gpus, view.graph, view.window, view.is_past, frame.width)
    return frame.memo.by(key, _draw_tiles, frame, tiles, gpus)


def _draw_tiles(frame: Frame, tiles: Tiles, gpus: Sequence[Gpu]) -> list[Row]:
    memo, _, _, states, view, width = frame
    shown = _shown_series(frame.graph)[0]
    label = "" if tiles.height > _WITH_TIMES else view.window.label
    rows: list[Row] = []
    for line in range(tiles.lines):
        beside = _tiles_in_line(gpus, tiles, line)
        titles: list[Row] = []
        plots: list[list[Row]] = []
        for gpu, each in zip(beside, _parts_of(width, len(beside)), strict=True):
            state, part = states[gpu.uuid], memo.part(gpu.uuid)
            sign, style = state_glyph(state), STATE_STYLES[state.severity]
            values, stale = _values(shown, gpu), is_stale(gpu, state)
            titles.append(part(_tile_title, gpu.index, sign, style, *values, each, label, stale))
            plots.append(_plot(frame, part, gpu, shown, each, tiles.height - 1))
        part = memo.part(line)
        rows += [part(_join, *titles), *part(_side_by_side, *plots)]
    return rows


def _tiles_in_line(gpus: Sequence[Gpu], tiles: Tiles, line: int) -> Sequence[Gpu]:
    count = len(gpus)
    return gpus[line * count // tiles.lines : (line + 1) * count // tiles.lines]


def _join(*parts: Row) -> Row:
    return tuple(chain.from_iterable(parts))


def _side_by_side(*plots: list[Row]) -> list[Row]:
    return [_join(*parts) for parts in zip(*plots, strict=True)]


def tile_at(gpus: Sequence[Gpu], tiles: Tiles, width: int, x: int, y: int) -> Gpu | None:
    """The GPU whose chart is drawn at a cell; ``None`` if there is none."""
    if not tiles.height or y >= tiles.rows:
        return None
    beside = _tiles_in_line(gpus, tiles, y // tiles.height)
    for gpu, each in zip(beside, _parts_of(width, len(beside)), strict=True):
        if x < each:
            return gpu
        x -= each
    return None


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
