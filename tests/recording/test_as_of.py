"""What a history promises of a moment that is past: the answers that it gave then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.findings import conditions, gpu_state, heat
from gpumon.findings.groups import users
from gpumon.findings.rule import LastingRule
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot
from gpumon.recording.history import Condition, History, HistoryView, Holding, Interval
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.csv.reading import opened, wait_until, write_log
from tests.recording.deck import Deck, history_of, recorded

Phase: TypeAlias = "tuple[int, int | None, int | None, int, str, int | None, int | None, int]"

CONDITIONS = conditions()
HOUR = 3600.0


@pytest.fixture(scope="module", autouse=True)
def no_state_depends_on_estimates() -> Iterator[None]:
    """Those are the samples of an interval up to then, and when it held last before a break."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LastingRule, "least_samples", 1)
        patched.setattr(heat, "SLOWDOWN_SECONDS", 0.0)
        yield


# Since when, and whether that was observed. Of the past it is told about how many samples an
# interval has, and when one that is away for a moment held last.
Span: TypeAlias = "tuple[float, bool]"


def span(interval: Interval | None) -> Span | None:
    # A log tells times in milliseconds.
    return None if interval is None else (round(interval.since, 3), interval.start_observed)


def owner(holding: Holding | None) -> Holding | None:
    if holding is None or holding.owner_since is None:
        return holding
    return replace(holding, owner_since=round(holding.owner_since, 3))


class Answers(NamedTuple):
    """What a history says at one moment."""

    states: list[str]
    spells: dict[tuple[str, str], Span | None]
    idle: dict[ProcessId, Span | None]
    holdings: list[Holding | None]
    old: list[float | None]
    xids: list[dict[int, float | None]]
    hours: dict[str | None, float]
    charts: list[list[float | None]]


def ask(history: History, shown: Snapshot) -> Answers:
    charts = [
        history.gpu_series(card.uuid).buckets(field, seconds, count)
        for card in shown.gpus
        for field in ("utilization_gpu", "power_draw")
        # Sample by sample, in seconds, and in several seconds.
        for seconds, count in ((60, 120), (60, 60), (60, 20))
    ]
    return Answers(
        [gpu_state(history, card).sentence for card in shown.gpus],
        {
            (card.uuid, name): span(history.interval(card.uuid, name))
            for card in shown.gpus
            for name, condition in CONDITIONS.items()
            if isinstance(condition, Condition)
        },
        {one.id: span(history.process_idle(one.id)) for one in shown.processes},
        [owner(history.holding(card)) for card in shown.gpus],
        [history.old(card) for card in shown.gpus],
        [
            {number: at and round(at, 3) for number, at in history.xids(card.uuid).items()}
            for card in shown.gpus
        ],
        {use.user: use.gpu_seconds or 0.0 for use in users(shown, history)},
        charts,
    )


def without_work(answers: Answers) -> Answers:
    """The same without what depends on the SM use of processes."""
    holdings = [one and replace(one, second_sm=0, left_out=False) for one in answers.holdings]
    return answers._replace(holdings=holdings)


PHASES = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.sampled_from([0, 0, 50, 100, None]),
        st.sampled_from([0, 0, 0x40, 0x08, None]),
        st.sampled_from([40, 95]),
        st.sampled_from(["", "a", "b", "ab", "abc"]),
        st.sampled_from([0, 0, 30, None]),
        st.sampled_from([None, None, None, 13, 79]),
        st.sampled_from([0, 0, 0, 4, 60, 900]),
    ),
    min_size=1,
    max_size=12,
)
"""For so many samples: utilisation, reasons, temperature, whose processes, their SM use, an XID;
then for so many seconds nothing is sampled."""


def course(phases: list[Phase], interval: float) -> list[Snapshot]:
    """What is seen while one phase follows the other on two cards."""
    seen: list[Snapshot] = []
    listed: tuple[tuple[GpuProcess, ...], float] = ((), NOON)
    xid: tuple[int | None, float | None] = (None, None)
    number, gaps = 0, 0
    pids: dict[str, int] = {}
    for count, utilization, reasons, degrees, there, sm, error, gap in phases:
        if error is not None:
            xid = error, NOON + gaps + number * interval
        for _ in range(count):
            time = NOON + gaps + number * interval
            number += 1
            if not seen or time - listed[1] >= 1 or [*pids] != [*there]:
                # One that comes again is another one.
                pids = {user: pids.get(user, 3 * number + ord(user)) for user in there}
                processes = tuple(
                    process(pid, user=user, sm=sm, gpus=(0, 1) if user == "b" else (0,))
                    for user, pid in pids.items()
                )
                listed = (processes, time)
            first = gpu(
                utilization_gpu=utilization,
                clock_event_reasons=reasons,
                temperature_gpu=degrees,
                sampled_at=time,
                xid=xid[0],
                xid_at=xid[1],
                power_draw=100.0 + number % 7,
                memory_used=GIB,
            )
            cards: tuple[Gpu, ...] = (first, gpu(index=1, sampled_at=time))
            seen.append(snapshot(time, *cards, processes=listed[0], processes_at=listed[1]))
        gaps += gap
    return seen


