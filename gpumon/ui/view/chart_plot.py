"""Draws a chart of a series: curves, the axis of values, the axis of time with its events.

A curve is a line of braille dots, and a second one in the same chart a solid line:
``docs/decisions/0012-charts.md``.
"""

from __future__ import annotations

import math
import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.recording.recording import EventKind
from gpumon.text.cells import Field, Row, fill, spark
from gpumon.text.formatting import cell_width, fit, fit_right
from gpumon.text.units import memory_units
from gpumon.ui.view.chart_series import AXIS_WIDTH, NO_VALUES, PERCENT, value_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.recording.history import History
    from gpumon.recording.recording import Event
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries, Quantity, SubjectT

    Values = Sequence[float | None]


_GUTTER = 3
"""Cells between two charts side by side."""
_TICK_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 6, 12)),
)
"""Seconds between two ticks of the axis of time."""
_TICK_CELLS = 5
"""The least space between two times of day."""
_NOW = "now"
_AGO_CELLS = 8
"""The least space for a time before now, such as ``-1h15m``."""
_IN_SECONDS = 120.0
"""Up to this length, times before now are in seconds."""
_SECONDS_SHOWN = 300.0
"""Up to this length, the first time with a value is written with its seconds."""

_LOW = 5
"""In a curve of this many rows or fewer, adjacent rows may both have a label."""
_LEAST_TOP = 1e-9
"""The axis of values must not end at zero."""

_BLANK = " "
_LINE = "▁─▔"
"""A second curve at the foot, in the middle and at the top of a cell: a line among dots."""
_EVENT, _LIMIT, _GRID = "┊", "╌", "┈"
_PARTS = re.compile(f"[\u2801-\u28ff]+|[{_LINE}]+|{_EVENT}+|{_LIMIT}+|{_GRID}+|{_BLANK}+")
_BEHIND_STYLES = {_EVENT: "rule", _LIMIT: "dim", _GRID: "rule", _BLANK: ""}

_PAIRS = ((0x01, 0x40), (0x02, 0x04), (0x08, 0x80), (0x10, 0x20))
"""Pairs of dots of a braille cell that are swapped when it is turned upside down."""
_UPSIDE_DOWN = {
    0x2800 + dots: 0x2800
    + sum(bits[1] if dots & bits[0] else 0 for bits in _PAIRS)
    + sum(bits[0] if dots & bits[1] else 0 for bits in _PAIRS)
    for dots in range(256)
}
_LEFT_DOTS, _RIGHT_DOTS = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
"""The dots of a braille cell from below."""

_PROCESS_STYLE = "narrowing"


class Span(Struct, frozen=True):
    """The time that a chart shows."""

    start: float  # The left edge, in seconds since the epoch.
    seconds: float

    def cell_of(self, time: float, width: int) -> int | None:
        """The cell of a time; ``None`` if it is not shown."""
        cell = math.floor((time - self.start) / self.seconds * width)
        return cell if 0 <= cell < width else None


def span_until(now: float, seconds: float, count: int) -> Span:
    """The time up to now, in whole steps of a value, so that a chart does not flicker."""
    step = seconds / count
    return Span((math.floor(now / step) - count + 1) * step, seconds)


