"""Formatting of numbers and times in findings."""

from __future__ import annotations

import math
import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.text.formatting import cell_width, counted, duration, fit

if TYPE_CHECKING:
    from gpumon.recording.history import History

_PART = re.compile(r"(\d+)([a-z])")
"""A number and its unit in what ``duration`` writes."""


def count_processes(count: int) -> str:
    """How many processes, in words."""
    if count == 0:
        return "no process"
    return counted(count, "process", "es")


def all_of(count: int, noun: str) -> str:
    """``all 10 samples``, or ``1 sample``."""
    return f"{'' if count == 1 else 'all '}{counted(count, noun)}"


def at_most(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is wider."""
    return text if cell_width(text) <= width else fit(text, width).rstrip()


def first_part(seconds: float) -> str:
    """A duration in one unit: ``15s``, ``3h``."""
    first = _PART.match(duration(seconds))
    return first[0] if first else ""


def longest_part(seconds: float) -> str:
    """``first_part`` for what lasts so long at most: rounded up."""
    steps = (step for step in (86400, 3600, 60) if seconds >= step)
    step = next(steps, 1)
    return first_part(math.ceil(seconds / step) * step)


def spaced(seconds: float) -> str:
    """A duration for a sentence: ``4 s``, ``22 m``, ``3 h 12 m``."""
    return _spaced(duration(seconds))


@lru_cache(maxsize=64)
def _spaced(text: str) -> str:
    """The same with spaces; sentences repeat it in every sample."""
    return _PART.sub(r"\1 \2 ", text).rstrip()


def time_of_day(history: History, at: float) -> str:
    """A local time of day, with its date if it is more than a day ago."""
    format_ = "%H:%M" if history.now - at < 86400 else "%Y-%m-%d %H:%M"
    return time.strftime(format_, time.localtime(at))


def in_container(history: History) -> bool:
    """Whether the driver lists only the processes of this program's container."""
    return history.latest is not None and bool(history.latest.host.in_container)