def assert_same(now: Answers, then: Answers, *, charts: bool = True) -> None:
    assert now._replace(hours={}, charts=[]) == then._replace(hours={}, charts=[])
    assert now.hours == pytest.approx(then.hours)
    if charts:
        for after, before in zip(now.charts, then.charts, strict=True):
            assert after == pytest.approx(before, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(phases=PHASES, interval=st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0]), data=st.data())
def test_of_a_moment_that_is_past_it_is_told_what_was_told_then(
    phases: list[Phase], interval: float, data: st.DataObject
) -> None:
    seen = course(phases, interval)
    places = data.draw(st.sets(st.integers(0, len(seen) - 1), max_size=6))
    history = History(CONDITIONS)
    told: dict[int, Answers] = {}
    for place, shown in enumerate(seen):
        history.add(shown)
        # Within a second the present repeats what it told of a chart's newest value.
        if place in places and int(shown.time) not in {int(seen[one].time) for one in told}:
            told[place] = ask(history, shown)
            now = ask(history.as_of(shown), shown)
            assert now._replace(charts=[]) == told[place]._replace(charts=[])
    for place, then in told.items():
        now = ask(history.as_of(seen[place]), seen[place])
        # For an hour values are kept second by second.
        assert_same(now, then, charts=history.now - seen[place].time < HOUR - 60)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(phases=PHASES, interval=st.sampled_from([0.1, 0.5]), data=st.data())
def test_the_present_a_held_picture_a_rewind_and_a_replay_tell_the_same_of_a_moment(
    phases: list[Phase], interval: float, data: st.DataObject
) -> None:
    """Of a log's last two minutes every sample is read."""
    seen = [shown for shown in course(phases, interval) if shown.time < NOON + 110]
    assert_agreement(
        seen, data.draw(st.sets(st.integers(0, len(seen) - 1), min_size=1, max_size=4))
    )


def test_a_break_that_does_not_end_an_interval_is_told_alike_of_a_moment_in_it() -> None:
    throttled, free = (1, 0, 0x40, 40, "", 0, None, 0), (20, 0, 0, 40, "", 0, None, 0)
    seen = course([(1, 0, 0, 40, "", 0, None, 0), throttled, free, throttled], 0.1)
    assert_agreement(seen, {21})


@pytest.mark.slow
@pytest.mark.parametrize("unknown_after", [(0,), (40, 40), (40, 40, 40, 40)])
def test_unknown_values_in_an_absence_change_no_answer_about_a_past_moment(
    unknown_after: tuple[int, ...],
) -> None:
    """Each lets the absence, which ends the interval after 5 s, begin anew."""
    phases: list[Phase] = [(147, 0, 0, 40, "", 0, None, 0), (40, 0, 0x40, 40, "", 0, None, 0)]
    for samples in unknown_after:
        phases += [(samples, 0, 0, 40, "", 0, None, 0), (1, 0, None, 40, "", 0, None, 0)]
    history = History(CONDITIONS)
    seen = course([*phases, (60, 0, 0, 40, "", 0, None, 0)], 0.1)
    answers = []
    for shown in seen:
        history.add(shown)
        answers.append(ask(history, shown))
        assert_same(ask(history.as_of(shown), shown), answers[-1], charts=False)
    for shown, then in zip(seen, answers, strict=True):
        assert_same(ask(history.as_of(shown), shown), then, charts=False)


def assert_agreement(seen: list[Snapshot], places: set[int]) -> None:
    """Of these moments the present, a held picture, a rewind and a replay tell the same."""
    history = History(CONDITIONS)
    live: dict[int, Answers] = {}
    held: dict[int, History] = {}
    for place, shown in enumerate(seen):
        history.add(shown)
        if place in places and int(shown.time) not in {int(seen[one].time) for one in live}:
            live[place], held[place] = ask(history, shown), history.as_of(shown)
    with TemporaryDirectory() as folder:
        path = write_log(Path(folder) / "run.csv", seen)
        with opened(path) as log:
            read = History(CONDITIONS)
            log.read_into(read)
            rewind, replay = Deck(recorded(seen), history), Deck(log, read)
            # What is shown before the log is read gets better then.
            replay.sample()
            wait_until(lambda: log.events_complete)
            for place, then in live.items():
                assert_same(ask(held[place], seen[place]), then)
                shown, past = rewind.go(seen[place].time)
                assert_same(ask(past, shown), then)
                # A list in which nobody came or left is written every few seconds only.
                shown, past = replay.go(seen[place].time)
                of_cards = ask(past, shown)._replace(idle=then.idle, hours=then.hours)
                assert_same(without_work(of_cards), without_work(then))