def curve_cells(
    values: Values, top: float, width: int, height: int, second: Values | None = None
) -> list[str]:
    """The cells of a curve from the top down, two values a cell and four dots a cell high.

    A known value is always visible: zero is a line at the bottom, a gap is unknown.

    Args:
        values: Oldest first; the newest stands at the right edge.
        top: The value at the upper edge.
        width: Cells.
        height: Cells.
        second: The values of a second curve. Where both have the same cell, they alternate;
            its newest value is always visible.
    """
    levels = _dot_levels(values, top, width, height)
    before = [0, *levels[1:-1:2]]
    columns = map(_curve_column, before, levels[::2], levels[1::2], [height] * width)
    if second is None:
        return ["".join(cells) for cells in zip(*columns, strict=True)]
    rows = [list(cells) for cells in zip(*columns, strict=True)]
    newest_values = _newest_of_pairs(second, width)
    newest = max((cell for cell, value in enumerate(newest_values) if value is not None), default=0)
    for cell, value in enumerate(newest_values):
        if value is not None:
            half = max(0, min(2 * height, round(value / top * 2 * height)))
            row, at_top = height - 1 - half // 2, half == 2 * height
            # The foot of a cell is the top of the one below it, where the first curve may not be.
            if (
                half
                and not half % 2
                and (at_top or rows[row][cell] != _BLANK == rows[row + 1][cell])
            ):
                row, at_top = row + 1, True
            if cell % 2 or cell == newest or rows[row][cell] == _BLANK:
                rows[row][cell] = _LINE[2 if at_top else half % 2]
    return ["".join(row) for row in rows]


def _dot_levels(values: Values, top: float, width: int, height: int) -> list[int]:
    """The height of each value in dots; 0 is unknown."""
    most = 4 * height
    known = list(values[-2 * width :])
    scale = most / top
    levels = [0 if value is None else round(value * scale) or 1 for value in known]
    if known and max(levels) > most:
        levels = [min(most, level) for level in levels]
    return [0] * (2 * width - len(levels)) + levels


def _newest_of_pairs(values: Values, width: int) -> list[float | None]:
    """The newest known one of the two values of each cell."""
    known = [None] * (2 * width - len(values)) + list(values[-2 * width :])
    pairs = zip(known[::2], known[1::2], strict=True)
    return [first if second is None else second for first, second in pairs]


