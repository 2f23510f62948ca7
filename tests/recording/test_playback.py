"""What the player promises: that a moment of a tape is shown as it was shown when it was now."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from gpumon.findings import conditions, gpu_state
from gpumon.makers.demo import DemoSource
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus, Snapshot
from gpumon.recording.history import History
from gpumon.recording.playback import SPEEDS, Player
from gpumon.recording.recording import RecordingError
from tests.build import NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.known import known
from tests.recording.deck import Deck, history_of
from tests.recording.test_as_of import Answers, ask, assert_same
from tests.recordings import ListTape, WatchedTape

Graphs: TypeAlias = "list[list[float | None]]"

HOUR = 3600.0
PATIENCE = 60.0
FEW = {1, 2, 3, 5}
CLOSELY = (range(700), range(3500, 3600), range(4900, 5100), range(6800, 7200))
"""Seconds of the demo in which there is a sample each second; in others there is one in three."""


@functools.cache
def demo() -> list[Snapshot]:
    """The four hours before the demo, and two of it; of four GPUs."""
    clock = HandClock(NOON, epoch=0.0)
    source = DemoSource(clock=clock)
    seen = list(map(with_few_gpus, source.past()))
    for second in range(int(2 * HOUR)):
        if second % 3 == 0 or any(second in closely for closely in CLOSELY):
            clock.now = NOON + second
            seen.append(with_few_gpus(source.sample()))
    return seen


def with_few_gpus(taken: Snapshot) -> Snapshot:
    """The snapshot with four of its eight GPUs, and the processes on no others."""
    gpus = tuple(card for card in taken.gpus if card.index in FEW)
    processes = tuple(one for one in taken.processes if FEW.issuperset(one.gpu_indices))
    return replace(taken, gpus=gpus, processes=processes)


def deck_of(seen: Sequence[Snapshot]) -> Deck:
    return Deck(ListTape(seen), history_of(seen))


MOMENTS = tuple(NOON + second for second in (-1800.0, 0.0, 47.0, 600.0, 3599.0, 5000.0, 7199.0))


@functools.cache
def watched() -> tuple[History, dict[float, Answers]]:
    """The history of the demo, and what was said at some of its moments when they were now."""
    history = History(conditions())
    found = {}
    for shown in demo():
        history.add(shown)
        if shown.time in MOMENTS:
            found[shown.time] = ask(history, shown)
    return history, found


def demo_history() -> History:
    return watched()[0]


@functools.cache
def demo_tape() -> ListTape:
    return ListTape(demo())


@pytest.fixture
def deck() -> Deck:
    """A player of the demo."""
    return Deck(demo_tape(), demo_history())


def gaps(answers: Answers) -> list[list[bool]]:
    """Where the charts of three seconds a bucket have no value."""
    return [[value is None for value in chart] for chart in answers.charts[2::3]]


@pytest.mark.slow
def test_a_moment_is_as_it_was_when_it_was_now_wherever_one_comes_from(deck: Deck) -> None:
    for place in (6, 0, 3, 2, 5):
        shown, history = deck.go(MOMENTS[place])
        assert shown.time == MOMENTS[place]
        now, then = ask(history, shown), watched()[1][shown.time]
        # Of more than an hour ago there are only tens of seconds.
        assert_same(
            now._replace(hours=then.hours), then, charts=demo_history().now - shown.time <= HOUR
        )
        assert gaps(now) == gaps(then)


@pytest.mark.slow
def test_the_hours_of_users_are_known_closely(deck: Deck) -> None:
    for moment in MOMENTS[4:]:
        shown, history = deck.go(moment)
        hours = ask(history, shown).hours
        assert hours == pytest.approx(watched()[1][moment].hours, rel=0.01, abs=36)


def play(deck: Deck, begin: float, speed: float) -> None:
    deck.player.source.seek(begin)
    deck.settle()
    deck.player.source.speed = speed
    deck.player.source.play()


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 100.0, 1000.0])
def test_a_moment_reached_by_playing_is_the_same(deck: Deck, speed: float) -> None:
    moment = MOMENTS[5]
    play(deck, moment + 0.5 - 15 * speed, speed)
    for _ in range(150):
        deck.sample()
    deck.player.source.pause()
    shown, history = deck.settle()
    assert shown.time == moment
    then = watched()[1][moment]
    assert_same(ask(history, shown)._replace(hours=then.hours), then)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 100.0, 1000.0])
def test_nothing_that_lasts_breaks_off_while_it_is_played(deck: Deck, speed: float) -> None:
    """GPUs 2, 3 and 5 are hot, idle and stuck for hours."""
    play(deck, NOON + 600, speed)
    for _ in range(60):
        shown = deck.sample()
        history = deck.player.history
        states = {card.index: gpu_state(history, card) for card in shown.gpus}
        assert [states[card].kind.value for card in (2, 3, 5)] == ["hot", "idle", "stuck"]
        power = history.gpu_series(shown.gpus[1].uuid)
        assert None not in power.buckets("power_draw", 60, 30, shown.time)


def test_a_jump_back_makes_another_history_and_a_step_on_does_not(deck: Deck) -> None:
    _, before = deck.go(NOON + 600)
    _, after = deck.go(NOON + 602)
    assert after is before
    _, back = deck.go(NOON + 601)
    assert back is not before
    assert before.now == NOON + 602


def test_snapshot_and_history_belong_together_and_begin_where_the_tape_does(deck: Deck) -> None:
    for moment in (NOON + 3000, NOON + 100, NOON + 110, NOON - 7200):
        shown, history = deck.go(moment)
        assert history is deck.player.history
        assert history.now == shown.time == known(history.latest).time
        assert known(history.latest).source == shown.source == "replay"
        assert history.started == demo()[0].time


def since(history: History) -> tuple[float, bool]:
    """Since when, after noon, the GPU has been idle, and whether that was seen to begin."""
    interval = known(history.interval("GPU-0", "idle"))
    return interval.since - NOON, interval.start_observed


@pytest.mark.slow
def test_short_work_of_an_hour_ago_is_found() -> None:
    """A held GPU works for a few seconds every ten minutes."""
    seen = [
        snapshot(
            NOON + second,
            gpu(utilization_gpu=90 if second % 600 < 4 else 0),
            processes=(process(),),
        )
        for second in range(int(3 * HOUR))
    ]
    moment = NOON + HOUR + 590
    was = history_of(shown for shown in seen if shown.time <= moment)
    _, now = deck_of(seen).go(moment)
    assert since(now) == since(was)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spans", "idle_since", "gpu_seconds", "in_gap"),
    [
        pytest.param([(0, 3 * HOUR)], 0, pytest.approx(3 * HOUR - 1), [False] * 12, id="no gap"),
        # What was read last before it stands for a little while.
        pytest.param(
            [(0, HOUR), (10_000, 6 * HOUR)],
            10_000,
            pytest.approx(HOUR - 1 + 11_599, rel=0.01),
            [*[False] * 3, *[True] * 2, *[False] * 7],
            id="asleep for nearly two hours",
        ),
    ],
)
def test_there_is_a_gap_where_the_tape_has_one(
    spans: list[tuple[float, float]], idle_since: float, gpu_seconds: float, in_gap: list[bool]
) -> None:
    """A held GPU is idle, and read once a second in these spans."""
    times = [second for begin, end in spans for second in range(int(begin), int(end))]
    deck = deck_of([snapshot(NOON + at, processes=(process(),)) for at in times])
    end = spans[-1][1]
    _, history = deck.go(NOON + end)
    assert since(history) == (idle_since, False)
    assert history.gpu_seconds("ann") == gpu_seconds
    graph = history.gpu_series("GPU-0").buckets("memory_used", end, 12)
    assert [value is None for value in graph] == in_gap
    assert None not in history.gpu_series("GPU-0").buckets("memory_used", 10_790, 1079)


def test_what_no_history_keeps_for_so_long_is_drawn_from_samples_in_a_rewind() -> None:
    """A process that ended an hour ago, and a card of more than a day ago."""
    deck = deck_of(
        [
            snapshot(NOON + at, processes=(process(sm=7),) if at < 29 * HOUR else ())
            for at in range(0, int(30 * HOUR), 30)
        ]
    )
    shown, history = deck.go(NOON + 28.9 * HOUR)
    (ended,) = shown.processes
    assert {value for _, value in history.process_series(ended.id).window("sm", 300)} == {7.0}
    assert None not in history.process_series(ended.id).buckets("sm", 300, 10)
    _, history = deck.go(NOON + HOUR)
    assert None not in history.gpu_series("GPU-0").buckets("memory_used", 600, 10)


@pytest.mark.slow
def test_a_job_that_came_later_is_not_blamed_for_what_was_before() -> None:
    """Ann's card rests; bo, who has more of it, comes two hours later."""
    ann, bo = process(1, memory_used=10), process(2, memory_used=20, user="bo")
    seen = [
        snapshot(NOON + second, processes=(ann, bo) if second >= 7211 else (ann,))
        for second in range(int(3 * HOUR))
    ]
    _, history = deck_of(seen).go(NOON + 3 * HOUR - 1)
    assert known(history.holding(seen[-1].gpus[0])).owner_since == NOON + 7211


