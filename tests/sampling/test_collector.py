"""What the collector promises, on a clock that moves when told to, and on real threads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.makers.source import Call, CallGivenUpError, SourceError
from gpumon.model.processes import HolderScan
from gpumon.model.snapshot import Gpu, GpuStatus, Host, OwnCost, Snapshot
from gpumon.sampling.collector import Collector
from gpumon.sampling.cost_meter import CostMeter
from tests.clock import HandClock, ThreadedClock
from tests.known import known
from tests.screen import PATIENCE

EPOCH = 1_000_000.0
"""How far the fake clock's two times are apart."""


class FakeSource:
    """A source whose every sample does what the test wants of it."""

    def __init__(self, clock: HandClock, cards: int = 3) -> None:
        self.clock = clock
        self.gpus = tuple(Gpu(index, f"GPU-{index}", memory_used=index) for index in range(cards))
        self.hostname = "ada"
        self.current_call: Call | None = None
        self.driver_seconds = 0.0
        self.full = False
        self.sampled_at: list[float] = []
        self.closed_by: list[threading.Thread] = []
        self.on_open: Callable[[], None] = lambda: None
        self.on_sample: Callable[[int], None] = lambda _: None
        self.on_give_up: Callable[[Call], bool] = lambda _: False

    def open(self) -> None:
        self.on_open()

    def sample(self, *, full: bool = True) -> Snapshot:
        self.full = full
        self.sampled_at.append(self.clock.now)
        self.on_sample(len(self.sampled_at))
        return Snapshot(self.clock.time(), Host("ada"), self.gpus)

    def past(self) -> list[Snapshot]:
        return []

    def give_up(self, call: Call) -> bool:
        return self.on_give_up(call)

    def close(self) -> None:
        self.closed_by.append(threading.current_thread())


class Bench:
    """A collector whose threads go on when the test lets time pass."""

    def __init__(
        self,
        interval: float = 0.5,
        annotate: Callable[[Snapshot], Snapshot] | None = None,
        *,
        full: bool = True,
    ) -> None:
        self.clock = ThreadedClock(0.0, EPOCH)
        self.source = FakeSource(self.clock)
        self.collector = Collector(self.source, interval, self.clock, annotate)
        self.seen: list[Snapshot] = []
        self.failures: list[BaseException] = []
        self.collector.subscribe(self.seen.append, self.failures.append, full=full)

    def run(self, snapshots: int) -> list[Snapshot]:
        """Let time pass until enough was published, or the sampling has ended."""
        self.clock.start(self.collector)
        while len(self.seen) < snapshots and self.clock.step():
            pass
        with suppress(ArithmeticError, KeyError):
            self.collector.stop(PATIENCE)
        return self.seen

    def at(self, count: int, action: Callable[[], object]) -> None:
        """Let this happen in one sample."""

        def act(sample: int) -> None:
            if sample == count:
                action()

        self.source.on_sample = act

    def hang_at(self, count: int, seconds: float, gpu: str | None = "GPU-1") -> None:
        """Let a call of one sample hang."""
        self.at(count, lambda: self.hang(seconds, gpu))

    def hang(self, seconds: float, gpu: str | None = "GPU-1") -> None:
        """Let time pass in a call to the driver."""
        self.source.current_call = named(gpu, self.clock.now)
        self.clock.sleep(seconds)
        self.source.current_call = None


def failing(error: Exception) -> Callable[..., Any]:
    """What raises this."""

    def fail(*_: object) -> None:
        raise error

    return fail


def started(collector: Collector) -> dict[str, threading.Thread]:
    """Start a collector; returns its threads by name."""
    before = set(threading.enumerate())
    collector.start()
    return {thread.name: thread for thread in set(threading.enumerate()) - before}


@pytest.fixture
def bench() -> Bench:
    return Bench()


# The pace


def test_samples_come_at_absolute_deadlines_however_long_each_takes(bench: Bench) -> None:
    bench.source.on_sample = lambda count: bench.clock.sleep(0.1 if count % 2 else 0.37)
    bench.run(5)
    assert bench.source.sampled_at == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])


def test_missed_deadlines_are_counted_and_never_made_up(bench: Bench) -> None:
    bench.at(2, lambda: bench.clock.sleep(1.6))
    seen = bench.run(5)
    assert bench.source.sampled_at == pytest.approx([0.0, 0.5, 2.5, 3.0, 3.5])
    assert [snapshot.cost and snapshot.cost.missed_ticks for snapshot in seen] == [0, 0, 3, 3, 3]


