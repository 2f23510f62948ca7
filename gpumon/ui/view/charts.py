"""The large charts of a card's page: curves over time with axes, limits and what happened.

They are drawn with ``braille`` of ``cells``: a chart of 98 by 11 cells takes 0.6 ms, and 3.6 ms
in plotext, which has no word for a gap either and whose colours would have to be found out again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model.snapshot import Unknown
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit_right,
    gib,
    gibibytes,
    number,
    temperature,
)
from gpumon.text.units import degree, degrees, memory_units
from gpumon.ui.view.messages import rate
from gpumon.ui.view.plots import EDGE, Scale, Span, kinds_at, legend, plot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.config.chart_windows import ChartWindow
    from gpumon.model.snapshot import Gpu
    from gpumon.recording import Event
    from gpumon.recording.history import History
    from gpumon.ui.view.memo import Memo


_SPANS = (
    *(60.0 * one for one in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
    *(3600.0 * one for one in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21)),
)
_DAY = 86400.0
"""No more of a card is kept."""
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 5.0
"""Between two pictures of a chart; as long as the newest two dots stay what they are, if longer."""

_GUTTER = 3
_COLUMNS = ((230, 4), (150, 3), (70, 2))
"""Cells from which on so many charts stand side by side."""
_FEW = 4
"""In a single column only the first ones: what matters is to be found without scrolling far."""
_LEAST_HEIGHT, _MOST_HEIGHT = 7, 18
_AROUND = 9
"""Rows of a page to be seen besides: which card, what is wrong, the heading, the signs."""


class _Kind(Struct, frozen=True):
    """What a chart shows of a card.

    Attributes:
        label: Its name.
        fields: One, drawn from the foot up; or two that go in and out, drawn up and down.
        styles: Of each.
        now: The newest values, one for each field, and what stands dimmed behind them.
        name: How a value is written on the axis.
        top: The highest value there can be; ``None`` where the curve itself tells.
        limit: A value that should not be passed, if the card tells one.
        peak: How the highest value is written.
        told: A value in the unit that it is told in, which is the axis's.
        unit: The value that counts as one where round values are looked for.
    """

    label: str
    fields: tuple[str, ...]
    styles: tuple[str, ...]
    now: Callable[[Gpu], tuple[str, ...]]
    name: Callable[[float], str]
    top: Callable[[Gpu], float | None] = lambda _: None
    limit: Callable[[Gpu], float | None] = lambda _: None
    peak: Callable[[float], str] = lambda value: f"{value:.0f}"
    told: Callable[[float], float] = lambda value: value
    unit: float | None = 1.0


def _of(value: str, whole: str, unit: str) -> tuple[str, ...]:
    """A value, and what it is of: ``340``, ``/700 W``."""
    return value, "" if value == UNKNOWN else f"/{whole}{unit}" if whole != UNKNOWN else unit


def _links(received: float | None, sent: float | None) -> tuple[str, ...]:
    return f"▲ in {rate(received):>4}", f"  ▼ out {rate(sent):>4}", "  a second"


def _rate_name(value: float) -> str:
    return rate(value).replace(".0", "")


_KINDS = (
    _Kind(
        "utilisation",
        ("utilization_gpu",),
        ("graph.util",),
        lambda gpu: _of(number(gpu.utilization_gpu), UNKNOWN, " %"),
        lambda value: f"{value:.0f}%",
        top=lambda _: 100.0,
    ),
    _Kind(
        "memory",
        ("memory_used",),
        ("graph.memory",),
        lambda gpu: _of(gibibytes(gpu.memory_used), gibibytes(gpu.memory_total), f" {gib()}"),
        lambda value: f"{value:.{0 if value >= 1000 else 1}f}".removesuffix(".0") + "G",
        top=lambda gpu: None if gpu.memory_total is None else float(gpu.memory_total),
        peak=lambda value: f"{value:.1f}",
        told=lambda value: value / memory_units().kilo ** 3,
    ),
    _Kind(
        "power",
        ("power_draw",),
        ("graph.other",),
        lambda gpu: _of(number(gpu.power_draw), number(gpu.power_limit), " W"),
        lambda value: f"{value:.0f}W",
        limit=lambda gpu: gpu.power_limit,
    ),
    _Kind(
        "temperature",
        ("temperature_gpu",),
        ("graph.other",),
        lambda gpu: _of(
            temperature(gpu.temperature_gpu), temperature(gpu.temperature_slowdown), f" {degree()}"
        ),
        lambda value: f"{value:.0f}°",
        limit=lambda gpu: gpu.temperature_slowdown,
        told=degrees,
    ),
    _Kind(
        "SM clock",
        ("clock_sm",),
        ("graph.other",),
        lambda gpu: _of(number(gpu.clock_sm), number(gpu.clock_sm_max), " MHz"),
        lambda value: f"{value:.0f}",
        top=lambda gpu: gpu.clock_sm_max,
    ),
    _Kind(
        "PCIe",
        ("pcie_rx", "pcie_tx"),
        ("graph.memory", "graph.util"),
        lambda gpu: _links(gpu.pcie_rx, gpu.pcie_tx),
        _rate_name,
        peak=rate,
        unit=None,
    ),
    _Kind(
        "NVLink",
        ("nvlink_rx", "nvlink_tx"),
        ("graph.memory", "graph.util"),
        lambda gpu: _links(gpu.nvlink_rx, gpu.nvlink_tx),
        _rate_name,
        peak=rate,
        unit=None,
    ),
)


def window_seconds(window: ChartWindow, history: History) -> float:
    """How much of the past a window shows: of all of it, the next round time."""
    if window.seconds is not None:
        return window.seconds
    seen = 0.0 if history.started is None else history.now - history.started
    return next((span for span in _SPANS if span >= seen), _DAY)


def window_title(window: ChartWindow, history: History) -> str:
    """What stands over the charts."""
    if window.seconds is not None or history.started is None:
        return window.title
    seen = history.now - history.started
    return f"{window.title}: {duration(seen)}" if seen <= _DAY else "The last 24 hours"


class _Sight(NamedTuple):
    """What is looked at.

    Attributes:
        gpu: The card.
        history: Where the curves come from.
        seconds: How much of it.
        marks: Gives what happened from one moment to another.
    """

    gpu: Gpu
    history: History
    seconds: float
    marks: Callable[[float, float], Iterable[Event]]


class _Drawn(NamedTuple):
    """A chart without its title.

    Attributes:
        words: What is said of its highest value.
        rows: Its rows.
        happened: What its marks are, by cell.
    """

    words: str
    rows: list[Row]
    happened: Mapping[int, int]


def chart_rows(
    memo: Memo,
    gpu: Gpu,
    history: History,
    window: ChartWindow,
    marks: Callable[[float, float], Iterable[Event]],
    width: int,
    height: int,
) -> list[Row]:
    """All charts there is room for, and what their signs mean.

    Args:
        memo: Keeps what was drawn of this card.
        gpu: Whose.
        history: Where the curves come from; they end at its newest moment.
        window: How much of the past.
        marks: Gives what happened on the card from one moment to another.
        width: Cells.
        height: Rows of the page in sight; the charts of a small one are to be scrolled to.
    """
    kinds = [kind for kind in _KINDS if _is_told(gpu, kind)]
    across = next((count for least, count in _COLUMNS if width >= least), 1)
    if across == 1:
        kinds = kinds[:_FEW]
    if not kinds or history.started is None:
        return []
    down = -(-len(kinds) // across)
    tall = max(_LEAST_HEIGHT, min(_MOST_HEIGHT, (height - _AROUND) // down))
    sight = _Sight(gpu, history, window_seconds(window, history), marks)
    gap: Field = (" " * _GUTTER, "")
    rows: list[Row] = []
    for first in range(0, len(kinds), across):
        beside = kinds[first : first + across]
        each = (width - _GUTTER * (len(beside) - 1)) // len(beside)
        charts = [_chart(memo.part(kind.label), kind, sight, each, tall) for kind in beside]
        titles = [
            _title(kind, gpu, chart.words, each) for kind, chart in zip(beside, charts, strict=True)
        ]
        rows += [
            fill([field for row in line for field in (*row, gap)][:-1], width)
            for line in (titles, *zip(*(chart.rows for chart in charts), strict=True))
        ]
    return [*rows, legend(charts[-1].happened.values(), width)]


def _chart(memo: Memo, kind: _Kind, sight: _Sight, width: int, height: int) -> _Drawn:
    gpu, history, seconds, _ = sight
    pace = min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds / _dots(width)))
    moment = int(history.now / pace)
    key = (history, seconds, width, height, moment, kind.top(gpu), kind.limit(gpu))
    return memo.by(key, _draw, kind, sight, width, height - 1)


def _draw(kind: _Kind, sight: _Sight, width: int, height: int) -> _Drawn:
    gpu, history, seconds, marks = sight
    dots = _dots(width)
    bucket = seconds / dots
    span = Span((math.floor(history.now / bucket) - dots + 1) * bucket, seconds)
    curves = [
        [
            _told(kind, value)
            for value in history.gpu_buckets(gpu.uuid, field, seconds, dots, history.now)
        ]
        for field in kind.fields
    ]
    peaks = [history.gpu_peak(gpu.uuid, field, seconds) for field in kind.fields]
    happened = kinds_at(marks(span.began, span.began + seconds), span, width)
    top, limit = _told(kind, kind.top(gpu)), _told(kind, kind.limit(gpu))
    scale = Scale(kind.name, kind.unit, top, limit)
    rows = plot(curves, kind.styles, scale, span, happened, width, height)
    return _Drawn(_peak_words(kind, peaks), rows, happened)


def _told(kind: _Kind, value: float | None) -> float | None:
    return None if value is None else kind.told(value)


def _dots(width: int) -> int:
    """How many values a chart has room for: two a cell."""
    return 2 * max(1, width - EDGE)


def _is_told(gpu: Gpu, kind: _Kind) -> bool:
    """Whether the card has such values at all, be they unknown at this moment or not."""
    return any(
        getattr(gpu, field) is not None or gpu.unknown.get(field) not in _NEVER
        for field in kind.fields
    )


_NEVER = (Unknown.NOT_SUPPORTED, Unknown.NOT_RECORDED, Unknown.NO_PERMISSION)


def _peak_words(kind: _Kind, peaks: Sequence[float | None]) -> str:
    known = [peak for peak in peaks if peak is not None]
    return f"peak {kind.peak(kind.told(max(known)))}" if known else "nothing known of it"


def _title(kind: _Kind, gpu: Gpu, words: str, width: int) -> Row:
    """The name, the newest value, and the highest where there is room for it."""
    *values, rest = kind.now(gpu)
    newest, limit = getattr(gpu, kind.fields[0]), kind.limit(gpu)
    styles = kind.styles if len(values) > 1 else ("strong",)
    if limit is not None and newest is not None and newest >= limit:
        styles = ("state.warning",)
    fields: list[Field] = [(" " * EDGE, ""), (f"{kind.label}  ", "dim")]
    fields += zip(values, styles, strict=True)
    used = sum(cell_width(text) for text, _ in fields)
    if used + cell_width(rest) <= width:
        fields.append((rest, "dim"))
        used += cell_width(rest)
    if used + 2 + cell_width(words) <= width:
        fields.append((fit_right(words, width - used), "dim"))
    return fill(fields, width)
