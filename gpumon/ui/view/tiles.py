"""The graphs of several cards, large and side by side, below their lines: for a large terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.text.cells import Field, Row, braille, fill
from gpumon.text.formatting import cell_width, fit_right
from gpumon.ui.view.messages import GLYPHS, STATE_STYLES, is_stale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.findings import Finding, Severity
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.graphs import Graph
    from gpumon.ui.view.memo import Memo

_LEAST_WIDTH = 140
"""Cells of a terminal below which the lines' own small graphs have to do."""
_ACROSS = 4
_LEAST_CARDS, _MOST_CARDS = 3, 8
_LEAST_HEIGHT, _MOST_HEIGHT = 6, 10
_GAP = 2


def tile_height(cards: int, width: int, room: int) -> int:
    """Rows of each graph, its title included; 0 where there is no room for them.

    Args:
        cards: Number of cards.
        width: Cells of the terminal.
        room: Rows for all of them.
    """
    if width < _LEAST_WIDTH or not _LEAST_CARDS <= cards <= _MOST_CARDS:
        return 0
    height = room // -(-cards // _ACROSS)
    return min(height, _MOST_HEIGHT) if height >= _LEAST_HEIGHT else 0


def tiles_rows(cards: int, height: int) -> int:
    """Rows of all of them."""
    return height * -(-cards // _ACROSS)


def graph_rows(
    memo: Memo,
    snapshot: Snapshot,
    history: History,
    states: Mapping[str, Finding],
    width: int,
    height: int,
    graph: Graph,
) -> list[Row]:
    """The graphs of all cards; nothing where they have no height.

    Args:
        memo: Keeps what was drawn.
        snapshot: What to show.
        history: Where the graphs come from.
        states: What is said of each card, by UUID.
        width: Cells.
        height: Rows of each, from ``tile_height``.
        graph: What they show.
    """
    if not height:
        return []
    across = min(len(snapshot.gpus), _ACROSS)
    each = (width - _GAP * (across + 1)) // across
    uuids = tuple(gpu.uuid for gpu in snapshot.gpus)
    # They stay the same for as long as their newest second lasts.
    key = (width, height, int(snapshot.time), graph, uuids)
    drawn = memo.by(key, _graphs, snapshot, history, width, height, graph)
    rows: list[Row] = []
    for place, graphs in enumerate(drawn):
        beside = snapshot.gpus[place * across : (place + 1) * across]
        titles = [
            memo.part(gpu.uuid)(_title, _told(gpu, states[gpu.uuid], graph), each) for gpu in beside
        ]
        rows += [memo.part(place)(_beside, width, *titles), *graphs]
    return rows


def _graphs(
    snapshot: Snapshot, history: History, width: int, height: int, graph: Graph
) -> list[list[Row]]:
    """The graphs without their titles: the rows of those that stand side by side, in turn."""
    across = min(len(snapshot.gpus), _ACROSS)
    each = (width - _GAP * (across + 1)) // across
    span = 2 * each
    drawn = [
        braille(graph.values(history, gpu, span, span, int(snapshot.time)), 1.0, each, height - 1)
        for gpu in snapshot.gpus
    ]
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
    """The card whose graph is drawn at a cell; ``None`` beside them."""
    across = min(len(snapshot.gpus), _ACROSS)
    each = (width - _GAP * (across + 1)) // across + _GAP
    place = y // height * across + min(x // each, across - 1)
    return snapshot.gpus[place] if place < len(snapshot.gpus) else None


class _Told(NamedTuple):
    """What a title tells."""

    card: int
    key: str
    value: str
    unit: str
    severity: Severity
    quiet: str


def _told(gpu: Gpu, state: Finding, graph: Graph) -> _Told:
    quiet = "stale" if is_stale(gpu, state) else ""
    return _Told(gpu.index, graph.key, *graph.now(gpu), state.severity, quiet)


def _beside(width: int, *titles: Row) -> Row:
    """Titles side by side, each as wide as its graph."""
    return fill([field for title in titles for field in ((" " * _GAP, ""), *title)], width)


def _title(told: _Told, width: int) -> Row:
    """Which card, its newest value, and over how long the graph goes."""
    quiet = told.quiet
    fields: list[Field] = [
        (f"{GLYPHS[told.severity]} ", STATE_STYLES[told.severity]),
        (f"{told.card:<2} ", quiet or "strong"),
        (f"{told.key} ", quiet or "dim"),
        (told.value, quiet or "strong"),
        (told.unit, quiet or "dim"),
    ]
    room = width - sum(cell_width(text) for text, _ in fields)
    return fill([*fields, (fit_right(f"{2 * width} s", max(0, room)), "dim")], width)