@pytest.mark.parametrize(
    ("before", "changed_at", "after", "sampled_at"),
    [(3600.0, 10.0, 0.1, [0.0, 10.0, 10.1]), (0.5, 0.2, 5.0, [0.0, 5.0, 10.0])],
    ids=["shorter: the longer is not waited for", "longer: counts from the sample before"],
)
def test_a_new_interval_takes_effect_at_once(
    before: float, changed_at: float, after: float, sampled_at: list[float]
) -> None:
    bench = Bench(before)
    bench.clock.start(bench.collector)
    bench.clock.pass_time(changed_at)
    bench.collector.interval = after
    bench.clock.pass_time(sampled_at[-1] - changed_at)
    bench.collector.stop()
    assert bench.source.sampled_at == pytest.approx(sampled_at)


@pytest.mark.parametrize("interval", [0.0, 0.09, -1.0, 3601.0, float("nan"), float("inf")])
def test_an_interval_out_of_bounds_is_refused(bench: Bench, interval: float) -> None:
    with pytest.raises(ValueError, match=r"0\.1 to 3600"):
        Collector(bench.source, interval)
    with pytest.raises(ValueError, match=r"0\.1 to 3600"):
        bench.collector.interval = interval
    assert bench.collector.interval == 0.5


# Opening


def test_a_source_that_does_not_open_tells_whoever_waits(bench: Bench) -> None:
    error = SourceError("No driver.", "Install one.")
    bench.source.on_open = failing(error)
    bench.collector.start()
    with pytest.raises(SourceError) as raised:
        bench.collector.wait_open(1.0)
    assert raised.value is error
    bench.collector.stop(PATIENCE)
    assert bench.failures == [error]
    assert bench.collector.failure is error
    assert (bench.seen, bench.source.sampled_at) == ([], [])


def test_a_source_that_is_still_opening_is_not_open(bench: Bench) -> None:
    answers: list[bool] = []
    bench.source.on_open = lambda: answers.append(bench.collector.wait_open(0.5))
    bench.run(1)
    answers.append(bench.collector.wait_open(0.5))
    assert answers == [False, True]


# Listeners


def test_every_listener_gets_every_snapshot_until_it_unsubscribes(bench: Bench) -> None:
    first: list[Snapshot] = []

    def listen(snapshot: Snapshot) -> None:
        first.append(snapshot)
        if len(first) == 2:
            unsubscribe()

    unsubscribe = bench.collector.subscribe(listen)
    seen = bench.run(4)
    assert first == seen[:2]
    assert bench.collector.latest is seen[-1]


def test_the_source_looks_closely_while_somebody_keeps_all_values() -> None:
    bench = Bench(full=False)
    looked: list[bool] = []

    def look(_: Snapshot) -> None:
        looked.append(bench.source.full)
        if len(looked) == 2:
            ends.append(bench.collector.subscribe(lambda _: None))
        elif len(looked) == 4:
            ends[0]()

    ends: list[Callable[[], None]] = []
    bench.collector.subscribe(look, full=False)
    bench.run(5)
    assert looked == [False, False, True, True, False]


def test_a_listener_that_comes_late_gets_the_newest_one_and_all_that_follow(bench: Bench) -> None:
    late: list[Snapshot] = []
    bench.at(3, lambda: bench.collector.subscribe(late.append, newest=True))
    assert late == bench.run(4)[1:]


def test_a_listener_that_comes_before_the_first_one_gets_it_once(bench: Bench) -> None:
    early: list[Snapshot] = []
    bench.collector.subscribe(early.append, newest=True)
    assert early == []
    assert bench.run(2) == early


def test_a_listener_that_raises_is_left_out_and_its_bug_comes_out(bench: Bench) -> None:
    bug = ZeroDivisionError("a bug in a screen")
    calls: list[Snapshot] = []

    def broken(snapshot: Snapshot) -> None:
        calls.append(snapshot)
        raise bug

    bench.collector.subscribe(broken)
    assert len(bench.run(3)) == 3
    assert len(calls) == 1
    assert bench.failures == [bug]
    assert bench.collector.failure is bug
    with pytest.raises(ZeroDivisionError):
        bench.collector.stop()


def test_a_bug_in_the_source_reaches_the_owner(bench: Bench) -> None:
    bug = KeyError("a bug in a source")
    bench.at(2, failing(bug))
    bench.run(9)
    assert bench.failures == [bug]
    assert [thread.name for thread in bench.source.closed_by] == ["gpumon-sampler"]
    with pytest.raises(KeyError):
        bench.collector.stop()
    bench.collector.subscribe(bench.seen.append, bench.failures.append)
    assert bench.failures == [bug, bug], "who comes late is told at once"


