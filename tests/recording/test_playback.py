"""What the player promises: that a moment of a tape is shown as it was shown when it was now."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest
from msgspec.structs import replace

from gpumon.findings import conditions, gpu_state
from gpumon.findings.groups import users
from gpumon.makers.demo import DemoSource
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus
from gpumon.recording.history import History
from gpumon.recording.playback import SPEEDS, Player
from gpumon.recording.recording import RecordingError
from tests.build import NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.recording.deck import Deck
from tests.recordings import ListTape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.model.snapshot import Snapshot
    from tests.clock import ThreadedClock

Graphs: TypeAlias = "list[list[float | None]]"

HOUR = 3600.0
PATIENCE = 60.0
FEW = {1, 2, 3, 5}
CLOSELY = (range(700), range(3500, 3600), range(4900, 5100), range(6800, 7200))
"""Seconds of the demo in which there is a sample each second; in others there is one in three."""


def told(shown: Snapshot, history: History) -> dict[str, object]:
    """What is said at a moment of all that is said to hold for a time."""
    idle = {one.id: history.process_idle(one.id) for one in shown.processes}
    states = [gpu_state(history, card) for card in shown.gpus]
    return {
        "states": [(state.kind, state.sentence, state.short) for state in states],
        "idle": {
            one: (interval.since, interval.start_observed)
            for one, interval in idle.items()
            # The history forgets the shorter ones of hours ago.
            if interval is not None and interval.seconds >= 10
        },
        "users": [(use.user, use.idle_memory, use.gpus) for use in users(shown, history)],
        "graphs": [
            history.gpu_series(card.uuid).buckets(field, 60, 20)
            for card in shown.gpus
            for field in ("utilization_gpu", "memory_used")
        ],
    }


def gpu_hours(shown: Snapshot, history: History) -> dict[str | None, float]:
    return {use.user: (use.gpu_seconds or 0.0) / 3600 for use in users(shown, history)}


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


def history_of(tape: Iterable[Snapshot]) -> History:
    history = History(conditions())
    for shown in tape:
        history.add(shown)
    return history


MOMENTS = tuple(NOON + second for second in (-1800.0, 0.0, 47.0, 600.0, 3599.0, 5000.0, 7199.0))


@functools.cache
def watched() -> tuple[History, dict[float, tuple[dict[str, object], dict[str | None, float]]]]:
    """The history of the demo, and what was said at some of its moments when they were now."""
    history = History(conditions())
    found = {}
    for shown in demo():
        history.add(shown)
        if shown.time in MOMENTS:
            found[shown.time] = told(shown, history), gpu_hours(shown, history)
    return history, found


def demo_history() -> History:
    return watched()[0]


def live() -> dict[float, tuple[dict[str, object], dict[str | None, float]]]:
    return watched()[1]


@pytest.mark.slow
def test_a_moment_is_as_it_was_when_it_was_now_wherever_one_comes_from() -> None:
    was = live()
    deck = Deck(ListTape(demo()), demo_history())
    for place in (6, 0, 3, 2, 5):
        shown, history = deck.go(MOMENTS[place])
        assert shown.time == MOMENTS[place]
        now, then = told(shown, history), dict(was[shown.time][0])
        graphs, graphs_then = (cast("Graphs", one.pop("graphs")) for one in (now, then))
        assert now == then
        if demo_history().now - shown.time <= HOUR:
            assert graphs == graphs_then
        else:
            # Of more than an hour ago there are only tens of seconds.
            assert [[one is None for one in graph] for graph in graphs] == [
                [one is None for one in graph] for graph in graphs_then
            ]


@pytest.mark.slow
def test_the_hours_of_users_are_known_closely() -> None:
    was = live()
    deck = Deck(ListTape(demo()), demo_history())
    for moment in MOMENTS[4:]:
        hours = gpu_hours(*deck.go(moment))
        assert hours == pytest.approx(was[moment][1], rel=0.01, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 100.0, 1000.0])
def test_a_moment_reached_by_playing_is_the_same(speed: float) -> None:
    moment = MOMENTS[5]
    deck = Deck(ListTape(demo()), demo_history(), moment + 0.5 - 15 * speed)
    deck.settle()
    deck.player.source.speed = speed
    deck.player.source.play()
    for _ in range(150):
        deck.sample()
    deck.player.source.pause()
    shown, history = deck.settle()
    assert shown.time == moment
    assert told(shown, history) == live()[moment][0]


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 100.0, 1000.0])
def test_nothing_that_lasts_breaks_off_while_it_is_played(speed: float) -> None:
    """GPUs 2, 3 and 5 are hot, idle and stuck for hours."""
    deck = Deck(ListTape(demo()), demo_history(), NOON + 600)
    deck.settle()
    deck.player.source.speed = speed
    deck.player.source.play()
    for _ in range(60):
        shown = deck.sample()
        states = {card.index: gpu_state(deck.player.history, card) for card in shown.gpus}
        assert [states[card].kind.value for card in (2, 3, 5)] == ["hot", "idle", "stuck"]
        graph = deck.player.history.gpu_series(shown.gpus[1].uuid).buckets(
            "power_draw", 60, 30, shown.time
        )
        assert None not in graph


def test_a_jump_back_makes_another_history_and_a_step_on_does_not() -> None:
    deck = Deck(ListTape(demo()), demo_history())
    _, before = deck.go(NOON + 600)
    _, after = deck.go(NOON + 602)
    assert after is before
    _, back = deck.go(NOON + 601)
    assert back is not before
    assert before.now == NOON + 602


def test_snapshot_and_history_belong_together() -> None:
    deck = Deck(ListTape(demo()), demo_history())
    for moment in (NOON + 3000, NOON + 100, NOON + 110, NOON - 7200):
        shown, history = deck.go(moment)
        assert history is deck.player.history
        assert history.latest is not None
        assert history.now == shown.time == history.latest.time
        assert history.latest.source == shown.source == "replay"


def bursts(spacing: float) -> Iterable[Snapshot]:
    """Three hours of a held card that works for a few seconds every ten minutes."""
    holder = process(gpus=(0,))
    for number in range(int(3 * HOUR / spacing)):
        busy = number * spacing % 600 < 4
        card = gpu(utilization_gpu=90 if busy else 0)
        yield snapshot(NOON + number * spacing, card, processes=(holder,))


@pytest.mark.slow
def test_short_work_of_an_hour_ago_is_found() -> None:
    history = History(conditions())
    tape = ListTape(bursts(1.0))
    for shown in bursts(1.0):
        if shown.time <= NOON + HOUR + 590:
            history.add(shown)
    was = history.interval("GPU-0", "idle")
    assert was is not None
    deck = Deck(tape, history_of(bursts(1.0)))
    _, now = deck.go(NOON + HOUR + 590)
    interval = now.interval("GPU-0", "idle")
    assert interval is not None
    assert (interval.since, interval.start_observed) == (was.since, was.start_observed)


def resting(spans: Sequence[tuple[float, float]]) -> Deck:
    """A held card that rests, read once a second from a moment to another, again and again."""
    times = [second for begin, end in spans for second in range(int(begin), int(end))]
    seen = [snapshot(NOON + at, processes=(process(),)) for at in times]
    return Deck(ListTape(seen), history_of(seen))


@pytest.mark.slow
def test_where_the_tape_has_no_gap_there_is_none() -> None:
    deck = resting([(0, 3 * HOUR)])
    _, history = deck.go(NOON + 3 * HOUR)
    interval = history.interval("GPU-0", "idle")
    assert interval is not None
    assert (interval.since, interval.start_observed) == (NOON, False)
    assert history.gpu_seconds("ann") == pytest.approx(3 * HOUR - 1)
    assert None not in history.gpu_series("GPU-0").buckets("memory_used", 10_790, 1079)


@pytest.mark.slow
def test_a_gap_stays_a_gap() -> None:
    """The machine slept for nearly two hours: nobody saw the card rest meanwhile."""
    deck = resting([(0, HOUR), (10_000, 6 * HOUR)])
    _, history = deck.go(NOON + 6 * HOUR)
    interval = history.interval("GPU-0", "idle")
    assert interval is not None
    assert (interval.since, interval.start_observed) == (NOON + 10_000, False)
    assert history.gpu_seconds("ann") == pytest.approx(HOUR - 1 + 11_599, rel=0.01)
    graph = history.gpu_series("GPU-0").buckets("memory_used", 6 * HOUR, 12)
    # What was read last before it stands for a little while.
    assert [value is None for value in graph] == [*[False] * 3, *[True] * 2, *[False] * 7]


def test_what_no_history_keeps_for_so_long_is_drawn_from_samples_in_a_rewind() -> None:
    """A process that ended an hour ago, and a card of more than a day ago."""
    seen = [
        snapshot(NOON + at, processes=(process(sm=7),) if at < 29 * HOUR else ())
        for at in range(0, int(30 * HOUR), 30)
    ]
    deck = Deck(ListTape(seen), history_of(seen))
    shown, history = deck.go(NOON + 28.9 * HOUR)
    (ended,) = shown.processes
    assert {value for _, value in history.process_series(ended.id).window("sm", 300)} == {7.0}
    assert None not in history.process_series(ended.id).buckets("sm", 300, 10)
    _, history = deck.go(NOON + HOUR)
    assert None not in history.gpu_series("GPU-0").buckets("memory_used", 600, 10)


def test_the_history_begins_where_the_tape_does() -> None:
    deck = Deck(ListTape(demo()), demo_history())
    for moment in (NOON + 7000, NOON - 7000):
        _, history = deck.go(moment)
        assert history.started == demo()[0].time


@pytest.mark.slow
def test_a_job_that_came_later_is_not_blamed_for_what_was_before() -> None:
    """Ann's card rests; bo, who has more of it, comes two hours later."""
    ann, bo = process(1, memory_used=10), process(2, memory_used=20, user="bo")
    seen = [
        snapshot(NOON + second, processes=(ann, bo) if second >= 7211 else (ann,))
        for second in range(int(3 * HOUR))
    ]
    deck = Deck(ListTape(seen), history_of(seen))
    _, history = deck.go(NOON + 3 * HOUR - 1)
    holding = history.holding(seen[-1].gpus[0])
    assert holding is not None
    assert holding.owner_since == NOON + 7211