def test_the_speeds_to_choose_from_can_be_chosen(deck: Deck) -> None:
    assert list(SPEEDS) == sorted(SPEEDS)
    for speed in SPEEDS:
        deck.player.source.speed = speed
        assert deck.player.playing.speed == speed


@pytest.fixture
def tape() -> WatchedTape:
    """The end of the demo."""
    return WatchedTape(demo()[-600:])


def hang(tape: WatchedTape, deck: Deck, seconds: float) -> None:
    """Let the next read take so long."""

    def hang() -> None:
        tape.before.clear()
        deck.clock.sleep(seconds)

    tape.before["at"] = hang


def test_while_nothing_moves_the_tape_is_left_alone(tape: WatchedTape) -> None:
    deck = Deck(tape, demo_history())
    deck.settle()
    asked: list[int] = []
    tape.before["at"] = lambda: asked.append(1)
    for _ in range(50):
        deck.sample()
    assert asked == []


def test_what_it_costs_goes_with_every_snapshot(tape: WatchedTape) -> None:
    deck = Deck(tape, demo_history())
    for _ in range(30):
        shown = deck.sample()
    assert known(shown.cost).driver_share == 0.0
    assert known(shown.cost).tick_seconds is not None


def test_a_disk_that_hangs_is_no_fault_of_the_gpus(tape: WatchedTape) -> None:
    deck = Deck(tape, demo_history())
    before, _ = deck.settle()
    hang(tape, deck, 8.0)
    deck.player.source.jump(-300)
    silent = deck.sample(6.0)
    assert known(deck.player.playing.waiting) >= 4.0
    assert silent is not before
    assert silent.time == deck.player.playing.position
    assert {gpu.status for gpu in silent.gpus} <= {GpuStatus.OK, GpuStatus.LOST}
    assert deck.sample(6.0).time == deck.player.playing.position == silent.time - 300
    assert deck.player.playing.waiting is None


