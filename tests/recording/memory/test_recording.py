"""What a gpumon remembers of what it has seen: as it was, in order, and in bounded memory."""

from __future__ import annotations

import math
import random
import tracemalloc
from itertools import accumulate, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.makers.demo import DemoSource
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.snapshot import Snapshot, Trouble
from gpumon.recording import history
from gpumon.recording.memory.recording import (
    ACCIDENT_MARKS_KEPT,
    MARKS_KEPT,
    STEP,
    MemoryRecording,
)
from gpumon.recording.recording import EventKind, Recording
from tests.build import NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.archive.archives import every
from tests.recording.deck import recorded
from tests.recordings import ListTape

SHARE = 0.05


def everything(tape: Recording) -> list[Snapshot]:
    return list(tape.between(-math.inf, math.inf, 10**9))


def changing(number: int, spacing: float = 1.0) -> Snapshot:
    """A card and three processes of which every value is another each time."""
    listed = tuple(
        replace(process(pid, memory_used=number * pid, sm=number % 101), cpu_percent=number / pid)
        for pid in (7, 8, 9)
    )
    card = gpu(utilization_gpu=number % 101, power_draw=math.sqrt(number), memory_used=number**2)
    return snapshot(NOON + number * spacing, card, processes=listed)


def crowd(number: int, count: int = 2000, cards: int = 64, words: int = 0) -> Snapshot:
    """A large machine of which all changes, with nobody there who was there before.

    Each command line has so many words of 128 characters besides.
    """
    dice = random.Random(number)
    listed = tuple(
        replace(
            process(pid + number * count, gpus=(pid % cards,), memory_used=pid * 4096),
            command=(
                f"python-{pid * 31337 % 10007}",
                f"--seed={pid * number}",
                *[dice.randbytes(64).hex() for _ in range(words)],
            ),
        )
        for pid in range(count)
    )
    return snapshot(NOON + number, *[gpu(index=at) for at in range(cards)], processes=listed)


@pytest.mark.slow
def test_a_tape_of_hours_gives_back_what_it_was_given() -> None:
    given = {one.time: one for one in map(changing, range(3 * 3600))}
    tape = recorded(given.values())

    kept = everything(tape)
    assert len(kept) > 6000
    assert all(one == given[one.time] for one in kept)
    assert (tape.first, tape.last) == (NOON, NOON + 3 * 3600 - 1)


def test_further_back_it_is_coarser_and_nowhere_has_holes() -> None:
    tape = recorded(snapshot(NOON + number) for number in range(3 * 3600))

    times = [one.time for one in everything(tape)]
    assert times[0] == NOON
    for earlier, later in pairwise(times):
        age = times[-1] - later
        # A level keeps at least as many as it says, and its seconds are the clock's.
        finest = 1 if age < 6000 else 4 if age < 7200 else 16
        assert later - earlier <= finest
    assert len(times) < 3 * 3600


def test_the_demo_comes_back_with_its_places_and_holders() -> None:
    source = DemoSource()
    given = [*source.past(), source.sample()]
    tape = recorded(given)

    for one in given[:: len(given) // 50]:
        assert tape.at(one.time) == one
    assert tape.at(given[-1].time) == given[-1]


def test_the_same_moment_gives_the_same_object() -> None:
    tape = recorded(map(changing, range(4000)))
    assert tape.at(NOON + 5) is tape.at(NOON + 5.5)
    assert tape.at(NOON + 3999) is tape.at(NOON + 3999)


def test_snapshots_of_one_list_share_it_when_they_come_back() -> None:
    listed = tuple(map(process, range(1, 100)))
    tape = recorded(
        snapshot(NOON + number / 10, processes=listed, processes_at=NOON) for number in range(5000)
    )

    one, other = known(tape.at(NOON + 1)), known(tape.at(NOON + 2))
    assert one is not other
    assert one.processes is other.processes


def test_a_machine_without_cards_is_remembered_as_it_was() -> None:
    trouble = Trouble("The driver is gone.", "Load it.")
    given = [
        Snapshot(NOON + number, changing(0).host, trouble=trouble)
        if 900 < number < 1100
        else changing(number)
        for number in range(3000)
    ]
    tape = recorded(given)

    assert everything(tape) == given
    assert list(tape.events(0, math.inf)) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    spacings=st.lists(st.floats(0.1, 300), min_size=1, max_size=60),
    visitors=st.lists(st.integers(1, 3), min_size=60, max_size=60),
    asked=st.lists(st.tuples(st.floats(-10, 20000), st.integers(-70, 70)), min_size=5, max_size=5),
    most=st.integers(1, 80),
)
def test_it_answers_as_a_tape_that_keeps_everything(
    spacings: list[float],
    visitors: list[int],
    asked: list[tuple[float, int]],
    most: int,
) -> None:
    given = [
        snapshot(NOON + seconds, processes=(process(visitor),))
        for seconds, visitor in zip(accumulate(spacings), visitors, strict=False)
    ]
    tape, whole = recorded(given), ListTape(given, SHARE)

    assert (tape.first, tape.last) == (whole.first, whole.last)
    for seconds, samples in asked:
        moment = NOON + seconds
        assert tape.at(moment) == whole.at(moment)
        assert tape.step(moment, samples) == whole.step(moment, samples)
        assert tape.events(moment, moment + 500) == whole.events(moment, moment + 500)
        for forward in (True, False):
            found = tape.next_event(moment, forward=forward)
            assert found == whole.next_event(moment, forward=forward)
        few = list(tape.between(moment, moment + 3000, most))
        all_ = list(whole.between(moment, moment + 3000, 10**9))
        assert few == all_ if len(all_) <= most else len(few) <= most + 1
        assert few[-1:] == all_[-1:]
        assert all(one in all_ for one in few)


