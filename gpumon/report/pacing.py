"""The usual interval between the samples of a log, at each of its samples."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from gpumon.recording.csv.parsers import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.report.samples import MergedSample

INTERVALS_AROUND = 5
"""The usual interval is the median of this many intervals before a sample and as many after it."""


def seconds_between(before: MergedSample, after: MergedSample) -> float:
    """Seconds between two samples: by the monotonic clock if both are of one run."""
    if before.log == after.log and before.elapsed is not None and after.elapsed is not None:
        passed = after.elapsed - before.elapsed
        # A damaged row may have any number.
        if 0 < passed <= LATEST:
            return passed
    return max(0.0, after.time - before.time)


def paced(merged: Iterator[MergedSample]) -> Iterator[MergedSample]:
    """The samples of a log, each with the usual interval around it."""
    waiting: deque[list[MergedSample]] = deque()
    intervals: deque[float] = deque(maxlen=2 * INTERVALS_AROUND + 1)
    newest: MergedSample | None = None
    for together in _together(merged):
        if newest is not None:
            intervals.append(seconds_between(newest, together[0]))
        newest = together[0]
        waiting.append(together)
        if len(waiting) > INTERVALS_AROUND + 1:
            yield from _with_usual(waiting.popleft(), intervals)
    for left in range(len(waiting), 0, -1):
        while len(intervals) > left + INTERVALS_AROUND - 1:
            intervals.popleft()
        together = waiting.popleft()
        for sample in together:
            sample.is_last = left == 1
        yield from _with_usual(together, intervals)


def _together(merged: Iterator[MergedSample]) -> Iterator[list[MergedSample]]:
    """The samples that several hosts have at the same time."""
    together: list[MergedSample] = []
    hosts: set[str | None] = set()
    for moment in merged:
        if together:
            first = together[0]
            is_same = moment.time == first.time and moment.elapsed == first.elapsed
            if not is_same or moment.host in hosts:
                yield together
                together = []
                hosts.clear()
        together.append(moment)
        hosts.add(moment.host)
    if together:
        yield together


def _with_usual(together: list[MergedSample], intervals: Iterable[float]) -> Iterable[MergedSample]:
    known = {interval for interval in intervals if interval > 0}
    if len(known) > 1:
        usual = median([interval for interval in intervals if interval > 0])
    else:
        usual = next(iter(known), 0.0)
    for moment in together:
        moment.usual = usual
    return together
