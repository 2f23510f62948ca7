"""Puts the segments of an archive on one timeline, although the clock was changed meanwhile."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.archive.segment_format import SEGMENT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpumon.recording.archive.segment_format import SegmentHeader

DAY = 86400.0
_MOST_WRONG = 200
"""Segments in a row whose clock is found to have been wrong, at most."""


class SegmentSpan(Struct, frozen=True):
    """The times of a segment, by its own clock, in seconds since the epoch."""

    begins: float
    ends: float
    # By how many seconds the clock was set back since the last sample of the segment before.
    set_back: float


def segment_span(path: Path, header: SegmentHeader) -> SegmentSpan:
    """The times of a segment; that of its newest sample is when its file was last written."""
    begins = header.begins
    # A copy may be written much later.
    ends = min(max(begins, written_at(path, math.inf)), begins + SEGMENT_SECONDS)
    return SegmentSpan(begins, ends, header.set_back)


def written_at(path: Path, otherwise: float) -> float:
    """When a file was last written, or another time if that is not known."""
    try:
        return path.stat().st_mtime
    except OSError:
        return otherwise


def clock_shifts(spans: Sequence[SegmentSpan]) -> Sequence[float]:
    """By how many seconds each segment is to be moved back, so that time never runs backwards.

    If the clock is set back, all that was recorded before moves back by as much. But not beyond a
    jump ahead that is no smaller: a clock that was wrong for a while, as after a boot without a
    battery, displaces what it stamped and nothing else.

    Args:
        spans: The segments in the order in which they were written.
    """
    alone, older = [0.0] * len(spans), [0.0] * len(spans)
    for at, span in enumerate(spans):
        seconds = span.set_back
        if at == 0 or not seconds:
            continue
        jump = _jump_before(spans, at)
        if jump is not None:
            begin, end = jump, at
        elif (jump := _jump_after(spans, at)) is not None:
            begin, end, seconds = at, jump, -seconds
        else:
            older[at - 1] += seconds
            continue
        for wrong in range(begin, end):
            alone[wrong] += seconds
    shifts = [own + all_ for own, all_ in zip(alone, [*accumulate(older[::-1])][::-1], strict=True)]
    following = math.inf
    for at in reversed(range(len(spans))):
        # Several changes may overlap, and a file may be forged.
        shifts[at] = max(shifts[at], spans[at].begins - following)
        following = spans[at].begins - shifts[at]
    return shifts


def count_old(spans: Sequence[SegmentSpan], seconds: float) -> int:
    """How many segments ended more than so many seconds before the last one begins.

    A clock that jumped ahead by more than that may be wrong. It is believed once it has gone on for
    a day, or for as long as all that it makes old.

    Args:
        spans: The segments in the order in which they were written.
        seconds: How long a segment is kept.
    """
    shifts = clock_shifts(spans)
    begins = [span.begins - shift for span, shift in zip(spans, shifts, strict=True)]
    ends = [span.ends - shift for span, shift in zip(spans, shifts, strict=True)]
    now = begins[-1]
    old = next(number for number, end in enumerate(ends) if end >= now - seconds)
    if old and begins[old] - ends[old - 1] > seconds:
        is_believed = now - begins[old] > min(DAY, ends[old - 1] - begins[0])
        return old if is_believed else 0
    return old


def _jump_before(spans: Sequence[SegmentSpan], at: int) -> int | None:
    """The segment before which the clock jumped ahead as far as it was set back later."""
    for place in range(at - 1, max(0, at - _MOST_WRONG), -1):
        if _jump(spans, place) >= spans[at].set_back:
            return place
    return None


def _jump_after(spans: Sequence[SegmentSpan], at: int) -> int | None:
    """The segment before which the clock jumped ahead as far as it was set back earlier."""
    for place in range(at + 1, min(len(spans), at + _MOST_WRONG)):
        if _jump(spans, place) >= spans[at].set_back:
            return place
    return None


def _jump(spans: Sequence[SegmentSpan], at: int) -> float:
    """By how many seconds the clock is ahead since the end of the segment before."""
    return -math.inf if spans[at].set_back else spans[at].begins - spans[at - 1].ends
