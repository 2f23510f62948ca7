"""The cards of a snapshot as rows: a line each, two columns of short lines, or tall panels.

What a width has room for is decided in one place, ``card_columns``: a list of steps in the order in
which things are worth having. Reading it backwards gives what is dropped first.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import Severity, not_free
from gpumon.layout.cells import Field, Row, bar, bar_style, fill, restyle, row_width, spark
from gpumon.layout.graphs import UTIL
from gpumon.layout.panels import Panels
from gpumon.layout.words import (
    GLYPHS,
    STATE_STYLES,
    Holders,
    core_name,
    is_stale,
    rate,
    share,
    short_name,
    state_field,
)
from gpumon.text import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gibibytes,
    number,
    printable,
    temperature,
)
from gpumon.units import degree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import TypeVarTuple, Unpack

    from gpumon.findings import Finding
    from gpumon.history import History
    from gpumon.layout.graphs import Graph
    from gpumon.model import Gpu, GpuProcess, MigInstance, Snapshot

    _Told = TypeVarTuple("_Told")

_SHORTEST = 40
"""Below this width a card's short line no longer holds its numbers."""
_LEAST_PANEL, _MOST_PANEL = 5, 14
_PANEL_WIDTH = 72
_GUTTER = 2


class CardColumns(Struct, frozen=True):
    """Widths in cells of the parts of a card's line; 0 is absent. Index and °C are always there."""

    width: int
    memory_text: int
    name: int = 0
    power: int = 0
    memory_bar: int = 5
    util_bar: int = 0
    clock: int = 0
    pcie: int = 0
    users: int = 0
    spark: int = 0
    state: int = 10


_INDEX, _CELSIUS, _UTIL_TEXT = 3, 4, 5

# Widths that depend on the cards.
_FIRST_WORD, _WHOLE_NAME, _WATTS = -1, -2, -3
_LONGEST_NAME = 24

