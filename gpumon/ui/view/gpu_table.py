"""The table of GPUs: one line per GPU, in one column or two."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gpumon.text.cells import Field, Row, bar, bar_style, fill, restyle, row_width, spark
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
from gpumon.text.table import WATCHED, beside
from gpumon.text.units import degree
from gpumon.ui.view.gpu_table_layout import CELSIUS, NAME_HEADING, UTIL_TEXT
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
from gpumon.ui.view.graph_choices import UTIL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, MigInstance
    from gpumon.recording.history import History
    from gpumon.text.process_columns import DeviceKey
    from gpumon.text.table import Column
    from gpumon.ui.view.frame import Frame
    from gpumon.ui.view.gpu_table_layout import GpusShape, LineColumns
    from gpumon.ui.view.graph_choices import Graph
    from gpumon.ui.view.memo import Memo


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
    lines: list[Row] = []
    first = 0
    held: Mapping[DeviceKey, tuple[str, ...]] = memo(holders, snapshot.processes)
    second = int(snapshot.time)
    for gpu in snapshot.gpus:
        own = range(first, first + 1 + len(gpu.mig))
        first = own.stop
        if own.stop <= visible.start or own.start >= visible.stop:
            continue
        part = memo.part(gpu.uuid)
        drawn: Field = ("", "")
        if columns.spark:
            # The graph changes once a second.
            key = (second, columns.spark, graph)
            drawn = part.by(key, _spark, history, gpu, columns.spark - 2, second, graph)
        holder = held.get(gpu.uuid) or unlisted_holder(gpu)
        mark = WATCHED if gpu.uuid in view.watched.gpus else " "
        line = _line(part, gpu, states[gpu.uuid], holder, drawn, columns, mark)
        if gpu.uuid == view.gpu:
            line = restyle(_with_cursor(gpu, line), "cursor")
        of_gpu = [line]
        for one in gpu.mig:
            users = held.get((gpu.uuid, (one.gpu_instance, one.compute_instance)), ())
            state = states[one.uuid]
            of_gpu.append(memo.part(one.uuid)(_mig_line, gpu.index, one, state, users, columns))
        lines += of_gpu[max(0, visible.start - own.start) : visible.stop - own.start]
    return lines


def _spark(history: History, gpu: Gpu, width: int, second: int, graph: Graph) -> Field:
    values = graph.values(history, gpu, max(60, width), width, second)
    if all(value is None for value in values):
        return fit_right(UNKNOWN, width), "stale"
    return spark(values, 1.0), graph.style


def _spark_heading(width: int, graph: Graph) -> str:
    """The heading of the small graph: utilisation is not named, because its number precedes it."""
    if graph is UTIL:
        return f"  last {max(60, width - 2)} s"
    return f"  {graph.label} {'60 s' if cell_width(graph.label) < 5 else '60s'}"


def _heading(columns: LineColumns, graph: Graph) -> Row:
    texts = (
        " # ",
        fit(NAME_HEADING, columns.name),
        fit("state", columns.state),
        fit_right("memory", columns.memory_text),
        " " * columns.memory_bar,
        fit_right("util", UTIL_TEXT),
        " " * columns.util_bar,
        fit_right(degree(), CELSIUS),
        fit_right("power", columns.power),
        *(fit_right(one.label, one.width) for one in columns.added),
        fit(_spark_heading(columns.spark, graph), columns.spark),
        fit_right(columns.clock_label, columns.clock),
        fit_right("PCIe rx  tx/s", columns.pcie),
    )
    return fill(((text, "heading") for text in texts if text), columns.width, "heading")


def _line(
    memo: Memo,
    gpu: Gpu,
    state: Finding,
    holder: tuple[str, ...],
    graph: Field,
    columns: LineColumns,
    mark: str,
) -> Row:
    """A GPU's line; each part is drawn again only when its values change."""
    stale = "stale" if is_stale(gpu, state) else ""
    name = columns.name_text(short_name(gpu.name))
    added = [column.value(gpu) for column in columns.added]
    return memo(
        _join_parts,
        columns.width,
        memo(_name, gpu.index, name, columns.name, mark, stale),
        memo(_state, state, holder, columns.state, stale),
        memo(_memory, gpu.memory_used, gpu.memory_total, columns, stale),
        memo(_utilization, gpu.utilization_gpu, columns.util_bar, stale),
        memo(_celsius, gpu.temperature_gpu, stale),
        memo(_power, gpu.power_draw, gpu.power_limit, columns.power, stale),
        memo.by((columns.added, added, stale), _added, columns.added, gpu, stale),
        memo(_graph, graph, columns.spark),
        memo(_clock, gpu.clock_sm, columns.clock, stale),
        memo(_traffic, gpu.pcie_rx, gpu.pcie_tx, columns.pcie, stale),
    )


