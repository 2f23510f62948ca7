"""A recording as a source: the machine at a position that moves with time or on request."""

from __future__ import annotations

import math
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.makers.source import Source, SourceError
from gpumon.recording.recording import NO_SAMPLES, RecordingError
from gpumon.sampling.machine import Machine
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Event, Recording
    from gpumon.system.system import Clock

SLOWEST, FASTEST = 0.1, 1000.0
"""Minimum and maximum playback speed."""
STEP_SECONDS = 1.0
"""A step is about as long as this at least: at ten samples a second one sample is no step."""
_HICCUP = 1.0
"""If a read takes longer than this many seconds, playback does not advance meanwhile."""


_GAP_SECONDS = 10.0
_GAP_PACES = 3
"""A gap: this long without a sample, and this multiple of the previous distance."""


class Playing(Struct, frozen=True):
    """The state of playback.

    Attributes:
        position: The displayed moment, in the recording's times.
        first: The start of the recording.
        last: Its current end.
        playing: Whether it plays.
        speed: Seconds of the recording per second.
        at_end: Whether no sample follows the position yet.
        waiting: Seconds for which a read of the recording has hung, if that is long; else ``None``.
        in_gap: Whether the position is in a gap: the displayed sample is then older.
        read_until: How far the recording has been read; infinite when all of it has.
    """

    position: float
    first: float
    last: float
    playing: bool
    speed: float
    at_end: bool
    waiting: float | None = None
    in_gap: bool = False
    read_until: float = math.inf


