"""A tape as a source: how the machine was at a position, which moves as time does or where told."""

from __future__ import annotations

import math
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.clock import SystemClock
from gpumon.sources import SourceError
from gpumon.tape import NO_SAMPLES, TapeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.clock import Clock
    from gpumon.model import Snapshot
    from gpumon.sources import Call
    from gpumon.tape import Mark, Tape

SLOWEST, FASTEST = 0.1, 1000.0
"""How many seconds of the tape a second may take."""
STEP_SECONDS = 1.0
"""A step is about as long as this at least: at ten samples a second one sample is no step."""
FINE_SECONDS = 120.0
"""How far back of a position everything matters: to the graphs, and to what is said of the cards.
A history keeps sample by sample what is no older (``series.RECENT_SPAN``)."""

_PAST_FINE, _PAST_COARSE = 1300, 40
_AT_ONCE = 16
"""How many samples are asked of a tape in one go: others wait meanwhile."""
_HICCUP = 1.0
"""A tape that took longer than so many seconds to answer has not been played meanwhile."""


_GAP_SECONDS = 10.0
_GAP_PACES = 3
"""Without a sample for so long, and for so many times as long as between those before, is a gap."""


class Playing(Struct, frozen=True):
    """How a tape is being played.

    Attributes:
        position: The moment that is shown, on the tape's clock.
        first: When the tape begins.
        last: When it ends, so far.
        playing: Whether the position moves.
        speed: Seconds of the tape in a second.
        at_end: Whether there is nothing after the position yet.
        waiting: Seconds for which the tape has not answered, when that is long; else ``None``.
        in_gap: Whether what is shown is older than the moment: nobody sampled in between.
    """

    position: float
    first: float
    last: float
    playing: bool
    speed: float
    at_end: bool
    waiting: float | None = None
    in_gap: bool = False


