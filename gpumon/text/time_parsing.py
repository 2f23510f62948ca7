"""Parses times as users write them.

A date, a date and a time, a time of day, ``yesterday`` or ``today`` with or without a time, and a
negative duration: ``2025-03-01``, ``2025-03-01T03:00:00+01:00``, ``03:00``, ``yesterday 03:00``,
``-8h``, or ``h``, an hour ago. A time without a zone is local.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

FORMS = "2025-03-01, '2025-03-01 03:00', 03:00, 'yesterday 03:00' or -8h"

_BACK = re.compile(r"-?(\d+(?:\.\d+)?)?\s*(s|m|min|h|d)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_DAYS = {"today": 0, "yesterday": 1}


class MomentError(ValueError):
    """The text is not a time; the message lists the valid forms, for the user."""


def parse_moment(text: str, now: float) -> float:
    """The seconds since the epoch that a text stands for.

    Args:
        text: The text.
        now: The reference for durations and days. A time of day without a date is its last
            occurrence before it.

    Raises:
        MomentError: The text cannot be parsed.
    """
    try:
        found = _read(text.strip(), now)
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None:
        raise MomentError(f"{text!r} is not a time, such as {FORMS}.")
    return found


def time_of_day(text: str) -> time | None:
    """The time of ``03:00`` or ``03:00:30``; ``None`` for any other text.

    Raises:
        ValueError: There is no such time.
    """
    found = _TIME.fullmatch(text.strip())
    return None if found is None else time(int(found[1]), int(found[2]), int(found[3] or 0))


def on_day(day: date, clock: time) -> float:
    """A local time of day on a date, in seconds since the epoch."""
    return datetime.combine(day, clock).timestamp()


def day_and_time(moment: float) -> str:
    """A local time: ``2025-03-01 03:00:00``."""
    return f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"


def _read(text: str, now: float) -> float | None:
    if back := _BACK.fullmatch(text):
        return now - float(back[1] or 1) * _SECONDS[back[2]]
    today = datetime.fromtimestamp(now).date()
    if (clock := time_of_day(text)) is not None:
        found = on_day(today, clock)
        return found if found <= now else on_day(today - timedelta(days=1), clock)
    word, _, rest = text.partition(" ")
    if word in _DAYS:
        of_day = time_of_day(rest) if rest else time()
        return None if of_day is None else on_day(today - timedelta(days=_DAYS[word]), of_day)
    # Python 3.10 does not accept this letter.
    return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text)).timestamp()