# What others add


def test_what_others_know_is_in_every_snapshot_also_while_a_call_hangs() -> None:
    bench = Bench(annotate=lambda snapshot: replace(snapshot, holders=HolderScan(snapshot.time)))
    bench.hang_at(2, 1.1)
    first, reminder, last = bench.run(3)
    assert reminder.gpus[1].status is GpuStatus.NO_ANSWER
    told = [snapshot.holders and snapshot.holders.at for snapshot in (first, reminder, last)]
    assert told == [first.time, first.time, last.time]
    assert first.cost is not None


def test_a_bug_in_what_others_add_counts_as_one_in_the_source() -> None:
    bug = KeyError("a bug in a look")
    bench = Bench(annotate=failing(bug))
    assert bench.run(1) == []
    assert bench.failures == [bug]
    assert [thread.name for thread in bench.source.closed_by] == ["gpumon-sampler"]
    with pytest.raises(KeyError):
        bench.collector.stop()


# A call that hangs


def named(uuid: str | None, since: float) -> Call:
    return Call(uuid, "nvmlDeviceGetUtilizationRates", since)


def test_while_the_driver_hangs_no_card_answers_and_the_last_values_stay(bench: Bench) -> None:
    bench.hang_at(2, 4.2, None)
    first, *reminders, last = bench.run(6)
    assert [snapshot.time - EPOCH for snapshot in reminders] == pytest.approx([1.5, 2.5, 3.5, 4.5])
    for snapshot in reminders:
        assert [gpu.status for gpu in snapshot.gpus] == [GpuStatus.NO_ANSWER] * 3
        assert snapshot.gpus[1].status_since == pytest.approx(EPOCH + 0.5)
        assert snapshot.gpus[1].memory_used == 1, "its last values stay"
        assert snapshot.host == first.host
    assert [gpu.status for gpu in last.gpus] == [GpuStatus.OK] * 3


@pytest.mark.parametrize("status", [GpuStatus.LOST, GpuStatus.NO_ANSWER])
def test_a_gpu_that_did_not_answer_before_keeps_since_when(bench: Bench, status: GpuStatus) -> None:
    before = Gpu(3, "GPU-3", status=status, status_since=7.0)
    bench.source.gpus = (*bench.source.gpus, before)
    bench.hang_at(2, 1.1, None)
    reminder = bench.run(3)[1]
    assert [gpu.status for gpu in reminder.gpus[:3]] == [GpuStatus.NO_ANSWER] * 3
    assert reminder.gpus[3] == before


@pytest.mark.parametrize(
    ("interval", "seconds", "reported_after"),
    [(1.2, 2.3, []), (3600.0, 8.0, [3.0, 6.0])],
    ids=["shorter than two intervals is no hang", "after three seconds however rare the samples"],
)
def test_a_hang_is_told_after_two_intervals_but_three_seconds_at_most(
    interval: float, seconds: float, reported_after: list[float]
) -> None:
    bench = Bench(interval)
    bench.hang_at(2, seconds)
    _, *reminders, last = bench.run(2 + len(reported_after))
    began = EPOCH + interval
    assert [snapshot.time - began for snapshot in reminders] == pytest.approx(reported_after)
    assert last.time - began == pytest.approx(seconds)


def test_a_driver_that_is_only_slow_is_not_said_to_hang(bench: Bench) -> None:
    def many_slow_calls() -> None:
        # The hung call is looked for both during these calls and between them.
        for _ in range(20):
            bench.hang(0.25)
            bench.source.driver_seconds += 0.25
            bench.clock.sleep(0.45)

    bench.at(2, many_slow_calls)
    statuses = {gpu.status for snapshot in bench.run(4) for gpu in snapshot.gpus}
    assert statuses == {GpuStatus.OK}


def test_a_tick_that_stands_still_outside_the_driver_ages_and_accuses_no_card(bench: Bench) -> None:
    bench.at(2, lambda: bench.clock.sleep(3.1))
    first, *reminders, _ = bench.run(4)
    assert [snapshot.time - EPOCH for snapshot in reminders] == pytest.approx([2.5, 3.5])
    for reminder in reminders:
        assert reminder.gpus == first.gpus


