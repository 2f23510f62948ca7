"""Numbers and times in the words of findings."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from gpumon.findings.finding import SHORT_CELLS
from gpumon.text import UNKNOWN, cell_width, duration, fit

if TYPE_CHECKING:
    from gpumon.history import History, Spell

_PART = re.compile(r"(\d+)([a-z])")
"""A number and its unit in what ``duration`` writes."""


def count_processes(count: int) -> str:
    """How many processes, in words."""
    if count == 0:
        return "no process"
    return "1 process" if count == 1 else f"{count} processes"


def or_unknown(value: int | None) -> str:
    """The number, or the sign for what is not known."""
    return UNKNOWN if value is None else str(value)


def at_most(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider."""
    return text if cell_width(text) <= width else fit(text, width).rstrip()


def short_length(history: History, spell: Spell) -> str:
    """How long, for a column: ``4m``, or ``≥4m`` when the beginning was not seen."""
    return f"{'' if spell.begin_seen else '≥'}{duration(history.now - spell.since)}"


def with_length(words: str, history: History, spell: Spell) -> str:
    """Words for a column and how long: to the minute where there is room for it."""
    exact = words + short_length(history, spell)
    return exact if cell_width(exact) <= SHORT_CELLS else words + brief_length(history, spell)


def brief_length(history: History, spell: Spell) -> str:
    """``short_length`` in one unit."""
    return f"{'' if spell.begin_seen else '≥'}{first_part(history.now - spell.since)}"


def first_part(seconds: float) -> str:
    """A length of time in one unit: ``15s``, ``3h``."""
    first = _PART.match(duration(seconds))
    return first[0] if first else ""


def told_length(history: History, spell: Spell) -> str:
    """How long, for a sentence, and what is not known of it."""
    known = spaced(history.now - spell.since)
    if spell.begin_seen:
        return known
    if history.started is not None and spell.since > history.started:
        return f"at least {known} (what was before is not known)"
    return f"at least {known} (as long as gpumon looks)"


def spaced(seconds: float) -> str:
    """A length of time for a sentence: ``4 s``, ``22 m``, ``3 h 12 m``."""
    return _PART.sub(r"\1 \2 ", duration(seconds)).rstrip()


def time_of_day(history: History, at: float) -> str:
    """A time of day here, with its date when it is more than a day ago."""
    format_ = "%H:%M" if history.now - at < 86400 else "%Y-%m-%d %H:%M"
    return time.strftime(format_, time.localtime(at))


def in_container(history: History) -> bool:
    """Whether the driver lists the processes of this program's container only."""
    return history.latest is not None and bool(history.latest.host.in_container)
