"""A card as a tall panel: meters on the left, its last minutes on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import Field, Row, bar, bar_style, braille, fill, restyle
from gpumon.text.formatting import (
    cell_width,
    fit,
    fit_right,
    gibibytes,
    memory_size,
    number,
    printable,
    temperature,
)
from gpumon.text.units import degree
from gpumon.ui.view.graphs import MEMORY, UTIL
from gpumon.ui.view.messages import (
    is_stale,
    rate,
    share,
    short_name,
    state_field,
    users_by_card,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.graphs import Graph
    from gpumon.ui.view.memo import Memo

_LABEL = 8
_VALUE = 15
_LEAST_METERS, _MOST_METERS = 44, 72
_NO_SLOWDOWN = 100
"""Degrees Celsius at the end of the bar where a card does not tell where it slows down."""


class Meter(Struct, frozen=True):
    """A bar with its number.

    Attributes:
        label: What it measures.
        fraction: Of the bar; ``None`` is unknown.
        value: The number.
        unit: What stands dimmed behind it.
        style: Of the bar.
    """

    label: str
    fraction: float | None
    value: str
    unit: str
    style: str


def panel_rows(
    memo: Memo,
    snapshot: Snapshot,
    history: History,
    states: Mapping[str, Finding],
    width: int,
    height: int,
    chosen: str | None = None,
    graph: Graph = UTIL,
) -> list[Row]:
    """Every card in ``height`` rows of ``width`` cells.

    Args:
        memo: Keeps what was drawn.
        snapshot: What to show.
        history: Where the graphs come from.
        states: What is said of each card, by UUID.
        width: Cells.
        height: Rows of one card.
        chosen: UUID of the card under the cursor.
        graph: What the first graph shows; beside it is memory, or utilisation.
    """
    left = max(_LEAST_METERS, min(_MOST_METERS, width * 2 // 5))
    holders = memo(users_by_card, snapshot.processes)
    # The graphs stay the same for as long as their newest second lasts.
    key = (width - left - 1, height - 1, int(snapshot.time), graph)
    rows: list[Row] = []
    for gpu in snapshot.gpus:
        stale = is_stale(gpu, states[gpu.uuid])
        lines = [_meter_row(meter, left - 2, stale) for meter in _meters(gpu)]
        lines += [_fact_row(label, text, left - 2) for label, text in _facts(gpu)]
        title = _title(gpu, states[gpu.uuid], holders.get(gpu.uuid, ""), width)
        rows.append(restyle(title, "cursor") if gpu.uuid == chosen else title)
        graphs = memo.part(gpu.uuid).by(key, _draw_graphs, gpu, history, *key)
        for y, drawn in enumerate(graphs):
            start = lines[y] if y < len(lines) else ()
            rows.append(fill([(" ", ""), *fill(start, left), *drawn], width))
    return rows


def _title(gpu: Gpu, state: Finding, on_card: str, width: int) -> Row:
    name = f" {gpu.index}  {short_name(gpu.name)} "
    words = state_field(state, cell_width(printable(state.short)) + 3, style="panel.")
    room = max(0, width - cell_width(name) - cell_width(words[0]))
    users = (fit("  " + on_card, room), "panel.users")
    return fill([(name, "panel.title"), users, words], width, "panel.users")


def _meters(gpu: Gpu) -> list[Meter]:
    hottest, cap = gpu.temperature_slowdown, gpu.power_limit
    total = gpu.memory_total
    busy, full = share(gpu.utilization_gpu, 100), share(gpu.memory_used, total)
    return [
        Meter("util", busy, number(gpu.utilization_gpu), "%", bar_style("bar.util", busy)),
        Meter(
            "memory",
            full,
            gibibytes(gpu.memory_used),
            "G" if total is None else f"/{gibibytes(total)}G",
            bar_style("bar.memory", full),
        ),
        Meter(
            "power",
            share(gpu.power_draw, cap),
            number(gpu.power_draw),
            "W" if cap is None else f"/{cap:.0f}W",
            "bar.other",
        ),
        Meter(
            "temp",
            share(gpu.temperature_gpu, hottest or _NO_SLOWDOWN),
            temperature(gpu.temperature_gpu),
            degree() if hottest is None else f"/{temperature(hottest, degree())}",
            "bar.other",
        ),
    ]


def _meter_row(meter: Meter, width: int, stale: bool) -> Row:
    return (
        (fit(meter.label, _LABEL), "dim"),
        (bar(meter.fraction, width - _LABEL - _VALUE), "bar.stale" if stale else meter.style),
        (fit_right(meter.value, _VALUE - cell_width(meter.unit)), "stale" if stale else "strong"),
        (meter.unit, "dim"),
    )


def _facts(gpu: Gpu) -> list[tuple[str, str]]:
    """What else is worth a line, most wanted first; the panel shows as many as it has room for."""
    state = "" if gpu.pstate is None else f"  P{gpu.pstate}"
    core, memory = f"{number(gpu.clock_sm):>4}", f"{number(gpu.clock_memory):>5}"
    generation, lanes = number(gpu.pcie_generation), number(gpu.pcie_width)
    activity, fan = number(gpu.utilization_memory, "%"), number(gpu.fan_speed, "%")
    received, sent = rate(gpu.pcie_rx), rate(gpu.pcie_tx)
    encoder, decoder = number(gpu.utilization_encoder, "%"), number(gpu.utilization_decoder, "%")
    facts = [
        ("clocks", f"SM {core}  memory {memory} MHz{state}"),
        ("PCIe", f"gen {generation} x{lanes:<2} rx {received:>5}/s tx {sent:>5}/s"),
        ("driver", f"reserves {memory_size(gpu.memory_reserved)}  memory active {activity}"),
    ]
    if gpu.fan_speed is not None:
        facts.append(("fan", fan))
    if gpu.utilization_encoder or gpu.utilization_decoder:
        # It comes and goes, so nothing stands below it.
        facts.append(("video", f"encoder {encoder:>4}  decoder {decoder:>4}"))
    return facts


def _fact_row(label: str, text: str, width: int) -> Row:
    return fill([(fit(label, _LABEL), "dim"), (text, "")], width)


def _draw_graphs(
    gpu: Gpu, history: History, width: int, height: int, second: int, graph: Graph
) -> list[list[Field]]:
    """Two graphs side by side, a second a column of dots, the newest at the right."""
    each = max(4, (width - 4) // 2)
    span = 2 * each
    tall = max(1, height - 1)
    graphs = (graph, UTIL if graph is MEMORY else MEMORY)
    one, two = (
        braille(which.values(history, gpu, span, span, second), 1.0, each, tall) for which in graphs
    )
    lines: list[list[Field]] = [
        [("   ", ""), (one[y], graphs[0].style), (" ", ""), (two[y], graphs[1].style)]
        for y in range(tall)
    ]
    last = "last " if all(each >= cell_width(f"{g.key}, last {span} s") for g in graphs) else ""
    captions = [fit(f"{g.key}, {last}{span} s", each) for g in graphs]
    lines.append([("   ", ""), (captions[0], "dim"), (" ", ""), (captions[1], "dim")])
    return lines