def test_many_hours_are_thinned_evenly_to_about_as_many_as_asked_for() -> None:
    tape = recorded(snapshot(NOON + number) for number in range(4 * 3600))

    for hours in (0.5, 1, 2, 4):
        end = NOON + 4 * 3600 - 1
        times = [one.time for one in tape.between(end - hours * 3600, end, 400)]
        assert 200 <= len(times) <= 401
        assert times[-1] == end
        even = hours * 3600 / len(times)
        assert max(later - earlier for earlier, later in pairwise(times)) <= 2.5 * even + 16


def test_what_happened_is_seen_at_its_moment_where_all_else_is_coarse() -> None:
    def visited(number: int) -> Snapshot:
        """Somebody comes now and then, for 3 seconds."""
        here = (process(number // 1000 + 1),) if 500 <= number % 1000 < 503 else ()
        return snapshot(NOON + number, processes=here)

    tape = recorded(map(visited, range(3 * 3600)))

    marks = tape.events(NOON, math.inf)
    assert [mark.time - NOON for mark in marks[:4]] == [500, 503, 1500, 1503]
    assert len(marks) == 2 * 11
    for mark in marks:
        then = known(tape.at(mark.time))
        assert then.time == mark.time
        assert [one.id for one in then.processes] == (
            [mark.subject] if mark.kind is EventKind.CAME else []
        )


def test_the_newest_marks_are_kept_and_found() -> None:
    tape = recorded(
        snapshot(NOON + number, gpu(xid=31, xid_at=NOON + number)) for number in range(7000)
    )

    marks = tape.events(-math.inf, math.inf)
    assert len(marks) == MARKS_KEPT
    assert marks[-1].time == NOON + 6999
    assert tape.next_event(NOON, forward=True) == marks[0]


@pytest.mark.slow
def test_other_marks_do_not_crowd_out_accidents() -> None:
    def at(number: int) -> Snapshot:
        accidents: tuple[Accident, ...] = ()
        if number < 1000:
            accidents = (Accident(NOON + number, AccidentKind.RESET, f"GPU-{number}"),)
        then = snapshot(NOON + number, gpu(xid=31, xid_at=NOON + number))
        return replace(then, accidents=accidents)

    tape = recorded(at(number) for number in range(7000))
    marks = tape.events(-math.inf, math.inf)
    assert len(marks) == MARKS_KEPT + ACCIDENT_MARKS_KEPT
    older = marks[:ACCIDENT_MARKS_KEPT]
    assert [mark.time - NOON for mark in older] == list(range(1000 - ACCIDENT_MARKS_KEPT, 1000))
    assert {mark.kind for mark in older} == {EventKind.ACCIDENT}
    assert {mark.kind for mark in marks[ACCIDENT_MARKS_KEPT:]} == {EventKind.ERROR}
    # The clock is set back: all move.
    tape.add(snapshot(NOON + 5000))
    assert tape.events(-math.inf, math.inf)[0].time < marks[0].time


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(st.floats(0.1, 5), st.floats(-1, 0.1), st.floats(-1e6, 1e6)),
        min_size=1,
        max_size=30,
    )
)
def test_the_order_outlasts_a_clock_that_jumps(jumps: list[float]) -> None:
    time, given = NOON, []
    for number, jump in enumerate(jumps):
        time += jump
        card = gpu(sampled_at=time - 0.25)
        there = (process(number + 1),)
        given.append(snapshot(time, card, processes=there, processes_at=NOON + number))
    tape = recorded(given)

    kept = everything(tape)
    assert len(kept) == len(given)
    times = [one.time for one in kept]
    assert all(earlier < later for earlier, later in pairwise(times))
    assert every(tape) == times
    assert [one.processes[0].id for one in kept] == [one.processes[0].id for one in given]
    for one in kept:
        age = one.time - (one.gpus[0].sampled_at or 0)
        assert age == pytest.approx(0.25, abs=1.1)  # up to STEP behind
        assert tape.at(one.time) == one
    assert [mark.time for mark in tape.events(-math.inf, math.inf)] == [
        time for time in times[1:] for _ in range(2)
    ]


def test_what_was_before_is_there_as_soon_as_somebody_looks_back() -> None:
    tape = MemoryRecording(0.05)
    tape.begin_with(changing(number) for number in range(3))
    tape.add(changing(3))
    assert (tape.first, tape.last) == (NOON, NOON + 3)
    tape.add(changing(4))
    assert everything(tape) == [changing(number) for number in range(5)]


def test_a_step_back_is_what_the_history_takes_for_one() -> None:
    assert STEP == history.STEP


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "samples", "cards", "words"),
    [(300, 10, 64, 0), (3000, 2, 64, 0), (20, 30, 1, 32)],
)
def test_a_hostile_machine_stays_within_the_bound(
    count: int, samples: int, cards: int, words: int
) -> None:
    most = 2**20
    tape = MemoryRecording(SHARE, most)
    last = crowd(0, count, cards, words)
    tracemalloc.start()
    try:
        for number in range(1, samples + 1):
            last = crowd(number, count, cards, words)
            tape.add(last)
        everything_now = tracemalloc.get_traced_memory()[0]
        assert tape.bytes <= most
        del tape
        held = everything_now - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held <= 1.25 * most


def test_where_much_changes_older_times_are_given_up_first() -> None:
    tape = recorded((crowd(number, 250) for number in range(60)), 2**18)

    assert tape.last == NOON + 59
    assert tape.at(NOON + 59) == crowd(59, 250)
    times = [one.time for one in everything(tape)]
    assert times[0] > NOON
    assert NOON + 58 in times
