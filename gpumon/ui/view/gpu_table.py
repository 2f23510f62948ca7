"""The table of GPUs: one line per GPU, in one column or two."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.snapshot import lines_of
from gpumon.text.cells import Field, Row, bar, bar_style, fill, row_width, spark
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gibibytes,
    mig_name,
    number,
    printable,
    temperature,
)
from gpumon.text.gpu_columns import GPU_COLUMNS
from gpumon.text.table import WATCHED, Column, at_cursor, beside
from gpumon.text.units import degree
from gpumon.ui.view.chart_series import UTIL
from gpumon.ui.view.gpu_table_layout import NAME_HEADING
from gpumon.ui.view.gpu_text import (
    holders,
    is_stale,
    memory_share,
    rate,
    share,
    short_name,
    state_fields,
    unlisted_holder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, MigInstance
    from gpumon.recording.history import History
    from gpumon.text.process_columns import DeviceKey
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Frame, Memo
    from gpumon.ui.view.gpu_table_layout import GpusShape, LineColumns


class GpuLine(Struct, gc=False):
    """A GPU or a MIG device as the columns see it."""

    gpu: Gpu  # The GPU, or that of the MIG device.
    name: str  # Its name that fits.
    state: Finding
    holders: tuple[str, ...]  # Texts about who holds it, longest first.
    memory: tuple[int | None, int | None]  # Bytes in use and of all.
    graph: Field = ("", "")
    mark: str = " "  # The cell behind the index.
    stale: str = ""  # The style of values that are old; empty if they are not.


def _index(item: GpuLine, _: int) -> Sequence[Field]:
    return [(f"{item.gpu.index:>2}", item.stale or "strong"), (item.mark, "tagged")]


def _name(item: GpuLine, width: int) -> Sequence[Field]:
    return [(fit(fit(item.name, width - 1), width), item.stale)]


def _state(item: GpuLine, width: int) -> Sequence[Field]:
    return state_fields(item.state, item.holders, width, holder_style=item.stale)


def _memory(item: GpuLine, width: int) -> Sequence[Field]:
    (used, total), stale = item.memory, item.stale
    if used is None and total is None:
        return [(fit_right(UNKNOWN, width), stale)]
    cap = f"/{gibibytes(total)}G" if total is not None else "G"
    return [(fit_right(gibibytes(used), width - len(cap)), stale), (cap, stale or "dim")]


def _memory_bar(item: GpuLine, width: int) -> Sequence[Field]:
    return _bar(item, "bar.memory", memory_share(*item.memory), width)


def _utilization(item: GpuLine, width: int) -> Sequence[Field]:
    percent, stale = item.gpu.utilization_gpu, item.stale
    if percent is None:
        return [(fit_right(UNKNOWN, width), stale)]
    return [(f"{percent:>{width - 1}}", stale), ("%", stale or "dim")]


def _utilization_bar(item: GpuLine, width: int) -> Sequence[Field]:
    return _bar(item, "bar.util", share(item.gpu.utilization_gpu, 100), width)


def _bar(item: GpuLine, style: str, filled: float | None, width: int) -> Sequence[Field]:
    """A bar after its figure."""
    look = "bar.stale" if item.stale else bar_style(style, filled)
    return [(" ", ""), (bar(filled, width - 1), look)]


def _power(item: GpuLine, width: int) -> Sequence[Field]:
    draw, limit, stale = item.gpu.power_draw, item.gpu.power_limit, item.stale
    if draw is None:
        return [(fit_right(UNKNOWN, width), stale)]
    cap = "" if limit is None else f"/{limit:.0f}"
    # The limit has a constant width, so the draw does not move.
    unit = f"{cap}W"
    return [(f"{draw:>{width - len(unit)}.0f}", stale), (unit, stale or "dim")]


def _graph(item: GpuLine, _: int) -> Sequence[Field]:
    return [("  ", ""), item.graph]


def _traffic(item: GpuLine, width: int) -> Sequence[Field]:
    received, sent = item.gpu.pcie_rx, item.gpu.pcie_tx
    known = received is not None or sent is not None
    text = f"{rate(received):>6} {rate(sent):>6}" if known else UNKNOWN
    return [(fit_right(text, width), item.stale or "dim")]


def _text(text: Callable[[Gpu], str], style: str = "") -> Callable[[GpuLine, int], Sequence[Field]]:
    """Draws a text at the right."""
    return lambda item, width: [(fit_right(text(item.gpu), width), item.stale or style)]


_LINE_COLUMNS: tuple[Column[GpuLine], ...] = (
    Column("index", " # ", 0, "", lambda item: (item.gpu.index, item.mark), draw=_index),
    Column("name", NAME_HEADING, 0, "", lambda item: item.name, left=True, draw=_name),
    Column(
        *("state", "state", 0),
        "then the user with the most memory on the GPU, how much, and how many others there are",
        lambda item: (item.state, item.holders),
        left=True,
        draw=_state,
    ),
    Column(
        *("memory", "memory", 0),
        "used by processes, of all there is; what the driver reserves is left out",
        lambda item: item.memory,
        draw=_memory,
    ),
    Column("memory_bar", "", 0, "", lambda item: item.memory, draw=_memory_bar),
    Column(
        *("util", "util", 0),
        "share of time in which any kernel ran; says nothing of how full the chip was",
        lambda item: item.gpu.utilization_gpu,
        draw=_utilization,
    ),
    Column("util_bar", "", 0, "", lambda item: item.gpu.utilization_gpu, draw=_utilization_bar),
    Column(
        *("celsius", "", 0, ""),
        lambda item: item.gpu.temperature_gpu,
        draw=_text(lambda gpu: temperature(gpu.temperature_gpu)),
    ),
    Column(
        *("power", "power", 0, "draw and the cap in force"),
        lambda item: (item.gpu.power_draw, item.gpu.power_limit),
        draw=_power,
    ),
    Column(
        *("spark", "last 60 s", 0),
        "the same, over a second a column, or memory, power by its cap, heat by its slowdown point",
        lambda item: item.graph,
        left=True,
        draw=_graph,
    ),
    Column(
        *("clock", "SM MHz", 0, "clock of the multiprocessors"),
        lambda item: item.gpu.clock_sm,
        draw=_text(lambda gpu: number(gpu.clock_sm), "dim"),
    ),
    Column(
        *("pcie", "PCIe rx  tx/s", 0, "into and out of the GPU"),
        lambda item: (item.gpu.pcie_rx, item.gpu.pcie_tx),
        draw=_traffic,
    ),
)


def _of_line(column: Column[Gpu]) -> Column[GpuLine]:
    """A column that the user may add, in the line of a GPU."""
    return Column(
        *(column.key, column.label, column.width, column.about),
        lambda item: column.value(item.gpu),
        draw=_text(column.text),
    )


_COLUMN = {column.key: column for column in (*_LINE_COLUMNS, *map(_of_line, GPU_COLUMNS))}
EXPLAINED = tuple((" ".join(it.label.split()), it.about) for it in _LINE_COLUMNS if it.about)
"""The headings that need an explanation, with it."""


def gpu_rows(frame: Frame, columns: LineColumns, shape: GpusShape) -> list[Row]:
    """The heading and the lines of the GPUs.

    Args:
        frame: What is drawn.
        columns: From ``list_columns``.
        shape: From ``gpus_shape``.
    """
    room, top = shape.rows - 1, frame.view.gpus_top
    lines = _lines(frame, columns, range(top, top + shape.columns * room))
    headings = [frame.memo(_heading, columns, frame.graph)] * shape.columns
    return [
        *beside(headings, shape.columns, 1, frame.width),
        *beside(lines, shape.columns, room, frame.width),
    ]


def _lines(frame: Frame, columns: LineColumns, visible: range) -> list[Row]:
    """The visible lines; no others are drawn."""
    memo, snapshot, history, states, view, _ = frame
    graph = frame.graph
    rows: list[Row] = []
    held: Mapping[DeviceKey, tuple[str, ...]] = memo(holders, snapshot.processes)
    second = int(snapshot.time)
    spark_width, names = columns.width_of("spark"), dict(columns.names)
    shown = [(_COLUMN[key], width) for key, width in columns.widths]
    for line in lines_of(snapshot.gpus)[visible.start : visible.stop]:
        gpu, mig, part, state = line.gpu, line.mig, memo.part(line.uuid), states[line.uuid]
        if mig is not None:
            users = held.get((gpu.uuid, (mig.gpu_instance, mig.compute_instance)), ())
            rows.append(part(_mig_line, gpu, mig, state, users, columns))
            continue
        drawn: Field = ("", "")
        if spark_width:
            # The graph changes once a second.
            key = (second, spark_width, graph)
            drawn = part.by(key, _spark, history, gpu, spark_width - 2, second, graph)
        item = GpuLine(
            gpu,
            names[short_name(gpu.name)],
            state,
            held.get(gpu.uuid) or unlisted_holder(gpu),
            (gpu.memory_used, gpu.memory_total),
            drawn,
            WATCHED if gpu.uuid in view.watched.gpus else " ",
            "stale" if is_stale(gpu, state) else "",
        )
        row = _line(part, item, shown, columns.width)
        if gpu.uuid == view.gpu:
            row = at_cursor(row if gpu.index < 10 else _shifted(row))
        rows.append(row)
    return rows


def _spark(history: History, gpu: Gpu, width: int, second: int, graph: ChartSeries[Gpu]) -> Field:
    values = graph.shares(history, gpu, max(60, width), width, second)
    if all(value is None for value in values):
        return fit_right(UNKNOWN, width), "stale"
    return spark(values, 1.0), graph.style


def _spark_heading(width: int, graph: ChartSeries[Gpu]) -> str:
    """The heading of the small graph: utilisation is not named, because its number precedes it."""
    if graph is UTIL:
        return f"  last {max(60, width - 2)} s"
    return f"  {graph.short} {'60 s' if cell_width(graph.short) < 5 else '60s'}"


def _heading(columns: LineColumns, graph: ChartSeries[Gpu]) -> Row:
    labels = {
        "celsius": degree(),
        "spark": _spark_heading(columns.width_of("spark"), graph),
        "clock": columns.clock_label,
    }
    texts = [
        _COLUMN[key].fit(labels.get(key, _COLUMN[key].label), width)
        for key, width in columns.widths
    ]
    return fill(((text, "heading") for text in texts), columns.width, "heading")


def _line(
    memo: Memo, item: GpuLine, columns: Sequence[tuple[Column[GpuLine], int]], width: int
) -> Row:
    """A GPU's line; each part is drawn again only when its values change."""
    parts = []
    for column, size in columns:
        changes = column.value(item), size, item.stale
        # Each column has a function of its own that draws it.
        parts.append(memo.by(changes, column.draw or column.fields, item, size))
    return memo(_join_parts, width, *parts)