def _join_parts(width: int, *parts: Sequence[Field]) -> Row:
    return fill(chain.from_iterable(parts), width)


def _name(index: int, name: str, width: int, mark: str, stale: str) -> Sequence[Field]:
    fields: list[Field] = [(f"{index:>2}", stale or "strong"), (mark, "tagged")]
    if width:
        fields.append((fit(fit(name, width - 1), width), stale))
    return fields


def _state(state: Finding, holder: Sequence[str], width: int, stale: str) -> Sequence[Field]:
    return state_fields(state, holder, width, holder_style=stale)


def _utilization(percent: int | None, bar_width: int, stale: str) -> Sequence[Field]:
    fields = _percent(percent, UTIL_TEXT, stale)
    filled = share(percent, 100)
    style = "bar.stale" if stale else bar_style("bar.util", filled)
    return [*fields, *_bar(filled, bar_width, style)]


def _bar(filled: float | None, width: int, style: str) -> Sequence[Field]:
    """A bar after its figure."""
    return [(" ", ""), (bar(filled, width - 1), style)] if width else ()


def _celsius(celsius: int | None, stale: str) -> Sequence[Field]:
    return [(fit_right(temperature(celsius), CELSIUS), stale)]


def _added(columns: Sequence[Column[Gpu]], gpu: Gpu, stale: str) -> Sequence[Field]:
    """The columns that the user has added."""
    return [(column.fit(column.text(gpu), column.width), stale) for column in columns]


def _graph(graph: Field, width: int) -> Sequence[Field]:
    return [("  ", ""), graph] if width else ()


def _clock(megahertz: int | None, width: int, stale: str) -> Sequence[Field]:
    return [(fit_right(number(megahertz), width), stale or "dim")] if width else ()


def _traffic(received: float | None, sent: float | None, width: int, stale: str) -> Sequence[Field]:
    if not width:
        return ()
    known = received is not None or sent is not None
    text = f"{rate(received):>6} {rate(sent):>6}" if known else UNKNOWN
    return [(fit_right(text, width), stale or "dim")]


def _mig_line(
    gpu_index: int,
    instance: MigInstance,
    state: Finding,
    users: tuple[str, ...],
    columns: LineColumns,
) -> Row:
    """A MIG device, named as ``gpumon select`` names it; its utilisation is never reported."""
    fields: list[Field] = [
        (" └ ", "dim"),
        (fit(f"MIG {mig_name(gpu_index, instance.index)}", columns.name), "dim"),
        *state_fields(state, users, columns.state),
        *_memory(instance.memory_used, instance.memory_total, columns, ""),
        (f"  {printable(instance.profile or '')}", "dim"),
    ]
    if instance.gpu_instance is not None:
        own_id = f"  GPU instance {instance.gpu_instance}"
        if row_width(fields) + len(own_id) <= columns.width:
            fields.append((own_id, "dim"))
    return fill(fields, columns.width)


def _with_cursor(gpu: Gpu, line: Row) -> Row:
    """Put the cursor glyph into the first cell, where one-digit indices leave a space."""
    if gpu.index < 10:
        return ((f"▸{gpu.index}", ""), *line[1:])
    (mark, _), (after, style) = line[1:3]
    spaced = mark + after.removesuffix(" ") if after.endswith(" ") else after
    return ((f"▸{gpu.index}", ""), (spaced, style), *line[3:])


def _percent(value: int | None, width: int, stale: str) -> list[Field]:
    if value is None:
        return [(fit_right(UNKNOWN, width), stale)]
    return [(f"{value:>{width - 1}}", stale), ("%", stale or "dim")]


def _power(draw: float | None, limit: float | None, width: int, stale: str) -> Sequence[Field]:
    if not width:
        return ()
    if draw is None:
        return [(fit_right(UNKNOWN, width), stale)]
    cap = "" if limit is None else f"/{limit:.0f}"
    # The limit has a constant width, so the draw does not move.
    unit = f"{cap}W"
    return [(f"{draw:>{width - len(unit)}.0f}", stale), (unit, stale or "dim")]


def _memory(used: int | None, total: int | None, columns: LineColumns, stale: str) -> list[Field]:
    filled = memory_share(used, total)
    style = "bar.stale" if stale else bar_style("bar.memory", filled)
    own_bar = _bar(filled, columns.memory_bar, style)
    if used is None and total is None:
        return [(fit_right(UNKNOWN, columns.memory_text), stale), *own_bar]
    cap = f"/{gibibytes(total)}G" if total is not None else "G"
    return [
        (fit_right(gibibytes(used), columns.memory_text - len(cap)), stale),
        (cap, stale or "dim"),
        *own_bar,
    ]