def test_who_ended_long_ago_is_known_to_have_rested_as_of_then() -> None:
    """Half an hour after it ended, when nothing else is kept of it."""
    seen = [
        snapshot(NOON + second, processes=(process(),) if second < 300 else ())
        for second in range(2100)
    ]
    history = history_of(seen)
    then = history.as_of(seen[299])
    idle = known(then.process_idle(process().id))
    assert (idle.since, idle.last, idle.samples) == (NOON, NOON + 299, 300)
    assert known(then.holding(seen[299].gpus[0])).owner_since == NOON
    assert then.gpu_seconds("ann") == 299.0
    assert isinstance(then, HistoryView)
    assert then.lacks_values()
    assert history.as_of(seen[-1]).gpu_seconds("ann") == 300.0


@pytest.mark.slow
def test_of_what_comes_and_goes_all_day_the_longest_and_the_newest_are_kept() -> None:
    """A card that rests for three seconds of four; and once, early, for a minute."""
    seen = [
        snapshot(
            NOON + second,
            gpu(utilization_gpu=0 if 100 <= second < 160 or second % 4 else 50),
            processes=(process(),),
        )
        for second in range(7200)
    ]
    history = history_of(seen)
    for second, since in ((159, 97), (7198, 7197)):
        interval = known(history.as_of(seen[second]).interval("GPU-0", "idle"))
        assert interval.since == NOON + since


@pytest.mark.slow
def test_values_of_hours_ago_are_told_in_tens_of_seconds() -> None:
    seen = [snapshot(NOON + second, gpu(utilization_gpu=second // 100)) for second in range(9000)]
    then = history_of(seen).as_of(seen[1995])
    told = then.gpu_series("GPU-0").buckets("utilization_gpu", 600, 200, then.now)
    assert told == [(1398 + 3 * place) // 10 * 10 // 100 for place in range(200)]


def test_a_moment_that_is_held_stays_what_it_is_while_the_clock_is_set_back() -> None:
    seen = [snapshot(NOON + second, processes=(process(),)) for second in range(100)]
    history = history_of(seen)
    held = history.as_of(seen[-1])

    def told() -> list[float]:
        spells = held.interval("GPU-0", "idle"), held.process_idle(process().id)
        seconds = [(known(spell).seconds, held.now - known(spell).since) for spell in spells]
        return [*seconds[0], *seconds[1], known(held.gpu_seconds("ann"))]

    before = told()
    for second in range(100):
        history.add(snapshot(NOON - 3600 + second, gpu(utilization_gpu=50)))
    assert told() == before == [99] * 5


def old_values(second: int, status: GpuStatus = GpuStatus.OK) -> Snapshot:
    """From 30 s on a GPU's values are repeated."""
    card = gpu(sampled_at=NOON + min(second, 30), status=status if second > 30 else GpuStatus.OK)
    return snapshot(NOON + second, card, processes=(process(),))


def old_list(second: int) -> Snapshot:
    """From 30 s on a process list is repeated."""
    return snapshot(NOON + second, processes=(process(),), processes_at=NOON + min(second, 30))


@pytest.mark.parametrize(
    ("answer", "of", "sample"),
    [
        pytest.param("spells", ("GPU-0", "idle"), old_values, id="values"),
        pytest.param(
            "spells",
            ("GPU-0", "idle"),
            partial(old_values, status=GpuStatus.LOST),
            id="values of a lost GPU",
        ),
        pytest.param("idle", process().id, old_list, id="list"),
    ],
)
def test_nothing_is_idle_by_what_is_repeated_for_long(
    answer: str, of: object, sample: Callable[[int], Snapshot]
) -> None:
    history, seen, then = History(CONDITIONS), [*map(sample, range(60))], []
    for shown in seen:
        history.add(shown)
        then.append(getattr(ask(history, shown), answer))
    assert then[35][of] is not None
    assert then[45][of] is None
    assert [getattr(ask(history.as_of(shown), shown), answer) for shown in seen] == then


def test_a_gap_that_came_later_is_none_of_the_past() -> None:
    seen = [
        snapshot(NOON + second, gpu(clock_event_reasons=None if second == 50 else 0))
        for second in range(60)
    ]
    history = history_of(seen)
    moments = history, history.as_of(seen[55]), history.as_of(seen[40])
    had_gap = [moment.had_gap("GPU-0", "SW power cap", HOUR) for moment in moments]
    assert had_gap == [True, True, False]
