"""What the history promises: honest gaps, steady charts, spells, and a bound on its memory."""

from __future__ import annotations

import gc
import math
import random
import sys
import threading
from types import FunctionType, ModuleType

import msgspec
import pytest

from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.serving import ServerLoad
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Unknown
from gpumon.recording.history import (
    CHARTED,
    GONE_KEPT,
    GONE_SECONDS,
    GPUS_KEPT,
    PATIENCE,
    PROCESS_CHARTED,
    PROCESSES_CHARTED,
    PROCESSES_KEPT,
    USERS_CHARTED,
    USERS_KEPT,
    XIDS_KEPT,
    Condition,
    History,
    Holding,
    Interval,
    ViewedSeries,
)
from tests.build import GIB, NOON, gpu, process, snapshot

BUSY = {"busy": Condition(lambda card, _: _busy(card.utilization_gpu))}


def _busy(utilization: int | None) -> bool | None:
    return None if utilization is None else utilization > 0


def feed(history: History, *values: int | None, start: float = NOON, step: float = 1.0) -> None:
    """One snapshot per utilisation, ``step`` seconds apart."""
    for number, value in enumerate(values):
        history.add(snapshot(start + number * step, gpu(utilization_gpu=value)))


def utilization(
    history: History, seconds: float, count: int, now: float | None = None
) -> list[float | None]:
    moment = history.now if now is None else now
    return history.gpu_series("GPU-0").buckets("utilization_gpu", seconds, count, moment)


def busy_interval(history: History) -> Interval | None:
    return history.interval("GPU-0", "busy")


def size(history: History) -> int:
    """Bytes of all that only the history holds."""
    seen: dict[int, object] = {}
    waiting: list[object] = [history]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, (type, ModuleType, FunctionType)):
            continue
        seen[id(found)] = found
        waiting.extend(gc.get_referents(found))
    return sum(sys.getsizeof(found) for found in seen.values())


# Charts


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        (60, 60),
        (60, 600),
        (60, 40),
        (600, 600),
        (3000, 6000),
        (7200, 720),
        (7200, 1440),
    ],
)
@pytest.mark.parametrize(("phase", "more"), [(0.05, 9), (0.75, 2)])
def test_of_a_second_whoever_asks_again_is_told_the_same_and_of_the_next_what_came(
    seconds: float, count: int, phase: float, more: int
) -> None:
    history = History({})
    feed(history, *[10] * 300, step=0.1)
    # Seconds and tens begin here.
    asked_at = NOON + 30 + phase
    feed(history, 10, start=asked_at)
    told = utilization(history, seconds, count)
    assert utilization(history, seconds / count * 2, 2) == [10, 10], "as wide, but fewer"
    feed(history, *[90] * more, start=asked_at + 0.1, step=0.1)
    assert utilization(history, seconds, count, asked_at) == told
    feed(history, 90, 90, start=asked_at + 1, step=0.1)
    assert utilization(history, seconds, count, asked_at + 1.1) != told[1:] + told[-1:]
    assert 10 < (utilization(history, seconds, count)[-1] or 0) <= 90


def test_a_bucket_is_the_mean_of_its_samples_and_the_last_one_is_live() -> None:
    history = History({})
    feed(history, 0, 10, 20, 30, 40, 50, 60)
    assert utilization(history, 9, 3) == [10, 40, 60]


