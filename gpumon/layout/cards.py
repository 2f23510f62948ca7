"""The cards of a snapshot as rows: a line each, two columns of short lines, or tall panels.

What a width has room for is decided in one place, ``card_columns``: a list of steps in the order in
which things are worth having. Reading it backwards gives what is dropped first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import card_state
from gpumon.layout.cells import Field, Row, bar, fill, spark
from gpumon.layout.panels import panel_rows
from gpumon.layout.words import GLYPHS, STATE_STYLES, core_name, holders, rate, short_name
from gpumon.model import CardStatus
from gpumon.text import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gibibytes,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings import Finding
    from gpumon.history import History
    from gpumon.model import Gpu, MigInstance, Snapshot

_SHORTEST = 40
"""Below this width a card's short line no longer holds its numbers."""
_LEAST_PANEL, _MOST_PANEL = 6, 14
_PANEL_WIDTH = 72
_GUTTER = 2
_BRIEF = 14
"""A state column narrower than this gets the brief words."""


class CardColumns(Struct, frozen=True):
    """Widths in cells of the parts of a card's line; 0 is absent. Index and °C are always there."""

    width: int
    name: int = 0
    power: int = 0
    memory_bar: int = 5
    util_bar: int = 0
    clock: int = 0
    pcie: int = 0
    users: int = 0
    spark: int = 0
    state: int = 10


_INDEX, _CELSIUS, _MEMORY_TEXT, _UTIL_TEXT = 3, 4, 12, 5

# Widths of the name that depend on the cards.
_FIRST_WORD, _WHOLE_NAME = -1, -2
_LONGEST_NAME = 24

# (column, width to reach, whether only the whole step is of use), most wanted first.
_STEPS: tuple[tuple[str, int, bool], ...] = (
    ("util_bar", 6, True),
    ("name", _FIRST_WORD, True),
    ("memory_bar", 8, False),
    ("state", 16, False),
    ("power", 10, True),
    ("memory_bar", 12, False),
    ("util_bar", 9, False),
    ("state", 29, False),
    ("spark", 11, True),
    ("memory_bar", 18, False),
    ("util_bar", 14, False),
    ("state", 36, False),
    ("users", 14, True),
    ("name", _WHOLE_NAME, True),
    ("spark", 31, False),
    ("clock", 10, True),
    ("pcie", 16, True),
    ("spark", 46, False),
    ("users", 20, False),
    ("memory_bar", 24, False),
    ("util_bar", 18, False),
    ("spark", 61, False),
    ("memory_bar", 60, False),
    ("util_bar", 50, False),
    ("state", 400, False),
)


def card_columns(width: int, names: Sequence[str], *, graphs: bool = True) -> CardColumns:
    """What a card's line of ``width`` cells holds.

    Args:
        width: Cells of the line.
        names: Short names of the cards.
        graphs: Whether there is a past to draw.
    """
    first = max((cell_width(core_name(name)) for name in names), default=0)
    whole_name = max((cell_width(name) for name in names), default=0)
    fixed = {
        _FIRST_WORD: min(first, _LONGEST_NAME) + 1,
        _WHOLE_NAME: min(whole_name, _LONGEST_NAME) + 1,
    }
    widths = {"name": 0, "power": 0, "memory_bar": 5, "util_bar": 0, "state": 10}
    widths |= {"clock": 0, "pcie": 0, "users": 0, "spark": 0}
    left = width - _INDEX - _CELSIUS - _MEMORY_TEXT - _UTIL_TEXT - 15
    for column, goal, whole in _STEPS:
        step = fixed.get(goal, goal) - widths[column]
        if step <= 0 or (whole and step > left) or (column == "spark" and not graphs):
            continue
        step = min(step, left)
        widths[column] += step
        left -= step
    return CardColumns(width=width, **widths)


class CardsShape(Struct, frozen=True):
    """How the cards are laid out in the room they have.

    Attributes:
        panels: Height of each tall panel; 0 when the cards are lines.
        columns: Lines side by side.
        rows: Height of the whole, the heading included.
    """

    panels: int
    columns: int
    rows: int


