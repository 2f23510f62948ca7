"""The page that compares GPUs: their values, what differs between them, and their charts.

A series has one scale and one window for all GPUs, so that lines of one length mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.findings import gpu_state
from gpumon.model.makers import maker_of, metric_label
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS
from gpumon.text.cells import Field, Row, fill, row_width, spark
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    fit,
    fit_right,
    gibibytes,
    index_list,
    mig_name,
    printable,
)
from gpumon.ui.view.chart_plot import (
    chart_width,
    curve_cells,
    curve_fields,
    side_by_side,
    span_until,
    time_rows,
)
from gpumon.ui.view.chart_series import (
    ALL_ZERO,
    GPU_SERIES,
    NO_VALUES,
    end_of_chart,
    highest,
    window_seconds,
    window_title,
)
from gpumon.ui.view.gpu_line import brief_names
from gpumon.ui.view.gpu_page import IDENTITY, value_or_reason
from gpumon.ui.view.gpu_text import (
    clock_heading,
    holders,
    short_name,
    state_fields,
    unlisted_holder,
)
from gpumon.ui.view.page_layout import Fact, Section, fact_rows, inside_width, page_rows, text_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.keymap import ChartWindow
    from gpumon.model.metrics import Metric
    from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries
    from gpumon.ui.view.frame import Memo

_CAUSES = (
    *("clock_event_reasons", "power_limit", "pcie_generation", "pcie_width", "pstate"),
    *("clock_memory", "nvlink_active", "ecc_mode", "persistence_mode", "compute_mode", "mig_mode"),
    *("recovery_action", "remapped_rows_pending", "remapped_rows_failure"),
)
"""Values that may explain why one GPU is slower than another, most likely first."""
_COMPARED: tuple[Metric, ...] = (
    *(GPU_METRIC[field] for field in (*_CAUSES, "name", "memory_total")),
    *(
        metric
        for metric in GPU_METRICS
        if metric.tier is Tier.STATIC and metric.field not in {*IDENTITY, *_CAUSES}
    ),
    GPU_METRIC["vbios_version"],
)
_FACT_LABEL = 26
_FACTS_SHARE = 5
"""One in this many rows may show what differs above the charts."""

_INDEX, _LEAST_STATE, _MOST_STATE = 3, 13, 48
_SPREAD = 0.1
"""GPUs differ in a value if the highest and the lowest are further apart, as a share of all."""

_COLUMNS = ((190, 3), (110, 2))
"""The least width for a number of series side by side."""
_VALUE, _PEAK = 8, 7
"""Cells for the newest value before a chart, and for the highest one after it."""
_MOST_TALL = 4
"""Most rows of the chart of a GPU in a series."""


class _Line(NamedTuple):
    """A field of a series, of which each GPU has a chart."""

    series: ChartSeries[Gpu]
    field: str
    label: str


class _Source(NamedTuple):
    """What the charts show."""

    gpus: Sequence[Gpu]
    history: History
    seconds: float
    end: ChartEnd
    room: int  # The cells of a chart.

    @property
    def key(self) -> tuple[object, ...]:
        """Changes when the charts are to be drawn again."""
        return tuple(gpu.uuid for gpu in self.gpus), *self[1:]


def compare_rows(
    memo: Memo,
    gpus: Sequence[Gpu],
    gone: Mapping[str, str],
    history: History,
    snapshot: Snapshot | None,
    window: ChartWindow,
    width: int,
    height: int,
    *,
    is_past: bool = False,
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        memo: Caches the charts of these GPUs.
        gpus: Their newest values, in the order of the dashboard.
        gone: By UUID since when the driver no longer lists a GPU.
        history: The history; the charts end at its newest sample.
        snapshot: The newest snapshot.
        window: The time that the charts show.
        width: Cells.
        height: Rows of the visible part.
        is_past: Whether the charts do not end now: their axis has clock times.
    """
    table = Section("", lambda size: _table(gpus, gone, history, snapshot, size))
    rows = page_rows([table], width, airy=False)
    facts, same = _differences(gpus, history.now)
    first: list[Row] = []
    rest = list(facts)
    while rest:
        fact = fact_rows(rest[:1], inside_width(width), _FACT_LABEL)
        if first and len(first) + len(fact) > height // _FACTS_SHARE:
            break
        first += fact
        del rest[0]
    if facts:
        rows += page_rows([Section(f"What differs ({same})", lambda _: first)], width, airy=False)
    else:
        none = Section("", lambda size: text_rows(f"No setting differs ({same}).", size, "dim"))
        rows += page_rows([none], width, airy=False)
    room = height - len(rows) - 1
    seconds = window_seconds(window, history)
    sections = [
        Section(
            window_title(window, history),
            lambda size: _charts(memo, gpus, history, seconds, size, room, is_past),
        ),
        Section("What else differs", lambda size: fact_rows(rest, size, _FACT_LABEL)),
    ]
    return rows + page_rows(sections, width, airy=False)


