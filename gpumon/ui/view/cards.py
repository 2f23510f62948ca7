"""The cards of a snapshot as rows: a line each, two columns of short lines, or tall panels.

What a width has room for is decided in one place, ``card_columns``: a list of steps in the order in
which things are worth having. Reading it backwards gives what is dropped first.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import Severity, not_free
from gpumon.text.cells import Field, Row, bar, bar_style, fill, restyle, spark
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gibibytes,
    number,
    printable,
    temperature,
)
from gpumon.text.units import degree
from gpumon.ui.view.graphs import UTIL
from gpumon.ui.view.messages import (
    GLYPHS,
    STATE_STYLES,
    core_name,
    is_stale,
    rate,
    share,
    short_name,
    state_field,
    users_by_card,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, GpuProcess, MigInstance, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.graphs import Graph
    from gpumon.ui.view.memo import Memo

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


def card_columns(width: int, gpus: Sequence[Gpu], graphs: bool = True) -> CardColumns:
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

    @property
    def in_sight(self) -> int:
        """Lines that there is room for."""
        return self.columns * (self.rows - 1)


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


def card_lines(snapshot: Snapshot) -> int:
    """Lines all cards need when each has one, and each MIG instance one under it."""
    return sum(1 + len(gpu.mig) for gpu in snapshot.gpus)


def list_columns(
    memo: Memo, snapshot: Snapshot, shape: CardsShape, width: int, graphs: bool
) -> CardColumns | None:
    """What the lines of the cards hold; ``None`` for tall panels.

    Args:
        memo: Keeps the result.
        snapshot: What to show.
        shape: From ``cards_shape``.
        width: Cells of all lines side by side.
        graphs: Whether there is a past to draw, and it is not drawn larger below.
    """
    if shape.panels:
        return None
    each = (width - _GUTTER * (shape.columns - 1)) // shape.columns
    kinds = {(gpu.name, gpu.power_limit, gpu.memory_total) for gpu in snapshot.gpus}
    return memo.by((each, kinds, graphs), card_columns, each, snapshot.gpus, graphs)


def card_rows(
    memo: Memo,
    snapshot: Snapshot,
    history: History,
    states: Mapping[str, Finding],
    columns: CardColumns,
    width: int,
    shape: CardsShape,
    top: int = 0,
    chosen: str | None = None,
    graph: Graph = UTIL,
) -> list[Row]:
    """All rows of the cards, a line each.

    Args:
        memo: Keeps what was drawn.
        snapshot: What to show.
        history: Where the graphs come from.
        states: What is said of each card, by UUID.
        columns: From ``list_columns``.
        width: Cells.
        shape: From ``cards_shape``.
        top: Lines scrolled away.
        chosen: UUID of the card under the cursor.
        graph: What the small graph shows.
    """
    room = shape.rows - 1
    seen = range(top, top + shape.columns * room)
    lines = _lines(memo, snapshot, history, states, columns, seen, chosen, graph)
    heading = memo(_heading, columns, graph)
    rows = [heading, *lines[:room]]
    if shape.columns > 1:
        seconds: list[Row] = [heading, *lines[room : 2 * room]]
        rows = [
            fill([*row, (" " * _GUTTER, ""), *(seconds[y] if y < len(seconds) else ())], width)
            for y, row in enumerate(rows)
        ]
    return rows


def _lines(
    memo: Memo,
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
    holders = memo(users_by_card, snapshot.processes) if columns.users else {}
    second = int(snapshot.time)
    for gpu in snapshot.gpus:
        own = range(first, first + 1 + len(gpu.mig))
        first = own.stop
        if own.stop <= seen.start or own.start >= seen.stop:
            continue
        part = memo.part(gpu.uuid)
        drawn = ""
        if columns.spark:
            # The graph stays the same for as long as its newest second lasts.
            key = (second, columns.spark, graph)
            drawn = part.by(key, _spark, history, gpu, columns.spark - 1, second, graph)
        on_card = holders.get(gpu.uuid, "")
        line = _line(part, gpu, states[gpu.uuid], on_card, (drawn, graph.style), columns)
        if gpu.uuid == chosen:
            line = restyle(_pointed_at(gpu, line), "cursor")
        of_card = [
            line,
            *(_mig_line(gpu, instance, snapshot, history, columns) for instance in gpu.mig),
        ]
        lines += of_card[max(0, seen.start - own.start) : seen.stop - own.start]
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


def _spark(history: History, gpu: Gpu, width: int, second: int, graph: Graph) -> str:
    """The graph in ``width`` buckets of a second or more."""
    return spark(graph.values(history, gpu, max(60, width), width, second), 1.0)


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


def _line(
    memo: Memo, gpu: Gpu, state: Finding, on_card: str, graph: Field, columns: CardColumns
) -> Row:
    """A card's line, whose parts are kept for as long as what they tell stays the same."""
    quiet = "stale" if is_stale(gpu, state) else ""
    return memo(
        _joined,
        columns.width,
        memo(_name, gpu.index, gpu.name, gpu.temperature_gpu, columns.name, quiet),
        memo(_power, gpu.power_draw, gpu.power_limit, columns.power, quiet),
        memo(_memory, gpu.memory_used, gpu.memory_total, columns, quiet),
        memo(_utilization, gpu.utilization_gpu, columns.util_bar, quiet),
        memo(_clock, gpu.clock_sm, columns.clock, quiet),
        memo(_traffic, gpu.pcie_rx, gpu.pcie_tx, columns.pcie, quiet),
        memo(_last, graph, on_card, state, columns, quiet),
    )


def _joined(width: int, *parts: Sequence[Field]) -> Row:
    return fill(chain.from_iterable(parts), width)


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
    """An instance under its card: profile, memory, and who is on it; drivers tell no more."""
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
