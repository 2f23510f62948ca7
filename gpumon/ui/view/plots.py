"""Curves with their axes, in rows of cells: values at the left, times of day below, marks between.

A chart knows nothing of cards; ``charts`` says what is drawn.
"""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording import EventKind
from gpumon.text.cells import Field, Row, braille, fill
from gpumon.text.formatting import cell_width, fit, fit_right
from gpumon.text.units import memory_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.recording import Event

    Values = Sequence[float | None]

EDGE = 6
"""Cells of a value's name and the line beside it."""
_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * one for one in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * one for one in (1, 2, 3, 6, 12)),
)
"""Seconds from one mark of the time axis to the next."""
_TICK_CELLS = 5
"""Between two times of day at least."""

_LOW = 5
"""Rows of a curve up to which its names may stand right below one another."""
_LEAST_TOP = 1e-9
"""An axis reaches further than zero."""
_HEADROOM = 1.08
"""Of a limit that can be passed."""

_BLANK = "\N{BRAILLE PATTERN BLANK}"
_PAIRS = ((0x01, 0x40), (0x02, 0x04), (0x08, 0x80), (0x10, 0x20))
"""The dots of a braille cell that change places when it is turned upside down."""
_UPSIDE_DOWN = {
    0x2800 + dots: 0x2800
    + sum(bits[1] if dots & bits[0] else 0 for bits in _PAIRS)
    + sum(bits[0] if dots & bits[1] else 0 for bits in _PAIRS)
    for dots in range(256)
}

_MARKS = {
    EventKind.CAME: ("+", "narrowing", "a process came"),
    EventKind.WENT: ("-", "narrowing", "one went"),
    EventKind.FULL: ("■", "state.note", "memory full"),
    EventKind.THROTTLED: ("▼", "state.warning", "slowed down"),
    EventKind.ERROR: ("✖", "state.critical", "an error"),
}
"""What a mark looks like and means, the most severe last."""
_BOTH_WAYS = ("±", "narrowing")
_BITS = {kind: 1 << place for place, kind in enumerate(_MARKS)}
_CAME_AND_WENT = _BITS[EventKind.CAME] | _BITS[EventKind.WENT]


class Scale(Struct, frozen=True):
    """The axis of values.

    Attributes:
        name: Writes a value on it.
        unit: The value that counts as one where round values are looked for; ``None`` is bytes.
        top: The highest value there can be; ``None`` where the curve itself tells.
        limit: A value that should not be passed.
    """

    name: Callable[[float], str]
    unit: float | None
    top: float | None
    limit: float | None


class Span(Struct, frozen=True):
    """The time that a chart shows.

    Attributes:
        began: Its left edge, seconds since the epoch.
        seconds: Its length.
    """

    began: float
    seconds: float

    def place(self, moment: float, width: int) -> int | None:
        """The cell of a moment; ``None`` where it is not shown."""
        place = math.floor((moment - self.began) / self.seconds * width)
        return place if 0 <= place < width else None


