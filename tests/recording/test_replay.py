"""A tape played as a source: where the position goes, and what it shows there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gpumon.makers.source import Source, SourceError
from gpumon.recording.playback.replay import ReplaySource
from gpumon.recording.recording import EventKind, RecordingError
from tests.build import NOON, process, snapshot
from tests.clock import HandClock
from tests.recordings import WatchedTape


class Replay:
    """A replay of a minute of samples, one a second, and its clock."""

    def __init__(
        self,
        position: float | None = 10.0,
        *,
        playing: bool = False,
        seconds: Iterable[float] = range(61),
    ) -> None:
        self.clock = HandClock(50.0)
        self.tape = WatchedTape(snapshot(NOON + second) for second in seconds)
        start = None if position is None else NOON + position
        self.source = ReplaySource(self.tape, start, playing=playing, clock=self.clock)
        self.source.open()

    def after(self, seconds: float) -> float:
        """Where the position is when so much time has passed, in seconds after noon."""
        self.clock.now += seconds
        self.source.sample()
        return self.source.position - NOON

    def sampled(self) -> float:
        """When the sample was taken that is shown now, in seconds after noon."""
        return self.source.sample().time - NOON

    def hang(self) -> None:
        """Let a disk take half a minute to answer."""
        self.clock.now += 30.0


def test_it_is_a_source_that_begins_at_the_newest_moment_unless_told() -> None:
    source: Source = Replay(None).source
    assert source.sample().time == NOON + 60
    assert source.sample().source == "replay"
    assert source.current_call is None
    assert source.driver_seconds == 0.0


def test_a_tape_that_cannot_be_read_says_why() -> None:
    def refuse() -> None:
        raise RecordingError("The log cannot be read.")

    tape = WatchedTape([snapshot()])
    tape.before["at"] = refuse
    source = ReplaySource(tape)
    for ask in (source.open, source.sample):
        with pytest.raises(SourceError, match="The log cannot be read"):
            ask()


def test_the_same_sample_is_the_same_object() -> None:
    replay = Replay(playing=True)
    shown = replay.source.sample()
    replay.clock.now += 0.9
    assert replay.source.sample() is shown
    replay.clock.now += 0.2
    assert replay.sampled() == 11


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0])
def test_time_passes_at_its_speed_while_it_is_played(speed: float) -> None:
    replay = Replay()
    replay.source.speed = speed
    assert replay.after(3.0) == 10.0
    replay.source.play()
    assert replay.after(3.0) == pytest.approx(10.0 + 3.0 * speed)
    replay.source.pause()
    assert replay.after(3.0) == pytest.approx(10.0 + 3.0 * speed)


def test_another_speed_counts_from_where_it_is() -> None:
    replay = Replay(playing=True)
    replay.clock.now += 2.0
    replay.source.speed = 10.0
    assert replay.after(1.0) == pytest.approx(22.0)


@pytest.mark.parametrize("speed", [0.0, 0.05, 1001.0, -1.0, float("nan")])
def test_a_speed_out_of_bounds_is_refused(speed: float) -> None:
    source = Replay().source
    with pytest.raises(ValueError, match=r"0\.1 to 1000"):
        source.speed = speed
    assert source.speed == 1.0


def test_it_stops_at_the_end_and_follows_a_tape_that_grows() -> None:
    replay = Replay(59.0, playing=True)
    assert replay.after(100.0) == 60.0
    assert replay.source.state.at_end
    replay.tape.add(snapshot(NOON + 61))
    assert replay.after(0.5) == 60.5
    assert not replay.source.state.at_end
    assert replay.after(1.0) == 61.0
    assert replay.source.state.at_end
    assert replay.source.state.playing


def test_controls_stay_on_the_tape_and_add_up_before_they_are_sampled() -> None:
    replay = Replay()
    source = replay.source
    source.jump(-3600.0)
    assert replay.after(0.0) == 0.0
    source.seek(NOON + 9999)
    assert replay.after(0.0) == 60.0
    source.step(5)
    assert replay.after(0.0) == 60.0
    source.step(-1)
    source.step(-1)
    source.jump(-20.0)
    assert replay.after(0.0) == 38.0
    source.step(4)
    source.seek(NOON + 5)
    assert replay.after(0.0) == 5.0


def test_a_step_goes_to_the_next_sample_however_far_and_a_second_at_least() -> None:
    replay = Replay(0, seconds=[0, 30, *(40 + tenth / 10 for tenth in range(31))])
    reached = []
    for steps in (1, 1, 1, 1, 1, -1):
        replay.source.step(steps)
        reached.append(replay.sampled())
    assert reached == pytest.approx([30, 40, 41, 42, 43, 42], abs=0.11)


def test_it_goes_from_mark_to_mark_and_tells_which() -> None:
    there = [snapshot(NOON + s, processes=(process(),) if 20 <= s < 40 else ()) for s in range(61)]
    source = ReplaySource(WatchedTape(there), NOON, clock=HandClock(50.0))

    def to_event(*, forward: bool, or_here: bool = False) -> tuple[EventKind | None, float]:
        event = source.to_event(forward=forward, or_here=or_here)
        return None if event is None else event.kind, source.sample().time - NOON

    assert to_event(forward=True) == (EventKind.CAME, 20.0)
    assert to_event(forward=True) == (EventKind.WENT, 40.0)
    assert to_event(forward=True) == (None, 40.0)
    assert to_event(forward=False, or_here=True) == (EventKind.WENT, 40.0)
    assert to_event(forward=False) == (EventKind.CAME, 20.0)
    assert to_event(forward=False) == (None, 20.0)


def test_what_is_not_read_is_not_played_meanwhile() -> None:
    replay = Replay(0, playing=True)
    replay.tape.before["at"] = replay.hang
    replay.clock.now += 1.0
    assert replay.sampled() == 1
    replay.tape.before.clear()
    replay.clock.now += 1.0
    assert replay.sampled() == 2


def test_steps_that_are_being_taken_are_neither_forgotten_nor_taken_twice() -> None:
    replay = Replay(60)
    reached: list[bool] = []

    def watch() -> None:
        reached.append(replay.source.reaches_end(2.0))
        if len(reached) == 1:
            replay.source.jump(-10.0)

    replay.tape.before["step"] = watch
    replay.source.step(-3)
    replay.source.sample()
    # Three back and ten back, in whichever order they were caught up with.
    assert [replay.sampled(), replay.sampled()] == [47, 47]
    assert reached
    assert not any(reached)


def test_what_a_disk_takes_to_answer_is_not_played_and_only_a_sample_waits_for_it() -> None:
    replay = Replay(playing=True)
    source = replay.source
    replay.tape.before["last"] = replay.hang
    assert replay.after(2.0) == 12
    asked_at = replay.clock.now
    assert source.state.last == NOON + 60
    source.jump(5.0)
    source.pause()
    source.play()
    source.seek(NOON + 100)
    assert replay.clock.now == asked_at
    assert replay.after(0.0) == 60


@pytest.mark.parametrize(
    ("seconds", "gaps"),
    [
        pytest.param(
            [*range(20), *range(7200, 7220)],
            {5.5: False, 19: False, 28: False, 30: True, 3600: True, 7199.9: True, 7200: False},
            id="a gap",
        ),
        pytest.param(range(0, 300, 60), {59: False, 119: False, 239: False}, id="few samples"),
    ],
)
def test_a_moment_without_a_sample_is_told_as_one(
    seconds: Iterable[float], gaps: dict[float, bool]
) -> None:
    source = Replay(0, seconds=seconds).source
    found = {}
    for second in gaps:
        source.seek(NOON + second)
        source.sample()
        found[second] = source.state.in_gap
    assert found == gaps
