"""Time in a log, from two recorded clocks, of which the wall clock may have been set."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.parsers import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.headings import Header

GRAIN = 1e-5
"""Seconds by which a time may differ from itself for having been added to and subtracted from."""
APART = 0.001
"""Seconds between two samples that would else fall on one moment."""
STEADY = 0.5
"""Seconds by which two clocks may differ although neither was set."""

LONGEST_WRONG = 10
"""Samples in a row that may have a wrong clock and are mended."""
_WRONG_SECONDS, _WRONG_STEPS = 60.0, 20
"""Seconds, and usual steps, by which a clock must jump to be wrong."""
_UNEVEN = 2.5
"""How much longer or shorter than usual the steps are on average while it is wrong."""


class Clocks(NamedTuple):
    """The readings of two clocks at a sample.

    Attributes:
        wall: The wall clock, in seconds since the epoch.
        elapsed: The monotonic clock; NaN if it was not recorded.
    """

    wall: float
    elapsed: float


def clocks_of(line: bytes, header: Header) -> Clocks:
    """The clock readings of a row; NaN if the row does not have them."""
    wall = header.moment(header.stamp(line)[0])
    return Clocks(math.nan, math.nan) if wall is None else clocks_at(wall, line, header)


def clocks_at(wall: float, line: bytes, header: Header) -> Clocks:
    """The clock readings of a row whose wall-clock time is known."""
    cells: Sequence[str] = () if header.elapsed is None else header.split(line)
    try:
        elapsed = float(cells[header.elapsed or 0])
    except (ValueError, IndexError):
        elapsed = math.nan
    return Clocks(wall, elapsed if 0 <= elapsed <= LATEST else math.nan)


def held_below(times: list[float], clocks: list[Clocks], limit: float) -> list[float]:
    """Monotonic times, kept in order and below a limit.

    A wall clock that was set forward and back between two samples leaves less time than seems to
    have passed. The monotonic clock gives the real length.
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


def jumps(walls: Sequence[float]) -> list[int]:
    """The numbers of the times that are much later or earlier than the time before."""
    least = max(_WRONG_SECONDS, _WRONG_STEPS * usual_step(walls))
    return [at for at in range(1, len(walls)) if abs(walls[at] - walls[at - 1]) > least]


def usual_step(walls: Sequence[float]) -> float:
    """The median of the seconds from a time to a later one after it; 0 if there is none."""
    steps = sorted(after - before for before, after in pairwise(walls) if after > before)
    return steps[len(steps) // 2] if steps else 0.0


def without_wrong(walls: Sequence[float]) -> list[float]:
    """Times in which those of a clock that was wrong in a few samples are interpolated.

    Without a monotonic clock, the jump back would move all times before it.
    """
    found = list(walls)
    usual, places = usual_step(walls), jumps(walls)
    number = 0
    while number + 1 < len(places):
        at, back = places[number : number + 2]
        number += 1
        before, count = found[at - 1], back - at + 1
        passed = walls[back] - before
        # Two gaps are no jump forth and back.
        is_forth = walls[at] > walls[at - 1]
        if count - 1 > LONGEST_WRONG or is_forth is (walls[back] > walls[back - 1]):
            continue
        if count * usual / _UNEVEN <= passed <= _UNEVEN * count * usual:
            found[at:back] = [before + step * passed / count for step in range(1, count)]
            # From here on the clock is right: the next jump is no jump back from here.
            number += 1
    return found


def spread(walls: list[float], following: float, precision: float) -> list[float]:
    """Times, those that are the same spread evenly until the next one, as far as they are precise.

    A stamp in whole seconds that several samples share shows that they were more than one a second.
    Nothing shows how far apart those of the last stamp are.

    Args:
        walls: The times.
        following: The time after them; infinite if there is none.
        precision: Seconds to which they are known.
    """
    found: list[float] = []
    for wall, group in groupby(walls):
        count = len(list(group))
        at = len(found) + count
        after = (walls[at] if at < len(walls) else following) - wall
        step = min(after, precision) / count if 0 < after < math.inf else 0.0
        step = step or min(APART, precision / count)
        found += [wall + number * step for number in range(count)]
    return found


def onward_step(before: Clocks, after: Clocks) -> float:
    """Seconds from one sample to the next: always more than 0, even if the clock was set."""
    wall, passed = after.wall - before.wall, after.elapsed - before.elapsed
    if passed > 0 and (wall <= 0 or passed - wall > STEADY):
        return passed
    return max(wall, APART)