class ReplaySource:
    """A tape as a ``gpumon.sources.Source``.

    The controls and the state may be used from any thread, at any time. They do not wait for the
    tape, which may be on a disk that hangs: where it begins and ends, each sample finds out anew.
    What they ask for shows in the next sample.

    Args:
        tape: What to play.
        position: Where to begin; at its newest moment unless told.
        playing: Whether time passes from the start.
        clock: Time, for tests.
    """

    def __init__(
        self,
        tape: Tape,
        position: float | None = None,
        *,
        playing: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._tape = tape
        self._clock: Clock = clock or SystemClock()
        self._lock = Lock()
        self._playing = playing
        self._speed = 1.0
        self._steps = 0
        # The position at a moment of the clock, from which time passes.
        self._from = math.inf if position is None else position
        self._since = self._clock.monotonic()
        self._moves = 0
        self._first, self._last = tape.first, tape.last
        self._sampled = self._within(self._from)
        self._shown: Snapshot | None = None
        self._shown_until = -math.inf
        self._in_gap = False

    def open(self) -> None:
        """Look whether there is anything to play.

        Raises:
            SourceError: The tape cannot be read, or there is nothing on it.
        """
        try:
            found = self._tape.at(self._sampled)
        except TapeError as error:
            raise _unreadable(error) from error
        if found is None:
            raise SourceError(NO_SAMPLES, "Look again once there is one.")
        with self._lock:
            self._put(self._now())

    def close(self) -> None:
        """Nothing to give back: the tape is its owner's."""

    def give_up(self, _call: Call) -> bool:
        """Never: no driver is asked."""
        return False

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``; a recording names its machine with each sample alone."""
        return "" if self._shown is None else self._shown.host.name

    @property
    def current_call(self) -> Call | None:
        """Always ``None``: no driver is asked."""
        return None

    @property
    def driver_seconds(self) -> float:
        """Always 0: no driver is asked."""
        return 0.0

    @property
    def position(self) -> float:
        """The moment of the newest sample."""
        return self._sampled

    @property
    def state(self) -> Playing:
        """How it is being played."""
        with self._lock:
            position, last = self._sampled, self._last
            return Playing(
                position=position,
                first=_or(self._first, position),
                last=_or(last, position),
                playing=self._playing,
                speed=self._speed,
                at_end=last is None or position >= last,
                in_gap=self._in_gap,
            )

    def sample(self, *, closely: bool = True) -> Snapshot:  # noqa: ARG002 - the protocol's signature
        """The machine as it was at the position; the same object while that is the same sample.

        Raises:
            SourceError: The tape cannot be read any more.
        """
        began = self._clock.monotonic()
        try:
            ends = self._tape.first, self._tape.last
        except TapeError as error:
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
        except TapeError as error:
            raise _unreadable(error) from error
        now = self._clock.monotonic()
        with self._lock:
            self._sampled, self._in_gap = position, in_gap
            if moves == self._moves:
                if steps:
                    self._put(position)
                    # Not before: whoever asks meanwhile where it will be shall count them.
                    self._steps -= steps
                elif now - began > _HICCUP:
                    self._since = now
        return shown

    def past(self) -> Iterator[Snapshot]:
        """What leads to the position: little of long ago, see ``leading_to``."""
        for samples in leading_to(self._tape, self._sampled, _PAST_FINE, _PAST_COARSE):
            yield from samples

    def play(self) -> None:
        """Let time pass."""
        self._set(playing=True)

    def pause(self) -> None:
        """Hold it."""
        self._set(playing=False)

    @property
    def speed(self) -> float:
        """Seconds of the tape that pass in a second.

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
        """Go to a moment, no further than the ends of the tape."""
        with self._lock:
            self._move(time)

    def jump(self, seconds: float) -> None:
        """Go so far on, or back."""
        with self._lock:
            steps = self._steps
            self._move(self._now() + seconds)
            self._steps = steps

    def step(self, samples: int) -> None:
        """Go so many samples on, or back, and each time about ``STEP_SECONDS`` at least."""
        with self._lock:
            self._steps += samples

    def reaches_end(self, seconds: float) -> bool:
        """Whether there is nothing so far on from where it was told to go, or only the newest."""
        last = self._tape.last
        with self._lock:
            there = self._now() + self._steps * STEP_SECONDS + seconds
        return last is None or there >= last

    def to_mark(self, *, forward: bool, or_here: bool = False) -> Mark | None:
        """Go to the next thing that happened, or to the one before.

        Args:
            forward: Whether to go on, and not back.
            or_here: Whether going back may end where it begins, at what happened at this moment.

        Returns:
            What it was; ``None`` where no more is known: then nothing moves.
        """
        with self._lock:
            here = self._now()
        if or_here and not forward:
            here = math.nextafter(here, math.inf)
        mark = self._tape.next_mark(here, forward=forward)
        if mark is not None:
            self.seek(mark.time)
        return mark

    def _set(self, *, playing: bool | None = None, speed: float | None = None) -> None:
        with self._lock:
            self._put(self._now())
            self._playing = self._playing if playing is None else playing
            self._speed = self._speed if speed is None else speed

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
        reached = self._tape.step(position, steps)
        # Where the samples are closer: the newest by when the seconds have passed.
        far = self._tape.step(position + steps * STEP_SECONDS, 0)
        return max(reached, far) if steps > 0 else min(reached, far)

    def _at(self, position: float) -> Snapshot:
        shown = self._shown
        if shown is not None and shown.time <= position <= self._shown_until:
            return shown
        found = self._tape.at(position)
        if found is None:
            raise TapeError("the tape is empty by now")
        if shown is None or found.time != shown.time:
            self._shown = shown = replace(found, source="replay")
        self._shown_until = position
        return shown

    def _is_gap(self, shown: Snapshot, position: float) -> bool:
        """Whether the next sample is overdue by the pace of those before."""
        age = position - shown.time
        if age <= _GAP_SECONDS:
            return False
        pace = shown.time - self._tape.step(shown.time, -1)
        # Of the very first one nothing tells when the next is due.
        return 0 < pace * _GAP_PACES < age


def leading_to(tape: Tape, time: float, fine: int, coarse: int) -> Iterator[list[Snapshot]]:
    """What is on a tape up to a moment, for a history of that moment: little of long ago.

    Args:
        tape: The tape.
        time: The moment.
        fine: How many samples there may be of the last ``FINE_SECONDS``.
        coarse: How many of each stretch before that, see ``long_ago``.

    Yields:
        Some of it at a time, oldest first. The tape's first snapshot is always there.
    """
    yield from long_ago(tape, time, coarse)
    begin = time - FINE_SECONDS
    yield from _in_pieces(tape, max(begin, _or(tape.first, begin)), time, fine / FINE_SECONDS)


def long_ago(tape: Tape, time: float, coarse: int) -> Iterator[list[Snapshot]]:
    """What is on a tape up to two minutes before a moment, ever more coarsely.

    Each stretch of time that is as long as all that came after it is told in as many samples.
    """
    first = tape.first
    if first is None:
        return
    ages = [FINE_SECONDS]
    while time - ages[-1] > first:
        ages.append(2 * ages[-1])
    beginning = tape.at(first)
    if beginning is not None:
        yield [beginning]
    for older, newer in pairwise(reversed(ages)):
        yield from _in_pieces(tape, max(first, time - older), time - newer, coarse / newer)


def _in_pieces(tape: Tape, begin: float, end: float, density: float) -> Iterator[list[Snapshot]]:
    """What is on a tape from after a moment to another, so many samples a second, in pieces."""
    most = math.ceil((end - begin) * density)
    pieces = math.ceil(most / _AT_ONCE)
    edges = [begin + (end - begin) * piece / pieces for piece in range(pieces)]
    for start, stop in pairwise([*edges, end]):
        found = tape.between(start, stop, math.ceil(most / pieces))
        newer = [snapshot for snapshot in found if snapshot.time > start]
        if newer:
            yield newer


def _unreadable(error: TapeError) -> SourceError:
    return SourceError(error.sentence, "Look whether the file is still there and whole.")


def _or(time: float | None, other: float) -> float:
    return other if time is None else time
