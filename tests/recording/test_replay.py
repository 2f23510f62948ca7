"""A tape played as a source: where the position goes, and what it shows there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.makers.source import SourceError
from gpumon.recording.playback.replay import ReplaySource
from gpumon.recording.recording import EventKind, RecordingError
from tests.build import NOON, process, snapshot
from tests.clock import HandClock
from tests.recordings import ListTape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Snapshot


def tape_of(seconds: Iterable[float]) -> ListTape:
    return ListTape(snapshot(NOON + second) for second in seconds)


class Deck:
    """A source over a minute of samples, one a second, and its clock."""

    def __init__(self, position: float | None = 10.0, *, playing: bool = False) -> None:
        self.clock = HandClock(50.0)
        self.tape = tape_of(range(61))
        start = None if position is None else NOON + position
        self.source = ReplaySource(self.tape, start, playing=playing, clock=self.clock)
        self.source.open()

    def after(self, seconds: float) -> float:
        """Where the position is when so much time has passed, in seconds after noon."""
        self.clock.now += seconds
        self.source.sample()
        return self.source.position - NOON


def test_it_is_a_source_and_says_what_it_is() -> None:
    source: Source = Deck().source
    assert source.sample().source == "replay"
    assert source.current_call is None
    assert source.driver_seconds == 0.0


def test_it_begins_at_the_newest_moment_unless_told() -> None:
    assert Deck(None).source.sample().time == NOON + 60


def test_an_empty_tape_does_not_open() -> None:
    with pytest.raises(SourceError, match="no samples yet"):
        ReplaySource(ListTape()).open()


class TornTape(ListTape):
    """A tape that cannot be read any more."""

    def at(self, time: float) -> Snapshot | None:
        raise RecordingError(f"The log cannot be read at {time}.")


def test_a_tape_that_cannot_be_read_says_why() -> None:
    source = ReplaySource(TornTape([snapshot()]))
    with pytest.raises(SourceError, match="The log cannot be read"):
        source.open()
    with pytest.raises(SourceError, match="The log cannot be read"):
        source.sample()


def test_the_same_sample_is_the_same_object() -> None:
    deck = Deck(playing=True)
    shown = deck.source.sample()
    deck.clock.now += 0.9
    assert deck.source.sample() is shown
    deck.clock.now += 0.2
    assert deck.source.sample().time == NOON + 11


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0])
def test_time_passes_at_its_speed_while_it_is_played(speed: float) -> None:
    deck = Deck()
    deck.source.speed = speed
    assert deck.after(3.0) == 10.0
    deck.source.play()
    assert deck.after(3.0) == pytest.approx(10.0 + 3.0 * speed)
    deck.source.pause()
    assert deck.after(3.0) == pytest.approx(10.0 + 3.0 * speed)


def test_another_speed_counts_from_where_it_is() -> None:
    deck = Deck(playing=True)
    deck.clock.now += 2.0
    deck.source.speed = 10.0
    assert deck.after(1.0) == pytest.approx(22.0)


@pytest.mark.parametrize("speed", [0.0, 0.05, 1001.0, -1.0, float("nan")])
def test_a_speed_out_of_bounds_is_refused(speed: float) -> None:
    deck = Deck()
    with pytest.raises(ValueError, match=r"0\.1 to 1000"):
        deck.source.speed = speed
    assert deck.source.speed == 1.0


def test_it_stops_at_the_end_and_follows_a_tape_that_grows() -> None:
    deck = Deck(59.0, playing=True)
    assert deck.after(100.0) == 60.0
    assert deck.source.state.at_end
    deck.tape.add(snapshot(NOON + 61))
    assert deck.after(0.5) == 60.5
    assert not deck.source.state.at_end
    assert deck.after(1.0) == 61.0
    assert deck.source.state.at_end
    assert deck.source.state.playing


def test_controls_stay_on_the_tape() -> None:
    deck = Deck()
    deck.source.jump(-3600.0)
    assert deck.after(0.0) == 0.0
    deck.source.seek(NOON + 9999)
    assert deck.after(0.0) == 60.0
    deck.source.step(5)
    assert deck.after(0.0) == 60.0


def test_controls_add_up_before_they_are_sampled() -> None:
    deck = Deck(30.0)
    deck.source.step(-1)
    deck.source.step(-1)
    deck.source.jump(10.0)
    assert deck.after(0.0) == 38.0
    deck.source.step(4)
    deck.source.seek(NOON + 5)
    assert deck.after(0.0) == 5.0


def test_a_step_goes_to_the_next_sample_however_far_and_a_second_at_least() -> None:
    source = ReplaySource(tape_of([0, 30, *(40 + tenth / 10 for tenth in range(31))]), NOON)
    reached = []
    for _ in range(5):
        source.step(1)
        reached.append(source.sample().time - NOON)
    assert reached == pytest.approx([30, 40, 41, 42, 43], abs=0.11)
    source.step(-1)
    assert source.sample().time - NOON == pytest.approx(reached[-1] - 1, abs=0.11)


def test_it_goes_from_mark_to_mark_and_tells_which() -> None:
    clock = HandClock(50.0)
    there = [snapshot(NOON + s, processes=(process(),) if 20 <= s < 40 else ()) for s in range(61)]
    source = ReplaySource(ListTape(there), NOON, clock=clock)
    kinds = []
    while (mark := source.to_event(forward=True)) is not None:
        kinds.append((mark.kind, source.sample().time - NOON))
    assert kinds == [(EventKind.CAME, 20.0), (EventKind.WENT, 40.0)]
    here = source.to_event(forward=False, or_here=True)
    assert here is not None
    assert (here.kind, source.sample().time - NOON) == (EventKind.WENT, 40.0)
    back = source.to_event(forward=False)
    assert back is not None
    assert (back.kind, source.sample().time - NOON) == (EventKind.CAME, 20.0)
    assert source.to_event(forward=False) is None
    assert source.sample().time - NOON == 20.0


class SlowTape(ListTape):
    """A tape that takes half a minute to answer when it is told to."""

    clock: HandClock
    slow = False

    def at(self, time: float) -> Snapshot | None:
        if self.slow:
            self.clock.now += 30.0
        return super().at(time)


def test_what_is_not_read_is_not_played_meanwhile() -> None:
    tape = SlowTape(snapshot(NOON + second) for second in range(61))
    tape.clock = HandClock(50.0)
    source = ReplaySource(tape, NOON, playing=True, clock=tape.clock)
    source.open()
    tape.slow = True
    tape.clock.now += 1.0
    assert source.sample().time == NOON + 1
    tape.slow = False
    tape.clock.now += 1.0
    assert source.sample().time == NOON + 2


def test_a_control_during_a_sample_is_not_lost() -> None:
    class Interrupted(ListTape):
        def step(self, time: float, samples: int) -> float:
            source.seek(NOON + 50)
            return super().step(time, samples)

    source = ReplaySource(Interrupted(snapshot(NOON + s) for s in range(61)), NOON)
    source.step(1)
    source.sample()
    assert source.sample().time == NOON + 50


def test_steps_that_are_being_taken_are_neither_forgotten_nor_taken_twice() -> None:
    class Watched(ListTape):
        def step(self, time: float, samples: int) -> float:
            reached.append(source.reaches_end(2.0))
            if len(reached) == 1:
                source.jump(-10.0)
            return super().step(time, samples)

    reached: list[bool] = []
    source = ReplaySource(Watched(snapshot(NOON + s) for s in range(61)), NOON + 60)
    source.step(-3)
    source.sample()
    # Three back and ten back, in whichever order they were caught up with.
    assert source.sample().time == NOON + 47
    assert source.sample().time == NOON + 47
    assert reached
    assert not any(reached)


class UnmeasuredTape(ListTape):
    """A tape on a disk that takes its time to tell how long the tape is."""

    clock: HandClock | None = None
    asked = 0

    @property
    def last(self) -> float | None:
        self.asked += 1
        if self.clock is not None:
            self.clock.now += 30.0
        return super().last


def test_what_a_disk_takes_to_answer_is_not_played_and_only_a_sample_waits_for_it() -> None:
    clock = HandClock(50.0)
    tape = UnmeasuredTape(snapshot(NOON + second) for second in range(61))
    source = ReplaySource(tape, NOON + 10, playing=True, clock=clock)
    source.open()
    tape.clock = clock
    clock.now += 2.0
    source.sample()
    assert source.position == NOON + 12
    asked = tape.asked
    assert source.state.last == NOON + 60
    source.jump(5.0)
    source.pause()
    source.play()
    source.seek(NOON + 100)
    assert tape.asked == asked
    source.sample()
    assert source.position == NOON + 60


def test_a_moment_without_a_sample_is_told_as_one() -> None:
    paces = [*range(20), *range(7200, 7220)]
    source = ReplaySource(ListTape(snapshot(NOON + s) for s in paces), NOON + 19)

    def in_gap_at(seconds: float) -> bool:
        source.seek(NOON + seconds)
        source.sample()
        return source.state.in_gap

    assert [in_gap_at(at) for at in (5.5, 19, 28, 30, 3600, 7199.9, 7200)] == [
        *(False, False, False),
        *(True, True, True, False),
    ]


def test_few_samples_are_no_gap() -> None:
    source = ReplaySource(ListTape(snapshot(NOON + 60 * s) for s in range(5)), NOON)
    for seconds in (59, 119, 239):
        source.seek(NOON + seconds)
        source.sample()
        assert not source.state.in_gap
