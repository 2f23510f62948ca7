"""Draws values over time from few samples of a recording, where no history has them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from gpumon.recording.history import History
from gpumon.recording.series import RECENT_SPAN, SeriesRate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Recording

# The cost of a sample grows with the GPUs and processes in it. The numbers are chosen so that a
# draft takes some 30 ms.
_ROWS = 1600
_LEAST_SAMPLES = 24
_NEAR = 60.0
"""Seconds between two moments that share the samples of long ago."""


class Draft:
    """A history of few samples that follows the displayed moment."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._history = _values_alone()
        self._rate = SeriesRate()
        self._until = -math.inf
        self._long_ago: list[Snapshot] = []
        self._long_ago_of = -math.inf

    def of(self, snapshot: Snapshot) -> History:
        """The history of a moment; another object after a jump."""
        if 0 <= snapshot.time - self._until <= RECENT_SPAN:
            self._go_on(snapshot)
        else:
            self._begin(snapshot)
        return self._history

    def _begin(self, snapshot: Snapshot) -> None:
        """Start again with a few samples of long ago, and more of the last two minutes."""
        self._history, self._rate, self._until = _values_alone(), SeriesRate(), -math.inf
        time = snapshot.time
        # Each of them may be in another part of the recording, which takes time to open.
        if abs(time - self._long_ago_of) > _NEAR:
            self._long_ago_of = time
            self._long_ago = list(_long_ago(self._recording, time))
        for one in self._long_ago:
            if one.time < time - RECENT_SPAN:
                self._add(one)
        most = max(_LEAST_SAMPLES, _at_once(snapshot) // 2)
        for one in list(self._recording.between(time - RECENT_SPAN, time, most)):
            if one.time < time:
                self._add(one)
        self._add(snapshot)

    def _go_on(self, snapshot: Snapshot) -> None:
        """Add a moment shortly after the last one, and some samples in between."""
        between = self._recording.between(self._until, snapshot.time, _at_once(snapshot))
        for one in [*(one for one in between if one.time < snapshot.time), snapshot]:
            self._add_without_gap(one)

    def _add_without_gap(self, snapshot: Snapshot) -> None:
        """Add a sample; if it would come late, add others from the recording before it."""
        while snapshot.time - self._until > self._rate.late:
            nearer = self._recording.at(self._until + 0.9 * self._rate.late)
            if nearer is None or nearer.time <= self._until:
                # A gap in the recording: the time after it begins with the first sample there.
                nearer = self._recording.at(self._recording.step(self._until, 1))
            if nearer is None or not self._until < nearer.time < snapshot.time:
                break
            self._add(nearer)
        self._add(snapshot)

    def _add(self, snapshot: Snapshot) -> None:
        if snapshot.time <= self._until:
            return
        if self._until > -math.inf:
            self._rate.see(snapshot.time - self._until)
        self._until = snapshot.time
        self._history.add(snapshot)


def _values_alone() -> History:
    return History({}, judged=False)


def _at_once(snapshot: Snapshot) -> int:
    """How many samples like this one can be added while the user waits."""
    return max(_LEAST_SAMPLES, _ROWS // (1 + len(snapshot.gpus) + len(snapshot.processes)))


def _long_ago(recording: Recording, time: float) -> Iterator[Snapshot]:
    """The first sample, and one or two of each stretch that is as long as all the time after it."""
    first = recording.first
    if first is None:
        return
    ages = [RECENT_SPAN]
    while time - ages[-1] > first:
        ages.append(2 * ages[-1])
    beginning = recording.at(first)
    if beginning is not None:
        yield beginning
    for older, newer in pairwise(reversed(ages)):
        begin = max(first, time - older)
        for one in list(recording.between(begin, time - newer, 1)):
            if one.time > begin:
                yield one