# -- the values now --------------------------------------------------------------------------------


def _table(
    gpus: Sequence[Gpu],
    gone: Mapping[str, str],
    history: History,
    snapshot: Snapshot | None,
    width: int,
) -> list[Row]:
    """A row for each GPU and its MIG devices; the values in which GPUs differ are bold."""
    names = frozenset(short_name(gpu.name) for gpu in gpus)
    brief, _ = brief_names(names)
    name_width = max(map(cell_width, brief.values())) + 1
    columns = [series for series in GPU_SERIES if len(series.fields) == 1]
    texts = {series.label: [_value(series, gpu) for gpu in gpus] for series in columns}
    room = width - _INDEX - name_width - _LEAST_STATE
    shown: list[tuple[ChartSeries[Gpu], int]] = []
    for series in columns:
        cells = texts[series.label]
        if all(value == UNKNOWN for value, _ in cells):
            continue
        size = 2 + max(
            cell_width(_heading(series, gpus)),
            *(cell_width(value) + cell_width(rest) for value, rest in cells),
        )
        if size > room:
            break
        shown.append((series, size))
        room -= size
    state_width = _LEAST_STATE + min(room, _MOST_STATE - _LEAST_STATE)
    heading = f"{' # ':{_INDEX}}{fit('GPU', name_width)}{fit('state', state_width)}"
    heading += "".join(fit_right(_heading(series, gpus), size) for series, size in shown)
    rows = [fill([(heading, "heading")], width)]
    held = holders(() if snapshot is None else snapshot.processes)
    styles = [
        (
            "strong" if _differs(series, gpus) else "",
            "state.note" if len({rest for _, rest in texts[series.label] if rest}) > 1 else "dim",
        )
        for series, _ in shown
    ]
    for number, gpu in enumerate(gpus):
        fields: list[Field] = [
            (f"{gpu.index:>2} ", "strong"),
            (fit(brief[short_name(gpu.name)], name_width), ""),
        ]
        if gpu.uuid in gone:
            fields.append((fit(gone[gpu.uuid], state_width), "state.warning"))
        else:
            state = gpu_state(history, gpu)
            holder = held.get(gpu.uuid) or unlisted_holder(gpu)
            fields += state_fields(state, holder, state_width - 1)
            fields.append((" ", ""))
        for (series, size), (value_style, rest_style) in zip(shown, styles, strict=True):
            value, rest = texts[series.label][number]
            fields += [
                (fit_right(value, size - cell_width(rest)), value_style),
                (rest, rest_style),
            ]
        rows.append(fill(fields, width))
        rows += [_device(gpu, device, width) for device in gpu.mig]
    return rows


def _heading(series: ChartSeries[Gpu], gpus: Sequence[Gpu]) -> str:
    """The name of a value, of the clock in the words of the makers."""
    return clock_heading(gpus) if series.fields == ("clock_sm",) else series.short or series.label


def _value(series: ChartSeries[Gpu], gpu: Gpu) -> tuple[str, str]:
    """The newest value in a constant width, with its limit or unit."""
    if series.newest(gpu) is None:
        return UNKNOWN, ""
    return series.texts(gpu)


def _differs(series: ChartSeries[Gpu], gpus: Sequence[Gpu]) -> bool:
    known = [value for gpu in gpus if (value := series.newest(gpu)) is not None]
    top = max([series.whole(gpu) or series.top or 0 for gpu in gpus] + known, default=0)
    return bool(top) and bool(known) and max(known) - min(known) > _SPREAD * top


