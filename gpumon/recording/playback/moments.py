"""Histories for the displayed moments of a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import HistoryAsOf
from gpumon.recording.playback.beginnings import Beginnings, find_beginnings
from gpumon.recording.playback.replay import FINE_SECONDS
from gpumon.recording.playback.warming import Feed, HistoryDrafts, at_once, build
from gpumon.recording.series import RECENT_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording import Recording
    from gpumon.recording.history import Condition, History
    from gpumon.system.clock import Clock

_STRIDE = FINE_SECONDS
"""Seconds of the recording that can be fed between two samples; more is a jump."""
_SLICE = 0.03
"""Seconds for which the history is worked on between two samples."""


class Moments(Protocol):
    """Provides the history for each displayed moment, in sequence on one thread."""

    @property
    def history(self) -> History:
        """The history of the last displayed moment; another object after a jump."""
        ...

    @property
    def settled(self) -> bool:
        """Whether the history is complete for the moment."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """Move to the next moment; the same moment may be repeated."""
        ...


class RecordedMoments:
    """Moments of a recording whose snapshots a history also received: it is queried as of them.

    Args:
        tape: The recording.
        history: The history of the same snapshots, which may receive more.
    """

    def __init__(self, tape: Recording, history: History) -> None:
        self._seen = history
        self._drafts = HistoryDrafts(tape, {})
        self._drawn: Feed | None = None
        self._shown: HistoryAsOf | None = None

    @property
    def history(self) -> History:
        """See ``Moments.history``; before the first moment the live history."""
        return self._shown or self._seen

    @property
    def settled(self) -> bool:
        """Always true."""
        return True

    def show(self, snapshot: Snapshot) -> None:
        """See ``Moments.show``."""
        if self._shown is not None and self._shown.latest is snapshot:
            return
        if self._shown is None or not 0 <= snapshot.time - self._shown.now <= _STRIDE:
            self._shown = HistoryAsOf(self._seen, snapshot)
        else:
            self._shown.show(snapshot)
        if self._shown.lacks_values():
            self._shown.drawn = self._draw(snapshot).history

    def _draw(self, snapshot: Snapshot) -> Feed:
        """Values over time, from few samples of the recording."""
        if self._drawn is None or not 0 <= snapshot.time - self._drawn.until <= _STRIDE:
            self._drawn = self._drafts.make(snapshot, Beginnings())
        else:
            self._drawn.pass_to(snapshot, at_once(snapshot))
        return self._drawn


class RebuiltMoments:
    """Moments of a recording without a history: histories are rebuilt from its samples.

    Args:
        tape: The recording.
        conditions: The conditions to track for every GPU.
        thresholds: The thresholds.
        clock: Time, for tests.
        sample_now: Requests another ``show`` soon, because there is more work.
    """

    def __init__(
        self,
        tape: Recording,
        conditions: Mapping[str, Condition],
        thresholds: Thresholds = DEFAULTS,
        *,
        clock: Clock,
        sample_now: Callable[[], None],
    ) -> None:
        self._tape = tape
        self._conditions = conditions
        self._thresholds = thresholds
        self._clock = clock
        self._sample_now = sample_now
        self._feed = Feed(tape, conditions, thresholds=thresholds)
        self._drafts = HistoryDrafts(tape, conditions, thresholds)
        self._known = Beginnings()
        self._work: Generator[None, None, None] | None = None

    @property
    def history(self) -> History:
        """See ``Moments.history``."""
        return self._feed.history

    @property
    def settled(self) -> bool:
        """Whether the history is complete for the moment, and no longer a draft."""
        return self._work is None

    def show(self, snapshot: Snapshot) -> None:
        """See ``Moments.show``."""
        ahead = snapshot.time - self._feed.until
        if not 0 <= ahead <= _STRIDE:
            self._feed = self._drafts.make(snapshot, self._known.by(snapshot.time))
            self._work = self._improve(snapshot)
            self._sample_now()
        elif self._feed.pass_to(snapshot, at_once(snapshot)):
            # Playback is too fast to feed every sample: the rest follows when there is time.
            self._work = self._improve(snapshot)
        elif self._work is not None:
            self._go_on(self._work)

    def _go_on(self, work: Generator[None, None, None]) -> None:
        """Work on the complete history for a limited time."""
        end = self._clock.monotonic() + _SLICE
        for _ in work:
            if self._clock.monotonic() >= end:
                self._sample_now()
                return
        self._work = None

    def _improve(self, snapshot: Snapshot) -> Generator[None, None, None]:
        """Replace the draft by the complete history."""
        feed = yield from build(self._tape, self._conditions, snapshot, self._thresholds)
        newest = self._feed.history.latest
        if newest is not None:
            feed.pass_to(newest, RECENT_SAMPLES)
        feed.history.beginnings = self._known.by(feed.until)
        self._feed = feed
        yield
        self._known = feed.history.beginnings = yield from find_beginnings(
            self._tape, self._conditions, feed.history, list(feed.times)
        )
