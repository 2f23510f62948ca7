"""The player: the controls, and a history that keeps up with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.snapshot import Trouble
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.playback.moments import Moments, RebuiltMoments, RecordedMoments
from gpumon.recording.playback.replay import Playing, ReplaySource
from gpumon.sampling.collector import Collector
from gpumon.system.clock import SystemClock
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording import Event, Recording
    from gpumon.recording.history import Condition, History
    from gpumon.sources import Call
    from gpumon.system.clock import Clock


SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""The speeds to choose from."""


class Player:
    """Plays a tape.

    Snapshots come from ``subscribe``, on the sampling thread, as they do from a collector. The
    controls may be used from any thread; what they ask for is sampled at once.

    Attributes:
        collector: Samples the tape; its interval is how often the picture moves.

    Args:
        tape: What to play; asked on the sampling thread, and by ``to_mark`` on the caller's.
        conditions: What to watch on every card, by name; ``findings.conditions()``.
        position: Where to begin; at the tape's newest moment unless told.
        playing: Whether time passes from the start.
        interval: Seconds from one sample to the next, 0.1 to 3600.
        thresholds: Where the lines are drawn for what is seen.
        clock: Time, for tests.
        history: What was told the snapshots of the tape, and may go on; without one histories are
            made of samples.
    """

    def __init__(
        self,
        tape: Recording,
        conditions: Mapping[str, Condition],
        *,
        position: float | None = None,
        playing: bool = False,
        interval: float = 0.1,
        thresholds: Thresholds = DEFAULTS,
        clock: Clock | None = None,
        history: History | None = None,
    ) -> None:
        self._tape = tape
        self._clock = clock or SystemClock()
        self._source = ReplaySource(tape, position, playing=playing, clock=self._clock)
        self.collector = Collector(
            self._source,
            interval,
            _PlaybackClock(self._clock, self._source),
            annotate=self._keep_up,
            silence=_silence,
        )
        self._moments: Moments
        if history is not None:
            self._moments = RecordedMoments(tape, history)
        else:
            self._moments = RebuiltMoments(
                tape,
                conditions,
                thresholds,
                clock=self._clock,
                sample_now=self.collector.sample_now,
            )
        self._moment: tuple[Snapshot, History] | None = None
        self.collector.subscribe(self._show)

    @property
    def moment(self) -> tuple[Snapshot, History] | None:
        """The newest snapshot and the history that belongs to it; ``None`` before the first."""
        return self._moment

    @property
    def history(self) -> History:
        """What had been seen by the moment that is shown; another one after a jump."""
        moment = self._moment
        return self._moments.history if moment is None else moment[1]

    @property
    def settled(self) -> bool:
        """Whether the history is all that the tape tells of the moment, and no draft any more."""
        return self._moments.settled

    @property
    def playing(self) -> Playing:
        """Which moment is shown, and how it is being played."""
        return replace(self._source.state, waiting=self.collector.overdue)

    def start(self) -> None:
        """Begin to sample; a tape that cannot be played is the collector's ``failure``."""
        self.collector.start()

    def stop(self, timeout: float = 1.0) -> None:
        """End sampling, see ``Collector.stop``."""
        self.collector.stop(timeout)

    def subscribe(
        self,
        listener: Callable[[Snapshot], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> Callable[[], None]:
        """Hand every snapshot to a listener, see ``Collector.subscribe``; ``moment`` has it too."""
        return self.collector.subscribe(listener, failed)

    def play(self) -> None:
        """Let time pass."""
        self._source.play()
        self.collector.sample_now()

    def pause(self) -> None:
        """Hold it."""
        self._source.pause()
        self.collector.sample_now()

    @property
    def speed(self) -> float:
        """Seconds of the tape that pass in a second.

        Raises:
            ValueError: When set to less than 0.1 or more than 1000.
        """
        return self._source.speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._source.speed = speed
        self.collector.sample_now()

    def seek(self, time: float) -> None:
        """Go to a moment, no further than the ends of the tape."""
        self._source.seek(time)
        self.collector.sample_now()

    def reaches_end(self, seconds: float) -> bool:
        """Whether there is nothing so far on from where it was told to go, or only the newest."""
        return self._source.reaches_end(seconds)

    def jump(self, seconds: float) -> None:
        """Go so far on, or back."""
        self._source.jump(seconds)
        self.collector.sample_now()

    def step(self, samples: int) -> None:
        """Go so many samples on, or back, and about a second each time at least."""
        self._source.step(samples)
        self.collector.sample_now()

    def to_mark(self, *, forward: bool, or_here: bool = False) -> Event | None:
        """Go to the next thing that happened, or to the one before; ``None`` where none is known.

        Args:
            forward: Whether to go on, and not back.
            or_here: Whether going back may end where it begins, at what happened at this moment.

        Raises:
            TapeError: The tape cannot be read any more.
        """
        mark = self._source.to_mark(forward=forward, or_here=or_here)
        self.collector.sample_now()
        return mark

    def _show(self, snapshot: Snapshot) -> None:
        self._moment = snapshot, self._moments.history

    def _keep_up(self, snapshot: Snapshot) -> Snapshot:
        """Bring the history to a snapshot before anybody gets it."""
        self._moments.show(snapshot)
        return snapshot


class _PlaybackClock:
    """A clock by which it is the moment that is shown."""

    def __init__(self, clock: Clock, source: ReplaySource) -> None:
        self._source = source
        self.monotonic = clock.monotonic
        self.wait: Callable[[threading.Event, float], bool] = clock.wait

    def time(self) -> float:
        """See ``Clock.time``."""
        return self._source.position


def _silence(_: Call | None, seconds: float) -> Trouble:
    """What to say while not even a first sample of the tape has come."""
    return Trouble(
        f"The log is not read: no answer for {duration(seconds)}.",
        "The disk or the network file system that it is on may be slow, or hang.",
    )