def _device(gpu: Gpu, device: MigInstance, width: int) -> Row:
    text = f" └ MIG {mig_name(gpu.index, device.index)} {printable(device.profile or '')}"
    sizes = gibibytes(device.memory_used), gibibytes(device.memory_total)
    fields: list[Field] = [(f"{text}  ", "dim"), ("memory ", "dim"), (sizes[0], "")]
    fields.append((f"/{sizes[1]}G", "dim"))
    if device.sm_active is not None:
        fields += [("  SMs active ", "dim"), (f"{device.sm_active:.0f}%", "")]
    return fill(fields, width)


# -- what differs ----------------------------------------------------------------------------------


def _differences(gpus: Sequence[Gpu], now: float) -> tuple[list[Fact], str]:
    """The settings and properties that are not the same, and how many are.

    A GPU that does not report a value is left out.
    """
    facts: list[Fact] = []
    same = 0
    for metric in _COMPARED:
        by_text: dict[str, list[int]] = {}
        for gpu in gpus:
            if getattr(gpu, metric.field) is not None and metric.is_for(maker_of(gpu.name)):
                text, _ = value_or_reason(gpu, metric, now)
                by_text.setdefault(text, []).append(gpu.index)
        if len(by_text) > 1:
            # A value with few GPUs stands out if it comes first.
            order = sorted(by_text.items(), key=lambda item: (len(item[1]), item[1]))
            text = "   ".join(f"GPU {index_list(indices)}: {text}" for text, indices in order)
            facts.append(Fact(metric_label(metric.label, gpus[0].name), text))
        same += len(by_text) == 1
    return facts, f"the same: {counted(same, 'setting')}"


# -- the charts ------------------------------------------------------------------------------------