@pytest.mark.parametrize("in_open", [True, False])
def test_a_hang_before_the_first_sample_is_told_in_words(bench: Bench, in_open: bool) -> None:
    def hang(_: int) -> None:
        if not bench.seen:
            bench.hang(2.5)

    if in_open:
        bench.source.on_open = lambda: hang(0)
    else:
        bench.source.on_sample = hang
    first, second, real = bench.run(3)
    assert first.trouble is not None
    assert known(second.trouble).sentence == "The driver has not answered for 2s."
    assert (first.gpus, first.time) == ((), EPOCH + 1.0)
    assert real.trouble is None


def test_a_healthy_collector_is_looked_at_once_a_second_at_most() -> None:
    bench = Bench(interval=0.1)
    pauses: list[float] = []

    def on_wait(timeout: float) -> None:
        if threading.current_thread().name == "gpumon-watch":
            pauses.append(timeout)

    bench.clock.on_wait = on_wait
    bench.run(30)
    assert pauses == pytest.approx([1.0] * 3)


def test_a_late_word_about_a_hang_cannot_overtake_the_sample_that_ends_it(bench: Bench) -> None:
    returned, published = threading.Event(), threading.Event()

    def hang() -> None:
        bench.source.current_call = named("GPU-1", bench.clock.now)
        bench.clock.wait(returned, 60.0)

    def give_up(_: Call) -> bool:
        # The call comes back while the watching thread is about to report it.
        published.clear()
        returned.set()
        assert published.wait(PATIENCE)
        return False

    bench.at(2, hang)
    bench.source.on_give_up = give_up
    bench.collector.subscribe(lambda _: published.set())
    statuses = {gpu.status for snapshot in bench.run(3) for gpu in snapshot.gpus}
    assert returned.is_set()
    assert statuses == {GpuStatus.OK}


# The cost


def test_the_cost_is_measured_over_the_last_five_seconds() -> None:
    used = 0.0
    meter = CostMeter(lambda: used)
    assert meter.measure(0.0, 0.0) == OwnCost()
    costs = []
    for second in range(1, 13):
        used += 0.5 if second <= 6 else 0.02
        costs.append(meter.measure(float(second), second * 0.25))
    assert costs[0].cpu_percent == pytest.approx(50.0)
    assert costs[5].cpu_percent == pytest.approx(50.0)
    assert costs[11].cpu_percent == pytest.approx(2.0)
    assert costs[11].driver_share == pytest.approx(0.25)


def test_the_tick_is_the_median_and_one_slow_tick_does_not_move_it() -> None:
    meter = CostMeter()
    for seconds in (0.002, 0.003, 9.0, 0.001, 0.003):
        meter.add_tick(seconds)
    assert meter.measure(0.0, 0.0).tick_seconds == 0.003


def test_a_source_opened_anew_has_no_negative_share() -> None:
    meter = CostMeter()
    meter.measure(0.0, 50.0)
    assert meter.measure(1.0, 0.1).driver_share is None
    for second in range(2, 9):
        share = meter.measure(float(second), 0.1 * second).driver_share
    assert share == pytest.approx(0.1)


def test_the_cost_of_long_intervals_is_measured_from_tick_to_tick() -> None:
    used = 0.0
    meter = CostMeter(lambda: used)
    meter.measure(0.0, 0.0)
    used = 6.0
    assert meter.measure(60.0, 0.0).cpu_percent == pytest.approx(10.0)


def test_snapshots_bear_their_cost(bench: Bench) -> None:
    def spend(_: int) -> None:
        bench.source.driver_seconds += 0.05
        bench.clock.sleep(0.1)

    bench.source.on_sample = spend
    cost = known(bench.run(6)[-1].cost)
    assert (cost.driver_share, cost.tick_seconds) == pytest.approx((0.1, 0.1))
    assert cost.cpu_percent is not None


# Real threads


class RealSource(FakeSource):
    """A source on real time whose calls can be made to hang."""

    def __init__(self) -> None:
        super().__init__(HandClock(0.0, EPOCH))
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.on_sample = self.call

    def call(self, _: int) -> None:
        self.current_call = named("GPU-1", time.monotonic())
        self.may_answer.wait()
        self.current_call = None


def streamed(source: RealSource) -> tuple[Collector, queue.Queue[Snapshot]]:
    """A collector of it that samples often, and what it hands out."""
    collector = Collector(source, interval=0.1)
    snapshots: queue.Queue[Snapshot] = queue.Queue()
    collector.subscribe(snapshots.put)
    return collector, snapshots