def test_while_nothing_moves_the_tape_is_left_alone() -> None:
    asked: list[float] = []

    class Counted(ListTape):
        def at(self, time: float) -> Snapshot | None:
            asked.append(time)
            return super().at(time)

    deck = Deck(Counted(demo()[-600:]), demo_history())
    deck.settle()
    asked.clear()
    for _ in range(50):
        deck.sample()
    assert asked == []


def test_the_speeds_to_choose_from_can_be_chosen() -> None:
    player = Player(ListTape(demo()), demo_history())
    assert list(SPEEDS) == sorted(SPEEDS)
    for speed in SPEEDS:
        player.source.speed = speed
        assert player.playing.speed == speed


def test_what_it_costs_goes_with_every_snapshot() -> None:
    deck = Deck(ListTape(demo()[-600:]), demo_history())
    for _ in range(30):
        shown = deck.sample()
    assert shown.cost is not None
    assert shown.cost.driver_share == 0.0
    assert shown.cost.tick_seconds is not None


class StuckTape(ListTape):
    """A tape of which a sample takes as long as somebody wants."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        super().__init__(snapshots)
        self.on_read: Callable[[], None] = lambda: None

    def hang(self, clock: ThreadedClock, seconds: float) -> None:
        """Let the next read take so long."""

        def hang() -> None:
            self.on_read = lambda: None
            clock.sleep(seconds)

        self.on_read = hang

    def at(self, time: float) -> Snapshot | None:
        self.on_read()
        return super().at(time)


def test_a_disk_that_hangs_is_no_fault_of_the_gpus() -> None:
    tape = StuckTape(demo()[-600:])
    deck = Deck(tape, demo_history())
    before, _ = deck.settle()
    tape.hang(deck.clock, 8.0)
    deck.player.source.jump(-300)
    silent = deck.sample(6.0)
    assert deck.player.playing.waiting is not None
    assert deck.player.playing.waiting >= 4.0
    assert silent is not before
    assert silent.time == deck.player.playing.position
    assert {gpu.status for gpu in silent.gpus} <= {GpuStatus.OK, GpuStatus.LOST}
    assert deck.sample(6.0).time == deck.player.playing.position == silent.time - 300
    assert deck.player.playing.waiting is None


def test_a_log_that_gives_not_even_a_first_sample_is_told_as_that() -> None:
    tape = StuckTape(demo()[-600:])
    deck = Deck(tape, demo_history())
    tape.hang(deck.clock, 2.5)
    trouble = deck.sample(2.1).trouble
    assert trouble is not None
    assert trouble.sentence == "The log is not read: no answer for 2s."
    assert deck.sample(1.0).trouble is None


def test_an_empty_tape_fails_with_what_to_do() -> None:
    player = Player(ListTape(), History(conditions()))
    failed = threading.Event()
    player.collector.subscribe(lambda _: None, lambda _: failed.set())
    player.collector.start()
    assert failed.wait(PATIENCE)
    assert isinstance(player.collector.failure, SourceError)
    assert player.moment is None
    player.collector.stop()


def test_a_log_that_breaks_off_being_readable_ends_the_sampling_with_why() -> None:
    tape = StuckTape(demo()[-600:])
    failed = threading.Event()
    player = Player(tape, demo_history())
    player.collector.subscribe(lambda _: None, lambda _: failed.set())

    def refuse() -> None:
        raise RecordingError("The log cannot be read: its disk is gone.")

    player.collector.start()
    assert player.collector.wait_open(PATIENCE)
    tape.on_read = refuse
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