class ReplaySource(Source):
    """A recording as a ``Source``.

    The controls and the state may be used from any thread at any time. They do not wait for the
    recording, which may be on a disk that hangs: each sample updates its start and end. The next
    sample shows the effect of a control. Only ``to_event`` and ``reaches_end`` ask the recording.

    Attributes:
        moved: Called after each control, on its thread.
        position: The moment of the newest sample.

    Args:
        recording: What to play.
        position: The start position; by default the newest moment.
        playing: Whether to start playing instead of paused.
        clock: The clock, for tests.
    """

    def __init__(
        self,
        recording: Recording,
        position: float | None = None,
        *,
        playing: bool = False,
        clock: Clock = THIS_SYSTEM.clock,
    ) -> None:
        self.moved: Callable[[], None] = lambda: None
        self._recording = recording
        self._clock = clock
        self._lock = Lock()
        self._playing = playing
        self._speed = 1.0
        self._steps = 0
        # The position at a reference time of the clock, from which it moves.
        self._from = math.inf if position is None else position
        self._since = self._clock.monotonic()
        self._moves = 0
        self._first, self._last = recording.first, recording.last
        self.position = self._within(self._from)
        self._shown: Snapshot | None = None
        self._shown_until = -math.inf
        self._in_gap = False

    def open(self) -> None:
        """Check whether there is anything to play.

        Raises:
            SourceError: The recording cannot be read, or is empty.
        """
        try:
            found = self._recording.at(self.position)
        except RecordingError as error:
            raise _unreadable(error) from error
        if found is None:
            raise SourceError(NO_SAMPLES, "Look again once there is one.")
        with self._lock:
            self._put(self._now())

    def close(self) -> None:
        """Does nothing: the caller owns the recording."""

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``; a recording names its machine only in each sample."""
        return "" if self._shown is None else self._shown.host.name

    @property
    def state(self) -> Playing:
        """The state of playback."""
        with self._lock:
            position, last = self.position, self._last
            return Playing(
                position=position,
                first=_or(self._first, position),
                last=_or(last, position),
                playing=self._playing,
                speed=self._speed,
                at_end=last is None or position >= last,
                in_gap=self._in_gap,
            )

    def sample(self, *, full: bool = True) -> Snapshot:  # noqa: ARG002 - the protocol's signature
        """The machine at the position; the same object while the sample is the same.

        Raises:
            SourceError: The recording cannot be read any more.
        """
        began = self._clock.monotonic()
        try:
            ends = self._recording.first, self._recording.last
        except RecordingError as error:
            raise _unreadable(error) from error
        with self._lock:
            now = self._clock.monotonic()
            if now - began > _HICCUP:
                self._since = min(self._since + now - began, now)
            self._first, self._last = ends
            position = self._now()
            self._put(position)
            moves, steps = self._moves, self._steps
        began = self._clock.monotonic()
        try:
            if steps:
                position = self._stepped(position, steps)
            shown = self._at(position)
            in_gap = self._is_gap(shown, position)
        except RecordingError as error:
            raise _unreadable(error) from error
        now = self._clock.monotonic()
        with self._lock:
            self.position, self._in_gap = position, in_gap
            if moves == self._moves:
                if steps:
                    self._put(position)
                    # Not before: until then the requested position counts for callers.
                    self._steps -= steps
                elif now - began > _HICCUP:
                    self._since = now
        return shown

    def play(self) -> None:
        """Start playing."""
        self._set(playing=True)

    def pause(self) -> None:
        """Pause."""
        self._set(playing=False)

    @property
    def speed(self) -> float:
        """Playback speed: seconds of the recording per second.

        Raises:
            ValueError: When set to less than 0.1 or more than 1000.
        """
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"The speed must be {SLOWEST:g} to {FASTEST:g}, not {speed:g}.")
        self._set(speed=speed)

    def seek(self, time: float) -> None:
        """Go to a moment, within the ends of the recording."""
        with self._lock:
            self._move(time)
        self.moved()

    def jump(self, seconds: float) -> None:
        """Go forward or back by a time."""
        with self._lock:
            steps = self._steps
            self._move(self._now() + seconds)
            self._steps = steps
        self.moved()

    def step(self, samples: int) -> None:
        """Go forward or back by a number of samples, and each time by at least ``STEP_SECONDS``."""
        with self._lock:
            self._steps += samples
        self.moved()

    @property
    def is_at_start(self) -> bool:
        """Whether the requested position is the start of the recording, as far as it is known."""
        with self._lock:
            return self._first is not None and self._now() <= self._first

    def reaches_end(self, seconds: float) -> bool:
        """Whether at most the newest sample is that far on from the requested position."""
        last = self._recording.last
        with self._lock:
            there = self._now() + self._steps * STEP_SECONDS + seconds
        return last is None or there >= last

    def to_event(self, *, forward: bool, or_here: bool = False) -> Event | None:
        """Go to the next or previous event.

        Args:
            forward: Whether to go forward instead of back.
            or_here: Whether going back may stay at an event of the current moment.

        Returns:
            The event; ``None`` if none is known, and the position stays.

        Raises:
            RecordingError: The recording cannot be read any more.
        """
        with self._lock:
            here = self._now()
        if or_here and not forward:
            here = math.nextafter(here, math.inf)
        mark = self._recording.next_event(here, forward=forward)
        if mark is not None:
            self.seek(mark.time)
        return mark

    def _set(self, *, playing: bool | None = None, speed: float | None = None) -> None:
        with self._lock:
            self._put(self._now())
            self._playing = self._playing if playing is None else playing
            self._speed = self._speed if speed is None else speed
        self.moved()

    def _move(self, position: float) -> None:
        self._moves += 1
        self._steps = 0
        self._put(self._within(position))

    def _now(self) -> float:
        passed = (self._clock.monotonic() - self._since) * self._speed if self._playing else 0.0
        return self._within(self._from + passed)

    def _put(self, position: float) -> None:
        self._from, self._since = position, self._clock.monotonic()

    def _within(self, position: float) -> float:
        if self._first is None or self._last is None:
            return position
        return min(max(position, self._first), self._last)

    def _stepped(self, position: float, steps: int) -> float:
        reached = self._recording.step(position, steps)
        # If the samples are closer: the newest one when the seconds have passed.
        far = self._recording.step(position + steps * STEP_SECONDS, 0)
        return max(reached, far) if steps > 0 else min(reached, far)

    def _at(self, position: float) -> Snapshot:
        shown = self._shown
        if shown is not None and shown.time <= position <= self._shown_until:
            return shown
        found = self._recording.at(position)
        if found is None:
            raise RecordingError("the recording is empty by now")
        if shown is None or found.time != shown.time:
            self._shown = shown = replace(found, source="replay")
        self._shown_until = position
        return shown

    def _is_gap(self, shown: Snapshot, position: float) -> bool:
        """Whether the next sample is overdue, judged by the distance of those before."""
        age = position - shown.time
        if age <= _GAP_SECONDS:
            return False
        pace = shown.time - self._recording.step(shown.time, -1)
        # The first sample gives no distance.
        return 0 < pace * _GAP_PACES < age


class ReplayedMachine(Machine):
    """The machine of a recording; ``source`` plays it."""

    def __init__(self, source: ReplaySource) -> None:
        self._source = source

    @property
    def source(self) -> ReplaySource:
        """See ``Machine.source``."""
        return self._source


def _unreadable(error: RecordingError) -> SourceError:
    return SourceError(error.sentence, "Look whether the file is still there and whole.")


def _or(time: float | None, other: float) -> float:
    return other if time is None else time
