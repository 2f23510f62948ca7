"""Finds samples of a file that repeat earlier ones, as where it was appended to itself."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.index import Chunk, SampleSpan

_CERTAIN = 10
"""Different values that the samples of a copy must have. An idle GPU whose clock was set back has
the same rows again, too, but only a few different values."""
_MOST_KEPT = 2**20
_TRIM_EVERY = 4096


class Repeats:
    """The samples of a file that later ones may repeat. Not thread-safe.

    A copy begins where the time goes back, and has the same samples in the same order.

    Args:
        set_back: Seconds by which the clock was set back: a copy repeats nothing older.

    Attributes:
        start: The chunk of the first sample of the newest copy, and its line there.
    """

    def __init__(self, set_back: float) -> None:
        self.start: tuple[Chunk, int] | None = None
        self._set_back = set_back
        # Those that are newer than all before them: 16 bytes each, as a log may have millions.
        self._walls = array("d")
        self._lines = array("q")
        self._before = -math.inf
        self._next: int | None = None
        self._count = 0
        self._values: set[int] = set()

    def see(self, chunk: Chunk, run: SampleSpan) -> int:
        """How many samples are known to be repeated since the next sample was seen."""
        goes_back = run.wall < self._before
        self._before = run.wall
        line = chunk.lines[run.first]
        if not self._walls or run.wall > self._walls[-1]:
            self._next = None
            self._keep(run.wall, hash(line))
            return 0
        if goes_back:
            self._next = bisect_left(self._walls, run.wall)
            self.start = chunk, run.first
            self._count = 0
            self._values.clear()
        place = self._next
        if place is None or place == len(self._lines) or self._lines[place] != hash(line):
            self._next = None
            return 0
        self._next = place + 1
        self._count += 1
        if len(self._values) == _CERTAIN:
            return 1
        self._values.add(_values(line, chunk.header))
        return self._count if len(self._values) == _CERTAIN else 0

    def _keep(self, wall: float, line: int) -> None:
        self._walls.append(wall)
        self._lines.append(line)
        if not len(self._walls) % _TRIM_EVERY:
            old = bisect_left(self._walls, wall - self._set_back)
            old = max(old, len(self._walls) - _MOST_KEPT)
            del self._walls[:old], self._lines[:old]


def _values(line: bytes, header: Header) -> int:
    """What a row has apart from its time in whole seconds, which differs from row to row."""
    stamp = header.stamp(line)[0]
    known = {place for place in header.places.values() if place != header.time}
    values = [cell for place, cell in enumerate(header.split(line)) if place in known]
    fraction = stamp.rpartition(b".")[2] if b"." in stamp else b""
    return hash((*values, fraction if fraction.isdigit() else b""))