@lru_cache(maxsize=8192)
def _curve_column(before: int, left: int, right: int, height: int) -> tuple[str, ...]:
    """The cells of one column from the top down: a line, joined to the value before it."""
    bits = [0] * height
    for start, level, marks in ((before, left, _LEFT_DOTS), (left, right, _RIGHT_DOTS)):
        if not level:
            continue
        end = level if start in {0, level} else start + 1 if start < level else start - 1
        for dot in range(min(level, end) - 1, max(level, end)):
            bits[dot // 4] |= marks[dot % 4]
    return tuple(_DOTS[bits[row]] for row in range(height - 1, -1, -1))


# Shared strings, because thousands of columns are kept.
_DOTS = (_BLANK, *(chr(0x2800 + bits) for bits in range(1, 256)))


def curve_fields(cells: str, style: str, second: str = "") -> list[Field]:
    """A row of cells in the styles of its curves."""
    fields: list[Field] = []
    for found in _PARTS.finditer(cells):
        text = found.group()
        first = text[0]
        name = _BEHIND_STYLES.get(first)
        if name is None:
            name = second if first in _LINE else style
        fields.append((text, name))
    return fields


def plot(
    curves: Sequence[Values],
    styles: Sequence[str],
    quantity: Quantity,
    bounds: tuple[float | None, float | None],
    span: Span,
    events: Mapping[int, int],
    width: int,
    height: int,
    *,
    times: bool = True,
    second: Values | None = None,
    is_past: bool = False,
) -> list[Row]:
    """A chart without a title.

    Args:
        curves: One curve above the axis of time, or one above and one below it. Each has two values
            per cell, oldest first; ``None`` is a gap.
        styles: The style of each curve, and of the second one if there is one.
        quantity: Writes the labels of the axis of values.
        bounds: The maximum of the values, and the limit that they may exceed, if they are known.
        span: The axis of time.
        events: The kinds of events by cell, from ``event_bits``.
        width: Cells.
        height: Rows.
        times: Whether the last row has the times.
        second: Another curve above the axis, with the same unit.
        is_past: Whether the times are those of day: the chart does not end now.
    """
    if quantity.convert is not float:
        curves = [[_converted(quantity, value) for value in values] for values in curves]
        second = second and [_converted(quantity, value) for value in second]
    drawn = curves if second is None else [*curves, second]
    most, limit = (_converted(quantity, value) for value in bounds)
    room = max(1, width - AXIS_WIDTH)
    top = _top(drawn, quantity, most, limit)
    tall = max(len(curves), height - 1 - times)
    above = tall if len(curves) == 1 else -(-tall // 2)
    edge = _edge(top, above)
    labels = _labels(quantity, limit, top, above)
    up = curve_cells(curves[0], edge, room, above, second)
    line = None if limit is None else _row_of(limit, edge, above)
    note = _before_values(drawn, span, room)
    rows = [
        _plot_row(
            up[y],
            labels.get(y, ""),
            styles,
            events,
            dashed=y == line,
            note=note if y == (above - 1) // 2 else "",
        )
        for y in range(above)
    ]
    ticks = _ticks_of(span, room, is_past=is_past)
    rows.append(_time_axis(events, ticks, room))
    if len(curves) == 2:
        below = tall - above
        cells = curve_cells(curves[1], _edge(top, below), room, below)
        down = [line.translate(_UPSIDE_DOWN) for line in cells]
        rows += [
            _plot_row(line, "" if y else quantity.axis(top), styles[1:], events, dashed=False)
            for y, line in reversed(list(enumerate(down)))
        ]
    return [*rows, _times(ticks, room)] if times else rows


def series_rows(
    series: ChartSeries[SubjectT],
    history: History,
    subject: SubjectT,
    span: Span,
    end: ChartEnd,
    events: Mapping[int, int],
    width: int,
    height: int,
    *,
    times: bool = True,
    is_past: bool = False,
) -> list[Row]:
    """The chart of a series without its title."""
    curves = [
        series.values(history, subject, field, span.seconds, value_count(width), end)
        for field in series.fields
    ]
    styles, bounds, quantity = series.styles, series.bounds(subject), series.quantity
    size = span, events, width, height
    return plot(curves, styles, quantity, bounds, *size, times=times, is_past=is_past)


def share_rows(
    series: Sequence[ChartSeries[SubjectT]],
    history: History,
    subject: SubjectT,
    span: Span,
    end: ChartEnd,
    width: int,
    height: int,
    *,
    times: bool = True,
    is_past: bool = False,
) -> list[Row]:
    """Two series as shares of their maximum, in one chart without a title."""
    shares = [
        each.shares(history, subject, span.seconds, value_count(width), end) for each in series
    ]
    first, other = (
        [None if share is None else 100 * share for share in values] for values in shares
    )
    styles = [each.style for each in series]
    return plot(
        [first],
        styles,
        PERCENT,
        (100.0, None),
        span,
        {},
        width,
        height,
        times=times,
        second=other,
        is_past=is_past,
    )


def _converted(quantity: Quantity, value: float | None) -> float | None:
    return None if value is None else quantity.convert(value)


def _top(
    curves: Sequence[Values], quantity: Quantity, most: float | None, limit: float | None
) -> float:
    """The highest value of the axis."""
    highest = max((value for values in curves for value in values if value is not None), default=0)
    if most is not None:
        top = most
    elif limit is not None:
        top = limit
    else:
        top = _round_up(highest, quantity.step)
    return max(top, highest, _LEAST_TOP)


def _before_values(curves: Sequence[Values], span: Span, width: int) -> str:
    """What stands in the blank start of a chart: it shows more time than has been seen."""
    unknown = min(
        2 * width
        - len(values)
        + next((at for at, value in enumerate(values) if value is not None), len(values))
        for values in curves
    )
    if unknown >= 2 * width:
        text = NO_VALUES
    else:
        since = time.localtime(span.start + unknown * span.seconds / (2 * width))
        form = "%H:%M:%S" if span.seconds <= _SECONDS_SHOWN else "%H:%M"
        text = f"no values before {time.strftime(form, since)}"
    blank = min(width, unknown // 2)
    return next((note for note in (text, "no values") if len(note) + 2 <= blank), "").center(blank)


def _plot_row(
    cells: str,
    label: str,
    styles: Sequence[str],
    events: Mapping[int, int],
    *,
    dashed: bool,
    note: str = "",
) -> Row:
    """A row of curves; its blank cells show the limit or the times of events."""
    edge: list[Field] = [(fit_right(label, AXIS_WIDTH - 1), "dim"), ("┤" if label else "│", "rule")]
    if dashed:
        cells = cells.replace(_BLANK, _LIMIT)
    elif events:
        shown = list(cells)
        for cell in events:
            if shown[cell] == _BLANK:
                shown[cell] = _EVENT
        cells = "".join(shown)
    if note.strip():
        edge.append((note, "dim"))
        cells = cells[len(note) :]
    if label:
        cells = cells.replace(_BLANK, _GRID)
    return (*edge, *curve_fields(cells, *styles[:2]))


def _replace_cells(text: str, style: str, cells: dict[int, Field]) -> list[Field]:
    """A text in one style, with some cells replaced."""
    fields: list[Field] = []
    begin, before = 0, ""
    for cell in sorted(cells):
        glyph, name = cells[cell]
        if cell > begin:
            fields.append((text[begin:cell], style))
            before = ""
        if before == name:
            fields[-1] = (fields[-1][0] + glyph, name)
        else:
            fields.append((glyph, name))
        begin, before = cell + 1, name
    if begin < len(text):
        fields.append((text[begin:], style))
    return fields


def _labels(quantity: Quantity, limit: float | None, top: float, rows: int) -> dict[int, str]:
    """The labels of the axis of values, by row from the top: round values, and the limit."""
    labels: dict[int, str] = {}
    edge = _edge(top, rows)
    if limit is not None and limit <= top:
        labels[_row_of(limit, edge, rows)] = quantity.axis(limit)
    else:
        labels[0] = quantity.axis(top)
    step = _round_step(top, max(1, rows // 2), quantity)
    near = 1 if rows > _LOW else 0
    for count in range(1, math.floor(top / step) + 1):
        row, label = _row_of(count * step, edge, rows), quantity.axis(count * step)
        # Small values may be rounded to the same label, which is shown once.
        used = {quantity.axis(0.0), *labels.values()}
        if label not in used and not any(abs(row - other) <= near for other in labels):
            labels[row] = label
    return labels


def _edge(top: float, rows: int) -> float:
    """The value at the upper edge, if the top is to be drawn beside its label: in mid-row."""
    return top * rows / (rows - 0.5)


def _row_of(value: float, edge: float, rows: int) -> int:
    """The row of a value's highest dot, from the top."""
    level = max(1, min(4 * rows, round(value / edge * 4 * rows)))
    return rows - -(-level // 4)


def _ten_of(value: float, unit: float | None) -> float:
    """The largest power of ten of the unit that is not above a value; without a unit, of bytes."""
    if unit is None:
        kilo = float(memory_units().kilo)
        unit = kilo ** max(0, math.floor(math.log(value, kilo))) if value >= 1 else 1.0
    return unit * 10.0 ** math.floor(math.log10(value / unit))


def _round_up(value: float, unit: float | None) -> float:
    """The next round value."""
    if unit is None:
        # Less than a megabyte per second is noise on a link.
        value = max(value, memory_units().kilo ** 2)
    if value <= 0:
        return 1.0
    ten = _ten_of(value, unit)
    return next((factor * ten for factor in _ROUND if factor * ten >= value), value)


def _round_step(top: float, most: int, quantity: Quantity) -> float:
    """The smallest round step with at most ``most`` steps up to the top."""
    if quantity.steps:
        return next((step for step in quantity.steps if top / step <= most), top)
    ten = _ten_of(top, quantity.step) / 10
    return next((factor * ten for factor in _ROUND_STEP if top / (factor * ten) <= most), top)


_ROUND = (1, 1.5, 2, 3, 4, 6, 8, 10)
_ROUND_STEP = (1, 2, 2.5, 5, 10, 20, 25, 40, 50)


def event_bits(events: Iterable[Event], span: Span, width: int) -> dict[int, int]:
    """The kinds of events in each cell of a curve, as bits."""
    bits: dict[int, int] = {}
    for event in events:
        cell = span.cell_of(event.time, max(1, width - AXIS_WIDTH))
        if cell is not None:
            bits[cell] = bits.get(cell, 0) | EVENT_BITS[event.kind]
    return bits


def _time_axis(events: Mapping[int, int], ticks: Sequence[tuple[int, str]], width: int) -> Row:
    cells: dict[int, Field] = {cell: ("┬", "rule") for cell, _ in ticks}
    cells |= {cell: event_field(bits, _PROCESS_STYLE) for cell, bits in events.items()}
    edge: list[Field] = [(fit_right("0", AXIS_WIDTH - 1), "dim"), ("┼", "rule")]
    return (*edge, *_replace_cells("─" * width, "rule", cells))


def _times(ticks: Sequence[tuple[int, str]], width: int, edge: int = AXIS_WIDTH) -> Row:
    """The times, each below its tick if the edges allow it."""
    text = ""
    for cell, label in ticks:
        at = max(0, min(edge + cell - len(label) // 2, edge + width - len(label)))
        if at > len(text) or not text:
            text += " " * (at - len(text)) + label
    return ((fit(text, edge + width), "dim"),)


def time_rows(span: Span, width: int, *, is_past: bool) -> list[Row]:
    """The axis of time alone, and its times, for charts without an axis of values."""
    ticks = _ticks_of(span, width, is_past=is_past)
    cells: dict[int, Field] = {cell: ("┬", "rule") for cell, _ in ticks}
    return [tuple(_replace_cells("─" * width, "rule", cells)), _times(ticks, width, 0)]


def _ticks_of(span: Span, width: int, *, is_past: bool) -> Sequence[tuple[int, str]]:
    """The ticks of the axis of time, with their cells."""
    return _ticks(span, width) if is_past else _ticks_before_now(span.seconds, width)


def _ticks(span: Span, width: int) -> list[tuple[int, str]]:
    """The round local times that fit, with their cells."""
    step, form = _TICK_STEPS[-1], "%H:%M"
    for seconds in _TICK_STEPS:
        label = 8 if seconds < 60 else 5
        if seconds / span.seconds * width >= label + _TICK_CELLS:
            step, form = seconds, "%H:%M:%S" if seconds < 60 else "%H:%M"
            break
    # Whole hours are those of the local clock.
    shift = time.localtime(span.start).tm_gmtoff
    ticks: list[tuple[int, str]] = []
    moment = math.ceil((span.start + shift) / step) * step - shift
    while (cell := span.cell_of(moment, width)) is not None:
        ticks.append((cell, time.strftime(form, time.localtime(moment))))
        moment += step
    return ticks


@lru_cache(maxsize=64)
def _ticks_before_now(span: float, width: int) -> Sequence[tuple[int, str]]:
    """The round times before now that fit, with their cells."""
    fitting = (
        step
        for step in _TICK_STEPS
        if step / span * width >= _AGO_CELLS and (step >= 60 or span <= _IN_SECONDS)
    )
    step = next(fitting, _TICK_STEPS[-1])
    ticks: list[tuple[int, str]] = []
    for count in range(int(span / step), 0, -1):
        cell, label = int((1 - count * step / span) * width), _ago(count * step)
        if cell - len(label) // 2 + len(label) < width - len(_NOW):
            ticks.append((cell, label))
    return [*ticks, (width - 1, _NOW)]


def _ago(seconds: float) -> str:
    """A time before now: ``-45s``, ``-5m``, ``-1h15m``."""
    if seconds % 60:
        return f"-{seconds:.0f}s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    return (
        f"-{hours}h{minutes:02}m"
        if hours and minutes
        else f"-{hours}h"
        if hours
        else f"-{minutes}m"
    )


def legend(events: Iterable[int], width: int) -> Row:
    """The meaning of the glyphs: those of processes, and those of the events that are shown."""
    shown = PROCESS_BITS
    for bits in events:
        shown |= bits
    parts = [
        (*event_field(bit, _PROCESS_STYLE), EVENT_SIGNS[kind].short)
        for kind, bit in EVENT_BITS.items()
        if bit & shown
    ]
    fields: list[Field] = [(" " * AXIS_WIDTH, "")]
    used = AXIS_WIDTH
    for glyph, style, meaning in (*parts, ("╌", "dim", "limit"), ("", "dim", "blank: no values")):
        text = f"{glyph} {meaning}" if glyph else meaning
        if used + cell_width(text) > width:
            break
        fields += [(glyph, style), (f"{text[len(glyph) :]}   ", "dim")]
        used += cell_width(text) + 3
    return fill((field for field in fields if field[0]), width)


def sparkline(
    series: ChartSeries[SubjectT],
    history: History,
    subject: SubjectT,
    seconds: float,
    count: int,
    end: ChartEnd,
) -> str:
    """The first field over time in one line of ``count`` cells."""
    values = series.values(history, subject, series.fields[0], seconds, count, end)
    known = [value for value in values if value is not None]
    most, limit = series.bounds(subject)
    return spark(values, max([most or limit or 0.0, *known]) or 1.0)


def chart_width(width: int, count: int) -> int:
    """The width of each of a number of charts side by side."""
    return (width - _GUTTER * (count - 1)) // count


def side_by_side(charts: Sequence[Sequence[Row]], width: int) -> list[Row]:
    """Charts of one height as rows that fill the width."""
    gap: Field = (" " * _GUTTER, "")
    return [
        fill([field for row in rows for field in (*row, gap)][:-1], width)
        for rows in zip(*charts, strict=True)
    ]


class EventSign(NamedTuple):
    """How a kind of event is shown."""

    glyph: str
    style: str  # Its style; that of processes differs between the timeline and charts.
    about: str  # What has happened.
    short: str  # The same in a legend.


EVENT_SIGNS = {
    EventKind.CAME: EventSign("+", "", "a process started on a GPU", "started"),
    EventKind.WENT: EventSign("-", "", "a process ended, or left a GPU", "ended"),
    EventKind.FULL: EventSign("■", "state.note", "a GPU's memory became full", "memory full"),
    EventKind.THROTTLED: EventSign("▼", "state.warning", "a GPU was slowed down", "slowed down"),
    EventKind.ERROR: EventSign(
        "✖", "state.critical", "an error: an XID, a GPU lost or silent", "error"
    ),
    EventKind.ACCIDENT: EventSign(
        "!", "state.critical", "an accident: the kernel reported an error or a kill", "accident"
    ),
}
"""By increasing severity."""

CAME_AND_WENT = "±"
"""The glyph of a cell in which processes started and others ended."""

EVENT_BITS = {kind: 1 << bit for bit, kind in enumerate(EVENT_SIGNS)}
PROCESS_BITS = EVENT_BITS[EventKind.CAME] | EVENT_BITS[EventKind.WENT]

_BY_BIT = tuple(EVENT_SIGNS.values())


def event_field(bits: int, process_style: str, prefix: str = "") -> Field:
    """The glyph and style of a cell with events.

    Args:
        bits: The kinds of its events; the most severe is shown.
        process_style: The style of processes that started or ended.
        prefix: Prefix of the style of all other events.
    """
    if bits == PROCESS_BITS:
        return CAME_AND_WENT, process_style
    sign = _BY_BIT[bits.bit_length() - 1]
    return sign.glyph, f"{prefix}{sign.style}" if sign.style else process_style
