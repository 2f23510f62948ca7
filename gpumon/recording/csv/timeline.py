"""Places the process lists of a log on the timeline of its samples.

A list has the times of its sample, by both clocks. The clocks do not say which of several samples
that is: the wall clock may have been set back, and the monotonic clock restarts when a log is
continued. The file of the GPUs has every sample, so its index gives each list its place, and a list
and its sample have the same ``onward`` time. Every reader of lists relies on that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.clocks import APART, STEADY, Clocks, clocks_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.recording.csv.index import Chunk, CsvFile

_SAME = 1e-4
"""Seconds by which the same time may differ: cells have milliseconds."""


class _Reading(NamedTuple):
    """The clocks at a sample, and its onward time."""

    clocks: Clocks
    onward: float


class _Stretch(NamedTuple):
    """The first and the last of some samples between which no clock was set."""

    first: _Reading
    last: _Reading

    def may_have(self, clocks: Clocks) -> bool:
        """Whether the clocks show the same difference as at these samples."""
        bases = [reading.clocks.wall - reading.clocks.elapsed for reading in self]
        base = clocks.wall - clocks.elapsed
        if math.isnan(base) or math.isnan(bases[0]):
            return self.distance(clocks) == 0
        return min(bases) - STEADY <= base <= max(bases) + STEADY

    def distance(self, clocks: Clocks) -> float:
        """Seconds of the wall clock to the nearest of these samples; 0 among them."""
        wall = clocks.wall
        first, last = self.first.clocks.wall - _SAME, self.last.clocks.wall + _SAME
        return max(first - wall, wall - last, 0.0)

    def onward(self, clocks: Clocks) -> float:
        """The onward time of a sample of this stretch."""
        return self.first.onward + clocks.wall - self.first.clocks.wall


class Timeline:
    """The timeline of the samples in a GPU file.

    Args:
        gpus: The file.
    """

    def __init__(self, gpus: CsvFile) -> None:
        self._gpus = gpus
        self._known = -1
        self._stretches: list[_Stretch] = []

    @property
    def set_back(self) -> float:
        """See ``CsvFile.set_back``."""
        return self._gpus.set_back

    @property
    def end(self) -> int:
        """See ``CsvFile.end``."""
        return self._gpus.end

    def place(self, clocks: Clocks, after: float) -> float | None:
        """The onward time of the sample at which the clocks showed this.

        Args:
            clocks: The clocks.
            after: The onward time of the list before.

        Returns:
            ``None`` if the file has no such sample, and no clock shows where it would be.
        """
        if not math.isfinite(clocks.wall):
            return None
        likely = [one for one in self._all() if one.may_have(clocks)]
        nearest = min((one.distance(clocks) for one in likely), default=math.inf)
        found = [one.onward(clocks) for one in likely if one.distance(clocks) == nearest]
        if len(found) > 1:
            found = [onward for onward in found if self._has(clocks, onward)] or found
        if not found:
            return self._sought(clocks)
        # Two samples with the same times are in the order of their lists.
        return next((onward for onward in found if onward > after + _SAME), found[-1])

    def _all(self) -> list[_Stretch]:
        """The stretches in order."""
        if self.end != self._known:
            self._known = self.end
            self._stretches = []
            for reading in self._readings():
                before = self._stretches[-1] if self._stretches else None
                if before is not None and _is_steady(before.last, reading):
                    self._stretches[-1] = before._replace(last=reading)
                else:
                    self._stretches.append(_Stretch(reading, reading))
        return self._stretches

    def _readings(self) -> Iterator[_Reading]:
        """The first sample of each chunk, and all samples of a chunk in which a clock was set."""
        probes = [_Reading(*probe) for probe in self._gpus.probes]
        for number, probe in enumerate(probes):
            yield probe
            following = probes[number + 1] if number + 1 < len(probes) else None
            if following is None or not _is_steady(probe, following):
                chunk = self._gpus.chunk(number)
                yield from () if chunk is None else _readings_of(chunk)[1:]

    def _has(self, clocks: Clocks, onward: float) -> bool:
        """Whether there is a sample with these clocks at an onward time."""
        chunk = self._gpus.at(onward + _SAME)
        readings = [] if chunk is None else _readings_of(chunk)
        return any(_is_same(one.clocks, clocks) and one.onward - onward < APART for one in readings)

    def _sought(self, clocks: Clocks) -> float | None:
        """The onward time of a sample in the middle of a chunk, while whose clock was set."""
        for one in [*self._all()]:
            passed = clocks.elapsed - one.first.clocks.elapsed
            if 0 <= passed <= one.last.clocks.elapsed - one.first.clocks.elapsed:
                chunk = self._gpus.at(one.first.onward + passed)
                for reading in () if chunk is None else _readings_of(chunk):
                    if _is_same(reading.clocks, clocks):
                        return reading.onward
        return None


def _readings_of(chunk: Chunk) -> Sequence[_Reading]:
    return [
        _Reading(clocks_at(run.wall, chunk.lines[run.first], chunk.header), run.onward)
        for run in chunk.runs
    ]


def _is_steady(before: _Reading, after: _Reading) -> bool:
    """Whether no clock was set between two samples."""
    wall = after.clocks.wall - before.clocks.wall
    passed = after.clocks.elapsed - before.clocks.elapsed
    is_onward = abs(after.onward - before.onward - wall) < _SAME
    return is_onward and (math.isnan(passed) or abs(passed - wall) <= STEADY)


def _is_same(clocks: Clocks, others: Clocks) -> bool:
    passed = clocks.elapsed - others.elapsed
    return abs(clocks.wall - others.wall) < _SAME and (math.isnan(passed) or abs(passed) < _SAME)