def cards_shape(lines: int, cards: int, width: int, room: int, panel_room: int = 0) -> CardsShape:
    """Choose a shape.

    Args:
        lines: Lines the cards need, their MIG instances included.
        cards: Number of cards.
        width: Cells.
        room: Rows the cards may take at most.
        panel_room: Rows that tall panels may take; 0 is none.
    """
    if 1 <= cards <= 2 and lines == cards and width >= _PANEL_WIDTH:
        height = min(_MOST_PANEL, panel_room // cards)
        if height >= _LEAST_PANEL:
            return CardsShape(height, 1, height * cards)
    if lines + 1 <= room:
        return CardsShape(0, 1, lines + 1)
    if width >= 2 * _SHORTEST + _GUTTER:
        needed = (lines + 1) // 2 + 1
        return CardsShape(0, 2, min(needed, room))
    return CardsShape(0, 1, max(0, room))


class Cards:
    """Draws cards, remembering the small graphs for as long as their second lasts."""

    def __init__(self) -> None:
        self._sparks: dict[tuple[str, int], tuple[int, str]] = {}

    def line_count(self, snapshot: Snapshot) -> int:
        """Lines all cards need when each has one, and each MIG instance one under it."""
        return sum(1 + len(gpu.mig) for gpu in snapshot.gpus)

    def rows(
        self,
        snapshot: Snapshot,
        history: History,
        width: int,
        shape: CardsShape,
        top: int = 0,
        *,
        graphs: bool = True,
    ) -> list[Row]:
        """All rows of the cards.

        Args:
            snapshot: What to show.
            history: Where the graphs and states come from.
            width: Cells.
            shape: From ``cards_shape``.
            top: Lines scrolled away.
            graphs: Whether there is a past to draw.
        """
        if shape.panels:
            return [
                row
                for gpu in snapshot.gpus
                for row in panel_rows(gpu, snapshot, history, width, shape.panels)
            ]
        column_width = (width - _GUTTER * (shape.columns - 1)) // shape.columns
        names = [short_name(gpu.name) for gpu in snapshot.gpus]
        columns = card_columns(column_width, names, graphs=graphs)
        lines = self._lines(snapshot, history, columns)
        room = shape.rows - 1
        lines = lines[top:]
        heading = _heading(columns)
        rows = [heading, *lines[:room]]
        if shape.columns > 1:
            seconds: list[Row] = [heading, *lines[room : 2 * room]]
            rows = [
                fill([*row, (" " * _GUTTER, ""), *(seconds[y] if y < len(seconds) else ())], width)
                for y, row in enumerate(rows)
            ]
        return rows

    def _lines(self, snapshot: Snapshot, history: History, columns: CardColumns) -> list[Row]:
        lines: list[Row] = []
        for gpu in snapshot.gpus:
            state = card_state(history, gpu)
            on_card = holders(gpu, snapshot.processes) if columns.users else ""
            graph = ""
            if columns.spark:
                graph = self._spark(history, gpu, columns.spark - 1, snapshot.time)
            lines.append(_line(gpu, state, on_card, graph, columns))
            lines.extend(_mig_line(instance, columns) for instance in gpu.mig)
        return lines

    def _spark(self, history: History, gpu: Gpu, width: int, now: float) -> str:
        """The last ``width`` buckets of a minute or more; drawn anew once a second."""
        key = (gpu.uuid, width)
        known = self._sparks.get(key)
        if known is not None and known[0] == int(now):
            return known[1]
        values = history.gpu_buckets(gpu.uuid, "utilization_gpu", max(60, width), width, now)
        text = spark(values, 100.0)
        self._sparks[key] = (int(now), text)
        return text


def _name_within(name: str, width: int) -> str:
    """The whole name, or as much of it as says which card it is."""
    return name if cell_width(name) <= width else core_name(name)


def _heading(columns: CardColumns) -> Row:
    fields: list[Field] = [
        (" # ", "heading"),
        (fit("GPU", columns.name), "heading"),
        (fit_right("°C", _CELSIUS), "heading"),
        (fit_right("power", columns.power), "heading"),
        (" " + fit("memory", columns.memory_bar + _MEMORY_TEXT - 1), "heading"),
        (fit(" util", columns.util_bar), "heading") if columns.util_bar else ("", "heading"),
        (fit_right("util" if not columns.util_bar else "", _UTIL_TEXT), "heading"),
        (fit_right("SM MHz", columns.clock), "heading"),
        (fit_right("PCIe rx  tx/s", columns.pcie), "heading"),
        (fit(" last 60 s" if columns.spark < 62 else " last minute", columns.spark), "heading"),
        (fit("  users", columns.users), "heading"),
        (fit("  state", columns.state), "heading"),
    ]
    return fill((field for field in fields if field[0]), columns.width, "heading")


def _line(gpu: Gpu, state: Finding, on_card: str, graph: str, columns: CardColumns) -> Row:
    quiet = "stale" if gpu.status is not CardStatus.OK else ""
    fields: list[Field] = [(f"{gpu.index:>2} ", quiet or "strong")]
    if columns.name:
        fields.append(
            (fit(_name_within(short_name(gpu.name), columns.name - 1), columns.name), quiet)
        )
    fields.append((_number(gpu.temperature_gpu, _CELSIUS), quiet))
    if columns.power:
        fields += _power(gpu, columns.power, quiet)
    fields += _memory(gpu.memory_used, gpu.memory_total, columns.memory_bar, quiet)
    utilization = gpu.utilization_gpu
    if columns.util_bar:
        text = bar(None if utilization is None else utilization / 100, columns.util_bar - 1)
        fields += [(" ", ""), (text, "bar.util" if not quiet else "bar.stale")]
    fields += _percent(utilization, _UTIL_TEXT, quiet)
    if columns.clock:
        fields.append((_number(gpu.clock_sm, columns.clock), quiet or "dim"))
    if columns.pcie:
        fields.append((fit_right(_rates(gpu), columns.pcie), quiet or "dim"))
    if columns.spark:
        fields += [(" ", ""), (fit(graph, columns.spark - 1), "graph.util")]
    if columns.users:
        fields.append((fit("  " + on_card, columns.users), quiet or "dim"))
    fields.append((_state_text(state, columns.state), STATE_STYLES[state.severity]))
    return fill(fields, columns.width)


def _state_text(state: Finding, width: int) -> str:
    words = state.brief if width < _BRIEF else state.short
    return fit(f"  {GLYPHS[state.severity]} {printable(words)}", width)


def _mig_line(instance: MigInstance, columns: CardColumns) -> Row:
    """An instance under its card: its profile and memory, which is all NVML tells of one."""
    name = printable(instance.profile or "MIG")
    before = columns.name + _CELSIUS + columns.power
    fields: list[Field] = [
        (" └ ", "dim"),
        (fit(f"{instance.index} {name}", before), "dim"),
        *_memory(instance.memory_used, instance.memory_total, columns.memory_bar, ""),
    ]
    if instance.gpu_instance is not None:
        ids = f"  GPU instance {instance.gpu_instance}"
        if instance.compute_instance is not None:
            ids += f", compute instance {instance.compute_instance}"
        fields.append((ids, "dim"))
    return fill(fields, columns.width)


def _number(value: int | None, width: int) -> str:
    return fit_right(UNKNOWN if value is None else str(value), width)


def _percent(value: int | None, width: int, quiet: str) -> list[Field]:
    if value is None:
        return [(fit_right(UNKNOWN, width), quiet)]
    return [(f"{value:>{width - 1}}", quiet), ("%", quiet or "dim")]


def _power(gpu: Gpu, width: int, quiet: str) -> list[Field]:
    if gpu.power_draw is None:
        return [(fit_right(UNKNOWN, width), quiet)]
    cap = "" if gpu.power_limit is None else f"/{gpu.power_limit:.0f}"
    # The cap keeps its width, so the draw stays in its place.
    unit = f"{cap}W"
    return [(f"{gpu.power_draw:>{width - len(unit)}.0f}", quiet), (unit, quiet or "dim")]


def _memory(used: int | None, total: int | None, width: int, quiet: str) -> list[Field]:
    fraction = None if used is None or not total else used / total
    fields: list[Field] = [
        (" ", ""),
        (bar(fraction, width - 1), "bar.memory" if not quiet else "bar.stale"),
    ]
    if used is None and total is None:
        return [*fields, (fit_right(UNKNOWN, _MEMORY_TEXT), quiet)]
    cap = f"/{gibibytes(total)}G" if total is not None else "G"
    return [
        *fields,
        (fit_right(gibibytes(used), _MEMORY_TEXT - len(cap)), quiet),
        (cap, quiet or "dim"),
    ]


def _rates(gpu: Gpu) -> str:
    """PCIe receive and transmit, as short as they go."""
    if gpu.pcie_rx is None and gpu.pcie_tx is None:
        return UNKNOWN
    return f"{rate(gpu.pcie_rx):>6} {rate(gpu.pcie_tx):>6}"
