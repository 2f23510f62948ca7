"""The time range that a report counts: that of ``--from`` and ``--to``."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from msgspec import Struct

from gpumon.text.time_parsing import MomentError, on_day, parse_moment, time_of_day


class TimeWindow(Struct, frozen=True):
    """The time range that counts, in seconds since the epoch; an open end is infinite."""

    first: float = -math.inf
    last: float = math.inf

    def holds(self, time: float) -> bool:
        """Whether a time is in it."""
        return self.first <= time <= self.last

    def counts(self, time: float) -> bool:
        """Whether an event at this time is in it; at its end it is in the one that follows."""
        return self.first <= time < self.last

    def part(self, time: float, seconds: float) -> float:
        """How many of the seconds after a time are in it."""
        begin = max(self.first, time)
        end = time + seconds
        if end > self.last:
            end = self.last
        return end - begin if end > begin else 0.0


def parse_span(first: str | None, last: str | None, now: float) -> TimeWindow:
    """The time range of ``--from`` and ``--to``.

    A time of day without a date is its last occurrence before now. With a ``first``, ``last`` is on
    the day of ``first``, or on the next day if that is already past: ``22:00`` to ``03:00`` is one
    night.

    Raises:
        MomentError: A time cannot be parsed, or the end is not after the start.
    """
    began = -math.inf if first is None else _moment("--from", first, now)
    ended = math.inf if last is None else _moment("--to", last, now)
    if first is None or last is None:
        return TimeWindow(began, ended)
    if (clock := time_of_day(last)) is not None:
        day = datetime.fromtimestamp(began).date()
        ended = on_day(day, clock)
        following = on_day(day + timedelta(days=1), clock)
        if ended <= began and following <= now:
            ended = following
    if ended <= began:
        raise MomentError(f"--to {last} is not after --from {first}: nothing lies between them.")
    return TimeWindow(began, ended)


def _moment(option: str, text: str, now: float) -> float:
    try:
        return parse_moment(text, now)
    except MomentError as error:
        raise MomentError(f"{option} {error}") from None
