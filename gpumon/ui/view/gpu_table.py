"""The table of GPUs: one line per GPU, in one column or two."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.snapshot import lines_of
from gpumon.text.cells import Field, Row, fill, row_width, spark
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    mig_name,
    printable,
)
from gpumon.text.table import GUTTER, WATCHED, Column, Marks, beside, line_width, with_sign
from gpumon.text.units import degree
from gpumon.ui.view.chart_series import end_of_second
from gpumon.ui.view.gpu_line import LINE_COLUMN, GpuLine, line_columns
from gpumon.ui.view.gpu_text import (
    holders,
    is_stale,
    short_name,
    unlisted_holder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import DeviceKey
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Frame, Memo
    from gpumon.ui.view.gpu_line import LineColumns


_LEAST_LINE = 40
"""The least width of a GPU's line that holds its numbers."""
LEAST_PANEL = 5
_PANEL_WIDTH = 72


class GpusShape(Struct, frozen=True):
    """The layout of the GPUs."""

    panels: int  # Height of each tall panel; 0 if the GPUs are lines.
    columns: int  # Number of lines side by side.
    rows: int  # Height of all of it, with the heading.

    @property
    def in_sight(self) -> int:
        """Number of lines that fit."""
        return self.columns * (self.rows - 1)


def gpus_shape(lines: int, gpus: int, width: int, room: int, panel_room: int = 0) -> GpusShape:
    """Choose the layout of the GPUs.

    Args:
        lines: Number of lines for all GPUs and their MIG instances.
        gpus: Number of GPUs.
        width: Cells.
        room: Maximum number of rows.
        panel_room: Maximum number of rows of tall panels; 0 allows none.
    """
    if 1 <= gpus <= 2 and lines == gpus and width >= _PANEL_WIDTH:
        height = panel_room // gpus
        if height >= LEAST_PANEL:
            return GpusShape(height, 1, height * gpus)
    if lines + 1 <= room:
        return GpusShape(0, 1, lines + 1)
    if width >= 2 * _LEAST_LINE + GUTTER:
        needed = (lines + 1) // 2 + 1
        return GpusShape(0, 2, min(needed, room))
    return GpusShape(0, 1, max(0, room))


def line_count(snapshot: Snapshot) -> int:
    """Number of lines: one for each GPU and one for each of its MIG instances."""
    return len(lines_of(snapshot.gpus))


def list_columns(
    memo: Memo,
    snapshot: Snapshot,
    shape: GpusShape,
    width: int,
    graphs: bool,
    added: Sequence[Column[Gpu]],
) -> LineColumns | None:
    """The columns of the GPUs' lines; ``None`` for tall panels.

    Args:
        memo: Caches the result.
        snapshot: The snapshot.
        shape: From ``gpus_shape``.
        width: Cells of all lines side by side.
        graphs: Whether to show the small graph.
        added: The columns that the user has added.
    """
    if shape.panels:
        return None
    each = line_width(width, shape.columns)
    kinds = {
        (gpu.name, gpu.power_limit, gpu.memory_total, gpu.index if gpu.mig else None)
        for gpu in snapshot.gpus
    }
    key = (each, kinds, graphs, added)
    return memo.by(key, line_columns, each, snapshot.gpus, graphs, added)


def line_number(snapshot: Snapshot, uuid: str | None) -> int | None:
    """The line number of a GPU; ``None`` if it is not in the snapshot."""
    lines = lines_of(snapshot.gpus)
    return next((number for number, line in enumerate(lines) if line.uuid == uuid), None)


def gpu_at(
    snapshot: Snapshot, shape: GpusShape, width: int, top: int, x: int, y: int
) -> Gpu | None:
    """The GPU at a cell; ``None`` at the heading and below the last GPU."""
    if shape.panels:
        return snapshot.gpus[y // shape.panels] if y // shape.panels < len(snapshot.gpus) else None
    if y < 1:
        return None
    line = top + y - 1
    if shape.columns > 1 and x > width // 2:
        line += shape.rows - 1
    lines = lines_of(snapshot.gpus)
    return lines[line].gpu if line < len(lines) else None


def gpu_rows(frame: Frame, columns: LineColumns, shape: GpusShape) -> list[Row]:
    """The heading and the lines of the GPUs.

    Args:
        frame: What is drawn.
        columns: From ``list_columns``.
        shape: From ``gpus_shape``.
    """
    room, top = shape.rows - 1, frame.view.gpus_top
    lines = _lines(frame, columns, range(top, top + shape.columns * room))
    headings = [frame.memo(_heading, columns, frame.small_graph)] * shape.columns
    return [
        *beside(headings, shape.columns, 1, frame.width),
        *beside(lines, shape.columns, room, frame.width),
    ]


def _lines(frame: Frame, columns: LineColumns, visible: range) -> list[Row]:
    """The visible lines; no others are drawn."""
    memo, snapshot, history, states, view, _ = frame
    graph = frame.small_graph
    rows: list[Row] = []
    held: Mapping[DeviceKey, tuple[str, ...]] = memo(holders, snapshot.processes)
    second = int(snapshot.time)
    spark_width, names = columns.width_of("spark"), dict(columns.names)
    shown = [(LINE_COLUMN[key], width) for key, width in columns.widths]
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
        chosen, tagged = gpu.uuid == view.gpu, gpu.uuid in view.gpu_tags
        if chosen or tagged:
            row = with_sign(row if gpu.index < 10 else _shifted(row), Marks(chosen, tagged))
        rows.append(row)
    return rows


def _spark(history: History, gpu: Gpu, width: int, second: int, graph: ChartSeries[Gpu]) -> Field:
    values = graph.shares(history, gpu, max(60, width), width, end_of_second(second))
    if all(value is None for value in values):
        return fit_right(UNKNOWN, width), "stale"
    return spark(values, 1.0), graph.style


def _spark_heading(width: int, graph: ChartSeries[Gpu]) -> str:
    """The heading of the small graph: what it shows, and of how long."""
    seconds = max(60, width - 2)
    text = f"  {graph.short} {seconds} s"
    return text if cell_width(text) <= width else f"  {graph.short} {seconds}s"


def _heading(columns: LineColumns, graph: ChartSeries[Gpu]) -> Row:
    labels = {
        "celsius": degree(),
        "spark": _spark_heading(columns.width_of("spark"), graph),
        "clock": columns.clock_label,
    }
    texts = [
        LINE_COLUMN[key].fit(labels.get(key, LINE_COLUMN[key].label), width)
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
            fields += LINE_COLUMN[key].fields(item, width)
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
