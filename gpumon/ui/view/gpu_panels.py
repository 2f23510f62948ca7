"""Large graphs of GPUs: tall panels with charts or meters, and tiles below the list."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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
from gpumon.ui.view.chart_series import MAIN_SERIES, MEMORY, UTIL
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
_LEAST_CHART = 28
_TALL_PANEL, _LEAST_CHARTS = 16, 11
"""Rows of a panel with two lines of charts, and with one."""


def panel_rows(frame: Frame, height: int) -> list[Row]:
    """One panel per GPU, each of this height."""
    memo, snapshot, history, states, view, width = frame
    graph = frame.graph
    held = memo(holders, snapshot.processes)
    across = _charts_across(width, height)
    rows: list[Row] = []
    for gpu in snapshot.gpus:
        state = states[gpu.uuid]
        holder = held.get(gpu.uuid) or unlisted_holder(gpu)
        part, second = memo.part(gpu.uuid), int(snapshot.time)
        mark = WATCHED if gpu.uuid in view.watched.gpus else " "
        title = part(_title, gpu.index, gpu.name, state, holder, width, mark)
        marks = Marks(gpu.uuid == view.gpu, gpu.uuid in view.gpu_tags)
        rows.append(with_sign(title, marks) if marks.cursor or marks.tagged else title)
        stale = is_stale(gpu, state)
        if across:
            # The graphs change once a second.
            key = (width, height - 2, second, graph, across)
            charts = part.by(key, _draw_charts, gpu, history, *key)
            rows += _charts_rows(part, gpu, charts, width, stale)
        else:
            rows += _meters_rows(part, gpu, history, width, height - 1, second, graph, stale)
    return rows


def _title(
    index: int, model: str | None, state: Finding, holder: Sequence[str], width: int, mark: str
) -> Row:
    name = f" {index}{mark} {short_name(model)}  "
    words = state_fields(
        state, holder, width - cell_width(name), style="panel.", holder_style="header"
    )
    return fill([(name, "panel.title"), *words], width, "header")


def _charts_across(width: int, height: int) -> int:
    """Number of charts side by side; 0 if four charts do not fit."""
    across = 2 if height >= _TALL_PANEL else len(MAIN_SERIES)
    fits = height >= _LEAST_CHARTS and width >= across * (_LEAST_CHART + 2)
    return across if fits else 0


class _ChartLine(NamedTuple):
    """Charts side by side, drawn once a second: what they show, and the rows below the captions."""

    graphs: Sequence[ChartSeries[Gpu]]
    rows: Sequence[Row]


def _draw_charts(
    gpu: Gpu,
    history: History,
    width: int,
    height: int,
    second: int,
    first: ChartSeries[Gpu],
    across: int,
) -> list[_ChartLine]:
    """Four charts in lines of ``across``; a column of dots is a second."""
    each = width // across - 2
    others = [graph for graph in MAIN_SERIES if graph is not first]
    order = (first, *others)[: len(MAIN_SERIES)]
    lines = len(order) // across
    drawn: list[_ChartLine] = []
    for line in range(lines):
        graphs = order[line * across : (line + 1) * across]
        # A remainder of rows goes to the first line of charts.
        tall = height // lines + (line < height % lines) - 1
        charts = [graph.graph(history, gpu, each, tall, second) for graph in graphs]
        rows: list[Row] = []
        for texts in zip(*charts, strict=True):
            fields: list[Field] = []
            for text, graph in zip(texts, graphs, strict=True):
                fields += [(f" {text} ", graph.style)]
            rows.append(fill(fields, width))
        drawn.append(_ChartLine(graphs, rows))
    return drawn


def _charts_rows(
    memo: Memo, gpu: Gpu, charts: Sequence[_ChartLine], width: int, stale: bool
) -> list[Row]:
    """The charts with the newest value above each, and a line of further values."""
    rows: list[Row] = []
    for line in charts:
        each = width // len(line.graphs)
        captions = (
            memo.part(graph.name)(_caption, graph, *graph.texts(gpu), each, stale)
            for graph in line.graphs
        )
        rows.append(fill(chain.from_iterable(captions), width))
        rows += line.rows
    return [*rows, memo(_facts_row, tuple(_facts(gpu)), width)]


def _facts_row(facts: Sequence[tuple[str, str]], width: int) -> Row:
    """The facts that fit, in one line."""
    row: list[Field] = []
    for label, text in facts:
        fact: list[Field] = [(f" {label} ", "dim"), (f"{text}  ", "")]
        if row_width([*row, *fact]) <= width:
            row += fact
    return fill(row, width)


def _caption(graph: ChartSeries[Gpu], value: str, unit: str, width: int, stale: bool) -> Row:
    """A value's name, the newest value, and the seconds that the chart below shows."""
    fields: list[Field] = [
        (f" {graph.name}  ", "dim"),
        (value, "stale" if stale else "strong"),
        (unit, "dim"),
    ]
    room = width - row_width(fields)
    return fill([*fields, (fit_right(f"{2 * (width - 2)} s ", room), "dim")], width)


