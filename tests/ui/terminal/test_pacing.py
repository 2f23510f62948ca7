"""A slow terminal gets little at a time, a fast one is hardly asked."""

from __future__ import annotations

import math

from gpumon.ui.terminal.renderer import LEAST, MOST, Pacing


def heard() -> Pacing:
    pacing = Pacing()
    pacing.answered(0.0)
    return pacing


def write(pacing: Pacing, now: float, rate: float, latency: float = 0.001) -> tuple[float, float]:
    """Fill the room; returns how much it was, and when the answer came."""
    room = pacing.room(now)
    if pacing.wrote(int(room), now):
        now += room / rate + latency
        pacing.answered(now)
    return room, now


def test_a_terminal_that_never_answered_gets_whole_frames_and_no_query() -> None:
    pacing = Pacing()
    assert pacing.room(1.0) == math.inf
    assert not pacing.wrote(20_000, 1.0)


def test_until_the_answer_only_effects_of_keys_are_written() -> None:
    pacing = heard()
    assert pacing.room(1.0) == LEAST
    assert pacing.wrote(LEAST, 1.0)
    assert pacing.room(1.1) == 0
    assert pacing.room(1.1, interactive=True) == LEAST
    pacing.answered(1.2)
    assert pacing.room(1.2) > 0


def test_keys_that_are_held_down_do_not_pile_up() -> None:
    pacing = heard()
    pieces = 0
    while pacing.room(1.0, interactive=True):
        pacing.wrote(LEAST, 1.0)
        pieces += 1
    assert pieces == 3


def test_an_answer_that_is_lost_is_waited_for_a_second() -> None:
    pacing = heard()
    pacing.wrote(LEAST, 1.0)
    assert pacing.room(1.9) == 0
    assert pacing.room(2.0) == LEAST


def test_a_fast_terminal_soon_gets_whole_frames_and_few_queries() -> None:
    pacing, now = heard(), 0.0
    for _ in range(12):
        _, now = write(pacing, now, rate=10_000_000)
    assert pacing.room(now) == MOST
    assert sum(pacing.wrote(800, now) for _ in range(10)) == 0


def test_a_distant_but_fast_terminal_gets_whole_frames_too() -> None:
    pacing, now = heard(), 0.0
    for _ in range(12):
        _, now = write(pacing, now, rate=1_000_000, latency=0.2)
    assert pacing.room(now) >= 4000


def test_a_slow_terminal_never_has_more_in_transit_than_it_shows_at_once() -> None:
    pacing, now = heard(), 0.0
    pacing.wrote(20, now)
    pacing.answered(now + 0.002)
    rooms = []
    for _ in range(200):
        room, now = write(pacing, now, rate=20_000)
        rooms.append(room)
    assert sum(room > 2 * LEAST for room in rooms) == 0
    assert sum(room > LEAST for room in rooms) < len(rooms) / 4


def test_an_amount_too_large_for_a_slow_terminal_is_tried_ever_more_rarely() -> None:
    pacing, now = heard(), 0.0
    tries: list[float] = []
    while now < 60.0:
        began = now
        room, now = write(pacing, now, rate=20_000)
        if room > 2 * LEAST:
            tries.append(began)
    assert sum(at < 10.0 for at in tries) > 2 * sum(at > 40.0 for at in tries) > 0


def test_a_terminal_that_stops_answering_counts_as_silent() -> None:
    pacing = heard()
    assert not pacing.silent(100.0)
    pacing.wrote(LEAST, 100.0)
    assert not pacing.silent(100.9)
    # One answer may be lost; that is no silence where the next one comes.
    pacing.room(101.0)
    pacing.wrote(LEAST, 101.0)
    assert pacing.silent(101.1)
    pacing.answered(101.2)
    assert not pacing.silent(200.0)