def _charts(
    memo: Memo,
    gpus: Sequence[Gpu],
    history: History,
    seconds: float,
    width: int,
    room: int,
    is_past: bool,
) -> list[Row]:
    """For each series its charts, one GPU below the other; they share the room."""
    if history.started is None:
        return []
    across = next((count for least, count in _COLUMNS if width >= least), 1)
    each = chart_width(width, across)
    cells = max(1, each - _INDEX - _VALUE - _PEAK)
    end = end_of_chart(history.now, seconds, 2 * cells)
    source = _Source(gpus, history, seconds, end, cells)
    listed = [line for line in _LINES if _is_for_any(line, gpus)]
    peaks = {line.field: _peaks(memo.part(line.field), line, source) for line in listed}
    lines = [line for line in listed if any(peaks[line.field])]
    empty = _empty_rows([line for line in listed if line not in lines], peaks, gpus, width)
    if not lines:
        return empty
    down = -(-len(lines) // across)
    tall = max(1, min(_MOST_TALL, (room - 1 - len(empty) - down) // (down * len(gpus))))
    rows: list[Row] = []
    for start in range(0, len(lines), across):
        beside = [
            _series_rows(memo.part(line.field), line, source, peaks[line.field], each, tall)
            for line in lines[start : start + across]
        ]
        blank: Row = fill((), each)
        beside += [[blank] * len(beside[0])] * (across - len(beside))
        rows += side_by_side(beside, width)
    span = span_until(end.time, seconds, 2 * cells)
    *_, times = time_rows(span, cells, is_past=is_past)
    below = fill([(" " * (_INDEX + _VALUE), ""), *times], each)
    return [*rows, *side_by_side([[below]] * across, width), *empty]


def _empty_rows(
    lines: Sequence[_Line],
    peaks: Mapping[str, Sequence[float | None]],
    gpus: Sequence[Gpu],
    width: int,
) -> list[Row]:
    """The series without a chart, by the reason."""
    unknown: list[str] = []
    zero: list[str] = []
    for line in lines:
        label = metric_label(line.label, gpus[0].name)
        pairs = zip(gpus, peaks[line.field], strict=True)
        known = [gpu.index for gpu, peak in pairs if peak is not None]
        if not known:
            unknown.append(label)
        else:
            # The others have no values, which are not zero.
            on = "" if len(known) == len(gpus) else f" on GPU {index_list(known)}"
            zero.append(f"{label}{on}")
    return [
        fill([(f"{reason}: {', '.join(labels)}", "dim")], width)
        for reason, labels in ((ALL_ZERO, zero), (NO_VALUES, unknown))
        if labels
    ]


def _lines() -> tuple[_Line, ...]:
    return tuple(
        _Line(series, field, series.label if len(series.fields) == 1 else GPU_METRIC[field].label)
        for series in GPU_SERIES
        for field in series.fields
    )


_LINES = _lines()


def _is_for_any(line: _Line, gpus: Sequence[Gpu]) -> bool:
    metric = GPU_METRIC[line.field]
    makes_sense = any(metric.is_for(maker_of(gpu.name)) for gpu in gpus)
    is_known = any(getattr(gpu, line.field) is not None for gpu in gpus)
    return makes_sense and (is_known or not line.series.optional)


def _peaks(memo: Memo, line: _Line, source: _Source) -> Sequence[float | None]:
    """The highest value of each GPU; newer values raise it until it is searched again."""
    peaks = memo.by(source.key, _find_peaks, line, source)
    for number, gpu in enumerate(source.gpus):
        peaks[number] = highest((peaks[number], getattr(gpu, line.field)))
    return peaks


def _find_peaks(line: _Line, source: _Source) -> list[float | None]:
    return [highest(_values(line, gpu, source, source.room, peak=True)) for gpu in source.gpus]


def _values(
    line: _Line, gpu: Gpu, source: _Source, count: int, *, peak: bool = False
) -> list[float | None]:
    _, history, seconds, end, _ = source
    return line.series.values(history, gpu, line.field, seconds, count, end, peak=peak)


def _series_rows(
    memo: Memo,
    line: _Line,
    source: _Source,
    peaks: Sequence[float | None],
    width: int,
    tall: int,
) -> list[Row]:
    """The name and the scale, then for each GPU its value, its chart and its peak."""
    gpus = source.gpus
    quantity, top = line.series.quantity, _top(line, gpus, peaks)
    graphs = memo.by((source.key, top, tall), _graphs, line, source, top, tall)
    label, style = metric_label(line.label, gpus[0].name), line.series.style
    title: list[Field] = [(f"{label}  ", "strong")]
    scale = f"0–{quantity.text(top)}{quantity.unit()}"
    peak = fit_right("peak", width - row_width(title) - cell_width(scale))
    rows = [fill([*title, (scale, "dim"), (peak, "dim")], width)]
    for number, (gpu, graph) in enumerate(zip(gpus, graphs, strict=True)):
        value: float | None = getattr(gpu, line.field)
        for y, drawn in enumerate(graph):
            head = (f"{gpu.index:>2} ", _text(line, value)) if not y else ("", "")
            tail = "" if y else _text(line, peaks[number])
            fields: list[Field] = [
                (f"{head[0]:{_INDEX}}", "dim"),
                (f"{fit_right(head[1], _VALUE - 1)} ", ""),
                *([(drawn, style)] if tall == 1 else curve_fields(drawn, style)),
                (fit_right(tail, _PEAK), "dim"),
            ]
            rows.append(fill(fields, width))
    return rows


def _text(line: _Line, value: float | None) -> str:
    quantity = line.series.quantity
    return UNKNOWN if value is None else f"{quantity.text(value)}{quantity.short_unit()}"


def _top(line: _Line, gpus: Sequence[Gpu], peaks: Sequence[float | None]) -> float:
    """The upper edge of all charts of a series: the highest limit, or the highest value."""
    wholes = [whole for gpu in gpus if (whole := line.series.whole(gpu))]
    return max([*(wholes or [line.series.top or 0.0]), *filter(None, peaks)]) or 1.0


def _graphs(line: _Line, source: _Source, top: float, tall: int) -> list[list[str]]:
    """The rows of each chart: block characters in one row, a curve in several."""
    gpus, room = source.gpus, source.room
    if tall == 1:
        return [[spark(_values(line, gpu, source, room), top)] for gpu in gpus]
    # A dot stays free between the charts of two GPUs.
    above = top * 4 * tall / (4 * tall - 1)
    return [curve_cells(_values(line, gpu, source, 2 * room), above, room, tall) for gpu in gpus]
