"""A card as a tall panel: meters on the left, its last minutes on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import card_state
from gpumon.layout.cells import Field, Row, bar, braille, fill
from gpumon.layout.words import GLYPHS, STATE_STYLES, holders, rate, short_name
from gpumon.model import CardStatus
from gpumon.text import UNKNOWN, cell_width, fit, fit_right, gibibytes, memory_size, printable

if TYPE_CHECKING:
    from gpumon.findings import Finding
    from gpumon.history import History
    from gpumon.model import Gpu, Snapshot

_LABEL = 8
_VALUE = 15
_LEAST_METERS, _MOST_METERS = 40, 72
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
    gpu: Gpu, snapshot: Snapshot, history: History, width: int, height: int
) -> list[Row]:
    """One card in ``height`` rows of ``width`` cells."""
    left = max(_LEAST_METERS, min(_MOST_METERS, width * 2 // 5))
    stale = gpu.status is not CardStatus.OK
    lines = [_meter_row(meter, left - 2, stale) for meter in _meters(gpu)]
    lines += [_fact_row(label, text, left - 2) for label, text in _facts(gpu)]
    graphs = _graphs(gpu, history, width - left - 1, height - 1, snapshot.time)
    rows = [_title(gpu, card_state(history, gpu), snapshot, width)]
    for y in range(height - 1):
        start = lines[y] if y < len(lines) else ()
        rows.append(fill([(" ", ""), *fill(start, left), *graphs[y]], width))
    return rows


def _title(gpu: Gpu, state: Finding, snapshot: Snapshot, width: int) -> Row:
    words = f"{GLYPHS[state.severity]} {printable(state.short)} "
    name = f" {gpu.index}  {short_name(gpu.name)} "
    room = max(0, width - cell_width(name) - cell_width(words))
    return fill(
        [
            (name, "panel.title"),
            (fit("  " + holders(gpu, snapshot.processes), room), "panel.users"),
            (words, f"panel.{STATE_STYLES[state.severity]}"),
        ],
        width,
        "panel.users",
    )


def _meters(gpu: Gpu) -> list[Meter]:
    hottest = gpu.temperature_slowdown
    cap = gpu.power_limit
    draw = UNKNOWN if gpu.power_draw is None else f"{gpu.power_draw:.0f}"
    return [
        Meter(
            "util", _share(gpu.utilization_gpu, 100), _plain(gpu.utilization_gpu), "%", "bar.util"
        ),
        Meter(
            "memory",
            _share(gpu.memory_used, gpu.memory_total),
            gibibytes(gpu.memory_used),
            f"/{gibibytes(gpu.memory_total)}G",
            "bar.memory",
        ),
        Meter(
            "power",
            _share(gpu.power_draw, cap),
            draw,
            "W" if cap is None else f"/{cap:.0f}W",
            "bar.other",
        ),
        Meter(
            "heat",
            _share(gpu.temperature_gpu, hottest or _NO_SLOWDOWN),
            _plain(gpu.temperature_gpu),
            "°C" if hottest is None else f"/{hottest}°C",
            "bar.other",
        ),
    ]


def _share(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


def _plain(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


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
    core, memory = _plain(gpu.clock_sm), _plain(gpu.clock_memory)
    generation, lanes = _plain(gpu.pcie_generation), _plain(gpu.pcie_width)
    activity, fan = _percent(gpu.utilization_memory), _percent(gpu.fan_speed)
    encoder, decoder = _percent(gpu.utilization_encoder), _percent(gpu.utilization_decoder)
    return [
        ("clocks", f"SM {core}  memory {memory} MHz{state}"),
        ("PCIe", f"gen {generation} x{lanes}  rx {rate(gpu.pcie_rx)}  tx {rate(gpu.pcie_tx)} /s"),
        ("memory", f"activity {activity}  reserved {memory_size(gpu.memory_reserved)}"),
        ("video", f"encoder {encoder}  decoder {decoder}"),
        ("fan", fan),
    ]


def _percent(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value}%"


def _fact_row(label: str, text: str, width: int) -> Row:
    return fill([(fit(label, _LABEL), "dim"), (text, "")], width)


def _graphs(gpu: Gpu, history: History, width: int, height: int, now: float) -> list[list[Field]]:
    """Utilisation and memory side by side, a second a column of dots, the newest at the right."""
    each = max(4, (width - 4) // 2)
    span = 2 * each
    tall = max(1, height - 1)
    util = history.gpu_buckets(gpu.uuid, "utilization_gpu", span, span, now)
    memory = history.gpu_buckets(gpu.uuid, "memory_used", span, span, now)
    one = braille(util, 100.0, each, tall)
    two = braille(memory, float(gpu.memory_total or 1), each, tall)
    lines: list[list[Field]] = [
        [("   ", ""), (one[y], "graph.util"), (" ", ""), (two[y], "graph.memory")]
        for y in range(tall)
    ]
    captions = (fit(f"util, last {span} s", each), fit(f"memory, last {span} s", each))
    lines.append([("   ", ""), (captions[0], "dim"), (" ", ""), (captions[1], "dim")])
    return lines
