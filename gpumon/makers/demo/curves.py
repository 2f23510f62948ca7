"""Simulated values over time, with an exact mean over any window.

Each curve is stored as its integral, an ``Area``: ``area(t)`` is the integral from the demo's start
to ``t`` seconds after it (negative before it). So a mean over one second, a temperature that lags
by minutes and an energy counter that agrees with the power need no earlier samples: each is a
difference of two areas.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

Area = Callable[[float], float]


def mean(area: Area, end: float, seconds: float) -> float:
    """The mean of a curve over the ``seconds`` before ``end``."""
    return (area(end) - area(end - seconds)) / seconds


def steady(level: float) -> Area:
    """A curve of one level."""
    return lambda t: level * t


def ripples(*sines: tuple[float, float, float]) -> Area:
    """Sines around 0; several of unrelated periods look like noise.

    Args:
        sines: (amplitude, period in seconds, phase as a fraction of the period) of each.
    """
    terms = [
        (-amplitude * period / math.tau, math.tau / period, math.tau * phase)
        for amplitude, period, phase in sines
    ]
    cos = math.cos
    begin = sum(scale * cos(phase) for scale, _, phase in terms)

    def area(t: float) -> float:
        total = -begin
        for scale, pace, phase in terms:
            total += scale * cos(pace * t + phase)
        return total

    return area


def wave(points: Sequence[tuple[float, float]], phase: float = 0.0) -> Area:
    """A periodic curve of straight lines between points.

    Args:
        points: (seconds, level) from 0, ascending; the last one ends the period.
        phase: Where it starts, as a fraction of the period.
    """
    times = [time for time, _ in points]
    levels = [level for _, level in points]
    period = times[-1]
    gathered = [0.0]
    for i in range(1, len(points)):
        width = times[i] - times[i - 1]
        gathered.append(gathered[-1] + width * (levels[i] + levels[i - 1]) / 2)
    slopes = [
        (levels[i + 1] - levels[i]) / (times[i + 1] - times[i]) for i in range(len(points) - 1)
    ]
    whole = gathered[-1]
    last = len(slopes) - 1

    def absolute(t: float) -> float:
        rounds, rest = divmod(t, period)
        # Rounding can give a remainder of exactly one period.
        i = min(bisect_right(times, rest) - 1, last)
        into = rest - times[i]
        return rounds * whole + gathered[i] + into * (levels[i] + slopes[i] * into / 2)

    shift = phase * period
    begin = absolute(shift)
    return lambda t: absolute(t + shift) - begin


def together(*parts: Area) -> Area:
    """The sum of curves."""

    def area(t: float) -> float:
        total = 0.0
        for part in parts:
            total += part(t)
        return total

    return area


def scaled(area: Area, factor: float) -> Area:
    """A curve multiplied by a factor."""
    return lambda t: factor * area(t)


def switch(at: float, before: Area, after: Area) -> Area:
    """One curve until a time, another one after it."""
    before_at, after_at = before(at), after(at)
    # An area is 0 at the demo's start, on whichever side of the switch that is.
    base = before_at - after_at
    start = (after(0.0) + base) if at < 0 else before(0.0)
    return lambda t: (before(t) if t <= at else after(t) + base) - start


def dimmed(area: Area, steps: Sequence[tuple[float, float]]) -> Area:
    """A curve that is reduced to a share of itself from several times on.

    Args:
        area: The curve.
        steps: (start, share) ascending; before the first one the curve is unchanged.
    """
    times = [time for time, _ in steps]
    shares = [1.0, *(share for _, share in steps)]
    levels = [area(time) for time in times]
    gathered = levels[:1]
    for i in range(1, len(levels)):
        gathered.append(gathered[-1] + shares[i] * (levels[i] - levels[i - 1]))

    def absolute(t: float) -> float:
        i = bisect_right(times, t)
        if i == 0:
            return area(t)
        return gathered[i - 1] + shares[i] * (area(t) - levels[i - 1])

    start = absolute(0.0)
    return lambda t: absolute(t) - start
