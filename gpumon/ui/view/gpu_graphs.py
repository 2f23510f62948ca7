"""Large graphs below the table of GPUs, one per GPU and side by side, on a large terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import fit_right
from gpumon.ui.view.gpu_text import STATE_STYLES, is_stale, state_glyph

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.frame import Frame

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


def tiles_rows(gpus: int, height: int) -> int:
    """Height of all graphs."""
    return height * -(-gpus // _ACROSS)


def graph_rows(frame: Frame, height: int) -> list[Row]:
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
    for place, graphs in enumerate(drawn):
        beside = snapshot.gpus[place * across : (place + 1) * across]
        titles = []
        for gpu in beside:
            state = states[gpu.uuid]
            sign, style = state_glyph(state), STATE_STYLES[state.severity]
            stale = "stale" if is_stale(gpu, state) else ""
            texts = (gpu.index, graph.name, *graph.texts(gpu), sign, style, stale)
            titles.append(memo.part(gpu.uuid)(_title, *texts, each))
        rest = width - len(titles) * (_GAP + each)
        rows += [memo.part(place)(_join_titles, rest, *titles), *graphs]
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
    place = y // height * across + min(x // (each + _GAP), across - 1)
    return snapshot.gpus[place] if place < len(snapshot.gpus) else None


def _join_titles(rest: int, *titles: Row) -> Row:
    """Titles side by side, each as wide as its graph, and the cells to their right."""
    fields = [field for title in titles for field in ((" " * _GAP, ""), *title)]
    return (*fields, (" " * rest, ""))


def _title(
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
