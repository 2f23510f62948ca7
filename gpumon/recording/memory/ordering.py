"""Searches in sorted times and events, the same for every recording."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.recording import Event

_event_time = attrgetter("time")


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


def events_from_to(events: Sequence[Event], first: float, last: float) -> Sequence[Event]:
    """The events from ``first`` to ``last``, both included."""
    start = bisect_left(events, first, key=_event_time)
    return events[start : bisect_right(events, last, lo=start, key=_event_time)]


def event_beside(events: Sequence[Event], time: float, *, forward: bool) -> Event | None:
    """The first event after a time, or the last before it; ``None`` if there is none."""
    if forward:
        place = bisect_right(events, time, key=_event_time)
        return events[place] if place < len(events) else None
    place = bisect_left(events, time, key=_event_time)
    return events[place - 1] if place else None
