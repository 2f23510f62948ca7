"""Builds the history of a moment from earlier samples of a recording."""

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

# The cost of feeding a sample grows with the GPUs and processes in it: some 20 microseconds each
# for coarse samples. The numbers of samples are chosen so that a draft takes some 30 ms, and the
# rest of a day a second and a half; the last two minutes always have enough samples to show what is
# idle for a minute.
_SKETCHED = 1600
_FINELY_SKETCHED = 24
_BUILT = 8000
_LEAST_COARSE = 60
_TIMES_KEPT = 2**13
_NEAR = 60.0
"""Seconds between two moments of which the past is sketched alike."""


class Feed:
    """Feeds samples of a recording to a history without creating gaps that are not there.

    Attributes:
        history: The history.
        until: The time of the newest sample.
        times: The times of the newest ``_TIMES_KEPT`` samples.
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
        """Feed the next sample; if it would come late, feed others from the recording before it."""
        if snapshot.time <= self.until:
            return
        while snapshot.time - self.until > self._pace.late and self.until > -math.inf:
            nearer = self._tape.at(self.until + 0.9 * self._pace.late)
            if nearer is None or nearer.time <= self.until:
                # A gap in the recording: the time after it begins with the first sample there.
                nearer = self._tape.at(self._tape.step(self.until, 1))
            if nearer is None or not self.until < nearer.time < snapshot.time:
                break
            self.take_only(nearer)
        self.take_only(snapshot)

    def take_only(self, snapshot: Snapshot) -> None:
        """Feed only the next sample; the history decides what the time before means."""
        if self.until > -math.inf:
            self._pace.see(snapshot.time - self.until)
        self.until = snapshot.time
        self.times.append(snapshot.time)
        self.history.add(snapshot)

    def pass_to(self, snapshot: Snapshot, most: int) -> bool:
        """Feed a sample, and before it the samples in between, or that many if there are more.

        Returns:
            Whether some may have been skipped.
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
    """How many samples like this one can be fed while the user waits."""
    return max(_FINELY_SKETCHED, _SKETCHED // _subjects(snapshot))


class HistoryDrafts:
    """Builds histories of moments as far as possible without delay.

    Args:
        tape: The recording.
        conditions: The conditions to track for every GPU.
        thresholds: The thresholds.
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
        """The history of a snapshot, from few samples and the known starts of ongoing conditions.

        For the past beyond some minutes, nearby moments share the same samples, because each may be
        in another part of the recording, which takes time to open.
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
    """Build the history of a snapshot, one sample per ``next``."""
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