def plot(
    curves: Sequence[Values],
    styles: Sequence[str],
    scale: Scale,
    span: Span,
    marks: Mapping[int, int],
    width: int,
    height: int,
) -> list[Row]:
    """A chart without a title: curve, line of time with the marks on it, times of day.

    Args:
        curves: One, drawn from the foot up; or two, drawn up and down from the line of time. Each
            has two values a cell, oldest first; ``None`` is a gap.
        styles: Of each curve.
        scale: The axis of values.
        span: That of time.
        marks: What happened, from ``kinds_at``.
        width: Cells.
        height: Rows.
    """
    room = max(1, width - EDGE)
    top = _top(curves, scale)
    tall = height - 2
    above = tall if len(curves) == 1 else -(-tall // 2)
    names = _names(scale, top, above)
    up = braille(curves[0], top, room, above)
    line = None if scale.limit is None else _row_of(scale.limit, top, above)
    rows = [
        _plot_row(up[y], names.get(y, ""), styles[0], marks, dashed=y == line) for y in range(above)
    ]
    ticks = _ticks(span, room)
    rows.append(_time_line(marks, ticks, room))
    if len(curves) == 2:
        down = [one.translate(_UPSIDE_DOWN) for one in braille(curves[1], top, room, tall - above)]
        rows += [
            _plot_row(one, "" if y else scale.name(top), styles[1], marks, dashed=False)
            for y, one in reversed(list(enumerate(down)))
        ]
    return [*rows, _times(ticks, room)]


def _top(curves: Sequence[Values], scale: Scale) -> float:
    """The value at the upper edge."""
    highest = max((value for values in curves for value in values if value is not None), default=0)
    if scale.top is not None:
        top = scale.top
    elif scale.limit is not None:
        top = scale.limit * _HEADROOM
    else:
        top = _round_up(highest, scale.unit)
    return max(top, highest, _LEAST_TOP)


def _plot_row(dots: str, name: str, style: str, marks: Mapping[int, int], *, dashed: bool) -> Row:
    """A row of a curve; behind it, where it leaves room, a limit and the times of the marks."""
    edge: list[Field] = [(fit_right(name, EDGE - 1), "dim"), ("┤" if name else "│", "rule")]
    behind: dict[int, Field] = {place: ("┊", "rule") for place in marks if dots[place] == _BLANK}
    if dashed:
        behind = {place: ("╌", "dim") for place, dot in enumerate(dots) if dot == _BLANK}
    return (*edge, *_over(dots, style, behind))


def _over(text: str, style: str, cells: dict[int, Field]) -> list[Field]:
    """A text in one style with some of its cells replaced."""
    fields: list[Field] = []
    begin, before = 0, ""
    for place in sorted(cells):
        glyph, name = cells[place]
        if place > begin:
            fields.append((text[begin:place], style))
            before = ""
        if before == name:
            fields[-1] = (fields[-1][0] + glyph, name)
        else:
            fields.append((glyph, name))
        begin, before = place + 1, name
    if begin < len(text):
        fields.append((text[begin:], style))
    return fields


def _names(scale: Scale, top: float, rows: int) -> dict[int, str]:
    """Which rows are named, by their place from the top: round values, and the limit."""
    named: dict[int, str] = {}
    if scale.limit is not None and scale.limit <= top:
        named[_row_of(scale.limit, top, rows)] = scale.name(scale.limit)
    else:
        named[0] = scale.name(top)
    step = _round_step(top, max(1, rows // 2), scale.unit)
    near = 1 if rows > _LOW else 0
    for count in range(1, math.floor(top / step) + 1):
        row, name = _row_of(count * step, top, rows), scale.name(count * step)
        # Values so small that they are rounded to the same words are named once.
        told = {scale.name(0.0), *named.values()}
        if name not in told and not any(abs(row - other) <= near for other in named):
            named[row] = name
    return named


def _row_of(value: float, top: float, rows: int) -> int:
    """The row in which a value's highest dot stands, from the top."""
    level = max(1, min(4 * rows, round(value / top * 4 * rows)))
    return rows - -(-level // 4)


def _ten_of(value: float, unit: float | None) -> float:
    """The unit times the power of ten that is not above a value; without one: B, K, M or G."""
    if unit is None:
        kilo = float(memory_units().kilo)
        unit = kilo ** max(0, math.floor(math.log(value, kilo))) if value >= 1 else 1.0
    return unit * 10.0 ** math.floor(math.log10(value / unit))


def _round_up(value: float, unit: float | None) -> float:
    """The next value that is easily read on an axis."""
    if unit is None:
        # Below a megabyte a second a link hardly has any traffic.
        value = max(value, memory_units().kilo ** 2)
    if value <= 0:
        return 1.0
    ten = _ten_of(value, unit)
    return next((factor * ten for factor in _ROUND if factor * ten >= value), value)


def _round_step(top: float, most: int, unit: float | None) -> float:
    """A round step of which no more than so many come to the top."""
    ten = _ten_of(top, unit) / 10
    return next((factor * ten for factor in _STEP if top / (factor * ten) <= most), top)


_ROUND = (1, 1.5, 2, 3, 4, 6, 8, 10)
_STEP = (1, 2, 2.5, 5, 10, 20, 25, 40, 50)


def kinds_at(marks: Iterable[Event], span: Span, width: int) -> dict[int, int]:
    """What kinds of marks stand in which cell of a chart's curve, as bits."""
    kinds: dict[int, int] = {}
    for mark in marks:
        place = span.place(mark.time, max(1, width - EDGE))
        if place is not None:
            kinds[place] = kinds.get(place, 0) | _BITS[mark.kind]
    return kinds


def _sign(kinds: int) -> Field:
    if kinds == _CAME_AND_WENT:
        return _BOTH_WAYS
    glyph, style, _ = tuple(_MARKS.values())[kinds.bit_length() - 1]
    return glyph, style


def _time_line(marks: Mapping[int, int], ticks: Sequence[tuple[int, str]], width: int) -> Row:
    cells: dict[int, Field] = {place: ("┬", "rule") for place, _ in ticks}
    cells |= {place: _sign(kinds) for place, kinds in marks.items()}
    edge: list[Field] = [(fit_right("0", EDGE - 1), "dim"), ("┼", "rule")]
    return (*edge, *_over("─" * width, "rule", cells))


def _times(ticks: Sequence[tuple[int, str]], width: int) -> Row:
    """The times of day, each under its tick as far as the edges allow."""
    text = ""
    for place, label in ticks:
        at = max(0, min(EDGE + place - len(label) // 2, EDGE + width - len(label)))
        if at > len(text) or not text:
            text += " " * (at - len(text)) + label
    return ((fit(text, EDGE + width), "dim"),)


def _ticks(span: Span, width: int) -> list[tuple[int, str]]:
    """Round local times and their cells, as many as there is room for."""
    step, form = _STEPS[-1], "%H:%M"
    for one in _STEPS:
        label = 8 if one < 60 else 5
        if one / span.seconds * width >= label + _TICK_CELLS:
            step, form = one, "%H:%M:%S" if one < 60 else "%H:%M"
            break
    # Whole hours are those of the local clock.
    offset = datetime.fromtimestamp(span.began).astimezone().utcoffset()
    shift = 0.0 if offset is None else offset.total_seconds()
    ticks: list[tuple[int, str]] = []
    moment = math.ceil((span.began + shift) / step) * step - shift
    while (place := span.place(moment, width)) is not None:
        ticks.append((place, time.strftime(form, time.localtime(moment))))
        moment += step
    return ticks


def legend(happened: Iterable[int], width: int) -> Row:
    """What the signs mean: always those of processes, the others where there are any."""
    kinds = _CAME_AND_WENT
    for some in happened:
        kinds |= some
    parts = [
        (glyph, style, words)
        for kind, (glyph, style, words) in _MARKS.items()
        if _BITS[kind] & kinds
    ]
    fields: list[Field] = [(" " * EDGE, "")]
    used = EDGE
    for glyph, style, words in (*parts, ("╌", "dim", "limit"), ("", "dim", "blank: not known")):
        text = f"{glyph} {words}" if glyph else words
        if used + cell_width(text) > width:
            break
        fields += [(glyph, style), (f"{text[len(glyph) :]}   ", "dim")]
        used += cell_width(text) + 3
    return fill((field for field in fields if field[0]), width)
