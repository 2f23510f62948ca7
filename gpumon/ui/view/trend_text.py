"""The trend of a value over the last minutes, in words.

A rate is given only if the value keeps moving in one direction: memory that was allocated at once
three minutes ago does not grow, although a line through all points rises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.formatting import duration
from gpumon.text.units import memory_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    Points = Sequence[tuple[float, float]]

SPAN = 300.0
"""The time that a small chart shows, in seconds."""

_LEAST_SECONDS = 20.0
"""With less time than this, no direction is given."""
_STILL_SHARE, _STILL_BYTES = 0.001, 8 * 2**20
"""A smaller change, as a share of the peak or in bytes, counts as none."""
_STILL_PERCENT = 20.0


def size_text(size: float) -> str:
    """Bytes in GiB, or in MiB if less than 1 GiB: ``43.9 GiB``, ``380 MiB``."""
    units = memory_units()
    mega = units.kilo**2
    if size >= mega * units.kilo:
        return f"{size / (mega * units.kilo):.1f} {units.giga}"
    return f"{size / mega:.0f} {units.mega}" if size >= mega else f"{size / mega:.1f} {units.mega}"


def bytes_trend(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 43.9 GiB, grows 1.2 GiB/h``, ``peak 43.9 GiB, steady``, ``peak 44 GiB, +3 GiB in 2m``.

    Args:
        points: Time and bytes, oldest first.
        peak: The maximum of all samples.
        slope: Bytes per second, of a line through all points.
    """
    if not points or peak is None:
        return "nothing known of it"
    trend = _direction(points, max(_STILL_SHARE * peak, _STILL_BYTES))
    if trend == "grows" and slope is not None and slope > 0:
        trend = f"grows {_rate(slope)}"
    elif trend == "falls" and slope is not None and slope < 0:
        trend = f"falls {_rate(-slope)}"
    elif trend == "moved":
        change = points[-1][1] - points[0][1]
        seconds = duration(points[-1][0] - points[0][0])
        trend = f"{'+' if change > 0 else '−'}{size_text(abs(change))} in {seconds}"
    return f"peak {size_text(peak)}, {trend}" if trend else f"peak {size_text(peak)}"


def percent_trend(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 98 %, mean 41 %``, with the change per minute if it keeps one direction.

    Args:
        points: Time and percent, oldest first.
        peak: The maximum of all samples.
        slope: Percent per second, of a line through all points.
    """
    if not points or peak is None:
        return "nothing known of it"
    mean = sum(value for _, value in points) / len(points)
    text = f"peak {peak:.0f} %, mean {mean:.0f} %"
    trend = _direction(points, _STILL_PERCENT)
    if trend not in ("grows", "falls") or not slope or (slope > 0) != (trend == "grows"):
        return text
    return f"{text}, {'+' if slope > 0 else '−'}{abs(slope) * 60:.0f} a minute"


def _direction(points: Points, still: float) -> str:
    """``steady``, ``grows``, ``falls`` or ``moved``; empty if the time is too short.

    It compares the means of three equal parts of the time: a value grows or falls only if both
    steps between them have the same direction.
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
    """Bytes per hour, minute or second: the first in which the number is not too large."""
    for seconds, unit in ((3600, "h"), (60, "min")):
        if slope * seconds < 100 * 2**30:
            return f"{size_text(slope * seconds)}/{unit}"
    return f"{size_text(slope)}/s"