# (column, width to reach, whether only the whole step is of use), most wanted first.
_STEPS: tuple[tuple[str, int, bool], ...] = (
    ("state", 14, False),
    ("util_bar", 6, True),
    ("name", _FIRST_WORD, True),
    ("memory_bar", 8, False),
    ("state", 16, False),
    ("power", _WATTS, True),
    ("state", 24, False),
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


def card_columns(width: int, gpus: Sequence[Gpu], *, graphs: bool = True) -> CardColumns:
    """What a card's line of ``width`` cells holds.

    Args:
        width: Cells of the line.
        gpus: The cards.
        graphs: Whether there is a past to draw.
    """
    names = {short_name(gpu.name) for gpu in gpus}
    core = max((cell_width(core_name(name)) for name in names), default=0)
    whole_name = max((cell_width(name) for name in names), default=0)
    # As wide as the largest value can become, so that no number moves or is cut.
    watts = max((len(number(limit)) for limit in {gpu.power_limit for gpu in gpus}), default=0)
    sizes = max((len(gibibytes(size)) for size in {gpu.memory_total for gpu in gpus}), default=0)
    return _columns_for(width, core, whole_name, watts, sizes, graphs=graphs)


@lru_cache(maxsize=64)
def _columns_for(
    width: int, core: int, whole_name: int, watts: int, sizes: int, *, graphs: bool
) -> CardColumns:
    fixed = {
        _FIRST_WORD: min(core, _LONGEST_NAME) + 1,
        _WHOLE_NAME: min(whole_name, _LONGEST_NAME) + 1,
        _WATTS: 2 * max(watts, 3) + len("  /W"),
    }
    memory_text = 2 * max(sizes, 4) + len("  /G")
    widths = {"name": 0, "power": 0, "memory_bar": 5, "util_bar": 0, "state": 10}
    widths |= {"clock": 0, "pcie": 0, "users": 0, "spark": 0}
    left = width - _INDEX - _CELSIUS - memory_text - _UTIL_TEXT - sum(widths.values())
    for column, goal, whole in _STEPS:
        step = fixed.get(goal, goal) - widths[column]
        if step <= 0 or (whole and step > left) or (column == "spark" and not graphs):
            continue
        step = min(step, left)
        widths[column] += step
        left -= step
    # Memory sizes of four digits on a very narrow line take their room from the state.
    widths["state"] += min(left, 0)
    return CardColumns(width=width, memory_text=memory_text, **widths)


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
        self._sparks: dict[str, tuple[tuple[int, int, Graph], str]] = {}
        self._kept: dict[str, _Line] = {}
        self._heading: tuple[CardColumns | None, Graph | None, Row] = (None, None, ())
        self._panels = Panels()
        self.graphed = False
        """Whether there was room for small graphs when the cards were drawn last."""
        self._holders = Holders()

    def line_count(self, snapshot: Snapshot) -> int:
        """Lines all cards need when each has one, and each MIG instance one under it."""
        return sum(1 + len(gpu.mig) for gpu in snapshot.gpus)

    def rows(
        self,
        snapshot: Snapshot,
        history: History,
        states: Mapping[str, Finding],
        width: int,
        shape: CardsShape,
        top: int = 0,
        *,
        graphs: bool = True,
        chosen: str | None = None,
        graph: Graph = UTIL,
    ) -> list[Row]:
        """All rows of the cards.

        Args:
            snapshot: What to show.
            history: Where the graphs come from.
            states: What is said of each card, by UUID.
            width: Cells.
            shape: From ``cards_shape``.
            top: Lines scrolled away.
            graphs: Whether there is a past to draw, and it is not drawn larger below.
            chosen: UUID of the card under the cursor.
            graph: What the small graph shows.
        """
        if shape.panels:
            self.graphed = True
            panels = self._panels
            return panels.rows(snapshot, history, states, width, shape.panels, chosen, graph)
        column_width = (width - _GUTTER * (shape.columns - 1)) // shape.columns
        columns = card_columns(column_width, snapshot.gpus, graphs=graphs)
        self.graphed = columns.spark > 0
        room = shape.rows - 1
        seen = range(top, top + shape.columns * room)
        lines = self._lines(snapshot, history, states, columns, seen, chosen, graph)
        if self._heading[:2] != (columns, graph):
            self._heading = (columns, graph, _heading(columns, graph))
        heading = self._heading[2]
        rows = [heading, *lines[:room]]
        if shape.columns > 1:
            seconds: list[Row] = [heading, *lines[room : 2 * room]]
            rows = [
                fill([*row, (" " * _GUTTER, ""), *(seconds[y] if y < len(seconds) else ())], width)
                for y, row in enumerate(rows)
            ]
        return rows

    def _lines(
        self,
        snapshot: Snapshot,
        history: History,
        states: Mapping[str, Finding],
        columns: CardColumns,
        seen: range,
        chosen: str | None,
        graph: Graph,
    ) -> list[Row]:
        """The lines in sight; those of other cards cost nothing."""
        lines: list[Row] = []
        first = 0
        sparks: dict[str, tuple[tuple[int, int, Graph], str]] = {}
        lines_kept: dict[str, _Line] = {}
        key = (int(snapshot.time), columns.spark, graph)
        for gpu in snapshot.gpus:
            own = range(first, first + 1 + len(gpu.mig))
            first = own.stop
            if own.stop <= seen.start or own.start >= seen.stop:
                continue
            on_card = self._holders.on(gpu, snapshot.processes) if columns.users else ""
            drawn: Field = ("", graph.style)
            if columns.spark:
                known = self._sparks.get(gpu.uuid)
                if known is None or known[0] != key:
                    known = (key, _spark(history, gpu, columns.spark - 1, snapshot.time, graph))
                sparks[gpu.uuid] = known
                drawn = (known[1], graph.style)
            kept = lines_kept[gpu.uuid] = self._kept.get(gpu.uuid) or _Line()
            line = kept.row(gpu, states[gpu.uuid], on_card, drawn, columns)
            if gpu.uuid == chosen:
                line = restyle(_pointed_at(gpu, line), "cursor")
            of_card = [
                line,
                *(_mig_line(gpu, instance, snapshot, history, columns) for instance in gpu.mig),
            ]
            lines += of_card[max(0, seen.start - own.start) : seen.stop - own.start]
        self._sparks, self._kept = sparks, lines_kept
        return lines


def card_line(snapshot: Snapshot, uuid: str | None) -> int | None:
    """Which of the cards' lines is a card's own."""
    line = 0
    for gpu in snapshot.gpus:
        if gpu.uuid == uuid:
            return line
        line += 1 + len(gpu.mig)
    return None


def card_at(
    snapshot: Snapshot, shape: CardsShape, width: int, top: int, x: int, y: int
) -> Gpu | None:
    """The card drawn at a cell of the cards' room; ``None`` on the heading and below the last."""
    if shape.panels:
        return snapshot.gpus[y // shape.panels] if y // shape.panels < len(snapshot.gpus) else None
    if y < 1:
        return None
    line = top + y - 1
    if shape.columns > 1 and x > width // 2:
        line += shape.rows - 1
    for gpu in snapshot.gpus:
        if line <= len(gpu.mig):
            return gpu
        line -= 1 + len(gpu.mig)
    return None


def _spark(history: History, gpu: Gpu, width: int, now: float, graph: Graph) -> str:
    """The graph in ``width`` buckets of a second or more, the same for all of a second."""
    # By its end: then what the second has brought so far is always in the newest bucket.
    end = int(now) + 0.999
    return spark(graph.values(history, gpu, max(60, width), width, end), 1.0)


def _spark_heading(width: int, graph: Graph) -> str:
    """``last 60 s`` is that of utilisation, whose number stands to its left."""
    if graph is UTIL:
        return " last 60 s" if width < 62 else " last minute"
    return f" {graph.label} {'60 s' if cell_width(graph.label) < 5 else '60s'}"


def _name_within(name: str, width: int) -> str:
    """The whole name, or as much of it as says which card it is."""
    return name if cell_width(name) <= width else core_name(name)


def _heading(columns: CardColumns, graph: Graph) -> Row:
    fields: list[Field] = [
        (" # ", "heading"),
        (fit("GPU", columns.name), "heading"),
        (fit_right(degree(), _CELSIUS), "heading"),
        (fit_right("power", columns.power), "heading"),
        (" " + fit("memory", columns.memory_bar + columns.memory_text - 1), "heading"),
        (fit(" util", columns.util_bar), "heading") if columns.util_bar else ("", "heading"),
        (fit_right("util" if not columns.util_bar else "", _UTIL_TEXT), "heading"),
        (fit_right("SM MHz", columns.clock), "heading"),
        (fit_right("PCIe rx  tx/s", columns.pcie), "heading"),
        (fit(_spark_heading(columns.spark, graph), columns.spark), "heading"),
        (fit("  users", columns.users), "heading"),
        (fit("  state", columns.state), "heading"),
    ]
    return fill((field for field in fields if field[0]), columns.width, "heading")


class _Line:
    """A card's line, whose parts are kept for as long as what they tell stays the same."""

    __slots__ = ("_parts", "_row")

    def __init__(self) -> None:
        self._parts: dict[Callable[..., Sequence[Field]], _Part] = {}
        self._row: tuple[list[_Part], CardColumns | None, Row] = ([], None, ())

    def row(
        self, gpu: Gpu, state: Finding, on_card: str, graph: Field, columns: CardColumns
    ) -> Row:
        """The line."""
        quiet = "stale" if is_stale(gpu, state) else ""
        kept = self._kept
        parts = [
            kept(_name, gpu.index, gpu.name, gpu.temperature_gpu, columns.name, quiet),
            kept(_power, gpu.power_draw, gpu.power_limit, columns.power, quiet),
            kept(_memory, gpu.memory_used, gpu.memory_total, columns, quiet),
            kept(_utilization, gpu.utilization_gpu, columns.util_bar, quiet),
            kept(_clock, gpu.clock_sm, columns.clock, quiet),
            kept(_traffic, gpu.pcie_rx, gpu.pcie_tx, columns.pcie, quiet),
            kept(_last, graph, on_card, state, columns, quiet),
        ]
        before, in_columns, row = self._row
        if columns is not in_columns or not all(map(is_, parts, before)):
            row = tuple(chain.from_iterable([part.fields for part in parts]))
            left = columns.width - sum([part.width for part in parts])
            if left:
                row = fill(row, columns.width) if left < 0 else (*row, (" " * left, ""))
            self._row = (parts, columns, row)
        return row

    def _kept(
        self, make: Callable[[Unpack[_Told]], Sequence[Field]], *told: Unpack[_Told]
    ) -> _Part:
        known = self._parts.get(make)
        if known is None or known.told != told:
            known = self._parts[make] = _Part(told, make(*told))
        return known


class _Part:
    """A part of a line, its cells, and what it was made of."""

    __slots__ = ("fields", "told", "width")

    def __init__(self, told: tuple[object, ...], fields: Sequence[Field]) -> None:
        self.told = told
        self.fields = fields
        self.width = row_width(fields)


def _name(
    index: int, name: str | None, celsius: int | None, width: int, quiet: str
) -> Sequence[Field]:
    """Which card, and how warm."""
    fields: list[Field] = [(f"{index:>2} ", quiet or "strong")]
    if width:
        fields.append((fit(_name_within(short_name(name), width - 1), width), quiet))
    return [*fields, (fit_right(temperature(celsius), _CELSIUS), quiet)]


def _utilization(percent: int | None, bar_width: int, quiet: str) -> Sequence[Field]:
    fields: list[Field] = []
    if bar_width:
        filled = share(percent, 100)
        style = "bar.stale" if quiet else bar_style("bar.util", filled)
        fields += [(" ", ""), (bar(filled, bar_width - 1), style)]
    return [*fields, *_percent(percent, _UTIL_TEXT, quiet)]


def _clock(megahertz: int | None, width: int, quiet: str) -> Sequence[Field]:
    return [(fit_right(number(megahertz), width), quiet or "dim")] if width else ()


def _traffic(received: float | None, sent: float | None, width: int, quiet: str) -> Sequence[Field]:
    """PCIe receive and transmit, as short as they go."""
    if not width:
        return ()
    known = received is not None or sent is not None
    told = f"{rate(received):>6} {rate(sent):>6}" if known else UNKNOWN
    return [(fit_right(told, width), quiet or "dim")]


def _last(
    graph: Field, on_card: str, state: Finding, columns: CardColumns, quiet: str
) -> Sequence[Field]:
    """The small graph, who is on the card, and what is said of it."""
    fields: list[Field] = []
    if columns.spark:
        fields += [(" ", ""), (fit(graph[0], columns.spark - 1), graph[1])]
    if columns.users:
        fields.append((fit("  " + on_card, columns.users), quiet or "dim"))
    return [*fields, state_field(state, columns.state, before="  ")]


def _mig_line(
    gpu: Gpu, instance: MigInstance, snapshot: Snapshot, history: History, columns: CardColumns
) -> Row:
    """An instance under its card: profile, memory, and who is on it; NVML tells no more of one."""
    name = printable(instance.profile or "MIG")
    before = columns.name + _CELSIUS + columns.power
    memory = _memory(instance.memory_used, instance.memory_total, columns, "")
    on_it = _instance_users(gpu, instance, snapshot.processes)
    state: Field = (f"  {on_it}", "dim")
    if not on_it:
        reason = not_free(history, gpu, history.thresholds, instance)
        if reason is None:
            state = (f"  {GLYPHS[Severity.GOOD]} free", STATE_STYLES[Severity.GOOD])
        elif reason.kind == "reserved":
            state = ("  reserved", "dim")
        elif reason.kind == "memory" and instance.memory_used is not None:
            state = ("  held, by nobody listed", "dim")
    fields: list[Field] = [
        (" └ ", "dim"),
        (fit(f"{instance.index} {name}", before), "dim"),
        *memory,
        state,
    ]
    if instance.gpu_instance is not None:
        # As the process table writes it.
        fields.append((f"  instance {gpu.index}/{instance.gpu_instance}", "dim"))
    return fill(fields, columns.width)


def _instance_users(gpu: Gpu, instance: MigInstance, processes: Sequence[GpuProcess]) -> str:
    place = (gpu.uuid, (instance.gpu_instance, instance.compute_instance))
    users = {
        process.user or UNKNOWN
        for process in processes
        if any((use.gpu_uuid, use.instance) == place for use in process.uses)
    }
    return printable(" ".join(sorted(users)))


def _pointed_at(gpu: Gpu, line: Row) -> Row:
    """The line with the cursor's sign, which takes the space of a number of two digits."""
    if gpu.index < 10:
        return ((f"▸{gpu.index} ", ""), *line[1:])
    after, style = line[1]
    return (
        (f"▸{gpu.index}", ""),
        (f" {after[:-1]}" if after.endswith(" ") else after, style),
        *line[2:],
    )


def _percent(value: int | None, width: int, quiet: str) -> list[Field]:
    if value is None:
        return [(fit_right(UNKNOWN, width), quiet)]
    return [(f"{value:>{width - 1}}", quiet), ("%", quiet or "dim")]


def _power(draw: float | None, limit: float | None, width: int, quiet: str) -> Sequence[Field]:
    if not width:
        return ()
    if draw is None:
        return [(fit_right(UNKNOWN, width), quiet)]
    cap = "" if limit is None else f"/{limit:.0f}"
    # The cap keeps its width, so the draw stays in its place.
    unit = f"{cap}W"
    return [(f"{draw:>{width - len(unit)}.0f}", quiet), (unit, quiet or "dim")]


def _memory(used: int | None, total: int | None, columns: CardColumns, quiet: str) -> list[Field]:
    filled = share(used, total)
    style = "bar.stale" if quiet else bar_style("bar.memory", filled)
    fields: list[Field] = [(" ", ""), (bar(filled, columns.memory_bar - 1), style)]
    if used is None and total is None:
        return [*fields, (fit_right(UNKNOWN, columns.memory_text), quiet)]
    cap = f"/{gibibytes(total)}G" if total is not None else "G"
    return [
        *fields,
        (fit_right(gibibytes(used), columns.memory_text - len(cap)), quiet),
        (cap, quiet or "dim"),
    ]
