"""The timeline: the rows that show a past moment and its place in the recording.

The first row has the playback state, the moment, and a bar for the whole recording with its events.
The second has the text of the last event before the moment, and the meaning of the signs.

Each cell of the bar is a time between two multiples of its length. Events therefore keep their
cells while the recording grows, until its length requires longer cells or its beginning is removed.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import cell_width, duration, fit, fit_right, printable
from gpumon.ui.view.chart_plot import (
    CAME_AND_WENT,
    EVENT_BITS,
    EVENT_SIGNS,
    PROCESS_BITS,
    event_field,
)
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.recording.playback.replay import Playing
    from gpumon.ui.view.dashboard_view import Timeline

_STATE_WIDTH = 11
_CLOCK_WIDTH, _SHORT_WIDTH, _WHEN_WIDTH = 10, 20, 28
"""The time of day; with a short age or the date; with both."""
_LEAST_BAR, _LEAST_EXPLAINED = 16, 24
"""The least length of a bar, and of one whose ends have words."""
_END_WIDTH = 6
"""A time at an end of the bar, and a space."""
_BEGINS = "begins "
_CELL_SECONDS = tuple(round(10 ** (step / 48), 3) for step in range(-48, 236))
"""The possible lengths of a cell in seconds, each 5 % longer than the one before, up to most of a
day: at most so much of the bar stays blank. Longer cells are whole days."""
_DAY = 86400

_LEAST_NAMED = 70
"""Cells that the last event and the signs need beside the origin of the moment."""
_GAP = "  "

_CROWDED = 3
"""If one in this many cells has process events, these mean little and are hidden."""
_LINE = "·"
_CURSOR = "┃"

SIGNS = (
    *((sign.glyph, sign.about) for sign in EVENT_SIGNS.values()),
    (CAME_AND_WENT, "processes started and others ended"),
    (_LINE, "recorded, as far as it has been read; a blank is a gap"),
    (_CURSOR, "the moment that is shown; a click or a drag moves it"),
)
"""The glyphs of the bar with their meaning."""

_event_time = attrgetter("time")


def timeline_rows(timeline: Timeline, shown: float, width: int, *, with_event: bool) -> list[Row]:
    """The first row, and the second if it is wanted, each exactly ``width`` cells.

    Args:
        timeline: The moment; events outside the recording are ignored.
        shown: Time of the sample that is shown, which may be a little older than the position.
        width: Cells.
        with_event: Whether to draw the second row.
    """
    _, bar = _widths(width)
    bits: list[int] = []
    if bar and timeline.playing.waiting is None:
        # Once for both rows: there may be thousands of events.
        bits = _event_bits(timeline, _Cells(timeline.playing, _inside(bar)))
    rows = [_timeline_row(timeline, shown, width, bits)]
    if with_event:
        rows.append(_event_row(timeline, shown, width, bits))
    return rows


def _timeline_row(timeline: Timeline, shown: float, width: int, bits: Sequence[int]) -> Row:
    """The first row, with the kinds of events in each cell of its bar.

    A narrow row drops the words at the ends of the bar first, then the date or the exact age, then
    the bar. If the recording cannot be read, the row shows only this and the moment.
    """
    playing = timeline.playing
    when, bar = _widths(width)
    if playing.waiting is not None:
        silence = f" the log is not read: no answer for {playing.waiting:.0f} s "
        moment = _when(timeline, shown, _CLOCK_WIDTH)
        return fill([(silence, "header.alarm"), (" ", "header"), *moment], width, "header")
    fields: list[Field] = [
        (fit(_state(playing), _STATE_WIDTH), "header.mark"),
        *_when(timeline, shown, when),
    ]
    if bar:
        fields += _bar(timeline, bar, bits)
    return fill(fields, width, "header")


def _event_row(timeline: Timeline, shown: float, width: int, bits: Sequence[int]) -> Row:
    """The second row: the last event, and the signs that are on the bar as far as they fit."""
    fields: list[Field] = [("  ", "header")]
    if timeline.origin and width >= _LEAST_NAMED + cell_width(timeline.origin):
        fields.append((f"{timeline.origin}{_GAP}", "header.dim"))
    fields += _last_event(timeline, shown, width - row_width(fields))
    room = width - row_width(fields)
    words: list[Field] = []
    for glyph, style, word in _signs_shown(bits):
        room -= len(_GAP) + cell_width(glyph) + 1 + cell_width(word)
        if room < 1:
            break
        words += [(_GAP, "header"), (glyph, style), (f" {word}", "header.dim")]
    blank = width - row_width(fields) - row_width(words) - 1
    return fill([*fields, (" " * max(0, blank), "header"), *words], width, "header")


def _signs_shown(cells: Iterable[int]) -> list[tuple[str, str, str]]:
    """The glyphs of the events in the cells, with their style and their meaning, worst first."""
    shown = {
        PROCESS_BITS if bits == PROCESS_BITS else 1 << bits.bit_length() - 1
        for bits in cells
        if bits
    }
    signs = [
        (*event_field(bit, "header.dim", "panel."), EVENT_SIGNS[kind].short)
        for kind, bit in EVENT_BITS.items()
        if bit in shown
    ]
    if PROCESS_BITS in shown:
        signs.insert(0, (*event_field(PROCESS_BITS, "header.dim"), "started and ended"))
    return signs[::-1]


def time_at(x: int, timeline: Timeline, width: int) -> float | None:
    """The moment at a cell of the row; ``None`` if the cell is not on the bar.

    This is the time of the event drawn there; without one, an end of the recording in the first and
    last cell, and otherwise the middle of the cell.

    Args:
        x: The cell, from 0.
        timeline: That from which the row was drawn.
        width: Cells of the row.
    """
    playing = timeline.playing
    when, bar = _widths(width)
    (margin, _), cells = _margins(bar), _Cells(playing, _inside(bar))
    place = x - _STATE_WIDTH - when - margin
    if not bar or playing.waiting is not None or not 0 <= place < cells.count:
        return None
    bits = _event_bits(timeline, cells)[place]
    times = [
        event.time
        for event in timeline.events
        if bits.bit_length() == EVENT_BITS[event.kind].bit_length()
        and playing.first <= event.time <= playing.last
        and cells.place(event.time) == place
    ]
    if times:
        return times[0]
    if place == cells.count - 1:
        return playing.last
    return playing.first if place == 0 else cells.middle(place)


class _Cells:
    """The division of the recording into cells of the bar."""

    def __init__(self, playing: Playing, room: int) -> None:
        length = playing.last - playing.first
        # Both ends of the recording lie within cells, and floating-point division is inexact.
        least = length / max(1, room - 2)
        fitting = (seconds for seconds in _CELL_SECONDS if seconds >= least)
        self.seconds = next(fitting, _DAY * math.ceil(least / _DAY))
        self._first = math.floor(playing.first / self.seconds)
        self.count = math.floor(playing.last / self.seconds) - self._first + 1

    def place(self, moment: float) -> int:
        """The cell of a moment, or the nearest one."""
        return min(max(0, math.floor(moment / self.seconds) - self._first), self.count - 1)

    def middle(self, place: int) -> float:
        """The moment in the middle of a cell."""
        return (self._first + place + 0.5) * self.seconds


def _margins(bar: int) -> tuple[int, int]:
    """Cells for the times at the ends of the bar, with words where these fit."""
    begin, end = _END_WIDTH + len(_BEGINS), _END_WIDTH + cell_width(_return_key(live=True))
    if bar - begin - end >= _LEAST_EXPLAINED:
        return begin, end
    return (_END_WIDTH, _END_WIDTH) if bar - 2 * _END_WIDTH >= _LEAST_BAR else (0, 0)


def _inside(bar: int) -> int:
    return bar - sum(_margins(bar))


def _return_key(*, live: bool) -> str:
    """The key that goes to the end of the recording, which is the present if it is live."""
    return f" ({keycap('last_line')}{': now' if live else ''})"


def _widths(width: int) -> tuple[int, int]:
    """Cells for the moment and the bar; 0 is absent.

    They do not depend on the moment, so that the bar does not move.
    """
    least = _LEAST_BAR + 2 * _END_WIDTH
    when = next(
        (when for when in (_WHEN_WIDTH, _SHORT_WIDTH) if width - _STATE_WIDTH - when - 1 >= least),
        _CLOCK_WIDTH,
    )
    room = width - _STATE_WIDTH - when - 1
    return when, room if room >= _LEAST_BAR else 0


def _state(playing: Playing) -> str:
    if not playing.playing:
        return " ❚❚ paused"
    if playing.at_end:
        return " ▶ at end"
    return f" ▶ {playing.speed:g}x"


def _when(timeline: Timeline, shown: float, width: int) -> list[Field]:
    """The moment, with its age if the recording goes on, otherwise with its date."""
    playing, live = timeline.playing, timeline.live
    then = time.localtime(shown)
    clock = time.strftime("%H:%M:%S", then)
    if width < _SHORT_WIDTH:
        return [(fit(clock, width), "header")]
    if live and width < _WHEN_WIDTH:
        return [(fit(f"{clock} {_ago(playing.last - shown, short=True)}", width), "header")]
    date = time.strftime("%Y-%m-%d", then)
    if not live:
        return [(f"{date} ", "header.dim"), (fit(clock, width - len(date) - 1), "header")]
    if date == time.strftime("%Y-%m-%d", time.localtime(playing.last)):
        date = ""
    ago = _ago(playing.last - shown)
    return [
        (fit_right(f"{date[5:]} ", 6), "header.dim"),
        (clock, "header"),
        (fit(f" {ago}", width - len(clock) - 6), "header"),
    ]


def _ago(seconds: float, *, short: bool = False) -> str:
    """An age: ``42s ago``, ``12m 30s ago``, ``3h 12m ago``, ``5d 04h ago``; short: ``12m ago``."""
    whole = round(max(0.0, seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 1:
        text = f"{whole}s"
    elif hours < 1:
        text = f"{minutes}m {whole % 60:02d}s"
    elif days < 1:
        text = f"{hours}h {minutes % 60:02d}m"
    else:
        text = f"{days}d {hours % 24:02d}h"
    return f"{text.partition(' ')[0] if short else text} ago"


def _bar(timeline: Timeline, width: int, events: Sequence[int]) -> list[Field]:
    """The whole recording with its events, and a cursor at the moment.

    The line goes as far as the log has been read.
    """
    playing = timeline.playing
    cells = _Cells(playing, _inside(width))
    read = cells.place(min(max(playing.first, playing.read_until), playing.last))
    blank = {
        place
        for begin, end in timeline.gaps
        for place in range(cells.place(begin) + 1, cells.place(end))
    }
    fields: list[Field] = [
        event_field(bits, "header.dim", "panel.")
        if bits
        else (_LINE if place <= read and place not in blank else " ", "header.dim")
        for place, bits in enumerate(events)
    ]
    cursor = cells.place(playing.position)
    glyph, _ = fields[cursor]
    fields[cursor] = (_CURSOR if glyph in (_LINE, " ") else glyph, "cursor")
    begin, end = _margins(width)
    if begin:
        form = "%H:%M" if playing.last - playing.first < _DAY else "%m-%d"
        first = time.strftime(form, time.localtime(playing.first))
        last = time.strftime(form, time.localtime(playing.last))
        if begin > _END_WIDTH:
            first, last = _BEGINS + first, last + _return_key(live=timeline.live)
        fields = [(f"{first} ", "header.dim"), *fields, (fit(f" {last}", end), "header.dim")]
    return [*fields, (" " * (_inside(width) - cells.count), "header")]


def _event_bits(timeline: Timeline, cells: _Cells) -> list[int]:
    """The kinds of events to show in each cell, as bits."""
    # A simple loop: there may be thousands of events.
    kinds = [0] * cells.count
    first, last = timeline.playing.first, timeline.playing.last
    for event in timeline.events:
        if first <= event.time <= last:
            kinds[cells.place(event.time)] |= EVENT_BITS[event.kind]
    crowded = sum(bool(bits & PROCESS_BITS) for bits in kinds)
    if crowded * _CROWDED >= max(cells.count, _LEAST_BAR):
        kinds = [bits & ~PROCESS_BITS for bits in kinds]
    return kinds


def _last_event(timeline: Timeline, shown: float, width: int) -> list[Field]:
    """The last event up to the moment; of several at the same time, the most severe."""
    # The position decides: the sample of the event itself may have been thinned out.
    events = timeline.events
    until = bisect_right(events, timeline.playing.position, key=_event_time)
    if not until:
        return []
    newest = events[until - 1].time
    here = events[bisect_left(events, newest, key=_event_time) : until]
    event = max(here, key=lambda event: EVENT_BITS[event.kind])
    glyph, style = event_field(EVENT_BITS[event.kind], "header.dim", "panel.")
    if EVENT_BITS[event.kind] & PROCESS_BITS:
        glyph = EVENT_SIGNS[event.kind].short
    at = time.strftime("%H:%M:%S", time.localtime(event.time))
    ago = shown - event.time
    before = f"({duration(ago)} before) " if ago >= 1 else ""
    start = f" {at} {before}"
    more = f" +{len(here) - 1}" if len(here) > 1 else ""
    sentence = printable(event.sentence)
    room = width - cell_width(glyph) - cell_width(start) - cell_width(more) - 1
    return [
        (glyph, style),
        (start, "header.dim"),
        (fit(sentence, min(room, cell_width(sentence))), "header"),
        (more, "header.dim"),
    ]
