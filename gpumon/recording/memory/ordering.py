"""Searches in sorted times and events, the same for every recording."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording import Event

_mark_time = attrgetter("time")


def place_at(times: Sequence[float], time: float) -> int:
    """The position of the newest time that is not newer than another; 0 if all are newer."""
    return max(0, bisect_right(times, time) - 1)


def evenly(times: Sequence[float], first: float, last: float, most: int) -> Sequence[int]:
    """The positions of the times from ``first`` to ``last``, both included, at most ``most``.

    If there are more, the time between the first and the last is divided into equal parts, and the
    newest time of each is chosen; so the last time is always included, and a gap stays a gap.
    """
    start, stop = bisect_left(times, first), bisect_right(times, last)
    if stop - start <= most:
        return range(start, stop)
    begin, end = times[start], times[stop - 1]
    places: list[int] = []
    for part in range(1, most):
        place = bisect_right(times, begin + (end - begin) * part / most, start, stop) - 1
        if not places or place > places[-1]:
            places.append(place)
    if not places or places[-1] < stop - 1:
        places.append(stop - 1)
    return places


def marks_from_to(marks: Sequence[Event], first: float, last: float) -> Sequence[Event]:
    """The events from ``first`` to ``last``, both included."""
    start = bisect_left(marks, first, key=_mark_time)
    return marks[start : bisect_right(marks, last, lo=start, key=_mark_time)]


def mark_beside(marks: Sequence[Event], time: float, *, forward: bool) -> Event | None:
    """The first event after a time, or the last before it; ``None`` if there is none."""
    if forward:
        place = bisect_right(marks, time, key=_mark_time)
        return marks[place] if place < len(marks) else None
    place = bisect_left(marks, time, key=_mark_time)
    return marks[place - 1] if place else None
