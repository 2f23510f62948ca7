"""The course of a value over the last minutes, in words.

A rate is given only where a value really goes on in one direction: what was allocated in one go
three minutes ago does not "grow", whatever a line through all points says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.formatting import duration
from gpumon.text.units import memory_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    Points = Sequence[tuple[float, float]]

SPAN = 300.0
"""Seconds that a small chart shows."""

_LEAST_SECONDS = 20.0
"""Below this nothing is said of a direction."""
_STILL_SHARE, _STILL_BYTES = 0.001, 8 * 2**20
"""A change below this share of the peak, or these bytes, is none."""
_STILL_PERCENT = 20.0


def size_words(size: float) -> str:
    """Bytes in GiB with a decimal, in MiB where that says more: ``43.9 GiB``, ``380 MiB``."""
    units = memory_units()
    mega = units.kilo**2
    if size >= mega * units.kilo:
        return f"{size / (mega * units.kilo):.1f} {units.giga}"
    return f"{size / mega:.0f} {units.mega}" if size >= mega else f"{size / mega:.1f} {units.mega}"


def bytes_course(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 43.9 GiB, grows 1.2 GiB/h``, ``peak 43.9 GiB, steady``, ``peak 44 GiB, +3 GiB in 2m``.

    Args:
        points: Time and bytes, oldest first.
        peak: The highest of all samples.
        slope: Bytes a second, through all points.
    """
    if not points or peak is None:
        return "nothing known of it"
    course = _direction(points, max(_STILL_SHARE * peak, _STILL_BYTES))
    if course == "grows" and slope is not None and slope > 0:
        course = f"grows {_rate(slope)}"
    elif course == "falls" and slope is not None and slope < 0:
        course = f"falls {_rate(-slope)}"
    elif course == "moved":
        change = points[-1][1] - points[0][1]
        seconds = duration(points[-1][0] - points[0][0])
        course = f"{'+' if change > 0 else '−'}{size_words(abs(change))} in {seconds}"
    return f"peak {size_words(peak)}, {course}" if course else f"peak {size_words(peak)}"


def percent_course(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 98 %, mean 41 %``, and which way it goes where it goes on in one direction.

    Args:
        points: Time and percent, oldest first.
        peak: The highest of all samples.
        slope: Percent a second, through all points.
    """
    if not points or peak is None:
        return "nothing known of it"
    mean = sum(value for _, value in points) / len(points)
    words = f"peak {peak:.0f} %, mean {mean:.0f} %"
    course = _direction(points, _STILL_PERCENT)
    if course not in ("grows", "falls") or not slope or (slope > 0) != (course == "grows"):
        return words
    return f"{words}, {'+' if slope > 0 else '−'}{abs(slope) * 60:.0f} a minute"


def _direction(points: Points, still: float) -> str:
    """``steady``, ``grows``, ``falls``, ``moved``; empty while too little was seen.

    The means of the past's three thirds are compared: only what went the same way from the first to
    the second and from there to the last grows or falls.
    """
    first, last = points[0][0], points[-1][0]
    third = (last - first) / 3
    if last - first < _LEAST_SECONDS:
        return ""
    thirds: list[list[float]] = [[], [], []]
    for at, value in points:
        thirds[min(2, int((at - first) / third))].append(value)
    if not all(thirds):
        return ""
    old, middle, new = (sum(values) / len(values) for values in thirds)
    before, lately = middle - old, new - middle
    if abs(lately) < still and abs(before) < still:
        return "steady" if abs(new - old) < still else ("grows" if new > old else "falls")
    if abs(lately) < still:
        return "steady"
    if abs(before) >= still and (before > 0) == (lately > 0):
        return "grows" if lately > 0 else "falls"
    return "moved"


def _rate(slope: float) -> str:
    """Bytes a second, over the time that makes a number of it one can picture."""
    for seconds, unit in ((3600, "h"), (60, "min")):
        if slope * seconds < 100 * 2**30:
            return f"{size_words(slope * seconds)}/{unit}"
    return f"{size_words(slope)}/s"