def test_a_log_that_gives_not_even_a_first_sample_is_told_as_that(tape: WatchedTape) -> None:
    deck = Deck(tape, demo_history())
    hang(tape, deck, 2.5)
    sentence = known(deck.sample(2.1).trouble).sentence
    assert sentence == "The log is not read: no answer for 2s."
    assert deck.sample(1.0).trouble is None


def failing(player: Player) -> threading.Event:
    """Start its sampling; what is set when that fails."""
    failed = threading.Event()
    player.collector.subscribe(lambda _: None, lambda _: failed.set())
    player.collector.start()
    return failed


def test_an_empty_tape_fails_with_what_to_do() -> None:
    player = Player(ListTape(), History(conditions()))
    assert failing(player).wait(PATIENCE)
    assert isinstance(player.collector.failure, SourceError)
    assert "no samples yet" in str(player.collector.failure)
    assert player.moment is None
    player.collector.stop()


def test_a_log_that_breaks_off_being_readable_ends_the_sampling_with_why(
    tape: WatchedTape,
) -> None:
    def refuse() -> None:
        raise RecordingError("The log cannot be read: its disk is gone.")

    player = Player(tape, demo_history())
    failed = failing(player)
    assert player.collector.wait_open(PATIENCE)
    tape.before["at"] = refuse
    player.source.jump(-200)
    assert failed.wait(PATIENCE)
    assert "its disk is gone" in str(player.collector.failure)
    player.collector.stop()


def test_a_control_is_sampled_at_once() -> None:
    """With an hour from one sample to the next, on real threads."""
    tape = ListTape(replace(one, source="demo") for one in demo()[-600:])
    player = Player(tape, demo_history(), interval=3600.0)
    shown = threading.Condition()
    times: list[float] = []

    def take(snapshot: Snapshot) -> None:
        with shown:
            times.append(snapshot.time)
            shown.notify_all()

    def comes(time: float) -> bool:
        with shown:
            return shown.wait_for(lambda: time in times and player.settled, PATIENCE)

    player.collector.subscribe(take)
    player.collector.start()
    last = NOON + 7199
    assert comes(last)
    player.source.step(-1)
    assert comes(last - 1)
    player.source.jump(-100)
    assert comes(last - 101)
    player.source.seek(last - 300)
    assert comes(last - 300)
    player.collector.stop()
