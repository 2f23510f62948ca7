"""Time in a log: two clocks were written down, of which somebody may have set one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.cells import LATEST, read_moment
from gpumon.recording.csv.headings import cells_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.headings import Header

APART = 0.001
"""Seconds between two samples that would else fall on one moment."""
STEADY = 0.5
"""Seconds by which two clocks may differ though nobody set either."""


class Clocks(NamedTuple):
    """What two clocks said at a sample.

    Attributes:
        wall: The time of day, seconds since the epoch.
        elapsed: The one that nobody sets; NaN where it was not written down.
    """

    wall: float
    elapsed: float


def clocks_of(line: bytes, header: Header) -> Clocks:
    """What the clocks said at a row; NaN where it does not tell, or is none."""
    wall = read_moment(header.stamp(line)[0].decode("utf-8", "replace"))
    return Clocks(math.nan, math.nan) if wall is None else clocks_at(wall, line, header)


def clocks_at(wall: float, line: bytes, header: Header) -> Clocks:
    """What the clocks said at a row whose time of day is known."""
    cells: Sequence[str] = () if header.elapsed is None else cells_of(line)
    try:
        elapsed = float(cells[header.elapsed or 0])
    except (ValueError, IndexError):
        elapsed = math.nan
    return Clocks(wall, elapsed if 0 <= elapsed <= LATEST else math.nan)


def held_below(times: list[float], clocks: list[Clocks], limit: float) -> list[float]:
    """Onward times that are in order and below a limit.

    A clock that was set forward and back again between two looks leaves less time than seems to
    have passed. How much did pass, the other clock tells.
    """
    if times[-1] < limit:
        return times
    passed = [times[0] + clock.elapsed - clocks[0].elapsed for clock in clocks]
    if passed[-1] < limit and all(one < other for one, other in pairwise(passed)):
        return passed
    for place in range(len(times) - 1, 0, -1):
        if times[place] < limit:
            break
        limit = times[place] = limit - APART
    return times


def onward_step(before: Clocks, after: Clocks) -> float:
    """Seconds from one sample to the next, more than 0, whatever was done to the clock."""
    wall, passed = after.wall - before.wall, after.elapsed - before.elapsed
    if passed > 0 and (wall <= 0 or passed - wall > STEADY):
        return passed
    return max(wall, APART)
