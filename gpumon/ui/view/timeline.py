"""The row that says which moment of the past is shown, and where on the tape that is.

From the left: whether it is played and how fast, the moment, a bar from the tape's beginning to its
end with what happened, and in words what happened last before the moment, where there is room.

Each cell of the bar is a stretch of time between two round moments. So what happened stays where it
is while the tape grows at its end, until all of it takes longer stretches or its beginning goes.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from gpumon.recording import EventKind
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import cell_width, duration, fit, fit_right, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording import Event
    from gpumon.recording.playback.replay import Playing

_STATE_WIDTH = 11
_CLOCK_WIDTH = 10
_WHEN_WIDTH = 24
"""The clock, and the date or how long ago."""
_LEAST_BAR = 24
_LEAST_WORDS, _MOST_WORDS = 28, 64
_END_WIDTH = 6
"""A time at an end of the bar, and a space."""
_STRETCHES = (
    *(0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45),
    *(60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1800, 2400),
    *(3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200),
)
"""What a cell of the bar may stand for, seconds; longer ones are whole days."""
_DAY = 86400

_MARKS = {
    EventKind.CAME: ("+", "header.dim"),
    EventKind.WENT: ("-", "header.dim"),
    EventKind.FULL: ("■", "panel.state.note"),
    EventKind.THROTTLED: ("▼", "panel.state.warning"),
    EventKind.ERROR: ("✖", "panel.state.critical"),
}
"""What a mark looks like, the most severe last."""
_BOTH_WAYS = ("±", "header.dim")
"""Processes came and others went."""
_ABOUT = {
    EventKind.CAME: "a process came",
    EventKind.WENT: "a process went",
    EventKind.FULL: "a card's memory became full",
    EventKind.THROTTLED: "a card was slowed down",
    EventKind.ERROR: "an error: an XID, a card lost or silent",
}
_GLYPHS = tuple(_MARKS.values())
_BITS = {kind: 1 << number for number, kind in enumerate(_MARKS)}
_CAME_AND_WENT = _BITS[EventKind.CAME] | _BITS[EventKind.WENT]
_QUIET_PART = 3
"""Who came and went is shown in fewer than one of so many cells; beyond that it tells nothing."""
_LINE = "·"
_CURSOR = "┃"

SIGNS = (
    *((glyph, _ABOUT[kind]) for kind, (glyph, _) in _MARKS.items()),
    (_BOTH_WAYS[0], "processes came and others went"),
    (_CURSOR, "the moment that is shown; a click or a drag moves it"),
)
"""What stands on the bar, and what it means."""

_mark_time = attrgetter("time")


def timeline_row(
    playing: Playing, shown: float, marks: Sequence[Event], width: int, *, live: bool
) -> Row:
    """The row, exactly ``width`` cells.

    Where it is narrow the words of the last mark go first, then how long ago it is or the date,
    then the bar. A tape that does not answer is told in the place of all but the moment.

    Args:
        playing: Where on the tape this is, and how it is being played.
        shown: Time of the sample that is shown, which may be a little older than the place.
        marks: What happened, in order; those before and after the tape's ends are left out.
        width: Cells.
        live: Whether there is a present to return to: then the end of the tape is now.
    """
    when, bar, words = _widths(width)
    if playing.waiting is not None:
        silence = f" the log is not read: no answer for {playing.waiting:.0f} s "
        moment = _when(playing, shown, _CLOCK_WIDTH, live=live)
        return fill([(silence, "header.alarm"), (" ", "header"), *moment], width, "header")
    fields: list[Field] = [
        (fit(_state(playing), _STATE_WIDTH), "header.mark"),
        *_when(playing, shown, when, live=live),
    ]
    if bar:
        fields += [*_bar(playing, marks, bar, live=live), (" ", "header")]
    if words:
        fields += _words(playing, shown, marks, words)
    return fill(fields, width, "header")


def time_at(x: int, playing: Playing, marks: Sequence[Event], width: int) -> float | None:
    """The moment that a cell of the row stands for; ``None`` beside the bar.

    That of the mark which is drawn there, where there is one; an end of the tape in its cell; else
    the middle of what the cell stands for.

    Args:
        x: The cell, from 0.
        playing: As the row was drawn from it.
        marks: The same.
        width: Cells of the row.
    """
    when, bar, _ = _widths(width)
    margin, cells = _margin(bar), _Cells(playing, _inside(bar))
    place = x - _STATE_WIDTH - when - margin
    if not bar or playing.waiting is not None or not 0 <= place < cells.count:
        return None
    drawn = _drawn(playing, marks, cells)[place]
    there = [
        mark.time
        for mark in marks
        if drawn.bit_length() == _BITS[mark.kind].bit_length()
        and playing.first <= mark.time <= playing.last
        and cells.place(mark.time) == place
    ]
    if there:
        return there[0]
    if place == cells.count - 1:
        return playing.last
    return playing.first if place == 0 else cells.middle(place)


class _Cells:
    """How the tape is cut into the cells of the bar, and how many of them it takes."""

    def __init__(self, playing: Playing, room: int) -> None:
        length = playing.last - playing.first
        # The ends of the tape lie somewhere within cells, and fractions are not exact.
        least = length / max(1, room - 2)
        fitting = (stretch for stretch in _STRETCHES if stretch >= least)
        self.stretch = next(fitting, _DAY * math.ceil(least / _DAY))
        self._first = math.floor(playing.first / self.stretch)
        self.count = math.floor(playing.last / self.stretch) - self._first + 1

    def place(self, moment: float) -> int:
        """The cell of a moment; the nearest, where it is beyond the ends."""
        return min(max(0, math.floor(moment / self.stretch) - self._first), self.count - 1)

    def middle(self, place: int) -> float:
        """The moment in the middle of a cell."""
        return (self._first + place + 0.5) * self.stretch


def _margin(bar: int) -> int:
    """Cells for the time at each end of the bar: none where the bar itself needs them."""
    return _END_WIDTH if bar - 2 * _END_WIDTH >= _LEAST_BAR else 0


def _inside(bar: int) -> int:
    return bar - 2 * _margin(bar)


def _widths(width: int) -> tuple[int, int, int]:
    """Cells for the moment, the bar and the words; 0 is without.

    The same whatever the moment, so that the bar stays where it is.
    """
    when = _WHEN_WIDTH
    if width - _STATE_WIDTH - when - 1 < _LEAST_BAR:
        when = _CLOCK_WIDTH
    room = width - _STATE_WIDTH - when - 1
    if room < _LEAST_BAR:
        return when, 0, 0
    words = min(_MOST_WORDS, room * 2 // 5)
    if words < _LEAST_WORDS:
        words = 0
    return when, room - words, words


def _state(playing: Playing) -> str:
    if not playing.playing:
        return " ❚❚ paused"
    if playing.at_end:
        return " ▶ at end"
    return f" ▶ {playing.speed:g}x"


def _when(playing: Playing, shown: float, width: int, *, live: bool) -> list[Field]:
    """The moment; beside it how long ago that is, where there is a now, else its date."""
    then = time.localtime(shown)
    clock = time.strftime("%H:%M:%S", then)
    if width < _WHEN_WIDTH:
        return [(fit(clock, width), "header")]
    date = time.strftime("%Y-%m-%d", then)
    if not live:
        return [(f"{date} ", "header.dim"), (fit(clock, width - len(date) - 1), "header")]
    if date == time.strftime("%Y-%m-%d", time.localtime(playing.last)):
        date = ""
    ago = _ago(playing.last - shown)
    return [
        (fit_right(f"{date[5:]} ", 6), "header.dim"),
        (clock, "header"),
        (fit_right(f"{ago} ", width - len(clock) - 6), "header"),
    ]


def _ago(seconds: float) -> str:
    """How long before now: ``-42s``, ``-12m 30s``, ``-3h 12m``, ``-5d 4h``."""
    whole = round(max(0.0, seconds))
    if whole < 1:
        return "now"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 1:
        return f"-{whole}s"
    if hours < 1:
        return f"-{minutes}m {whole % 60:02d}s"
    if days < 1:
        return f"-{hours}h {minutes % 60:02d}m"
    return f"-{days}d {hours % 24:02d}h"


def _bar(playing: Playing, marks: Sequence[Event], width: int, *, live: bool) -> list[Field]:
    """The tape from end to end: what happened, and a cursor at the moment."""
    cells = _Cells(playing, _inside(width))
    drawn: list[Field] = [
        (_LINE, "header.dim") if not kinds else _glyph(kinds)
        for kinds in _drawn(playing, marks, cells)
    ]
    cursor = cells.place(playing.position)
    glyph, _ = drawn[cursor]
    drawn[cursor] = (_CURSOR if glyph == _LINE else glyph, "cursor")
    if _margin(width):
        form = "%H:%M" if playing.last - playing.first < _DAY else "%m-%d"
        first = time.strftime(form, time.localtime(playing.first))
        last = "now" if live else time.strftime(form, time.localtime(playing.last))
        drawn = [(f"{first} ", "header.dim"), *drawn, (fit(f" {last}", _END_WIDTH), "header.dim")]
    return [*drawn, (" " * (_inside(width) - cells.count), "header")]


def _glyph(kinds: int) -> Field:
    return _BOTH_WAYS if kinds == _CAME_AND_WENT else _GLYPHS[kinds.bit_length() - 1]


def _drawn(playing: Playing, marks: Sequence[Event], cells: _Cells) -> list[int]:
    """What kinds of marks are drawn in each cell, as bits. There may be thousands of marks."""
    kinds = [0] * cells.count
    first, last = playing.first, playing.last
    for mark in marks:
        if first <= mark.time <= last:
            kinds[cells.place(mark.time)] |= _BITS[mark.kind]
    restless = sum(bool(one & _CAME_AND_WENT) for one in kinds)
    if restless * _QUIET_PART >= max(cells.count, _LEAST_BAR):
        kinds = [one & ~_CAME_AND_WENT for one in kinds]
    return kinds


def _words(playing: Playing, shown: float, marks: Sequence[Event], width: int) -> list[Field]:
    """What the newest mark until the moment says, the most severe of those that share its time."""
    # A mark's own sample may have been thinned out since: the place decides, not what is shown.
    until = bisect_right(marks, playing.position, key=_mark_time)
    if not until:
        return []
    newest = marks[until - 1].time
    here = marks[bisect_left(marks, newest, key=_mark_time) : until]
    mark = max(here, key=lambda mark: _BITS[mark.kind])
    glyph, style = _MARKS[mark.kind]
    at = time.strftime("%H:%M:%S", time.localtime(mark.time))
    ago = shown - mark.time
    before = f"({duration(ago)} before) " if ago >= 1 else ""
    start = f" {at} {before}"
    more = f" +{len(here) - 1}" if len(here) > 1 else ""
    sentence = printable(mark.sentence)
    room = width - cell_width(glyph) - cell_width(start) - cell_width(more) - 1
    return [
        (glyph, style),
        (start, "header.dim"),
        (fit(sentence, min(room, cell_width(sentence))), "header"),
        (more, "header.dim"),
    ]