def _join_parts(width: int, *parts: Sequence[Field]) -> Row:
    return fill(chain.from_iterable(parts), width)


def _mig_line(
    gpu: Gpu,
    instance: MigInstance,
    state: Finding,
    users: tuple[str, ...],
    columns: LineColumns,
) -> Row:
    """A MIG device, named as ``gpumon select`` names it; its utilisation is never reported."""
    name = f"MIG {mig_name(gpu.index, instance.index)}"
    item = GpuLine(gpu, name, state, users, (instance.memory_used, instance.memory_total))
    fields: list[Field] = [(" └ ", "dim"), (fit(name, columns.width_of("name")), "dim")]
    for key in ("state", "memory", "memory_bar"):
        if width := columns.width_of(key):
            fields += _COLUMN[key].fields(item, width)
    fields.append((f"  {printable(instance.profile or '')}", "dim"))
    if instance.gpu_instance is not None:
        own_id = f"  GPU instance {instance.gpu_instance}"
        if row_width(fields) + len(own_id) <= columns.width:
            fields.append((own_id, "dim"))
    return fill(fields, columns.width)


def _shifted(line: Row) -> Row:
    """Leave the first cell to the cursor, at the expense of a space behind a long index."""
    (index, look), (mark, _), (after, style), *rest = line
    spaced = mark + after.removesuffix(" ") if after.endswith(" ") else after
    return (f" {index}", look), (spaced, style), *rest
