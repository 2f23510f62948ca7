"""The player: playback controls, and a history that follows the position."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.snapshot import Trouble
from gpumon.recording.history import HistoryView
from gpumon.recording.playback.drafts import Draft
from gpumon.recording.playback.replay import Playing, ReplaySource
from gpumon.recording.series import RECENT_SPAN
from gpumon.sampling.collector import Collector
from gpumon.system.system import THIS_SYSTEM
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from gpumon.makers.source import Call
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.recording.recording import Recording
    from gpumon.system.system import Clock


SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""The speeds to choose from."""


class Player:
    """Plays a recording.

    Attributes:
        source: Has the controls, each of which causes a sample at once.
        collector: Samples the recording; its interval is the time between two frames.
        moment: The newest snapshot and its history; ``None`` before the first snapshot.
        settled: Whether the history has reached the moment: it may be that of a log still being
            read.

    Args:
        recording: What to play.
        history: The history of its snapshots, which may receive more.
        position: The start position; by default the newest moment.
        playing: Whether to start playing instead of paused.
        interval: Seconds from one sample to the next, 0.1 to 3600.
        clock: The clock, for tests.
    """

    def __init__(
        self,
        recording: Recording,
        history: History,
        *,
        position: float | None = None,
        playing: bool = False,
        interval: float = 0.1,
        clock: Clock = THIS_SYSTEM.clock,
    ) -> None:
        self._recording = recording
        self._whole = history
        self.source = ReplaySource(recording, position, playing=playing, clock=clock)
        self.collector = Collector(
            self.source,
            interval,
            _PlaybackClock(clock, self.source),
            annotate=self._keep_up,
            silence=_silence,
        )
        self.source.moved = self.collector.sample_now
        self.settled = True
        self.moment: tuple[Snapshot, History] | None = None
        self._draft = Draft(recording)
        self._as_of: HistoryView | None = None
        # The history that the view above answers from.
        self._viewed: History | None = None
        self._is_complete = False
        self.collector.subscribe(self._show)

    @property
    def history(self) -> History:
        """The history up to the displayed moment.

        Another object after a jump, and when more has become known of the moment.
        """
        moment = self.moment
        return (self._as_of or self._whole) if moment is None else moment[1]

    @property
    def playing(self) -> Playing:
        """The displayed moment and the state of playback."""
        read_until = math.inf if self._recording.events_complete else self._whole.now
        return replace(self.source.state, waiting=self.collector.overdue, read_until=read_until)

    def _show(self, snapshot: Snapshot) -> None:
        self.moment = snapshot, self._as_of or self._whole

    def _keep_up(self, snapshot: Snapshot) -> Snapshot:
        """Bring the history up to a snapshot, also to the same again, before a listener gets it."""
        whole = self._recording.history_of(snapshot) or self._whole
        shown, is_complete = self._as_of, whole.now >= snapshot.time
        is_new = is_complete and not self._is_complete
        if shown is not None and shown.latest is snapshot and not is_new:
            return snapshot
        follows = shown is not None and 0 <= snapshot.time - shown.now <= RECENT_SPAN
        # At the end of a log that grows, the history is a moment behind.
        is_near = self._recording.events_complete and whole.reaches(snapshot.time)
        self._is_complete, self.settled = is_complete, is_complete or is_near
        if shown is None or is_new or not follows or whole is not self._viewed:
            shown, self._viewed = HistoryView(whole, snapshot), whole
            self._as_of = shown
        else:
            shown.show(snapshot)
        if shown.lacks_values():
            shown.drawn = self._draft.of(snapshot)
        return snapshot


class _PlaybackClock:
    """A clock whose time is the displayed moment."""

    def __init__(self, clock: Clock, source: ReplaySource) -> None:
        self._source = source
        self.monotonic = clock.monotonic
        self.wait: Callable[[threading.Event, float], bool] = clock.wait

    def time(self) -> float:
        """See ``Clock.time``."""
        return self._source.position


def _silence(_: Call | None, seconds: float) -> Trouble:
    """The message while no first sample of the recording has arrived."""
    return Trouble(
        f"The log is not read: no answer for {duration(seconds)}.",
        "The disk or the network file system that it is on may be slow, or hang.",
    )
