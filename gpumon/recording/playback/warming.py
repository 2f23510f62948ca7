"""Histories of a moment of a tape, made from samples of what came before it."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.playback.beginnings import Beginnings, PastHistory
from gpumon.recording.playback.replay import FINE_SECONDS, leading_to, long_ago
from gpumon.recording.series import RECENT_SAMPLES, SeriesRate

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording import Recording
    from gpumon.recording.history import Condition


COARSE = 300
"""How many samples a history is fed of each stretch before the last two minutes."""

# What a sample costs a history grows with the cards and processes in it: some 20 microseconds each,
# where it is coarse. So the numbers of samples are such that it takes some 30 ms to feed a sketch,
# and a second and a half to feed the rest of a day; of the last two minutes there are always as
# many as show what rests for a minute.
_SKETCHED = 1600
_FINELY_SKETCHED = 24
_BUILT = 8000
_LEAST_COARSE = 60
_TIMES_KEPT = 2**13
_NEAR = 60.0
"""Seconds between two moments of which the past is sketched alike."""


class Feed:
    """Feeds a history samples of a tape, so that it takes nothing for a gap that is none.

    Attributes:
        history: What is fed.
        until: The time of the newest sample.
        times: Those of all samples; of the newest ``_TIMES_KEPT``, where there are more.
    """

    def __init__(
        self,
        tape: Recording,
        conditions: Mapping[str, Condition],
        known: Beginnings | None = None,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        self.history = PastHistory(conditions, known or Beginnings(), thresholds)
        self.until = -math.inf
        self.times: deque[float] = deque(maxlen=_TIMES_KEPT)
        self._tape = tape
        self._pace = SeriesRate()

    def take(self, snapshot: Snapshot) -> None:
        """Feed the next sample; before it, where it would come late, others from the tape."""
        if snapshot.time <= self.until:
            return
        while snapshot.time - self.until > self._pace.late and self.until > -math.inf:
            nearer = self._tape.at(self.until + 0.9 * self._pace.late)
            if nearer is None or nearer.time <= self.until:
                # A gap on the tape: what came after it begins with the first sample there.
                nearer = self._tape.at(self._tape.step(self.until, 1))
            if nearer is None or not self.until < nearer.time < snapshot.time:
                break
            self.take_only(nearer)
        self.take_only(snapshot)

    def take_only(self, snapshot: Snapshot) -> None:
        """Feed the next sample, and leave it to the history what to think of the time before."""
        if self.until > -math.inf:
            self._pace.see(snapshot.time - self.until)
        self.until = snapshot.time
        self.times.append(snapshot.time)
        self.history.add(snapshot)

    def pass_to(self, snapshot: Snapshot, most: int) -> bool:
        """Feed a sample, and before it what lies between, or so many where that is more.

        Returns:
            Whether some may have been left out.
        """
        if snapshot.time <= self.until:
            return False
        found = list(self._tape.between(self.until, snapshot.time, most))
        for between in found:
            if between.time < snapshot.time:
                self.take(between)
        self.take(snapshot)
        return len(found) > most // 2


def at_once(snapshot: Snapshot) -> int:
    """How many samples like this one can be fed while somebody waits."""
    return max(_FINELY_SKETCHED, _SKETCHED // _subjects(snapshot))


class HistoryDrafts:
    """Makes histories of moments as far as they can be had at once.

    Args:
        tape: What is played.
        conditions: What to watch on every card.
        thresholds: Where the lines are drawn for what is seen.
    """

    def __init__(
        self,
        tape: Recording,
        conditions: Mapping[str, Condition],
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        self._tape = tape
        self._conditions = conditions
        self._thresholds = thresholds
        self._long_ago: list[Snapshot] = []
        self._of = -math.inf

    def make(self, snapshot: Snapshot, known: Beginnings) -> Feed:
        """The history of a snapshot, from few samples and what is known to go on at it.

        Of long ago the same samples serve all moments that are near each other: each may lie in
        another part of the tape, which takes time to open.
        """
        time = snapshot.time
        if abs(time - self._of) > _NEAR:
            self._of = time
            self._long_ago = [one for some in long_ago(self._tape, time, 1) for one in some]
        feed = Feed(self._tape, self._conditions, known, self._thresholds)
        for one in self._long_ago:
            if one.time < time - FINE_SECONDS:
                feed.take_only(one)
        fine = max(_FINELY_SKETCHED, at_once(snapshot) // 2)
        for one in list(self._tape.between(time - FINE_SECONDS, time, fine)):
            if one.time < time:
                feed.take_only(one)
        feed.take_only(snapshot)
        return feed


def build(
    tape: Recording,
    conditions: Mapping[str, Condition],
    snapshot: Snapshot,
    thresholds: Thresholds = DEFAULTS,
) -> Generator[None, None, Feed]:
    """The history of a snapshot, a sample with every ``next``."""
    coarse = min(COARSE, max(_LEAST_COARSE, _BUILT // _subjects(snapshot)))
    feed = Feed(tape, conditions, thresholds=thresholds)
    for some in leading_to(tape, snapshot.time, RECENT_SAMPLES, coarse):
        for one in some:
            if one.time < snapshot.time:
                feed.take(one)
            yield
    feed.take(snapshot)
    return feed


def _subjects(snapshot: Snapshot) -> int:
    return 1 + len(snapshot.gpus) + len(snapshot.processes)