def test_a_hung_driver_neither_silences_the_stream_nor_keeps_stop_waiting() -> None:
    source = RealSource()
    collector, snapshots = streamed(source)
    threads = started(collector)
    assert collector.wait_open(PATIENCE)
    assert snapshots.get(timeout=PATIENCE).gpus[1].status is GpuStatus.OK
    source.may_answer.clear()
    while snapshots.get(timeout=PATIENCE).gpus[1].status is GpuStatus.OK:
        pass
    assert set(threads) == {"gpumon-sampler", "gpumon-watch"}

    begun = time.monotonic()
    collector.stop(timeout=0.2)
    assert time.monotonic() - begun < 30
    sampler = threads["gpumon-sampler"]
    assert sampler.is_alive()
    assert not threads["gpumon-watch"].is_alive()
    assert source.closed_by == [], "nobody but the sampling thread may close it"

    silent_since = snapshots.qsize()
    source.may_answer.set()
    sampler.join(PATIENCE)
    assert source.closed_by == [sampler]
    assert snapshots.qsize() == silent_since, "nothing is handed out once it was stopped"


class PatientSource(RealSource):
    """One whose calls can be given up."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up: list[Call] = []

    def give_up(self, call: Call) -> bool:
        self.given_up.append(call)
        self.current_call = None
        self.on_open = lambda: None
        self.on_sample = lambda _: None
        return True

    def call(self, _: int) -> None:
        call = self.current_call = named("GPU-1", time.monotonic())
        self.may_answer.wait()
        if call in self.given_up:
            raise CallGivenUpError
        self.current_call = None


@pytest.mark.parametrize("in_open", [True, False])
def test_a_call_that_hangs_in_one_card_is_given_up_and_another_thread_samples(
    in_open: bool,
) -> None:
    source = PatientSource()
    source.may_answer.clear()
    if in_open:
        source.on_open, source.on_sample = lambda: source.call(0), lambda _: None
    collector, snapshots = streamed(source)
    hanging = started(collector)["gpumon-sampler"]
    assert snapshots.get(timeout=PATIENCE).trouble is None
    assert len(source.given_up) == 1
    assert collector.wait_open(PATIENCE)
    assert hanging.is_alive()
    source.may_answer.set()
    hanging.join(PATIENCE)
    assert not hanging.is_alive()
    while not snapshots.empty():
        snapshots.get()
    snapshots.get(timeout=PATIENCE)
    assert source.closed_by == [], "who was given up ends nothing"
    assert collector.failure is None
    collector.stop(PATIENCE)
    (sampler,) = source.closed_by
    assert sampler is not hanging


def test_a_call_that_comes_back_brings_the_card_back() -> None:
    source = RealSource()
    collector, snapshots = streamed(source)
    source.may_answer.clear()
    sampler = started(collector)["gpumon-sampler"]
    try:
        assert snapshots.get(timeout=PATIENCE).trouble is not None
        source.may_answer.set()
        while (snapshot := snapshots.get(timeout=PATIENCE)).trouble is not None:
            pass
        assert snapshot.gpus[1].status is GpuStatus.OK
    finally:
        collector.stop()
    assert source.closed_by == [sampler]


def test_a_healthy_collector_stops_at_once_even_in_a_long_interval() -> None:
    source = RealSource()
    collector = Collector(source, interval=3600)
    sampled = threading.Event()
    collector.subscribe(lambda _: sampled.set())
    threads = started(collector)
    assert sampled.wait(PATIENCE)
    collector.stop(timeout=PATIENCE)
    assert not any(thread.is_alive() for thread in threads.values())
    collector.stop()


def test_a_collector_that_never_started_can_be_stopped(bench: Bench) -> None:
    bench.collector.stop()


def test_a_listener_may_stop_the_collector() -> None:
    source = RealSource()
    collector = Collector(source, interval=0.1)
    collector.subscribe(lambda _: collector.stop())
    source.may_answer.clear()
    sampler = started(collector)["gpumon-sampler"]
    source.may_answer.set()
    sampler.join(PATIENCE)
    assert len(source.sampled_at) == 1
    assert source.closed_by == [sampler]
    assert collector.failure is None


def test_no_thread_outlives_a_source_that_did_not_open() -> None:
    def refuse() -> None:
        source.may_answer.wait()
        raise SourceError("No driver.", "Install one.")

    source = RealSource()
    source.may_answer.clear()
    source.on_open = refuse
    collector = Collector(source, interval=3600)
    threads = started(collector)
    source.may_answer.set()
    with pytest.raises(SourceError):
        collector.wait_open(PATIENCE)
    for thread in threads.values():
        thread.join(PATIENCE)
        assert not thread.is_alive()