def test_the_peak_of_a_bucket_is_its_highest_sample() -> None:
    history = History({})
    feed(history, *([0] * 9 + [100]), step=0.1)
    peaks = history.gpu_series("GPU-0").buckets("utilization_gpu", 2, 2, history.now, peak=True)
    assert peaks == [None, 100]
    assert utilization(history, 2, 2) == [None, 10]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "count", "step"),
    [
        (60, 20, 0.1),
        (60, 120, 0.1),
        (60, 120, 0.7),
        (60, 40, 0.1),
        (100, 7, 0.3),
        (600, 100, 1.0),
        (3600, 90, 2.0),
        (7200, 90, 5.0),
        (60, 60, 5.0),
    ],
)
def test_a_past_bucket_never_changes_while_it_scrolls(
    seconds: float, count: int, step: float
) -> None:
    # Seeded, so that a failure comes again.
    dice = random.Random(7)
    history = History({})
    width = seconds / count
    seen: dict[int, float | None] = {}
    time = NOON
    for _ in range(int(1.25 * seconds / step)):
        time += step * dice.uniform(0.8, 1.2)
        value = dice.choice([None, *range(100)])
        history.add(snapshot(time, gpu(utilization_gpu=value)))
        newest = int(time // width)
        for number, found in enumerate(utilization(history, seconds, count)[:-1]):
            bucket = newest - count + 1 + number
            assert seen.setdefault(bucket, found) == pytest.approx(found)
    assert any(value is not None for value in seen.values())


def test_the_live_bucket_is_never_empty_while_samples_come() -> None:
    history = History({})
    for number in range(600):
        time = NOON + number / 10
        history.add(snapshot(time, gpu(utilization_gpu=50)))
        for count in (20, 40, 120, 7):
            assert utilization(history, 60, count)[-1] == 50


def test_a_time_that_rounds_up_into_the_next_bucket_keeps_those_before_it() -> None:
    # The quotient of this time and the width of a bucket is rounded to a whole number.
    history, now = History({}), math.nextafter(1_764_000_000.0, 0)
    for second in range(320):
        history.add(snapshot(now - 319 + second, gpu(utilization_gpu=50)))
    for peak in (False, True):
        values = history.gpu_series("GPU-0").buckets("utilization_gpu", 300, 46, now, peak=peak)
        assert len(values) == 46
        assert set(values[-9:-1]) == {50}


@pytest.mark.parametrize("step", [1.0, 2.0, 5.0, 30.0])
def test_a_slow_pace_leaves_no_holes(step: float) -> None:
    history = History({})
    feed(history, *[50] * 80, step=step)
    now = history.now + step / 2
    assert utilization(history, 60, 120, now)[-60:] == [50] * 60
    assert utilization(history, 60, 20, now) == [50] * 20
    assert utilization(history, 10 * step, 5, now) == [50] * 5


def test_a_late_sample_and_the_early_one_after_it_leave_no_hole() -> None:
    history = History({})
    for second in (0, 5, 10, 15, 24.9, 25, 30, 35):
        history.add(snapshot(NOON + second, gpu(utilization_gpu=50)))
    assert utilization(history, 36, 36, NOON + 35.5) == [50] * 36


def test_an_unknown_value_is_a_gap_and_not_zero() -> None:
    history = History({})
    feed(history, 80, None, 80)
    assert utilization(history, 3, 3) == [80, None, 80]
    assert utilization(history, 3, 6, history.now + 0.5) == [80, 80, None, None, 80, 80]


def test_a_suspend_is_a_gap_and_is_not_bridged() -> None:
    history = History({})
    feed(history, *[40] * 20)
    feed(history, *[60] * 20, start=NOON + 60)
    # The sample of second 19 stands until the next is late, at 21.5.
    assert utilization(history, 80, 8) == [40, 40, 40, None, None, None, 60, 60]
    now = history.now + 0.5
    assert utilization(history, 80, 160, now) == [40] * 43 + [None] * 77 + [60] * 40
    assert [time for time, _ in history.gpu_series("GPU-0").window("utilization_gpu", 100)] == [
        *(NOON + n for n in range(20)),
        *(NOON + 60 + n for n in range(20)),
    ]


def test_a_night_of_suspend_does_not_look_like_a_slow_pace_afterwards() -> None:
    history = History({})
    feed(history, *[40] * 20)
    night = NOON + 8 * 3600
    feed(history, 60, start=night)
    history.add(snapshot(night + 1, gpu(utilization_gpu=None, status=GpuStatus.LOST)))
    assert utilization(history, 60, 6, night + 50) == [60, None, None, None, None, None]
    assert utilization(history, 8 * 3600, 8, night)[2:7] == [None] * 5


def test_a_lost_card_leaves_a_gap_and_the_others_run_on() -> None:
    history = History({})
    for second in range(30):
        lost = gpu(index=0, status=GpuStatus.LOST, utilization_gpu=None)
        first = gpu(index=0, utilization_gpu=90) if second < 10 else lost
        history.add(snapshot(NOON + second, first, gpu(index=1, utilization_gpu=70)))
    assert utilization(history, 30, 3) == [90, pytest.approx(90), None]
    assert history.gpu_series("GPU-1").buckets("utilization_gpu", 30, 3) == [70, 70, 70]


def test_old_values_shown_again_while_another_card_hangs_are_not_new_ones() -> None:
    history = History(BUSY)
    for second in range(40):
        read_at = NOON + min(second, 9)
        history.add(snapshot(NOON + second, gpu(utilization_gpu=90, sampled_at=read_at)))
    assert utilization(history, 40, 4)[2:] == [None, None]
    assert busy_interval(history) is None


def test_what_was_measured_of_the_machine_before_a_card_hung_is_not_drawn_on() -> None:
    history, host = History({}), Host("ada-07", cpu_percent=40.0)
    for second in range(30):
        history.add(msgspec.structs.replace(snapshot(NOON + second), host=host))
    drawn = history.host_series().buckets("cpu_percent", 30, 30, NOON + 29)
    assert drawn[:6] == [40.0] * 6
    assert set(drawn[10:]) == {None}
    measured = Host("ada-07", cpu_percent=90.0)
    history.add(msgspec.structs.replace(snapshot(NOON + 30), host=measured))
    assert history.host_series().buckets("cpu_percent", 30, 30, NOON + 30)[-1] == 90.0


def test_a_card_never_seen_and_a_time_before_the_first_look_are_unknown() -> None:
    history = History({})
    assert utilization(history, 60, 3, NOON) == [None] * 3
    feed(history, 10)
    assert utilization(history, 60, 3) == [None, None, 10]
    assert history.gpu_series("GPU-9").window("utilization_gpu", 60) == []
    assert history.gpu_series("GPU-9").peak("utilization_gpu", 60) is None


@pytest.mark.parametrize(("seconds", "count"), [(6, 60), (60, 60), (600, 3)])
def test_a_card_that_never_answered_is_unknown_just_before_it_was_seen_too(
    seconds: float, count: int
) -> None:
    history = History({})
    history.add(snapshot(NOON + 0.5, gpu(status=GpuStatus.LOST)))
    assert utilization(history, seconds, count, NOON) == [None] * count


def test_what_lies_before_a_day_is_unknown_and_not_something_newer() -> None:
    history = History({})
    feed(history, *[30] * 1500, step=120)
    # From 14:00 two days later back to midnight, in halves of days.
    assert utilization(history, 72 * 3600, 6) == [None, None, None, 30, 30, 30]


def test_when_no_news_comes_the_newest_value_does_not_stand_for_long() -> None:
    history = History({})
    feed(history, *[30] * 10)
    assert utilization(history, 20, 40, NOON + 19.5)[-20:] == [30] * 3 + [None] * 17
    assert utilization(history, 20, 20, NOON + 19.5)[-10:] == [30] * 2 + [None] * 8


def test_a_field_that_is_not_kept_is_an_error() -> None:
    with pytest.raises(KeyError):
        History({}).gpu_series("GPU-0").buckets("fan_speed", 60, 10, NOON)


@pytest.mark.slow
def test_values_are_kept_for_two_minutes_an_hour_and_a_day() -> None:
    history = History({})
    # Where every second is not looked at, samples are rarer.
    for second in (*range(0, 23 * 3600, 5), *range(23 * 3600, 25 * 3600)):
        history.add(snapshot(NOON + second, gpu(utilization_gpu=second // 3600)))
    for seconds, points in ((120, 121), (3600, 3600), (86400, 8640)):
        window = history.gpu_series("GPU-0").window("utilization_gpu", seconds)
        assert len(window) == pytest.approx(points, abs=1)
        assert window[0][0] == pytest.approx(history.now - seconds, abs=10)
    assert utilization(history, 86400, 24) == list(range(1, 25))


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 60, 2 * 3600])
def test_a_value_stands_until_the_next_one_at_any_pace(step: int) -> None:
    history = History({})
    feed(history, *range(32 * 3600 // step), step=step)
    for seconds, slot, kept in ((3600, 1, 3600), (86400, 10, 8640)):
        window = history.gpu_series("GPU-0").window("utilization_gpu", seconds)
        # Of the newest value only the beginning has passed.
        assert len(window) >= kept - 1
        wrong = [
            (time, value)
            for time, value in window
            if not (time - NOON) // step <= value <= (time - NOON + slot - 1) // step
        ]
        assert wrong == []


def test_two_minutes_at_ten_a_second_keep_every_sample() -> None:
    history = History({})
    for number in range(3000):
        history.add(snapshot(NOON + number / 10, gpu(utilization_gpu=number % 100)))
    window = history.gpu_series("GPU-0").window("utilization_gpu", 120)
    assert [value for _, value in window] == [number % 100 for number in range(1799, 3000)]


def serving(tokens: float | None, waiting: int | None = 0) -> GpuProcess:
    load = ServerLoad(running=1, waiting=waiting, tokens=tokens)
    return msgspec.structs.replace(process(), load=load)


def test_what_a_server_reported_has_a_past_and_silence_is_a_gap() -> None:
    history = History({})
    silent = msgspec.structs.replace(serving(None), load=None)
    answers = (silent, serving(400.0), silent, serving(None, 3))
    for second, answer in enumerate(answers):
        history.add(snapshot(NOON + second, gpu(), processes=(answer,)))
    series = history.server_series(silent.id)
    assert series.buckets("tokens", 4, 4, NOON + 3) == [None, 400.0, None, None]
    assert series.buckets("waiting", 4, 4, NOON + 3) == [None, 0, None, 3]
    # The clock is set back by a minute.
    history.add(snapshot(NOON - 57, gpu(), processes=(serving(100.0),)))
    tokens = [value for _, value in history.server_series(silent.id).window("tokens", 300)]
    assert tokens == [400.0, 100.0]


@pytest.mark.slow
def test_what_servers_reported_takes_no_memory_where_there_is_none() -> None:
    sizes = []
    for one in (process(), serving(400.0)):
        history = History({})
        for second in range(0, 13 * 3600, 10):
            history.add(snapshot(NOON + second, gpu(), processes=(one,)))
        sizes.append(size(history))
    assert 20_000 < sizes[1] - sizes[0] < 66_000


def test_the_machine_has_a_past_too_and_what_is_unknown_of_it_is_a_gap() -> None:
    history = History({})
    for second in range(60):
        known = second >= 30
        host = Host("ada-07", cpu_percent=40.0 if known else None, load=(8.0, 4.0, 2.0))
        history.add(msgspec.structs.replace(snapshot(NOON + second), host=host))
    cpu = history.host_series().buckets("cpu_percent", 60, 60, NOON + 59)
    assert cpu == [None] * 30 + [40.0] * 30
    assert history.host_series().buckets("load", 60, 60, NOON + 59) == [8.0] * 60
    assert set(history.host_series().buckets("memory_used", 60, 60, NOON + 59)) == {None}


@pytest.mark.slow
def test_memory_stays_within_what_the_module_says() -> None:
    history = History({})
    one = (process(started_at=None),)

    def run(start: int, end: int) -> None:
        for second in range(start, end, 10):
            history.add(snapshot(NOON + second, gpu(), processes=one))

    run(0, 25 * 3600)
    day = size(history)
    run(25 * 3600, 32 * 3600)
    assert len(history.process_series(one[0].id).window("sm", 900)) == pytest.approx(900, abs=10)
    assert 500_000 < day < (980 + 155 + 132 + 81) * 1000 + 10_000
    assert size(history) - day < 20_000


def test_a_process_is_kept_for_a_quarter_of_an_hour_in_seconds_and_half_a_day_in_tens() -> None:
    history = History({})
    one = process()
    for second in (*range(0, 12 * 3600, 10), *range(12 * 3600, 13 * 3600, 2)):
        grown = msgspec.structs.replace(one, cpu_percent=second / 3600, rss=second)
        history.add(snapshot(NOON + second, gpu(), processes=(grown,)))
    for seconds, points in ((120, 120), (900, 900), (1800, 180), (43200, 4320)):
        for field in PROCESS_CHARTED:
            window = history.process_series(one.id).window(field, seconds)
            assert len(window) == pytest.approx(points, abs=2)
            assert window[0][0] == pytest.approx(history.now - seconds, abs=10)
    rises = [value for _, value in history.process_series(one.id).window("rss", 43200)]
    assert rises == sorted(rises)
    assert len(history.process_series(one.id).window("sm", 86400)) == pytest.approx(4320, abs=2)


def test_the_four_values_of_a_process_are_charted_and_an_unknown_one_is_a_gap() -> None:
    history = History({})
    one = process(memory_used=GIB, sm=7)
    for cpu in (None, 250.0):
        seen = msgspec.structs.replace(one, cpu_percent=cpu, rss=3 * GIB)
        at = NOON if cpu is None else NOON + 1
        history.add(snapshot(at, gpu(), processes=(seen,)))
    newest = {
        field: history.process_series(one.id).buckets(field, 2, 2) for field in PROCESS_CHARTED
    }
    assert newest == {
        "memory_used": [GIB, GIB],
        "sm": [7, 7],
        "cpu_percent": [None, 250],
        "rss": [3 * GIB, 3 * GIB],
    }


def test_a_peak_of_gpu_memory_outlives_the_seconds() -> None:
    history = History({})
    for second in range(3600):
        used = 9 * GIB if second == 300 else GIB
        history.add(snapshot(NOON + second, gpu(), processes=(process(memory_used=used),)))
    assert history.process_series(process().id).peak("memory_used", 900) == GIB
    assert history.process_series(process().id).peak("memory_used", 3600) == 9 * GIB


# Peak and slope


def test_the_peak_is_found_though_it_lasted_for_one_sample_an_hour_ago() -> None:
    history = History({})
    feed(history, 3, 97, 3, step=0.1)
    feed(history, *[3] * 2400, start=NOON + 1, step=1.0)
    assert history.gpu_series("GPU-0").peak("utilization_gpu", 60) == 3
    assert history.gpu_series("GPU-0").peak("utilization_gpu", 3600) == 97
    assert history.gpu_series("GPU-0").peak("utilization_gpu", 24 * 3600) == 97


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [60, 900, 7200])
def test_the_slope_of_a_leak_is_what_leaks_in_a_second(seconds: float) -> None:
    history = History({})
    for second in range(7200):
        leaking = process(memory_used=GIB + second * 2**20)
        history.add(snapshot(NOON + second, gpu(), processes=(leaking,)))
    slope = history.process_series(leaking.id).slope("memory_used", seconds)
    assert slope == pytest.approx(2**20, rel=0.01)


def test_one_point_has_no_slope() -> None:
    history = History({})
    new = process()
    history.add(snapshot(NOON, gpu(), processes=(new,)))
    assert history.process_series(new.id).slope("memory_used", 60) is None


# Clocks that jump


def test_a_clock_set_back_keeps_the_order_and_the_ages() -> None:
    history = History(BUSY)
    feed(history, *[0, *[50] * 60])
    before = busy_interval(history)
    feed(history, *[50] * 60, start=NOON - 3600)
    after = busy_interval(history)
    assert before is not None
    assert after is not None
    assert after.seconds == pytest.approx(before.seconds + 60, abs=2)
    assert history.now == NOON - 3600 + 59
    window = history.gpu_series("GPU-0").window("utilization_gpu", 120)
    assert [time for time, _ in window] == sorted(time for time, _ in window)
    assert len(window) > 110
    # Ten seconds may be missing where slots of that length were moved.
    assert utilization(history, 100, 10).count(50) >= 9
    assert utilization(history, 100, 50).count(50) >= 44
    assert history.started is not None
    assert history.started < NOON - 3600


def test_a_gap_after_a_clock_set_back_is_one_still() -> None:
    history = History(BUSY)
    feed(history, 0, *[50] * 60)
    feed(history, *[None] * 12, 50, start=NOON - 3600)
    later = NOON - 3600 + 12
    assert busy_interval(history) == Interval(later, later, start_observed=False, samples=1)


def test_users_have_their_memory_and_gpus_over_time() -> None:
    history = History({})
    ann = [process(1, user="ann", gpus=(0, 1), memory_used=GIB)]
    more = [*ann, process(2, user="ann", gpus=(1,), memory_used=GIB)]
    unknown = [process(3, user="ann", memory_used=None)]
    for second, here in enumerate([ann, ann, more, [], unknown]):
        history.add(snapshot(NOON + second, processes=tuple(here), processes_at=NOON + second))

    def values(field: str) -> list[float | None]:
        return history.user_series("ann").buckets(field, 5.0, 5)

    assert values("memory_used") == [2 * GIB, 2 * GIB, 3 * GIB, 0, None]
    assert values("gpus") == [2, 2, 2, 0, 1]
    assert history.user_series("bo").buckets("gpus", 2.0, 2) == [None, None]
    history.add(snapshot(NOON - 100, processes=tuple(ann), processes_at=NOON - 100))
    assert values("gpus")[-1] == 2, "the clock was set back"


def test_values_of_a_bounded_number_of_users_are_kept() -> None:
    history = History({})

    def kept() -> list[int]:
        """The users whose number of GPUs is known at the newest moment."""
        asked = (history.user_series(f"u{n}").buckets("gpus", 1.0, 1) for n in range(200))
        return [number for number, (value,) in enumerate(asked) if value is not None]

    def add(second: int, users: range) -> None:
        crowd = tuple(process(n + 1, user=f"u{n}", memory_used=(n + 1) * GIB) for n in users)
        history.add(snapshot(NOON + second, processes=crowd, processes_at=NOON + second))

    add(0, range(150))
    assert kept() == list(range(150 - USERS_CHARTED, 150)), "those with the most memory"
    add(1, range(40))
    assert kept() == [*range(40), *range(150 - USERS_CHARTED + 40, 150)], "those seen last"


def test_a_clock_set_back_keeps_the_past_of_processes() -> None:
    history = History({})
    one = process(memory_used=GIB)
    for second in [*range(60), *range(-3600, -3540)]:
        history.add(snapshot(NOON + second, gpu(), processes=(one,)))
    window = history.process_series(one.id).window("memory_used", 120)
    assert len(window) > 110
    assert [time for time, _ in window] == sorted(time for time, _ in window)


def test_a_small_step_back_is_the_same_moment() -> None:
    history = History({})
    feed(history, 10, 20)
    history.add(snapshot(NOON + 0.5, gpu(utilization_gpu=30)))
    assert history.now == NOON + 1
    assert utilization(history, 2, 2) == [10, 25]


def test_a_clock_set_forward_is_a_gap() -> None:
    history = History(BUSY)
    feed(history, *[0, *[50] * 60])
    feed(history, *[50] * 5, start=NOON + 7200)
    assert busy_interval(history) == Interval(
        NOON + 7200, NOON + 7204, start_observed=False, samples=5
    )
    assert utilization(history, 7200, 4)[1:3] == [None, None]


# Spells


def test_a_spell_begins_where_it_was_seen_to_begin() -> None:
    history = History(BUSY)
    feed(history, 0, 0, 50, 60, 70)
    assert busy_interval(history) == Interval(NOON + 2, NOON + 4, start_observed=True, samples=3)


def test_a_spell_that_held_at_the_first_look_may_be_older() -> None:
    history = History(BUSY)
    feed(history, 50, 60)
    assert busy_interval(history) == Interval(NOON, NOON + 1, start_observed=False, samples=2)


def test_a_spell_ends_with_the_first_sample_that_denies_it() -> None:
    history = History(BUSY)
    feed(history, 50, 60, 0)
    assert busy_interval(history) is None
    feed(history, 50, start=NOON + 3)
    assert busy_interval(history) == Interval(NOON + 3, NOON + 3, start_observed=True, samples=1)


def test_unknown_claims_nothing_and_does_not_end_a_spell_within_patience() -> None:
    history = History(BUSY)
    feed(history, 0, 50, *[None] * 8)
    assert busy_interval(history) is None
    feed(history, 50, start=NOON + 10)
    assert busy_interval(history) == Interval(NOON + 1, NOON + 10, start_observed=True, samples=2)


def test_a_spell_does_not_reach_across_a_longer_gap() -> None:
    history = History(BUSY)
    feed(history, 0, 50)
    later = NOON + 1 + PATIENCE + 1
    feed(history, None, 50, start=later - 1)
    assert busy_interval(history) == Interval(later, later, start_observed=False, samples=1)


def test_a_spell_without_news_is_not_claimed_for_longer_than_patience() -> None:
    history = History(BUSY)
    feed(history, 0, 50)
    history.add(snapshot(NOON + 9, gpu(status=GpuStatus.NO_ANSWER)))
    assert busy_interval(history) is not None
    history.add(snapshot(NOON + 12, gpu(status=GpuStatus.NO_ANSWER)))
    assert busy_interval(history) is None


def test_a_slow_pace_does_not_break_spells() -> None:
    history = History(BUSY)
    feed(history, *[0, 0, *[50] * 10], step=60)
    assert busy_interval(history) == Interval(
        NOON + 120, NOON + 660, start_observed=True, samples=10
    )


def test_what_lingers_survives_a_short_denial() -> None:
    history = History({"busy": Condition(BUSY["busy"].holds, hysteresis=5)})
    feed(history, 0, 50, 0, 0, 50, 0)
    assert busy_interval(history) == Interval(NOON + 1, NOON + 4, start_observed=True, samples=2)
    feed(history, *[0] * 5, start=NOON + 6)
    assert busy_interval(history) is None


def test_a_spell_does_not_depend_on_how_often_it_is_asked_for() -> None:
    # Seeded, so that a failure comes again.
    dice = random.Random(7)
    watched = {
        "busy": BUSY["busy"],
        "lingering": Condition(BUSY["busy"].holds, hysteresis=5),
        "idle": Condition(lambda card, _: card.utilization_gpu == 0),
    }
    asked, left_alone = History(watched), History(watched)
    time = NOON
    for _ in range(3000):
        time += dice.choice([0.1] * 20 + [3.0, 9.0, 11.0, 40.0])
        changed = dice.random() < 0.2
        value = dice.choice([0, 0, 50, 50, None]) if changed else value_before(asked)
        for history in (asked, left_alone):
            history.add(snapshot(time, gpu(utilization_gpu=value)))
        found = {name: asked.interval("GPU-0", name) for name in watched}
        if dice.random() < 0.05:
            assert {name: left_alone.interval("GPU-0", name) for name in watched} == found


def value_before(history: History) -> int | None:
    return None if history.latest is None else history.latest.gpus[0].utilization_gpu


def test_each_card_has_its_own_spells() -> None:
    history = History(BUSY)
    for second in range(3):
        history.add(
            snapshot(
                NOON + second,
                gpu(index=0, utilization_gpu=0),
                gpu(index=1, utilization_gpu=9),
            )
        )
    assert history.interval("GPU-0", "busy") is None
    assert history.interval("GPU-1", "busy") is not None
    assert history.interval("GPU-7", "busy") is None


# Processes


def test_a_process_advances_only_when_the_lists_were_read() -> None:
    history = History({})
    one = process(memory_used=GIB)
    for number in range(50):
        now = NOON + number / 10
        listed_at = NOON + number // 10
        history.add(snapshot(now, gpu(), processes=(one,), processes_at=listed_at))
    window = history.process_series(one.id).window("memory_used", 60)
    assert window == [(NOON + n, GIB) for n in range(5)]


def test_a_process_over_several_cards_is_one_series() -> None:
    history = History({})
    one = process(memory_used=GIB, sm=40, gpus=(0, 1))
    history.add(snapshot(NOON, gpu(index=0), gpu(index=1), processes=(one,)))
    assert history.process_series(one.id).peak("memory_used", 60) == 2 * GIB
    assert history.process_series(one.id).buckets("sm", 60, 2, NOON) == [None, 40]


def test_a_reused_pid_is_another_process() -> None:
    history = History({})
    history.add(snapshot(NOON, gpu(), processes=(process(7, start_time=1, memory_used=GIB),)))
    later = process(7, start_time=2, memory_used=3 * GIB)
    history.add(snapshot(NOON + 1, gpu(), processes=(later,)))
    assert history.process_series(ProcessId(7, 1)).peak("memory_used", 60) == GIB
    assert history.process_series(ProcessId(7, 2)).peak("memory_used", 60) == 3 * GIB


def test_a_process_that_ended_is_forgotten_after_a_while() -> None:
    history = History({})
    gone = process(7)
    history.add(snapshot(NOON, gpu(), processes=(gone, process(8))))
    history.add(snapshot(NOON + GONE_SECONDS, gpu(), processes=(process(8),)))
    assert history.process_series(gone.id).peak("memory_used", 3600) == GIB
    history.add(snapshot(NOON + GONE_SECONDS + 1, gpu(), processes=(process(8),)))
    assert history.process_series(gone.id).peak("memory_used", 3600) is None
    assert history.process_series(ProcessId(8, 1)).peak("memory_used", 3600) == GIB


def test_of_thousands_of_short_processes_only_the_newest_are_remembered() -> None:
    history = History({})
    for number in range(1000):
        history.add(snapshot(NOON + number / 10, gpu(), processes=(process(number + 1),)))
    known = [
        number
        for number in range(1000)
        if history.process_series(ProcessId(number + 1, 1)).peak("memory_used", 3600) is not None
    ]
    assert known == list(range(1000 - GONE_KEPT - 1, 1000))


def test_of_cards_that_come_and_go_only_the_newest_are_remembered() -> None:
    history = History({})
    for number in range(100):
        history.add(snapshot(NOON + number, gpu(uuid="GPU-here"), gpu(uuid=f"GPU-{number}")))

    def remembered(uuid: str) -> bool:
        return bool(history.gpu_series(uuid).window("memory_used", 3600))

    known = [number for number in range(100) if remembered(f"GPU-{number}")]
    assert known == list(range(100 - GPUS_KEPT + 1, 100))
    assert remembered("GPU-here")


def test_of_errors_that_are_all_different_only_the_newest_are_remembered() -> None:
    history = History({})
    for number in range(100):
        history.add(snapshot(NOON + number, gpu(xid=number, xid_at=NOON + number)))
    assert sorted(history.xids("GPU-0")) == list(range(100 - XIDS_KEPT, 100))


def charted(history: History, crowd: tuple[GpuProcess, ...]) -> set[int]:
    """Which of them have values over time, by PID."""
    return {
        one.id.pid
        for one in crowd
        if history.process_series(one.id).peak("memory_used", 3600) is not None
    }


def test_of_a_crowd_those_with_most_memory_have_charts_and_all_are_counted() -> None:
    history = History({})
    crowd = tuple(process(pid, memory_used=pid * 2**20) for pid in range(1, 1001))
    for second in range(3):
        history.add(snapshot(NOON + second, gpu(), processes=crowd))
    assert charted(history, crowd) == set(range(1001 - PROCESSES_CHARTED, 1001))
    holding = history.holding(gpu())
    assert holding is not None
    assert (holding.processes, holding.memory) == (1000, sum(range(1, 1001)) * 2**20)
    assert holding.owner_since == NOON


def test_who_has_a_chart_keeps_it_while_others_overtake_it_a_little() -> None:
    history = History({})
    crowd = tuple(process(pid, memory_used=pid * 2**20) for pid in range(1, 1001))
    history.add(snapshot(NOON, gpu(), processes=crowd))
    kept, left = 1001 - PROCESSES_CHARTED, 1002 - PROCESSES_CHARTED
    sizes = {kept: 450, left: 300}
    slid = tuple(process(pid, memory_used=sizes.get(pid, pid) * 2**20) for pid in range(1, 1001))
    history.add(snapshot(NOON + 1, gpu(), processes=slid))
    assert kept in charted(history, crowd)
    assert left not in charted(history, crowd)
    assert len(charted(history, crowd)) <= PROCESSES_KEPT


@pytest.mark.slow
def test_the_charts_of_a_crowd_that_keeps_changing_places_are_bounded() -> None:
    history = History({})
    dice = random.Random(7)
    for second in range(20):
        sizes = dice.sample(range(1, 1001), 1000)
        crowd = tuple(process(n + 1, memory_used=size * 2**20) for n, size in enumerate(sizes))
        history.add(snapshot(NOON + second, gpu(), processes=crowd))
        assert PROCESSES_CHARTED <= len(charted(history, crowd)) <= PROCESSES_KEPT
    holding = history.holding(gpu())
    assert holding is not None
    assert holding.owner_since == NOON, "who has no chart was seen all the same"


# Processes that rest


def list_processes(
    history: History,
    *sms: int | None,
    start: float = NOON,
    step: float = 1.0,
    **changes: object,
) -> ProcessId:
    """One list per SM use of the process 100, ``step`` seconds apart. Returns its identity."""
    for number, sm in enumerate(sms):
        one = process(sm=sm, **changes)  # type: ignore[arg-type]  # keywords pass through
        history.add(snapshot(start + number * step, gpu(), processes=(one,)))
    return process().id


def test_a_process_rests_since_its_last_work() -> None:
    history = History({})
    one = list_processes(history, 40, 0, 0, 0)
    assert history.process_idle(one) == Interval(NOON + 1, NOON + 3, start_observed=True, samples=3)


def test_a_process_that_rested_at_the_first_look_may_have_rested_longer() -> None:
    history = History({})
    one = list_processes(history, 0, 0)
    assert history.process_idle(one) == Interval(NOON, NOON + 1, start_observed=False, samples=2)


def test_work_ends_a_rest() -> None:
    history = History({})
    one = list_processes(history, 40, 0, 0, 1)
    assert history.process_idle(one) is None
    list_processes(history, 0, start=NOON + 4)
    assert history.process_idle(one) == Interval(NOON + 4, NOON + 4, start_observed=True, samples=1)


def test_a_process_that_came_while_gpumon_looked_has_rested_since_then() -> None:
    history = History({})
    history.add(snapshot(NOON, gpu()))
    one = list_processes(history, 0, 0, start=NOON + 1)
    assert history.process_idle(one) == Interval(NOON + 1, NOON + 2, start_observed=True, samples=2)


@pytest.mark.parametrize(
    ("before", "came"),
    [
        (gpu(unknown={"processes": Unknown.NOT_SUPPORTED}), NOON + 1),
        (gpu(status=GpuStatus.NO_ANSWER), NOON + 1),
        (gpu(), NOON + PATIENCE + 1),
    ],
    ids=["its GPU was not listed", "its GPU did not answer", "nobody looked for a while"],
)
def test_nor_is_the_beginning_claimed_when_it_could_have_come_unseen(
    before: Gpu, came: float
) -> None:
    history = History({})
    history.add(snapshot(NOON, before))
    interval = history.process_idle(list_processes(history, 0, start=came))
    assert interval is not None
    assert not interval.start_observed


@pytest.mark.parametrize(
    "one",
    [
        process(sm=None),
        process(memory_used=None),
        process(memory_used=0),
        process(type_="G"),
        msgspec.structs.replace(
            process(),
            uses=(*process(sm=0).uses, *process(sm=None, gpus=(1,)).uses),
        ),
        msgspec.structs.replace(
            process(),
            uses=(*process(sm=None).uses, *process(sm=3, gpus=(1,)).uses),
        ),
    ],
    ids=["SM unknown", "memory unknown", "no memory", "draws", "one unknown", "one at work"],
)
def test_no_process_is_called_idle_without_all_the_facts(one: GpuProcess) -> None:
    history = History({})
    for second in range(5):
        history.add(snapshot(NOON + second, gpu(), processes=(one,)))
    assert history.process_idle(one.id) is None


def test_a_process_over_several_cards_rests_when_all_its_parts_do() -> None:
    history = History({})
    one = list_processes(history, 0, 0, gpus=(0, 1))
    assert history.process_idle(one) is not None


def test_what_is_unknown_for_a_moment_ends_no_rest_and_claims_none() -> None:
    history = History({})
    one = list_processes(history, 40, 0, *[None] * 8)
    assert history.process_idle(one) is None
    list_processes(history, 0, start=NOON + 10)
    assert history.process_idle(one) == Interval(
        NOON + 1, NOON + 10, start_observed=True, samples=2
    )


def test_what_was_unknown_for_longer_does() -> None:
    history = History({})
    one = list_processes(history, 40, 0, *[None] * 11, 0)
    assert history.process_idle(one) == Interval(
        NOON + 13, NOON + 13, start_observed=False, samples=1
    )


def test_a_process_left_out_of_one_list_goes_on_resting() -> None:
    history = History({})
    one = list_processes(history, 40, 0)
    history.add(snapshot(NOON + 2, gpu()))
    assert history.process_idle(one) is None
    list_processes(history, 0, start=NOON + 3)
    assert history.process_idle(one) == Interval(NOON + 1, NOON + 3, start_observed=True, samples=2)


def test_a_rest_is_not_claimed_when_no_list_has_come_for_long() -> None:
    history = History({})
    one = list_processes(history, 40, 0)
    history.add(snapshot(NOON + 9, gpu(), processes=(process(),), processes_at=NOON + 1))
    assert history.process_idle(one) is not None
    history.add(snapshot(NOON + 12, gpu(), processes=(process(),), processes_at=NOON + 1))
    assert history.process_idle(one) is None


def test_a_slow_pace_breaks_no_rest_and_a_clock_set_back_keeps_it() -> None:
    history = History({})
    one = list_processes(history, 40, 40, *[0] * 10, step=60)
    assert history.process_idle(one) == Interval(
        NOON + 120, NOON + 660, start_observed=True, samples=10
    )
    list_processes(history, 0, start=NOON - 3600)
    found = history.process_idle(one)
    assert found is not None
    assert (found.seconds, found.samples) == (540, 11)


def test_a_reused_pid_and_a_stranger_do_not_rest() -> None:
    history = History({})
    one = list_processes(history, *[0] * 60)
    history.add(snapshot(NOON + 60, gpu(), processes=(process(start_time=2),)))
    assert history.process_idle(one) is None
    again = history.process_idle(ProcessId(100, 2))
    assert again is not None
    assert again.seconds == 0
    assert history.process_idle(ProcessId(7, 1)) is None


def test_a_process_too_small_for_a_chart_is_seen_to_rest_all_the_same() -> None:
    history = History({})
    crowd = tuple(process(pid, memory_used=pid * 2**20) for pid in range(1, 500))
    for second in range(3):
        history.add(snapshot(NOON + second, gpu(), processes=crowd))
    assert 1 not in charted(history, crowd)
    assert history.process_idle(ProcessId(1, 1)) is not None


# Time on cards


def look(history: History, seconds: float, *processes: GpuProcess, step: float = 1.0) -> None:
    """Lists with these processes for so long, from ``step`` after the last on."""
    start = NOON if history.latest is None else history.now + step
    for number in range(int(seconds / step) + 1):
        history.add(snapshot(start + number * step, gpu(), gpu(index=1), processes=processes))


def test_time_on_cards_is_seconds_times_cards_for_each_user() -> None:
    history = History({})
    both = process(1, user="ann", gpus=(0, 1))
    one = process(2, user="bo", gpus=(1,))
    look(history, 60, both, one)
    assert history.gpu_seconds("ann") == 120
    assert history.gpu_seconds("bo") == 60
    assert history.gpu_seconds("chen") == 0


def test_two_processes_on_a_card_count_it_once_and_drawing_does_not_count() -> None:
    history = History({})
    look(history, 60, process(1), process(2), process(3, type_="G", user="root"))
    assert history.gpu_seconds("ann") == 60
    assert history.gpu_seconds("root") == 0


def test_who_has_left_keeps_the_time_and_the_processes_nobody_sees_have_theirs() -> None:
    history = History({})
    look(history, 10, process(1), process(2, user=None, visible=False))
    look(history, 10)
    assert history.gpu_seconds("ann") == 11
    assert history.gpu_seconds(None) == 11


def test_a_suspend_or_a_hung_driver_is_no_time_on_cards() -> None:
    history = History({})
    look(history, 10, process())
    look(history, 10, process(), step=1.0)
    assert history.gpu_seconds("ann") == 21
    history.add(snapshot(NOON + 8 * 3600, gpu(), processes=(process(),)))
    assert history.gpu_seconds("ann") == 21
    for second in range(1, 30):
        at = NOON + 8 * 3600 + second
        one = (process(),)
        history.add(snapshot(at, gpu(), processes=one, processes_at=NOON + 8 * 3600))
    history.add(snapshot(NOON + 8 * 3600 + 30, gpu(), processes=(process(),)))
    assert history.gpu_seconds("ann") == 21


def test_a_slow_pace_is_no_gap_and_a_clock_set_back_takes_nothing_away() -> None:
    history = History({})
    look(history, 1200, process(), step=60)
    # No pace is known before the second list, so what lies between them may be a gap.
    assert history.gpu_seconds("ann") == 1140
    history.add(snapshot(NOON - 3600, gpu(), processes=(process(),)))
    history.add(snapshot(NOON - 3540, gpu(), processes=(process(),)))
    assert history.gpu_seconds("ann") == 1200


@pytest.mark.slow
def test_of_thousands_of_users_those_with_the_most_time_are_remembered() -> None:
    history = History({})
    look(history, 100, process(user="ann"))
    for number in range(1000):
        look(history, 1, process(number + 1, user=f"user{number}"))
    assert history.gpu_seconds("ann") == 101
    known = sum(bool(history.gpu_seconds(f"user{number}")) for number in range(1000))
    assert USERS_KEPT - 2 <= known <= USERS_KEPT


# Holdings


def test_a_holding_is_what_the_processes_have_on_that_card_alone() -> None:
    history = History({})
    both = process(1, memory_used=2 * GIB, gpus=(0, 1), user="ann")
    less = process(2, memory_used=GIB, gpus=(1,), user="bo")
    more = process(3, memory_used=5 * GIB, gpus=(1,), user="bo")
    display = process(4, memory_used=GIB, gpus=(1,), user="root", type_="G")
    cards = gpu(index=0), gpu(index=1), gpu(index=2)
    history.add(snapshot(NOON - 9, *cards, processes=(less,)))
    history.add(snapshot(NOON, *cards, processes=(both, less, more, display)))
    assert history.holding(cards[1]) == Holding(
        processes=4,
        computing=3,
        memory=9 * GIB,
        owners=("bo", "ann"),
        owner_since=NOON - 9,
        unseen=3,
    )
    assert history.holding(cards[2]) == Holding()


def test_parts_of_one_card_are_added_up() -> None:
    history = History({})
    uses = tuple(
        GpuUse(gpu_uuid="GPU-0", gpu_index=0, instance=(part, 0), memory_used=GIB)
        for part in (1, 2)
    )
    sliced = GpuProcess(id=ProcessId(1, 1), type="C", uses=uses, user="ann", started_at=NOON)
    history.add(snapshot(NOON, gpu(), processes=(sliced,)))
    holding = history.holding(gpu())
    assert holding is not None
    assert (holding.processes, holding.memory) == (1, 2 * GIB)


def test_memory_of_a_holding_is_unknown_when_any_part_is() -> None:
    history = History({})
    history.add(snapshot(NOON, gpu(), processes=(process(1, memory_used=None), process(2))))
    holding = history.holding(gpu())
    assert holding is not None
    assert (holding.processes, holding.memory) == (2, None)


def test_a_hidden_owner_counts_from_when_it_was_first_seen() -> None:
    history = History({})
    hidden = process(1, start_time=None, user=None, visible=False, started_at=None)
    for second in range(3):
        history.add(snapshot(NOON + second, gpu(), processes=(hidden,)))
    assert history.holding(gpu()) == Holding(
        processes=1,
        computing=1,
        memory=GIB,
        hidden=1,
        owners=(None,),
        owner_since=NOON,
        unseen=1,
    )


def test_without_a_present_list_nothing_is_known_of_a_holding() -> None:
    history = History({})
    assert history.holding(gpu()) is None
    history.add(snapshot(NOON, gpu(), processes_at=None))
    assert history.holding(gpu()) is None
    history.add(snapshot(NOON + 1, gpu()))
    assert history.holding(gpu()) == Holding()
    assert history.holding(gpu(unknown={"processes": Unknown.NOT_SUPPORTED})) is None
    history.add(snapshot(NOON + 60, gpu(), processes_at=NOON + 1))
    assert history.holding(gpu()) is None


# Threads


def test_it_can_be_asked_while_it_is_told() -> None:
    history = History(BUSY)
    told = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not told.is_set():
                for count in (20, 120, 600):
                    assert len(utilization(history, 60, count, NOON + 60)) == count
                for field in CHARTED:
                    history.gpu_series("GPU-0").window(field, 3600)
                busy_interval(history)
                history.process_series(ProcessId(100, 1)).slope("memory_used", 60)
        except BaseException as failure:
            failures.append(failure)
            raise

    asker = threading.Thread(target=ask)
    asker.start()
    for number in range(2000):
        card = gpu(utilization_gpu=number % 100)
        history.add(snapshot(NOON + number / 10, card, processes=(process(number % 50 + 1),)))
    told.set()
    asker.join()
    assert failures == []


def test_a_history_of_values_alone_has_the_same_values() -> None:
    known, values = History(BUSY), History({}, judged=False)
    for at in range(0, 1200, 7):
        there = (process(7, sm=at % 90), process(8, user="bo", sm=at % 40))
        sample = snapshot(NOON + at, gpu(utilization_gpu=at % 100), processes=there[: 1 + at % 2])
        for history in (known, values):
            history.add(sample)
    ann = process(7).id
    for seconds in (60, 600, 1200):
        for field in ("utilization_gpu", "power_draw"):
            assert _drawn(values.gpu_series("GPU-0"), field, seconds) == _drawn(
                known.gpu_series("GPU-0"), field, seconds
            )
        assert _drawn(values.process_series(ann), "sm", seconds) == _drawn(
            known.process_series(ann), "sm", seconds
        )
        assert _drawn(values.user_series("bo"), "gpus", seconds) == _drawn(
            known.user_series("bo"), "gpus", seconds
        )


def _drawn(series: ViewedSeries, field: str, seconds: int) -> list[float | None]:
    return series.buckets(field, seconds, 60)