def _meters_rows(
    memo: Memo,
    gpu: Gpu,
    history: History,
    width: int,
    height: int,
    second: int,
    graph: ChartSeries[Gpu],
    stale: bool,
) -> list[Row]:
    """Meters on the left, graphs on the right."""
    left = max(_LEAST_METERS, min(_MOST_METERS, width * 2 // 5))
    key = (width - left - 1, height, second, graph)
    graphs = memo.by(key, _draw_graphs, gpu, history, *key)
    lines = _meters(gpu, left - 2, stale)
    lines += [
        fill([(fit(label, _LABEL), "dim"), (text, "")], left - 2) for label, text in _facts(gpu)
    ]
    lines += [()] * (height - len(lines))
    return [
        fill([(" ", ""), *fill(start, left), *drawn], width)
        for start, drawn in zip(lines, graphs, strict=False)
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


def _draw_graphs(
    gpu: Gpu, history: History, width: int, height: int, second: int, graph: ChartSeries[Gpu]
) -> list[list[Field]]:
    """Two graphs side by side; a column of dots is a second, and the newest is at the right."""
    each = max(4, (width - 4) // 2)
    span = 2 * each
    tall = max(1, height - 1)
    graphs = (graph, UTIL if graph is MEMORY else MEMORY)
    left, right = (shown.graph(history, gpu, each, tall, second) for shown in graphs)
    lines: list[list[Field]] = [
        [("   ", ""), (left[y], graphs[0].style), (" ", ""), (right[y], graphs[1].style)]
        for y in range(tall)
    ]
    last = "last " if all(each >= cell_width(f"{g.name}, last {span} s") for g in graphs) else ""
    captions = [fit(f"{g.name}, {last}{span} s", each) for g in graphs]
    lines.append([("   ", ""), (captions[0], "dim"), (" ", ""), (captions[1], "dim")])
    return lines


_LEAST_WIDTH = 140
"""A narrower terminal has only the small graphs in the table."""
_ACROSS = 4
_LEAST_GPUS, _MOST_GPUS = 3, 8
_LEAST_HEIGHT, _MOST_HEIGHT = 6, 10
_GAP = 2


def tile_height(gpus: int, width: int, room: int) -> int:
    """Height of each graph with its title, if all have that many rows; 0 if they do not fit."""
    if width < _LEAST_WIDTH or not _LEAST_GPUS <= gpus <= _MOST_GPUS:
        return 0
    height = room // -(-gpus // _ACROSS)
    return min(height, _MOST_HEIGHT) if height >= _LEAST_HEIGHT else 0


def tiles_height(gpus: int, height: int) -> int:
    """Height of all graphs."""
    return height * -(-gpus // _ACROSS)


def tile_rows(frame: Frame, height: int) -> list[Row]:
    """The graphs of all GPUs; empty if their height is 0.

    Args:
        frame: What is drawn.
        height: Height of each graph, from ``tile_height``.
    """
    if not height:
        return []
    memo, snapshot, history, states, _, width = frame
    graph = frame.graph
    across, each = _grid(snapshot, width)
    uuids = tuple(gpu.uuid for gpu in snapshot.gpus)
    # The graphs change once a second.
    key = (width, height, int(snapshot.time), graph, uuids)
    drawn = memo.by(key, _graphs, snapshot, history, width, height, graph)
    rows: list[Row] = []
    for line, graphs in enumerate(drawn):
        beside = snapshot.gpus[line * across : (line + 1) * across]
        titles = []
        for gpu in beside:
            state = states[gpu.uuid]
            sign, style = state_glyph(state), STATE_STYLES[state.severity]
            stale = "stale" if is_stale(gpu, state) else ""
            texts = (gpu.index, graph.name, *graph.texts(gpu), sign, style, stale)
            titles.append(memo.part(gpu.uuid)(_tile_title, *texts, each))
        rest = width - len(titles) * (_GAP + each)
        rows += [memo.part(line)(_join_tile_titles, rest, *titles), *graphs]
    return rows


def _grid(snapshot: Snapshot, width: int) -> tuple[int, int]:
    """Number of graphs side by side, and the width of each."""
    across = min(len(snapshot.gpus), _ACROSS)
    return across, (width - _GAP * (across + 1)) // across


def _graphs(
    snapshot: Snapshot, history: History, width: int, height: int, graph: ChartSeries[Gpu]
) -> list[list[Row]]:
    """The graphs without titles: for each line of graphs, its rows."""
    across, each = _grid(snapshot, width)
    second = int(snapshot.time)
    drawn = [graph.graph(history, gpu, each, height - 1, second) for gpu in snapshot.gpus]
    parts: list[list[Row]] = []
    for first in range(0, len(drawn), across):
        rows: list[Row] = []
        for line in zip(*drawn[first : first + across], strict=True):
            fields: list[Field] = []
            for text in line:
                fields += [(" " * _GAP, ""), (text, graph.style)]
            rows.append(fill(fields, width))
        parts.append(rows)
    return parts


def tile_at(snapshot: Snapshot, width: int, height: int, x: int, y: int) -> Gpu | None:
    """The GPU whose graph is drawn at a cell; ``None`` if there is none."""
    across, each = _grid(snapshot, width)
    index = y // height * across + min(x // (each + _GAP), across - 1)
    return snapshot.gpus[index] if index < len(snapshot.gpus) else None


def _join_tile_titles(rest: int, *titles: Row) -> Row:
    """Titles side by side, each as wide as its graph, and the cells to their right."""
    fields = [field for title in titles for field in ((" " * _GAP, ""), *title)]
    return (*fields, (" " * rest, ""))


def _tile_title(
    index: int, key: str, value: str, unit: str, sign: str, style: str, stale: str, width: int
) -> Row:
    """The GPU's index, its newest value, and the seconds that the graph shows."""
    fields: list[Field] = [
        (f"{sign} ", style),
        (f"{index:<2} ", stale or "strong"),
        (f"{key} ", stale or "dim"),
        (value, stale or "strong"),
        (unit, stale or "dim"),
    ]
    room = width - row_width(fields)
    return fill([*fields, (fit_right(f"{2 * width} s", max(0, room)), "dim")], width)
